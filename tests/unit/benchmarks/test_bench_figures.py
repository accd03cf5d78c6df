"""Percentiles, spread, ratios and their printed form."""

import pytest
from benchmarks.build import is_stale
from benchmarks.figures import advantage, format_ratio, format_value, percentile, spread


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100)]
)
def test_percentile_is_the_nearest_rank(share: float, expected: int) -> None:
    assert percentile(range(1, 101), share) == expected


def test_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7], 0.99) == 7


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_spread_is_relative_to_the_median() -> None:
    assert spread([90, 100, 120]) == pytest.approx(0.3)
    assert spread([5]) is None
    assert spread([0, 0, 3]) == 0


def test_ratio_above_one_is_in_our_favour_in_both_directions() -> None:
    assert advantage(300, 100, higher_is_better=True) == 3
    assert advantage(100, 300, higher_is_better=False) == 3
    assert advantage(300, 100, higher_is_better=False) == pytest.approx(1 / 3)


def test_ratio_with_zero() -> None:
    assert advantage(0, 0, higher_is_better=False) == 1
    assert advantage(0, 5, higher_is_better=False) is None
    assert advantage(5, 0, higher_is_better=True) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1234567.8, "1,234,568"), (999.4, "999"), (42.84, "42.8"), (1.25, "1.25"), (0, "0.00")],
)
def test_values_are_printed_with_about_three_digits(value: float, expected: str) -> None:
    assert format_value(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(None, "n/a"), (0.5, "0.50x"), (9.994, "9.99x"), (12.34, "12.3x")]
)
def test_ratios_are_printed_with_a_unit(value: float | None, expected: str) -> None:
    assert format_ratio(value) == expected


def test_compiled_modules_are_stale_when_missing_or_older_than_any_source() -> None:
    assert is_stale([1.0], [], 1)
    assert is_stale([1.0, 2.0], [3.0], 2)
    assert is_stale([1.0, 5.0], [3.0, 6.0], 2)
    assert not is_stale([1.0, 2.0], [3.0, 3.0], 2)
