"""Cron patterns, compared with a walk from second to second."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.api.cron import load_zone, parse_cron
from tradewind.api.timings import parse_timing

# Changes of the clocks at one, two and three o'clock, at midnight, by half an hour, and none.
ZONES = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Africa/Cairo",
        "Australia/Lord_Howe",
        "Asia/Kolkata",
    ]
)
HORIZON_S = 8 * 3600
# Moments around changes of the clocks, and any other.
STARTS = st.one_of(
    st.sampled_from(
        [
            datetime(2027, 3, 28, tzinfo=UTC),
            datetime(2027, 10, 31, tzinfo=UTC),
            datetime(2027, 3, 14, 4, tzinfo=UTC),
            datetime(2027, 11, 7, 4, tzinfo=UTC),
            datetime(2027, 4, 29, 20, tzinfo=UTC),
            datetime(2027, 10, 28, 19, tzinfo=UTC),
            datetime(2027, 4, 3, 13, tzinfo=UTC),
            datetime(2027, 10, 2, 14, tzinfo=UTC),
            datetime(2027, 12, 31, 23, 59, 59, tzinfo=UTC),
        ]
    ).map(lambda moment: int(moment.timestamp())),
    st.integers(1_800_000_000, 1_900_000_000),
)


def field(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int], bool]]:
    """The text of a field, its numbers, and whether it says that any will do."""
    everything = frozenset(range(low, high + 1))
    number = st.integers(low, high)
    single = number.map(lambda value: (str(value), frozenset({value}), False))
    span = st.tuples(number, number, st.integers(1, 70)).map(
        lambda each: (
            f"{min(each[:2])}-{max(each[:2])}/{each[2]}",
            frozenset(range(min(each[:2]), max(each[:2]) + 1, each[2])),
            False,
        )
    )
    open_span = st.tuples(number, st.integers(1, 70)).map(
        lambda each: (f"{each[0]}/{each[1]}", frozenset(range(each[0], high + 1, each[1])), False)
    )
    stepped = st.integers(2, 70).map(
        lambda step: (f"*/{step}", frozenset(range(low, high + 1, step)), False)
    )
    anything = st.sampled_from(["*", "?", "*/1"]).map(lambda text: (text, everything, True))
    item = st.one_of(anything, single, span, open_span, stepped)
    return st.lists(item, min_size=1, max_size=2).map(
        lambda items: (
            ",".join(text for text, _, _ in items),
            frozenset().union(*(numbers for _, numbers, _ in items)),
            any(is_any for _, _, is_any in items),
        )
    )


FIELDS = st.tuples(
    field(0, 59), field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)
)


@settings(max_examples=60)
@given(FIELDS, STARTS, ZONES)
def test_next_time_is_that_of_the_walk(
    fields: tuple[tuple[str, frozenset[int], bool], ...], after_s: int, zone_name: str
) -> None:
    zone = ZoneInfo(zone_name)
    texts, numbers, anys = zip(*fields, strict=True)
    try:
        pattern = parse_cron(" ".join(texts))
    except ValueError:
        # Only the 30th of February and the like.
        assert numbers[3] <= {30, 31}
        assert numbers[4] <= {2, 4, 6, 9, 11}
        return
    found = pattern.next_after(after_s, zone)
    for at_s in range(after_s + 1, after_s + HORIZON_S):
        local = datetime.fromtimestamp(at_s, zone)
        is_day, is_weekday = local.day in numbers[3], local.isoweekday() % 7 in numbers[5]
        has_day = is_day and is_weekday if anys[3] or anys[5] else is_day or is_weekday
        if (
            local.second in numbers[0]
            and local.minute in numbers[1]
            and local.hour in numbers[2]
            and local.month in numbers[4]
            and has_day
        ):
            assert found == at_s
            return
        if found is not None and at_s > found:
            raise AssertionError(f"{found} does not match")
        if at_s - after_s > 120 and found is not None and found > after_s + HORIZON_S:
            return  # too far away to walk to


@given(st.text(max_size=40))
def test_any_text_is_a_pattern_or_an_error(text: str) -> None:
    with suppress(ValueError):
        assert parse_cron(text).seconds
    with suppress(ValueError):
        load_zone(text)


@pytest.mark.parametrize(
    ("pattern", "zone", "after", "expected"),
    [
        # A local time that does not occur in 2027.
        ("0 30 2 14 3 *", "America/New_York", "2026-11-01T00:00", "2028-03-14T06:30"),
        # One that occurs twice.
        ("0 30 1 7 11 *", "America/New_York", "2027-11-01T00:00", "2027-11-07T05:30"),
        ("0 30 1 7 11 *", "America/New_York", "2027-11-07T05:30", "2027-11-07T06:30"),
        ("0 0 0 29 2 ?", "UTC", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("@yearly", "UTC", "2026-01-01T00:00", "2027-01-01T00:00"),
        ("@weekly", "UTC", "2026-11-16T00:00", "2026-11-22T00:00"),
        ("0 0 12 13 * fri", "UTC", "2026-11-14T00:00", "2026-11-20T12:00"),
        ("0 0 12 ? * FRI", "UTC", "2026-11-14T00:00", "2026-11-20T12:00"),
    ],
)
def test_known_times(pattern: str, zone: str, after: str, expected: str) -> None:
    after_s = int(datetime.fromisoformat(after).replace(tzinfo=UTC).timestamp())
    found = parse_cron(pattern).next_after(after_s, ZoneInfo(zone))
    assert found is not None
    assert datetime.fromtimestamp(found, UTC).isoformat()[:16] == expected


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(1, 10**18))
def test_intervals_never_go_back(after_ns: int, now_ns: int, every_ns: int) -> None:
    seconds = every_ns / 1_000_000_000
    if seconds < 1:
        return
    timing = parse_timing(b"@every %dns" % every_ns, None, now_ns)
    next_ns = timing.next_ns(after_ns, now_ns)
    assert next_ns >= min(now_ns, 2**63 - 1)
    assert next_ns <= max(after_ns, now_ns) + every_ns + 500_000_000 or next_ns == 2**63 - 1
