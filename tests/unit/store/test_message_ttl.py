"""What a Nats-TTL header may say; the official server's word on it is in tests/interop."""

from __future__ import annotations

import pytest

from tradewind.durations import DURATION_NS_MAX, SECOND_NS
from tradewind.store.format.message_ttl import NEVER, parse_ttl_ns


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"1", 1),
        (b"007", 7),
        (b"90s", 90),
        (b"1m30s", 90),
        (b"1h1m1s", 3661),
        (b"1.999s", 1),
        (b".5m", 30),
        (b"1500ms", 1),
        ("2000000µs".encode(), 2),
        (b"+3s", 3),
        (b"", 0),
    ],
)
def test_time_to_live_is_whole_seconds(value: bytes, seconds: int) -> None:
    assert parse_ttl_ns(value) == seconds * SECOND_NS


def test_never_is_told_in_any_case() -> None:
    assert {parse_ttl_ns(value) for value in (b"never", b"NEVER", b"Never")} == {NEVER}


def test_number_beyond_64_bits_is_as_long_as_possible() -> None:
    assert parse_ttl_ns(b"9" * 40) == DURATION_NS_MAX


@pytest.mark.parametrize(
    "value",
    [b"0", b"0s", b"999ms", b"-1", b"-5s", b"1 s", b"1d", b"s", b".s", b"5.", b"nope", b"1e3"],
)
def test_anything_else_is_refused_by_name(value: bytes) -> None:
    with pytest.raises(ValueError, match="time to live"):
        parse_ttl_ns(value)


def test_duration_beyond_64_bits_and_endless_text_are_refused() -> None:
    with pytest.raises(ValueError, match="292 years"):
        parse_ttl_ns(b"9999999h")
    with pytest.raises(ValueError, match="256 characters"):
        parse_ttl_ns(b"1" * 257)
