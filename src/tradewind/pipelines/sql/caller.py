"""The client side of the SQL service.

Owns finding, starting, stopping and replacing a service, and when to run without one. The module
never imports Spark, so a call takes only as long as its answer.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from tradewind._version import __version__
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.relations.statements import is_writing as writes
from tradewind.pipelines.sql.wire import (
    LOCK_NAME,
    LOG_NAME,
    SOCKET_NAME,
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
    place_of_process,
)

# A service that lives says hello at once, also while Spark is busy.
HELLO_SECONDS: Final = 10.0
START_SECONDS: Final = 180.0
STOP_SECONDS: Final = 20.0
CANCEL_SECONDS: Final = 6.0
# An answer about a statement that writes takes longer; see `service`.
WRITE_CANCEL_SECONDS: Final = 35.0
_POLL_SECONDS: Final = 0.02
# A file that is named inside a query is looked for from the folder of the process that reads it.
_RELATIVE_FILE: Final = re.compile(
    r"\b(?:parquet|json|csv|orc|text|avro|delta|iceberg|binaryfile)\s*\.\s*`(?!/|\w+:/)",
    re.IGNORECASE,
)


UNTOLD: Final = (
    "the SQL service has not said what became of the statement; its log will, and rows may have"
    " been written"
)


class ElsewhereError(PipelineError):
    """The service cannot answer this, but a session of one's own can."""


class OtherVersionError(ElsewhereError):
    """The service is that of another version of this program."""


class Caller:
    """A connection to the service, for one question."""

    def __init__(self, channel: Channel, welcome: Welcome) -> None:
        self._channel = channel
        self.welcome = welcome

    @classmethod
    def connect(cls, wants: str = "ask") -> Caller | None:
        """The service; None if there is none, ElsewhereError if it does not answer."""
        folder = meeting_folder()
        connection = None if folder is None else _connected(folder)
        if connection is None:
            return None
        channel = Channel(connection)
        try:
            channel.check_user()
            channel.send(Hello(__version__, wants))
            welcome = channel.from_service()
        except WireError as error:
            channel.close()
            raise ElsewhereError(f"the SQL service does not respond: {error}") from None
        if not isinstance(welcome, Welcome):
            channel.close()
            raise OtherVersionError("the SQL service uses another protocol")
        return cls(channel, welcome)

    def check(self, ask: Ask, master: str) -> None:
        """ElsewhereError if it would answer something else than a session of one's own."""
        welcome = self.welcome
        if welcome.version != __version__:
            raise OtherVersionError(f"the SQL service is version {welcome.version}")
        if welcome.place != place_of_process():
            raise ElsewhereError("the SQL service was started with another Python or home folder")
        if welcome.master != master:
            raise ElsewhereError(f"the SQL service runs with --master {welcome.master}")
        if welcome.folder != str(Path.cwd()) and _RELATIVE_FILE.search(ask.text):
            raise ElsewhereError(f"the SQL service looks for files in {welcome.folder}")
        if any(value.startswith("env:") for value in (ask.server, *ask.login.values())):
            raise ElsewhereError("the SQL service has other environment variables")

    def ask(
        self,
        ask: Ask,
        write: Callable[[str], None],
        on_progress: Callable[[int, int], None] = lambda _done, _whole: None,
    ) -> bool:
        """Write the answer; whether there are more rows. An interruption cancels the query.

        For a statement that writes, the interruption then says what became of it.
        """
        has_written = False
        try:
            self._channel.send(ask)
            self._channel.limit(None)
            while True:
                answer = self._channel.from_service()
                if isinstance(answer, Text):
                    has_written = True
                    write(answer.text)
                elif isinstance(answer, Progress):
                    on_progress(answer.done, answer.whole)
                elif isinstance(answer, StatementDone):
                    return answer.has_more
                elif isinstance(answer, StatementFailure):
                    if answer.is_retryable:
                        raise ElsewhereError(answer.reason)
                    raise StatementError(answer.reason, answer.line, answer.column)
        except WireError as error:
            if has_written:
                raise PipelineError(f"the SQL service stopped while it answered: {error}") from None
            raise ElsewhereError(f"the SQL service has stopped: {error}") from None
        except KeyboardInterrupt:
            is_writing = ask.may_write and writes(ask.text)
            said = self._cancel(WRITE_CANCEL_SECONDS if is_writing else CANCEL_SECONDS)
            raise KeyboardInterrupt(*([said or UNTOLD] if is_writing else [])) from None

    def _cancel(self, seconds: float) -> str:
        """Have the query stop, and wait for that a moment; what the service says of it."""
        said: list[str] = []
        with suppress(WireError, KeyboardInterrupt):
            self._channel.limit(seconds)
            self._channel.send(Cancel())
            while isinstance(answer := self._channel.from_service(), Text | Progress):
                if isinstance(answer, Text):
                    said.append(answer.text)
            if isinstance(answer, StatementFailure):
                return answer.reason
            return f"it was complete already: {' '.join(' '.join(said).split())}"
        return ""

    def cancel(self) -> None:
        """Have the query stop, while another thread waits for its answer."""
        with suppress(WireError):
            self._channel.send(Cancel())

    def wait_until_up(self) -> None:
        """Wait for Spark; PipelineError if it does not start."""
        self._channel.limit(START_SECONDS)
        try:
            answer = self._channel.from_service()
        except WireError as error:
            raise PipelineError(
                f"the SQL service could not be started: {error}{_log_hint()}"
            ) from None
        if isinstance(answer, StatementFailure):
            raise PipelineError(answer.reason)

    @property
    def process(self) -> int:
        """The number of its process."""
        return self._channel.peer[0]

    def close(self) -> None:
        """Hang up."""
        self._channel.close()


