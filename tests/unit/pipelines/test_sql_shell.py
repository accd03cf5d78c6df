"""The dialogue of the SQL shell, its keys, its history and what Tab offers; no Spark, no server."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from tradewind.cli.spark import sql_history
from tradewind.cli.spark.sql_completion import CatalogCache, SqlCompleter
from tradewind.cli.spark.sql_history import FileHistory, history_path
from tradewind.cli.spark.sql_shell import HELP, Shell, prompt_session
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.relations.queries import TableCatalog
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sql.query_session import SessionLostError
from tradewind.pipelines.sql.wire import Ask, StatementError


class FakeAnswers:
    """Notes what was asked; some questions go wrong."""

    def __init__(self) -> None:
        self.asked: list[Ask] = []
        self.forgotten = 0

    def ask(self, ask: Ask, write: Callable[[str], None]) -> bool:
        self.asked.append(ask)
        faults: dict[str, BaseException] = {
            "wrong": PipelineError("table 'x' does not exist"),
            "defect": ZeroDivisionError("division by zero"),
            "lost": SessionLostError("Spark has stopped"),
            "slow": KeyboardInterrupt(),
            "alter it": StatementError("not here", 2, 7),
        }
        if ask.text in faults:
            raise faults[ask.text]
        write(f"<{ask.text}>\n")
        return ask.text == "many"

    def forget_session(self) -> None:
        self.forgotten += 1


def typed(*inputs: Any) -> Callable[[], str]:
    left = iter(inputs)

    def read() -> str:
        one = next(left, EOFError())
        if isinstance(one, BaseException):
            raise one
        return str(one)

    return read


@pytest.fixture
def talk(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[FakeAnswers, str, str]]:
    def run(*inputs: Any) -> tuple[FakeAnswers, str, str]:
        answers, notes, written = FakeAnswers(), list[str](), list[str]()
        Shell(answers, Ask("", rows_max=7), written.append, notes.append).run(typed(*inputs))
        return answers, "".join(written), "\n".join([*notes, capsys.readouterr().err])

    return run


def test_statements_are_asked_one_by_one(talk: Any) -> None:
    answers, out, err = talk("select 1; select 2;", "", "many;")
    assert [ask.text for ask in answers.asked] == ["select 1", "select 2", "many"]
    assert out == "<select 1>\n<select 2>\n<many>\n"
    assert "(the first 7 rows; --limit shows more)" in err


def test_each_statement_has_an_id_and_errors_of_writes_have_places(talk: Any) -> None:
    answers, _, err = talk("select 1; select 1;", "alter it;")
    ids = [ask.statement for ask in answers.asked]
    assert len(set(ids)) == 3
    assert all(len(one) == 32 for one in ids)
    assert "line 2, column 7: not here" in err


def test_nothing_that_goes_wrong_leaves_the_shell(talk: Any) -> None:
    answers, out, err = talk(
        "wrong;", "defect;", "slow;", KeyboardInterrupt(), "lost;", "\\f xml", "\\nonsense", "ok;"
    )
    assert out == "<ok>\n"
    assert "table 'x' does not exist" in err
    assert "division by zero" in err
    assert err.count("(cancelled)") == 2
    assert "'xml'; use table, csv, json, chart" in err
    assert "unknown command \\nonsense; \\h lists the commands" in err
    assert answers.forgotten == 1


@pytest.mark.parametrize("word", ["\\q", "quit", "EXIT;", "\\q;"])
def test_what_leaves_it(talk: Any, word: str) -> None:
    answers, _, _ = talk(word, "select 1;")
    assert answers.asked == []


def test_the_commands_of_the_shell(talk: Any) -> None:
    answers, out, _ = talk("\\h", "\\d", "\\d RAW-1;", "\\f json", "select 1;", "help;")
    assert [ask.text for ask in answers.asked] == ["show tables", "describe `RAW-1`", "select 1"]
    assert answers.asked[-1].format == "json"
    assert out.count(HELP) == 2


# -------------------------------------------------------------------------- keys


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return history_path()


def press(keys: str, count: int = 1, known: CatalogCache | None = None) -> list[str]:
    """What the prompt gives for these keys; the name of what it raises."""
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        session = prompt_session(PipelineAddress("nats://127.0.0.1:1"), "", {})
        if known is not None:
            session.completer = SqlCompleter(known)
        pipe.send_text(keys)
        found = []
        for _ in range(count):
            try:
                found.append(session.prompt())
            except (EOFError, KeyboardInterrupt) as error:
                found.append(type(error).__name__)
    return found


def test_enter_runs_a_statement_that_is_ended_and_else_begins_a_line(state: Path) -> None:
    assert press("select 1\rfrom a\r;\r\\q\r", 2) == ["select 1\nfrom a\n;", "\\q"]
    assert press("select ';\r'\r;\r") == ["select ';\n'\n;"]


def test_ctrl_c_throws_a_line_away_and_ctrl_d_leaves(state: Path) -> None:
    assert press("select\x03select 2;\r\x04", 3) == ["KeyboardInterrupt", "select 2;", "EOFError"]


def test_a_later_shell_has_the_history_of_an_earlier_one(state: Path) -> None:
    press("select 'a\r b';\r")
    up = "\x1b[A"
    assert press(f"{up}\r") == ["select 'a\n b';"]
    assert state.stat().st_mode & 0o777 == 0o600
    assert state.parent.stat().st_mode & 0o777 == 0o700


def test_the_history_has_limits(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_history, "ENTRIES_MAX", 10)
    monkeypatch.setattr(sql_history, "FILE_BYTES_MAX", 2000)
    history = FileHistory(state)
    for number in range(100):
        history.store_string(f"select {number}; {'x' * 50}")
    history.store_string("y" * sql_history.ENTRY_BYTES_MAX)
    assert state.stat().st_size <= 2100
    latest = list(FileHistory(state).load_history_strings())
    assert latest[0].startswith("select 99;")
    assert 1 <= len(latest) <= 10
    assert state.stat().st_mode & 0o777 == 0o600


def test_two_shells_write_whole_entries(state: Path) -> None:
    def write(name: str) -> None:
        history = FileHistory(state)
        for number in range(200):
            history.store_string(f"{name}\n{number}")

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = {f"{name}\n{number}" for name in "ab" for number in range(200)}
    assert set(FileHistory(state).load_history_strings()) == wanted


def test_a_history_that_is_damaged_or_cannot_be_written_is_no_reason_to_fail(state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_bytes(b'"good"\n\xff\xfe\n{}\n"torn')
    assert list(FileHistory(state).load_history_strings()) == ["good"]
    state.unlink()
    state.mkdir()
    FileHistory(state).store_string("select 1;")
    assert list(FileHistory(state).load_history_strings()) == []


# -------------------------------------------------------------------------- completion


class FakeKnown(CatalogCache):
    """A server with two streams and a bucket."""

    def _now(self) -> TableCatalog:
        return TableCatalog(("ORDERS", "RAW-1", "KV_prices"), ("prices",))

    def columns(self, table: str) -> list[str]:
        return {"ORDERS": ["seq", "amount", "a b"], "prices": ["key"]}.get(table, [])


@pytest.fixture
def completer() -> SqlCompleter:
    return SqlCompleter(FakeKnown(PipelineAddress(), folders={"lake": "/data/lake"}))


def offers(completer: SqlCompleter, text: str, behind: str = "") -> list[str]:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    document = Document(text + behind, len(text))
    return [one.text for one in completer.get_completions(document, CompleteEvent())]


def test_tables_follow_from_and_are_quoted_if_they_must_be(completer: SqlCompleter) -> None:
    assert offers(completer, "select * from ") == [
        "lake",
        "ORDERS",
        "`RAW-1`",
        "KV_prices",
        "prices",
    ]
    assert offers(completer, "select * from ra") == ["`RAW-1`"]
    assert offers(completer, "select * from `RA") == ["`RAW-1`"]
    assert offers(completer, "\\d pri") == ["prices"]


def test_columns_are_those_of_the_tables_that_the_text_names(completer: SqlCompleter) -> None:
    assert offers(completer, "select ", " from ORDERS") == ["seq", "amount", "`a b`"]
    assert offers(completer, "select a", " from ORDERS") == ["amount", "`a b`", *AS]
    assert offers(completer, "select k", " from prices") == ["key", "KV_prices"]
    assert "seq" not in offers(completer, "select s", " from prices")


AS = ["as", "and", "all", "avg", "asc"]


def test_keywords_keep_their_case(completer: SqlCompleter) -> None:
    assert offers(completer, "SELECT * FROM ORDERS WHE") == ["WHERE", "WHEN"]
    assert offers(completer, "sel") == ["select"]
    assert offers(completer, "\\") == ["\\q", "\\h", "\\d", "\\f"]


def test_without_a_server_there_are_keywords() -> None:
    completer = SqlCompleter(CatalogCache(PipelineAddress("nats://127.0.0.1:1")))
    assert offers(completer, "sel") == ["select"]
    assert offers(completer, "select * from x") == []


def test_second_interruption_does_not_leave_the_shell() -> None:
    """It comes while the first one is dealt with."""
    notes: list[str] = []

    class Slow(FakeAnswers):
        def ask(self, ask: Ask, write: Callable[[str], None]) -> bool:
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                signal.raise_signal(signal.SIGINT)
            raise AssertionError("the query was not cancelled")

    def note(text: str) -> None:
        signal.raise_signal(signal.SIGINT)
        notes.append(text)

    before = signal.getsignal(signal.SIGINT)
    Shell(Slow(), Ask(text=""), lambda _text: None, note).run(typed("select 1;", "select 2;"))
    assert notes == ["(cancelled)", "(cancelled)"]
    assert signal.getsignal(signal.SIGINT) is before
