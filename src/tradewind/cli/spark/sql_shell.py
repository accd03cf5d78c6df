"""The shell of `tradewind sql`, and scripts from a pipe.

Owns the dialog: the meaning of a line, and that only `\\q` or the end of the input leaves the
shell. A script ends at the first statement that fails. It never runs queries itself, which is up to
`sql_answers`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

import msgspec

from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.output import write_text
from tradewind.cli.frame.reporting import report
from tradewind.extra_packages import install_command
from tradewind.pipelines.relations.statements import (
    STATEMENT_CHARACTERS_MAX,
    is_blank,
    is_writing,
    split_statements,
)
from tradewind.pipelines.sql.wire import StatementError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
    from tradewind.pipelines.sql.wire import Ask

PROGRAM: Final = "tradewind"
PROMPT: Final = "sql> "
CONTINUED: Final = "...> "
QUIT_WORDS: Final = ("\\q", "quit", "exit")
HELP_WORDS: Final = ("\\h", "\\?", "help")
LOOKS: Final = ("table", "csv", "json", "chart")
HELP: Final = """\
select ... ;     a statement ends with a semicolon and may span several lines
insert into NAME select ... ;
                 publish rows to a stream, or put them into a bucket
\\d               the tables: streams, buckets and folders
\\d NAME          the columns of one
\\f FORMAT        show results as table, csv, json or chart
\\h               this help
\\q               quit (or Ctrl-D)
Tab completes, the arrow keys recall earlier statements, Ctrl-C cancels a query."""


class Asks(Protocol):
    """An object that answers questions; see `sql_answers`."""

    def ask(self, ask: Ask, write: Callable[[str], None]) -> bool:
        """Write the answer; whether there are more rows."""

    def forget_session(self) -> None:
        """Begin anew with the next question."""


class Interruptions:
    """Lets Ctrl-C cancel what is allowed to be cancelled, once.

    A second Ctrl-C during the cancellation is ignored, as it would leave the shell. While a
    terminal is read, Ctrl-C is a key, and the input itself raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self._is_allowed = False
        self._before: Any = None
        self._is_main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Interruptions:
        if self._is_main:
            self._before = signal.signal(signal.SIGINT, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_main:
            signal.signal(signal.SIGINT, self._before)

    def _heard(self, *_: object) -> None:
        if self._is_allowed:
            self._is_allowed = False
            raise KeyboardInterrupt

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """In here the first Ctrl-C is an exception."""
        self._is_allowed = True
        try:
            yield
        finally:
            self._is_allowed = False


class Shell:
    """A dialogue; `template` is a question without its text."""

    def __init__(
        self,
        answers: Asks,
        template: Ask,
        write: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._answers = answers
        self._template = template
        self._write = write
        self._note = note

    def run(self, read: Callable[[], str]) -> None:
        """Obey inputs until the user leaves. `read` returns an input, or raises EOFError."""
        with Interruptions() as interruptions:
            while True:
                try:
                    text = read().strip()
                    if text.rstrip("; ").lower() in QUIT_WORDS:
                        return
                    with interruptions.allowed():
                        self._obey(text)
                except EOFError:
                    return
                except KeyboardInterrupt:
                    self._note("(cancelled)")
                except Exception as error:  # nothing leaves the shell
                    self._fail(error)

    def _obey(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        rest = rest.strip().rstrip(";").strip()
        if text.rstrip(";").strip().lower() in HELP_WORDS:
            self._write(HELP + "\n")
        elif word == "\\f":
            if rest not in LOOKS:
                raise CommandError(f"unknown format {rest!r}; use {', '.join(LOOKS)}")
            self._template = msgspec.structs.replace(self._template, format=rest)
        elif word == "\\d":
            self.ask(f"describe `{rest.strip('`')}`" if rest else "show tables")
        elif word.startswith("\\"):
            raise CommandError(f"unknown command {word}; \\h lists the commands")
        else:
            ended, behind = split_statements(text)
            for statement in [*ended, *([] if is_blank(behind) else [behind])]:
                self.ask(statement)

    def ask(self, statement: str) -> None:
        """Show the answer to one statement."""
        ask = msgspec.structs.replace(self._template, text=statement, statement=uuid4().hex)
        try:
            has_more = self._answers.ask(ask, self._write)
        except StatementError as error:
            if not error.line or not is_writing(statement):
                raise
            raise CommandError(f"line {error.line}, column {error.column}: {error}") from None
        if has_more:
            self._note(f"(the first {ask.rows_max} rows; --limit shows more)")

    def _fail(self, error: Exception) -> None:
        from tradewind.pipelines.sql.query_session import SessionLostError

        report(PROGRAM, error)
        if isinstance(error, SessionLostError):
            self._answers.forget_session()


def is_complete(text: str) -> bool:
    """Whether Enter runs this: a command of the shell, or statements that are all ended."""
    bare = text.strip()
    if not bare or bare.startswith("\\") or bare.lower() in (*QUIT_WORDS, *HELP_WORDS):
        return True
    _, behind = split_statements(text)
    return is_blank(behind)


def statements_of(script: Iterable[str]) -> Iterator[str]:
    """The statements of a script, each as soon as its end was read; CommandError if one is long."""
    held: list[str] = []
    size = 0
    for line in script:
        held.append(line)
        size += len(line)
        if ";" in line:
            ended, rest = split_statements("".join(held))
            held, size = [rest], len(rest)
            yield from ended
        if size > STATEMENT_CHARACTERS_MAX:
            raise CommandError(
                f"a statement of more than {STATEMENT_CHARACTERS_MAX} characters; is a "
                "semicolon missing?"
            )
    rest = "".join(held)
    if not is_blank(rest):
        yield rest.strip()


def prompt_session(
    address: PipelineAddress, store: str, folders: Mapping[str, str]
) -> PromptSession[str]:
    """The input of a terminal, with history and completion."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.application import get_app
        from prompt_toolkit.completion import ThreadedCompleter
        from prompt_toolkit.filters import Condition
    except ImportError:
        raise CommandError(f"the shell needs prompt_toolkit: {install_command('spark')}") from None
    from tradewind.cli.spark.sql_completion import CatalogCache, SqlCompleter
    from tradewind.cli.spark.sql_history import FileHistory, history_path

    return PromptSession(
        PROMPT,
        multiline=Condition(lambda: not is_complete(get_app().current_buffer.text)),
        prompt_continuation=CONTINUED,
        history=FileHistory(history_path()),
        completer=ThreadedCompleter(SqlCompleter(CatalogCache(address, store, folders))),
        complete_while_typing=False,
        enable_history_search=True,
    )


@contextmanager
def visible_errors() -> Iterator[None]:
    """Errors of this program go to the terminal, though Spark's go to a file while it starts."""
    kept = sys.stderr
    with os.fdopen(os.dup(kept.fileno()), "w", buffering=1, errors="replace") as errors:
        sys.stderr = errors
        try:
            yield
        finally:
            sys.stderr = kept


def write_out(text: str) -> None:
    """A piece of an answer, seen at once."""
    write_text(text)
    sys.stdout.flush()