def find_service(ask: Ask, master: str, note: Callable[[str], None]) -> Caller | None:
    """A service that can answer this; None if there is none. A service of another version is
    replaced.

    ElsewhereError if there is one that cannot.
    """
    caller = Caller.connect()
    if caller is None:
        return None
    try:
        caller.check(ask, master)
    except OtherVersionError as error:
        idle_seconds = caller.welcome.idle_seconds
        caller.close()
        note(f"({error}; restarting it)")
        stop()
        return start_service(ask, master, idle_seconds)
    except ElsewhereError:
        caller.close()
        raise
    return caller


def start_service(ask: Ask, master: str, idle_seconds: float) -> Caller:
    """A new service, ready to answer this."""
    start(service_command(master, idle_seconds))
    caller = Caller.connect()
    if caller is None:
        raise PipelineError("the SQL service stopped as soon as it was started")
    caller.check(ask, master)
    return caller


def start(command: Sequence[str]) -> int:
    """Start a service by this command line in the background, unless one runs; its process.

    Returns when Spark is up.
    """
    folder = meeting_folder(create=True)
    assert folder is not None
    log_file = os.open(
        folder / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600
    )
    try:
        child = subprocess.Popen(  # noqa: S603 - this program
            command,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,
        )
    finally:
        os.close(log_file)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        caller = Caller.connect("state")
        if caller is not None:
            try:
                caller.wait_until_up()
                return caller.process
            finally:
                caller.close()
        if child.poll() is not None and not is_held(folder):
            raise PipelineError(f"the SQL service could not be started{_log_hint()}")
        time.sleep(_POLL_SECONDS)
    child.kill()
    raise PipelineError(f"the SQL service has not started within {START_SECONDS:g} s{_log_hint()}")


def stop() -> bool:
    """End the service, if there is one; False if there was none.

    One that does not hear is killed.
    """
    folder = meeting_folder()
    if folder is None or not is_held(folder):
        return False
    process = 0
    with suppress(ElsewhereError):
        caller = Caller.connect("stop")
        if caller is not None:
            process = caller.process
            caller.close()
    if _is_free_within(folder, STOP_SECONDS):
        return True
    process = process or _listener(folder)
    if process not in (0, os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    if not _is_free_within(folder, STOP_SECONDS):
        raise PipelineError("the SQL service does not stop")
    return True


def is_held(folder: Path) -> bool:
    """Whether a service has the lock: one that was killed has not."""
    try:
        file = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _is_free_within(folder: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_held(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _listener(folder: Path) -> int:
    """The id of the process that listens, even if it does not answer; 0 if none can be reached."""
    try:
        connection = _connected(folder)
    except ElsewhereError:
        return 0
    if connection is None:
        return 0
    with connection:
        return Channel(connection).peer[0]


def _connected(folder: Path) -> socket.socket | None:
    """A connection to the service; None if none listens, ElsewhereError if it stays busy."""
    deadline = time.monotonic() + HELLO_SECONDS
    with ExitStack() as closing:
        connection = closing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        connection.settimeout(HELLO_SECONDS)
        while True:
            try:
                connection.connect(str(folder / SOCKET_NAME))
            except BlockingIOError:
                # As many callers wait as the kernel lets wait: there is a service.
                if time.monotonic() > deadline:
                    raise ElsewhereError(
                        "the SQL service does not respond: too many callers are waiting for it"
                    ) from None
            except OSError:
                return None  # there was one, which has ended or was killed
            else:
                closing.pop_all()
                return connection
            time.sleep(_POLL_SECONDS)


def _log_hint() -> str:
    folder = meeting_folder()
    return f"; see {folder / LOG_NAME}" if folder is not None else ""


def service_command(master: str, idle_seconds: float) -> list[str]:
    """The command line of a service that stays in the foreground."""
    program = [sys.executable, "-m", "tradewind.cli", "sql", "--serve", "--foreground"]
    return [*program, "--master", master, "--idle", f"{max(int(idle_seconds), 1)}s"]
