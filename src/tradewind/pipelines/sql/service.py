"""The SQL service: a warm Spark session for clients of the same user.

Owns the process of `tradewind sql --serve --foreground`: its lock, its socket, its runners, and its
end after some time without a client. Each client has two threads: one receives, so that a
cancellation or a disconnect reaches the query, the other answers. The lock is that of the operating
system, so a killed service never blocks the next one.

Spark Connect, looked at with Spark 4.3, does not replace this protocol:

- its Python client refuses to start without pandas, grpcio, grpcio-status, googleapis-common-protos
  and zstandard, which the extra `spark` does not have; a caller here needs none of them, nor Spark;
- a caller must import `pyspark.sql` (0.2 s of processor time, before grpc and pandas) where
  importing `caller` takes 0.1 s;
- a session asks Java for what Connect does not offer: the plan of the parser (`plans`,
  `write_plans`), the frame of a part of it, the progress of a job group. It would have to run in
  the server, behind messages of our own again;
- it listens on a TCP port, which every user of the machine reaches, and knows its caller by a
  token; this socket is in a private folder, and the kernel says whose the caller is.

How soon a Connect server starts and answers was not measured for this: its packages are only in the
extra `declarative`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tradewind._version import __version__
from tradewind.errors import TradewindError
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.sql.engines import NeedsSparkError
from tradewind.pipelines.sql.query_session import (
    SPARK_SETTINGS,
    PendingAnswer,
    QueryRunner,
    QuerySession,
    SessionLostError,
    question_of,
)
from tradewind.pipelines.sql.rendering import RenderStyle, lines
from tradewind.pipelines.sql.wire import (
    LOCK_NAME,
    LOG_NAME,
    SOCKET_NAME,
    SOCKET_NAME_BEFORE,
    Ask,
    Cancel,
    Channel,
    Hello,
    Progress,
    StatementDone,
    StatementError,
    StatementFailure,
    Text,
    Welcome,
    WireError,
    meeting_folder,
    pieces,
    place_of_process,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)
CALLERS_MAX: Final = 8
# How long a caller may take to say what it wants.
HELLO_SECONDS: Final = 30.0
LOG_BYTES_MAX: Final = 8 << 20
# A process that looks whether the lock is free has it for a moment.
LOCK_SECONDS: Final = 1.0
PROGRESS_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.02
_ASK_AGAIN_SECONDS: Final = 1.0
# The time that a query that does not stop has before its runner is left to it.
CANCEL_SECONDS: Final = 5.0
WRITE_CANCEL_SECONDS: Final = 30.0
BUSY: Final = f"the SQL service answers {CALLERS_MAX} callers at a time, and has reached that"


class AlreadyRunningError(PipelineError):
    """Another service of this user has the lock."""


class StopSignal(BaseException):
    """A signal says that the service is to end."""


class QueryRunners(Protocol):
    """Where query runners come from."""

    def start(self) -> None:
        """Get ready; raises if that cannot be."""

    def make(self) -> QueryRunner:
        """One more runner."""

    def stop(self) -> None:
        """End all of them."""


class SparkRunners:
    """Runners whose queries one Spark executes."""

    def __init__(self, master: str, log_file: Path) -> None:
        self._master = master
        self._log_file = log_file
        self._session: SparkSession | None = None

    def start(self) -> None:
        """See `QueryRunners`."""
        from tradewind.pipelines.sessions.pipeline_session import open_session

        self._session = open_session(self._master, self._log_file, SPARK_SETTINGS)

    def make(self) -> QuerySession:
        """See `QueryRunners`. Each has names of its own for its tables."""
        assert self._session is not None
        return QuerySession(self._session.newSession())

    def stop(self) -> None:
        """See `QueryRunners`."""
        if self._session is not None:
            with suppress(Exception):  # Java may be gone already
                self._session.stop()


class SqlService:
    """Answers callers until none has asked for a while, or until it is stopped."""

    def __init__(
        self, folder: Path, master: str, idle_seconds: float, runners: QueryRunners
    ) -> None:
        self._folder = folder
        self._master = master
        self._idle_seconds = idle_seconds
        self._place = place_of_process()
        self._source = runners
        self._is_up = threading.Event()
        self._failure = ""
        self._runners: list[QueryRunner] = []
        self._callers = 0
        self._quiet_since = time.monotonic()
        self._lock = threading.Lock()
        self._stops = threading.Event()

    def run(self) -> None:
        """Serve until the end; AlreadyRunningError if another process serves."""
        with _locked(self._folder), self._listening() as listener:
            threading.Thread(target=self._start, daemon=True).start()
            try:
                while not self._is_over():
                    self._accept(listener)
            finally:
                self._source.stop()
        if self._failure:
            raise PipelineError(self._failure)

    def _start(self) -> None:
        try:
            self._source.start()
        except Exception as error:  # callers get any error as their answer
            self._failure = str(error)
            self._stops.set()
        self._is_up.set()

    @contextmanager
    def _listening(self) -> Iterator[socket.socket]:
        """A socket that has its name only while it listens: a client that finds it gets an answer.

        The socket of a killed service is replaced: the lock is ours.
        """
        path, before = self._folder / SOCKET_NAME, self._folder / SOCKET_NAME_BEFORE
        before.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(before))
            before.chmod(0o600)
            listener.listen(CALLERS_MAX)
            listener.settimeout(_ASK_AGAIN_SECONDS)
            before.replace(path)
            try:
                yield listener
            finally:
                path.unlink(missing_ok=True)

    def _is_over(self) -> bool:
        if self._stops.is_set():
            return True
        with self._lock:
            quiet_seconds = time.monotonic() - self._quiet_since
            return not self._callers and quiet_seconds >= self._idle_seconds

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            return
        channel = Channel(connection)
        try:
            channel.check_user()
        except WireError:
            channel.close()
            return
        with self._lock:
            self._callers += 1
            is_crowded = self._callers > CALLERS_MAX
        threading.Thread(target=self._attend, args=(channel, is_crowded), daemon=True).start()

    # ---------------------------------------------------------------- one caller

    def _attend(self, channel: Channel, is_crowded: bool) -> None:  # noqa: FBT001
        try:
            channel.limit(HELLO_SECONDS)
            self._serve(channel, is_crowded=is_crowded)
        except WireError:
            pass  # the caller has gone
        except Exception as error:
            logger.error("a caller was not answered: %s", error)
            with suppress(WireError):
                channel.send(StatementFailure(f"the SQL service: {type(error).__name__}: {error}"))
        finally:
            channel.close()
            with self._lock:
                self._callers -= 1
                self._quiet_since = time.monotonic()

    def _serve(self, channel: Channel, *, is_crowded: bool) -> None:
        hello = channel.from_caller()
        if not isinstance(hello, Hello):
            raise WireError("a caller that does not introduce itself")
        channel.send(
            Welcome(
                __version__,
                self._place,
                self._master,
                str(Path.cwd()),
                self._is_up.is_set(),
                self._idle_seconds,
            )
        )
        if hello.wants == "stop":
            self._stops.set()
            return
        if hello.wants == "state":
            self._is_up.wait()
            channel.send(StatementFailure(self._failure) if self._failure else StatementDone())
            return
        ask = channel.from_caller()
        if not isinstance(ask, Ask):
            raise WireError("a caller without a question")
        if is_crowded:
            channel.send(StatementFailure(BUSY, is_retryable=True))
            return
        self._is_up.wait()
        if self._failure:
            channel.send(StatementFailure(self._failure, is_retryable=True))
            return
        channel.limit(None)
        self._answer(channel, ask)

    def _answer(self, channel: Channel, ask: Ask) -> None:
        runner = self._take_runner()
        ended = threading.Event()
        asked = PendingAnswer(runner, question_of(ask), ended.set)
        is_over = threading.Event()

        def listen() -> None:
            try:
                while isinstance(channel.from_caller(), Cancel):
                    break
            except WireError:
                pass  # the caller has gone, and its answer is not needed
            if not is_over.is_set():
                asked.cancel()
                # A statement that writes gets more time, to report how many rows it has stored.
                asked.wait(WRITE_CANCEL_SECONDS if asked.is_writing else CANCEL_SECONDS)
                if asked.is_writing:
                    # The caller may be gone, and then the log is the only place.
                    logger.warning("%s: %s", ask.text[:100], asked.outcome())
                ended.set()

        threading.Thread(target=listen, daemon=True).start()
        if ask.wants_progress:
            _tell_progress(channel, asked, ended)
        ended.wait()
        try:
            if not asked.wait(0):
                # The query does not stop: the runner stays with it.
                channel.send(StatementFailure(asked.outcome() or "the query was cancelled"))
                return
            self._give_runner(runner)
            self._send(channel, asked, RenderStyle(ask.format, ask.width))
        finally:
            is_over.set()

    def _send(self, channel: Channel, asked: PendingAnswer, look: RenderStyle) -> None:
        try:
            send_answer(channel, asked, look)
        except SessionLostError as error:
            self._stops.set()
            channel.send(StatementFailure(str(error), is_retryable=True))

    def _take_runner(self) -> QueryRunner:
        """The runner that was used last, which knows most, or a new one."""
        with self._lock:
            if self._runners:
                return self._runners.pop()
        return self._source.make()

    def _give_runner(self, runner: QueryRunner) -> None:
        with self._lock:
            self._runners.append(runner)
        log_file = self._folder / LOG_NAME
        with suppress(OSError):
            if log_file.stat().st_size > LOG_BYTES_MAX:
                os.truncate(log_file, 0)


def send_answer(channel: Channel, asked: PendingAnswer, look: RenderStyle) -> None:
    """Send the answer to a question, or why there is none."""
    try:
        result = asked.result()
        held: list[str] = []
        for line in lines(result, look):
            held.append(line + "\n")
            if len(held) == 100:
                _send_text(channel, held)
        _send_text(channel, held)
    except (SessionLostError, WireError):
        raise
    except NeedsSparkError as error:
        channel.send(StatementFailure(str(error), is_retryable=True))
    except StatementError as error:
        channel.send(StatementFailure(str(error), line=error.line, column=error.column))
    except TradewindError as error:
        channel.send(StatementFailure(str(error)))
    else:
        channel.send(StatementDone(result.has_more))


def _tell_progress(channel: Channel, asked: PendingAnswer, ended: threading.Event) -> None:
    """Say how far a query came until it has ended, or the caller has gone."""
    with suppress(WireError):
        while not ended.wait(PROGRESS_SECONDS):
            channel.send(Progress(*asked.progress()))


def _send_text(channel: Channel, held: list[str]) -> None:
    for piece in pieces("".join(held)):
        channel.send(Text(piece))
    held.clear()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    file = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise AlreadyRunningError("the SQL service is running already") from None
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(file)


def serve(master: str, idle_seconds: float) -> None:
    """Run a service in this process until it ends."""
    folder = meeting_folder(create=True)
    assert folder is not None

    def stop(*_: Any) -> None:
        raise StopSignal

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    with suppress(StopSignal):
        runners = SparkRunners(master, folder / LOG_NAME)
        SqlService(folder, master, idle_seconds, runners).run()
