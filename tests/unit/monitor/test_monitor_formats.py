"""Durations, times, numbers and JSON look as the official server writes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.durations import format_duration
from tradewind.monitor.formats import (
    compact_json,
    indented_json,
    number,
    rounded_rtt_ns,
    timestamp,
    uptime,
)
from tradewind.monitor.monitor_documents import SubscriptionDetail

US, MS, S = 1_000, 1_000_000, 1_000_000_000


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (999, "999ns"),
        (1 * US, "1µs"),
        (1_100, "1.1µs"),
        (845 * US, "845µs"),
        (999_999, "999.999µs"),
        (1 * MS, "1ms"),
        (5_403_540, "5.40354ms"),
        (2_200 * MS, "2.2s"),
        (1 * S, "1s"),
        (60 * S, "1m0s"),
        (62 * S + 500 * MS, "1m2.5s"),
        (3600 * S, "1h0m0s"),
        (26 * 3600 * S + 1 * S, "26h0m1s"),
        (3 * S + 1, "3.000000001s"),
        (-62 * S, "-1m2s"),
        (-5, "-5ns"),
    ],
)
def test_durations_are_written_as_go_writes_them(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (18, "18s"),
        (62, "1m2s"),
        (3600, "1h0m0s"),
        (86_400 + 61, "1d0h1m1s"),
        (365 * 86_400, "1y0d0h0m0s"),
        (400 * 86_400 + 3_723, "1y35d1h2m3s"),
        (-5, "0s"),
    ],
)
def test_uptimes_have_whole_seconds_days_and_years(seconds: int, text: str) -> None:
    assert uptime(seconds * S) == text
    assert uptime(seconds * S + 999 * MS) == text if seconds >= 0 else True


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_794_770_144_583_020_414, "2026-11-15T19:15:44.583020414Z"),
        (1_794_770_163_723_070_450, "2026-11-15T19:16:03.72307045Z"),
        (1_794_770_163_000_000_000, "2026-11-15T19:16:03Z"),
        (1_794_770_163_000_000_001, "2026-11-15T19:16:03.000000001Z"),
        (32_503_680_000_000_000_000, "3000-01-01T00:00:00Z"),
    ],
)
def test_times_are_utc_without_trailing_zeros(time_ns: int, text: str) -> None:
    assert timestamp(time_ns) == text


@given(st.integers(0, 4_000_000_000 * S))
def test_every_time_can_be_read_back(time_ns: int) -> None:
    seconds, _, fraction = timestamp(time_ns)[:-1].partition(".")
    moment = datetime.strptime(seconds, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    assert int(moment.timestamp()) * S + int((fraction or "0").ljust(9, "0")) == time_ns


@pytest.mark.parametrize(
    ("rtt_ns", "rounded_ns"),
    [(0, 0), (999, 999), (1_001, 1_000), (412_999, 412_000), (1_000_001, 1_000_001)],
)
def test_round_trips_below_a_millisecond_are_whole_microseconds(
    rtt_ns: int, rounded_ns: int
) -> None:
    assert rounded_rtt_ns(rtt_ns) == rounded_ns


def test_whole_floats_are_written_without_a_fraction() -> None:
    assert compact_json([number(2.0), number(0.5), number(0.0)]) == b"[2,0.5,0]"


def test_markup_is_escaped_and_still_the_same_json() -> None:
    document = {"a>": "<script>&'\""}
    for encoded in (compact_json(document), indented_json(document)):
        assert not set(b"<>&") & set(encoded)
        assert json.loads(encoded) == document


def test_pages_are_indented_by_two_spaces() -> None:
    document = {"a": [1], "b": {}, "c": []}
    assert indented_json(document).decode() == json.dumps(document, indent=2)


def test_bytes_that_are_not_text_do_not_cost_the_page() -> None:
    subject = b"a.\xff\xe2\x82".decode("utf-8", "surrogateescape")
    document = {"subjects": [subject, "fine"], subject: 1}
    for encoded in (compact_json(document), indented_json(document)):
        page = json.loads(encoded)
        assert page["subjects"][1] == "fine"
        assert page["subjects"][0].startswith("a.\ufffd")
    detail = SubscriptionDetail(subject="\ud800", sid="1", msgs=0, cid=1)
    assert json.loads(compact_json([detail]))[0]["sid"] == "1"
