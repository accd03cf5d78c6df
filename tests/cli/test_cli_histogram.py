"""The histogram of durations, compared with the sorted list of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.cli.frame.histogram import Histogram
from tradewind.cli.frame.text_formats import short_duration

DURATIONS = st.lists(
    st.one_of(st.integers(0, 2000), st.integers(0, 10**15), st.integers(10**6, 10**9)),
    min_size=1,
    max_size=60,
)


def filled(durations: list[int]) -> Histogram:
    histogram = Histogram()
    for duration in durations:
        histogram.add(duration)
    return histogram


@given(DURATIONS, st.floats(0.1, 100))
def test_percentiles_are_right_to_two_percent(durations: list[int], percent: float) -> None:
    histogram = filled(durations)
    ordered = sorted(durations)
    wanted = max(len(ordered) * percent / 100, 1)
    exact = ordered[min(int(-(-wanted // 1)), len(ordered)) - 1]
    assert abs(histogram.percentile_ns(percent) - exact) <= exact / 50
    assert ordered[0] <= histogram.percentile_ns(percent) <= ordered[-1]


@given(DURATIONS, DURATIONS)
def test_merging_is_adding_all(first: list[int], second: list[int]) -> None:
    merged = filled(first)
    merged.merge(filled(second))
    assert merged.as_dict() == filled(first + second).as_dict()
    merged.merge(Histogram())
    assert merged.count == len(first) + len(second)


@given(DURATIONS)
def test_exact_figures_and_complete_ranges(durations: list[int]) -> None:
    histogram = filled(durations)
    assert (histogram.min_ns, histogram.max_ns) == (min(durations), max(durations))
    assert histogram.mean_ns == pytest.approx(sum(durations) / len(durations))
    ranges = histogram.ranges()
    assert 1 <= len(ranges) <= 12
    assert sum(each.count for each in ranges) == len(durations)
    assert ranges[-1].up_to_ns >= max(durations)
    lines = list(histogram.lines())
    assert lines[0].startswith("Latency: min ")
    assert len(lines) == len(ranges) + 2


def test_an_empty_histogram_has_nothing_to_show() -> None:
    assert list(Histogram().lines()) == []
    assert Histogram().ranges() == []
    assert Histogram().percentile_ns(99) == 0


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"),
        (48_213, "48.2µs"),
        (1_049_000, "1.05ms"),
        (999_999, "1ms"),
        (12_345_678_901, "12.3s"),
        (7, "7ns"),
    ],
)
def test_durations_are_shown_with_three_digits(duration_ns: int, text: str) -> None:
    assert short_duration(duration_ns) == text
