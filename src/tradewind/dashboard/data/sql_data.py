"""SQL queries of a login over its streams and buckets, run by DuckDB or by the SQL service.

Owns the queries from start to result, and their limits: the number of running queries, and the
number and size of kept results. Each query waits in its own thread, because the socket of its
process blocks. Streams are read with the NATS login of the visitor. DuckDB has a process for each
query; where it is not installed, or cannot answer, the service does, and is started if there is
none.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tradewind.errors import TradewindError
from tradewind.extra_packages import install_command
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.sql import caller as service
from tradewind.pipelines.sql.duck_caller import DuckCaller, start_duck
from tradewind.pipelines.sql.engines import SPARK, engine_of_environment, has_duckdb, has_spark
from tradewind.pipelines.sql.rendering import ROWS
from tradewind.pipelines.sql.wire import Ask, StatementError
from tradewind.spark.connections.logins import LOGIN_FIELDS
from tradewind.spark.processes.local_master import LOCAL_MASTER

if TYPE_CHECKING:
    from tradewind.client.core.connect_options import ConnectOptions

TEXT_CHARACTERS_MAX: Final = 20_000
ROWS_MAX: Final = 10_000
ANSWER_BYTES_MAX: Final = 4 << 20
RUNNING_MAX: Final = 2
KEPT_MAX: Final = 8
IDLE_SECONDS: Final = 1800.0
FILE_FIELDS: Final = ("credentials", "nkey_file", "tls_ca_file", "tls_cert_file", "tls_key_file")
State = Literal["starting", "running", "done", "failed", "cancelled"]


class Header(msgspec.Struct, frozen=True):
    """The columns of an answer, and which of them hold numbers."""

    columns: list[str] = []
    numbers: list[bool] = []


class SqlQuery:
    """One query. Its rows are stored as received, and parsed when they are shown."""

    def __init__(self, text: str, rows_max: int) -> None:
        self.key = secrets.token_urlsafe(16)
        self.text = text
        self.rows_max = rows_max
        self.state: State = "starting"
        self.header = Header()
        self.has_more = False
        self.error = ""
        self.line = 0
        self.column = 0
        self.tasks = (0, 0)
        self.started_at = time.monotonic()
        self.seconds: float | None = None
        self._rows: list[bytes] = []
        self._caller: service.Caller | None = None
        self._is_cancelled = False
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether the query has ended, with or without an answer."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def passed(self) -> float:
        """The duration so far, in seconds."""
        return time.monotonic() - self.started_at if self.seconds is None else self.seconds

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, first: int, count: int) -> list[list[str]]:
        """Some rows, as texts."""
        wanted = self._rows[first : first + count]
        return [msgspec.json.decode(row, type=list[str]) for row in wanted]

    def cancel(self) -> None:
        """Cancel the query; the service is notified if it has already received it."""
        with self._lock:
            self._is_cancelled = True
            caller = self._caller
        if caller is not None:
            caller.cancel()

    def run(self, ask: Ask, connect: Callable[[Ask], service.Caller]) -> None:
        """Send the query and wait, in any thread; never raises an error that a user can cause."""
        try:
            self._run(ask, connect)
        except StatementError as error:
            self.line, self.column = error.line, error.column
            self._fail(str(error))
        except (TradewindError, OSError) as error:
            self._fail(str(error))
        finally:
            self.seconds = time.monotonic() - self.started_at

    def _fail(self, reason: str) -> None:
        self.error = self.error or reason
        self.state = "cancelled" if self._is_cancelled else "failed"

    def _run(self, ask: Ask, connect: Callable[[Ask], service.Caller]) -> None:
        caller = connect(ask)
        try:
            with self._lock:
                self._caller = caller
                is_cancelled = self._is_cancelled
            if is_cancelled:
                raise PipelineError("the query was cancelled")
            self.state = "running"
            self.started_at = time.monotonic()  # Spark is up
            answer = bytearray()

            def write(text: str) -> None:
                if len(answer) + len(text) > ANSWER_BYTES_MAX:
                    raise PipelineError(
                        f"the result is larger than {ANSWER_BYTES_MAX >> 20} MiB; select fewer "
                        "rows or columns"
                    )
                answer.extend(text.encode())

            def progress(done: int, whole: int) -> None:
                self.tasks = (done, whole)

            try:
                self.has_more = caller.ask(ask, write, progress)
            except service.ElsewhereError:
                if not isinstance(caller, DuckCaller) or not has_spark():
                    raise
                caller.close()
                answer.clear()
                caller = self._again(ask)
                self.has_more = caller.ask(ask, write, progress)
        finally:
            with self._lock:
                self._caller = None
            caller.close()
        first, *rows = bytes(answer).splitlines()
        self.header = msgspec.json.decode(first, type=Header)
        self._rows = rows
        self.state = "done"

    def _again(self, ask: Ask) -> service.Caller:
        """Ask the service what DuckDB does not answer."""
        self.state = "starting"
        caller = connect_service(ask)
        with self._lock:
            self._caller = caller
            is_cancelled = self._is_cancelled
        self.state = "running"
        if is_cancelled:
            caller.cancel()
        return caller


class Queries:
    """The queries of one login, the newest last."""

    def __init__(self, options: ConnectOptions) -> None:
        self._options = options
        self._asked: OrderedDict[str, SqlQuery] = OrderedDict()

    def ask(self, text: str, rows_max: int) -> SqlQuery:
        """Start a query; PipelineError if it cannot be sent at all."""
        check_engines()
        running = [query for query in self._asked.values() if not query.is_over]
        if len(running) >= RUNNING_MAX:
            raise PipelineError(
                f"{RUNNING_MAX} of your queries are already running; wait for one, or cancel it."
            )
        ask = question_of(self._options, text, rows_max)
        query = SqlQuery(text, rows_max)
        self._asked[query.key] = query
        while len(self._asked) > KEPT_MAX:
            key = next(key for key, old in self._asked.items() if old.is_over)
            del self._asked[key]
        thread = threading.Thread(
            target=query.run, args=(ask, connect), name="dashboard sql", daemon=True
        )
        thread.start()
        return query

    def find(self, key: str) -> SqlQuery | None:
        """The query of this login with a key, if it is still known."""
        return self._asked.get(key)

    def close(self) -> None:
        """Cancel all queries: their answers are no longer wanted."""
        for query in self._asked.values():
            if not query.is_over:
                query.cancel()
        self._asked.clear()


def connect(ask: Ask) -> service.Caller:
    """A process that answers this: DuckDB if it is installed, or else the SQL service."""
    return start_duck() if is_duck() else connect_service(ask)


def is_duck() -> bool:
    """Whether DuckDB is asked first: where it is installed, unless the environment says Spark."""
    return engine_of_environment() != SPARK and has_duckdb()


def check_engines() -> None:
    """PipelineError if there is no engine to ask."""
    if is_duck() or has_spark():
        return
    extra = "spark" if engine_of_environment() == SPARK else "frames"
    raise PipelineError(
        "SQL needs DuckDB or Spark on the dashboard's machine; install one and start the dashboard"
        f" again: {install_command(extra)}"
    )


def connect_service(ask: Ask) -> service.Caller:
    """The SQL service of this user, with the Spark it uses; a new service if there is none."""
    running = service.Caller.connect("state")
    master = LOCAL_MASTER
    if running is not None:
        master = running.welcome.master
        running.close()
    found = service.find_service(ask, master, lambda _note: None)
    return found or service.start_service(ask, master, IDLE_SECONDS)


def question_of(options: ConnectOptions, text: str, rows_max: int) -> Ask:
    """A request to the service, to be answered with the login of a connection."""
    if options.jetstream_api_prefix:
        raise PipelineError("SQL is not available with a custom prefix of the JetStream API.")
    login: dict[str, str] = {}
    for name in LOGIN_FIELDS:
        value = getattr(options, name)
        if callable(value):
            value = value()
        if value and name in FILE_FIELDS:
            # The service may have been started in another folder.
            value = Path(value).expanduser().absolute()
        if value:
            login[name] = "true" if value is True else str(value)
    servers = options.servers if isinstance(options.servers, str) else ",".join(options.servers)
    return Ask(
        text=text,
        server=servers,
        login=login,
        rows_max=rows_max,
        format=ROWS,
        wants_progress=True,
    )
