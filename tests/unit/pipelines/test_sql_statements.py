"""Where statements end: pieces that may hold semicolons, and what a script gives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.cli.frame.failures import CommandError
from tradewind.cli.spark.sql_shell import is_complete, statements_of
from tradewind.pipelines.relations.statements import (
    STATEMENT_CHARACTERS_MAX,
    is_blank,
    split_statements,
)

PIECES = st.sampled_from(
    [
        *("select", "1", "from", "a.b", "rr", "x-y", "(", ")", "/", "*", "- ", "\n", " r "),
        *("'a;b'", "'it\\'s;'", "'two''quotes;'", "r'raw;\\'", 'R"raw;\\"', '";"', "`a;b`"),
        *("-- note; more\n", "/* ; */", "/* a /* ; */ b; */"),
    ]
)
STATEMENT = st.lists(PIECES, max_size=6).map(" ".join)


@given(st.lists(STATEMENT, max_size=5), STATEMENT)
def test_only_semicolons_between_statements_end_them(ended: list[str], rest: str) -> None:
    found, behind = split_statements("".join(f"{one} ;" for one in ended) + rest)
    assert found == [one.strip() for one in ended if not is_blank(one)]
    assert behind == rest


@given(st.text(alphabet="ab'\"`;-/*\\r \n", max_size=40))
def test_every_character_is_in_some_statement_or_behind_them(text: str) -> None:
    found, behind = split_statements(text)
    assert sum(map(len, found)) + len(behind) <= len(text)
    assert text.endswith(behind)
    assert all(statement in text for statement in found)


@pytest.mark.parametrize("text", ["select 'a;", 'select "a;', "select `a;", "/* a;", "select r'a;"])
def test_what_is_not_closed_does_not_end(text: str) -> None:
    assert split_statements(text) == ([], text)
    assert not is_complete(text)


@pytest.mark.parametrize(
    "text", ["", "  ", "\\q", "\\d ORDERS", "quit", "select 1;", "a;\nb; -- c"]
)
def test_what_enter_runs(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize("text", ["select 1", "select\n", "select 1; select 2", "-- a\nselect"])
def test_what_goes_on_in_the_next_line(text: str) -> None:
    assert not is_complete(text)


def test_a_statement_of_a_script_is_there_as_soon_as_its_end_was_read() -> None:
    read: list[str] = []

    def lines() -> Iterator[str]:
        for line in ("select\n", "1; select 2", ";\n", "select 3"):
            read.append(line)
            yield line

    script = statements_of(lines())
    assert next(script) == "select\n1"
    assert read == ["select\n", "1; select 2"]
    assert list(script) == ["select 2", "select 3"]


def test_a_statement_without_an_end_is_not_held_for_ever() -> None:
    endless = iter(lambda: "x" * 1000, "")
    with pytest.raises(CommandError, match="is a semicolon missing"):
        list(statements_of(endless))
    assert STATEMENT_CHARACTERS_MAX == 1 << 20
