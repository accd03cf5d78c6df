"""Sizes, durations, tables and columns as people read and write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.output import Columns, Table, value_text
from tradewind.cli.frame.text_formats import (
    counted,
    duration_text,
    limit_text,
    parse_duration_ns,
    parse_size,
    since_text,
    size_text,
    time_text,
)
from tradewind.durations import HOUR_NS, MINUTE_NS, SECOND_NS

DAY_NS = 24 * HOUR_NS


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (76, "76 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (10 * 1024, "10 KiB"),
        (10737418240, "10 GiB"),
        (1 << 62, "4.0 EiB"),
    ],
)
def test_sizes_look_as_in_nats(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("-1", -1),
        ("", -1),
        ("512", 512),
        ("10KB", 10240),
        ("10k", 10240),
        ("1.5GiB", 3 << 29),
        ("2 MB", 2 << 20),
        ("1TB", 1 << 40),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text, "--max-bytes") == size


@pytest.mark.parametrize("text", ["ten", "1XB", "-5", "1..5KB", "9000000EB"])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(CommandError, match="--max-bytes must be "):
        parse_size(text, "--max-bytes")


@given(st.integers(0, 2**50))
def test_a_size_in_bytes_is_read_back(size: int) -> None:
    assert parse_size(f"{size}B", "--max-bytes") == size


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("0", 0),
        ("-1", 0),
        ("", 0),
        ("90s", 90 * SECOND_NS),
        ("1d", DAY_NS),
        ("1w2d", 9 * DAY_NS),
        ("1M", 30 * DAY_NS),
        ("1y", 365 * DAY_NS),
        ("1.5h", 90 * MINUTE_NS),
        ("250ms", SECOND_NS // 4),
    ],
)
def test_durations_are_read(text: str, duration_ns: int) -> None:
    assert parse_duration_ns(text, "--max-age") == duration_ns


@pytest.mark.parametrize("text", ["5", "-5s", "soon", "1x", "s", "1h 2m", "999999y"])
def test_what_is_no_duration_is_named(text: str) -> None:
    with pytest.raises(CommandError, match="--max-age must be "):
        parse_duration_ns(text, "--max-age")


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0.00s"),
        (1_500_000_000, "1.50s"),
        (90 * SECOND_NS, "1m30s"),
        (2 * HOUR_NS, "2h0m0s"),
        (DAY_NS, "1d0h0m0s"),
        (400 * DAY_NS, "1y35d0h0m0s"),
    ],
)
def test_durations_look_as_in_nats(duration_ns: int, text: str) -> None:
    assert duration_text(duration_ns) == text


@given(st.integers(60, 10**9))
def test_a_duration_of_whole_seconds_is_read_back(seconds: int) -> None:
    text = duration_text(seconds * SECOND_NS)
    assert parse_duration_ns(text, "--max-age") == seconds * SECOND_NS


def test_times_that_are_none_are_never() -> None:
    for text in (None, "", "0001-01-01T00:00:00Z"):
        assert time_text(text) == "never"
        assert since_text(text) == "never"


def test_counts_and_limits() -> None:
    assert counted(1, "message") == "1 message"
    assert counted(1000, "message") == "1,000 messages"
    assert limit_text(-1) == limit_text(0) == "unlimited"
    assert limit_text(5000) == "5,000"
    assert value_text([1000, "a", True, 1.5]) == "1,000, a, true, 1.5"


def test_columns_align_their_labels() -> None:
    columns = Columns("Title")
    columns.row("Name", "A")
    columns.section("State")
    columns.row("Messages", 1000)
    columns.row_if("Nothing", "")
    assert columns.lines() == ["Title", "", "      Name: A", "", "State:", "", "  Messages: 1,000"]


CELLS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "M", "Z"]), max_size=12)


@given(st.lists(st.tuples(CELLS, CELLS), max_size=5), CELLS)
def test_all_lines_of_a_table_end_in_the_same_column(
    rows: list[tuple[str, str]], title: str
) -> None:
    from rich.cells import cell_len

    table = Table(title, "One", "Two")
    for row in rows:
        table.row(*row)
    assert len({cell_len(line) for line in table.lines()}) == 1


def test_numbers_stand_on_the_right() -> None:
    table = Table("", "Name", "Count")
    table.row("a", 5)
    table.row("b", 1000)
    assert table.lines()[3:5] == ["│ a    │     5 │", "│ b    │ 1,000 │"]
