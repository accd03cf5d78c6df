"""Runs the queries of `tradewind sql`: by DuckDB here, or by Spark in the service or here.

Owns that choice, and the session of this process, which starts in the background as soon as it is
needed. An interruption cancels the query and nothing else.
"""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tradewind.pipelines.sql.caller import WRITE_CANCEL_SECONDS, ElsewhereError, find_service
from tradewind.pipelines.sql.engines import (
    AUTO,
    DUCKDB,
    SPARK,
    NeedsSparkError,
    check_engine,
    check_installed,
    has_duckdb,
    has_spark,
)
from tradewind.pipelines.sql.wire import Ask
from tradewind.spark.processes.local_master import LOCAL_MASTER

if TYPE_CHECKING:
    from tradewind.pipelines.sql.query_session import PendingAnswer, QuerySession

# How long a query that was cancelled is waited for; then its session is left to it.
CANCEL_SECONDS: Final = 5.0
_WAIT_SECONDS: Final = 0.5


class OwnSession:
    """A Spark of this process."""

    def __init__(self, master: str) -> None:
        from tradewind.pipelines.sessions.pipeline_session import is_spark_running

        self._master = master
        self._closing = ExitStack()
        self._is_up = threading.Event()
        self._error: BaseException | None = None
        self._session: Any = None
        self._query_session: QuerySession | None = None
        self._was_running = is_spark_running()
        threading.Thread(target=self._start, daemon=True).start()

    def _start(self) -> None:
        try:
            from tradewind.pipelines.sessions.pipeline_session import open_session
            from tradewind.pipelines.sql.query_session import SPARK_SETTINGS
            from tradewind.spark.processes.java import short_session_options

            settings = {"spark.driver.extraJavaOptions": short_session_options(), **SPARK_SETTINGS}
            folder = tempfile.TemporaryDirectory(prefix="tradewind-sql-")
            scratch = self._closing.enter_context(folder)
            log_file = Path(scratch) / "spark.log"
            self._session = open_session(self._master, log_file, settings)
        except BaseException as error:  # raised by the next `ask`
            self._error = error
        self._is_up.set()

    def ask(self, ask: Ask, write: Callable[[str], None]) -> bool:
        """Write the answer; whether there are more rows."""
        while not self._is_up.wait(_WAIT_SECONDS):
            pass  # in between an interruption is noticed
        if self._error is not None:
            raise self._error
        from tradewind.pipelines.sql.query_session import PendingAnswer, QuerySession, question_of

        if self._query_session is None:
            self._query_session = QuerySession(self._session.newSession())
        asked = PendingAnswer(self._query_session, question_of(ask))
        try:
            wait_for_answer(asked)
        finally:
            if not asked.wait(0):
                self._query_session = None  # it is left to the query
        return write_answer(asked, ask, write)

    def close(self) -> None:
        """Stop Spark, if it is up."""
        if self._is_up.is_set() and self._session is not None and not self._was_running:
            from tradewind.pipelines.sessions.pipeline_session import forget_session

            try:
                self._session.stop()
            except Exception:  # Java is gone
                forget_session()
        self._closing.close()


class DuckSession:
    """A DuckDB of this process, anew for each question."""

    def ask(self, ask: Ask, write: Callable[[str], None]) -> bool:
        """Write the answer; whether there are more rows. NeedsSparkError if Spark must give it."""
        check_engine(ask.text)
        from tradewind.pipelines.sql.duck_runner import DuckRunner
        from tradewind.pipelines.sql.query_session import PendingAnswer, question_of

        asked = PendingAnswer(DuckRunner(), question_of(ask))
        wait_for_answer(asked)
        return write_answer(asked, ask, write)


def wait_for_answer(asked: PendingAnswer) -> None:
    """Wait until a question is answered; an interruption cancels it."""
    try:
        while not asked.wait(_WAIT_SECONDS):
            pass
    except KeyboardInterrupt:
        asked.cancel()
        asked.wait(WRITE_CANCEL_SECONDS if asked.is_writing else CANCEL_SECONDS)
        raise KeyboardInterrupt(*([asked.outcome()] if asked.is_writing else [])) from None


def write_answer(asked: PendingAnswer, ask: Ask, write: Callable[[str], None]) -> bool:
    """Write an answer; whether there are more rows."""
    from tradewind.pipelines.sql.rendering import RenderStyle, lines

    result = asked.result()
    for line in lines(result, RenderStyle(ask.format, ask.width)):
        write(line + "\n")
    return result.has_more


class Answers:
    """Asks DuckDB, the service, or a Spark of its own once that was needed."""

    def __init__(self, master: str, note: Callable[[str], None], engine: str = SPARK) -> None:
        check_installed(engine)
        is_local = master == LOCAL_MASTER
        self._is_duck = engine == DUCKDB or (engine == AUTO and is_local and has_duckdb())
        self._may_change = engine == AUTO and has_spark()
        self._master = master
        self._note = note
        self._own: OwnSession | None = None

    def warm_up(self, template: Ask) -> None:
        """Prepare for questions like `template` while the user is still typing."""
        if self._is_duck:
            return
        try:
            caller = find_service(template, self._master, self._note)
        except ElsewhereError:
            caller = None
        if caller is None:
            self._own = self._own or OwnSession(self._master)
        else:
            caller.close()

    def ask(self, ask: Ask, write: Callable[[str], None]) -> bool:
        """Write the answer; whether there are more rows than were asked for.

        For a statement that writes and is interrupted, a note says how it ended.
        """
        try:
            return self._ask(ask, write)
        except KeyboardInterrupt as stop:
            if stop.args:
                self._note(str(stop))
            raise

    def _ask(self, ask: Ask, write: Callable[[str], None]) -> bool:
        if self._is_duck:
            try:
                return DuckSession().ask(ask, write)
            except NeedsSparkError as error:
                if not self._may_change:
                    raise
                self._note(f"({error.why}; asking Spark)")
        if self._own is None:
            try:
                caller = find_service(ask, self._master, self._note)
                if caller is not None:
                    try:
                        return caller.ask(ask, write)
                    finally:
                        caller.close()
            except ElsewhereError as error:
                self._note(f"({error}; starting Spark here)")
            self._own = OwnSession(self._master)
        return self._own.ask(ask, write)

    def forget_session(self) -> None:
        """The session has ended by itself; the next question starts another one."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def close(self) -> None:
        """Let go of a session of one's own; a service stays."""
        if self._own is not None:
            previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                self._own.close()
            finally:
                signal.signal(signal.SIGINT, previous)
