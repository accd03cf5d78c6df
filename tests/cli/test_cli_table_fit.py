"""Tables give way to narrow terminals in a fixed order."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_outcome import Cli
from tradewind.cli.frame.output import Columns, Table, clipped, set_wide, width, width_max
from tradewind.cli.frame.table_fit import FRAME_COLUMNS, NAME_COLUMNS_MIN, fit_columns
from tradewind.cli.frame.text_formats import short_duration, short_duration_of
from tradewind.durations import HOUR_NS, MINUTE_NS, SECOND_NS

DAY_NS = 24 * HOUR_NS


@pytest.fixture(autouse=True)
def _not_wide() -> None:
    set_wide(False)


def _table() -> Table:
    table = Table(
        "Streams", "Name", "Text", "Created", "Count", shorten=("Text",), drop=("Created",)
    )
    table.row("ORDERS", "x" * 60, "2026-01-02 03:04:05", 12)
    return table


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=16),
    st.integers(20, 250),
    st.data(),
)
def test_a_table_is_as_narrow_as_its_columns_allow(
    widths: list[int], limit: int, data: st.DataObject
) -> None:
    places = list(range(len(widths)))
    some = st.lists(st.sampled_from(places), unique=True)
    texts, dispensable, descriptions = data.draw(some), data.draw(some), data.draw(some)
    found = fit_columns(
        *(widths, limit),
        descriptions=descriptions,
        empty=[place for place in places if not widths[place]],
        dispensable=dispensable,
        texts=texts,
    )
    assert found
    assert list(found) == sorted(found)
    assert all(found[place] <= widths[place] for place in found)
    if sum(found.values()) + FRAME_COLUMNS * len(found) + 1 > limit:
        assert len(found) == 1 or not {*found} & {*dispensable}
        assert all(found[place] <= max(NAME_COLUMNS_MIN, 0) for place in {*found} & {*texts})


def test_descriptions_are_shortened_before_columns_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    table = _table()
    lines = table.lines()
    assert {width(line) for line in lines} == {70}
    assert not table.hidden
    assert "xxx… │ 2026-01-02 03:04:05 │    12 │" in lines[-2]


def test_columns_that_have_no_room_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    _table().print()
    printed = capsys.readouterr()
    assert "Created" not in printed.out
    assert printed.err == "--wide also shows: Created\n"


def test_names_are_shortened_if_nothing_else_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    table = Table("Streams", "Name", "Count")
    table.row("ORDERS_OF_ALL_SHOPS_IN_EUROPE", 1)
    assert {width(line) for line in table.lines()} == {30}
    assert "ORDERS_OF_ALL_SHO… " in table.lines()[-2]


def test_a_pipe_receives_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    assert not sys.stdout.isatty()
    assert width_max() is None
    assert "x" * 60 in _table().lines()[-2]


def test_wide_shows_all_columns(monkeypatch: pytest.MonkeyPatch, offline: Cli) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    narrow = offline("errors", "ls", "10003").ok()
    assert "HTTP Error Code" not in narrow.out
    assert "HTTP Error Code" in offline("errors", "ls", "10003", "--wide").ok().out
    assert offline("errors", "ls", "10003").ok().out == narrow.out, "for one call only"


def test_values_behind_labels_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    columns = Columns()
    columns.row("Subjects", ["orders.europe.>", "orders.asia.>", "orders.africa.>"])
    assert columns.lines() == [
        "  Subjects: orders.europe.>,",
        "            orders.asia.>,",
        "            orders.africa.>",
    ]


@pytest.mark.parametrize(("text", "columns", "shown"), [("abc", 3, "abc"), ("abcd", 3, "ab…")])
def test_what_does_not_fit_ends_with_an_ellipsis(text: str, columns: int, shown: str) -> None:
    assert clipped(text, columns) == shown


@given(st.text(), st.integers(1, 20))
def test_a_clipped_text_never_takes_more_room(text: str, columns: int) -> None:
    assert width(clipped(text, columns)) <= columns


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"),
        (48_213, "48.2µs"),
        (1_054_000, "1.05ms"),
        (12_340_000_000, "12.3s"),
        (59_999_999_999, "1m"),
        (90 * SECOND_NS, "1m30s"),
        (2 * HOUR_NS, "2h"),
        (2 * HOUR_NS + 30 * SECOND_NS, "2h"),
        (3 * DAY_NS + 2 * HOUR_NS + MINUTE_NS, "3d2h"),
        (400 * DAY_NS, "1y35d"),
    ],
)
def test_ages_have_two_units_at_most(duration_ns: int, text: str) -> None:
    assert short_duration(duration_ns) == text


def test_durations_of_servers_are_shortened() -> None:
    assert short_duration_of("3d2h10m4s") == "3d2h"
    assert short_duration_of("1.234567ms") == "1.23ms"
    assert short_duration_of("") == ""
    assert short_duration_of("soon") == "soon"
