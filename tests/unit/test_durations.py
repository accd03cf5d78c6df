"""Durations as Go reads and writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.durations import DURATION_NS_MAX, format_duration, later, parse_duration_ns


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("2s", 2_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("250ms", 250_000_000),
        ("1.5s", 1_500_000_000),
        (".5s", 500_000_000),
        ("1us2ns", 1002),
        ("1µs", 1000),
        ("-5s", -5_000_000_000),
        ("+5s", 5_000_000_000),
        ("0", 0),
        ("", None),
        ("5", None),
        ("s", None),
        ("1d", None),
        ("1 s", None),
        (".s", None),
        ("99999999999h", None),
        ("1s" * 128, 128 * 10**9),
        ("1s" * 129, None),
        ("9223372036854775807ns", 2**63 - 1),
        ("9223372036854775808ns", None),
        ("-9223372036854775808ns", -(2**63)),
    ],
)
def test_duration_text(text: str, nanoseconds: int | None) -> None:
    assert parse_duration_ns(text) == nanoseconds


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_formatted_duration_reads_back(nanoseconds: int) -> None:
    assert parse_duration_ns(format_duration(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(120 * 10**9, "2m0s"), (3600 * 10**9, "1h0m0s"), (1_500_000_000, "1.5s"), (5_000_000, "5ms")],
)
def test_durations_are_shown_as_go_shows_them(nanoseconds: int, text: str) -> None:
    assert format_duration(nanoseconds) == text


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_a_sum_of_times_stops_at_the_ends_of_64_bits(time_ns: int, duration_ns: int) -> None:
    found = later(time_ns, duration_ns)
    assert -(2**63) <= found <= DURATION_NS_MAX
    if -(2**63) <= time_ns + duration_ns < 2**63:
        assert found == time_ns + duration_ns
    else:
        assert (found > 0) == (duration_ns > 0)
