"""Timers of messages with a time to live, and thw.db."""

from __future__ import annotations

import struct

import pytest

from tradewind.errors import CorruptRecord
from tradewind.store.format.timing_wheel import TimingWheel

EMPTY_FILE = bytes.fromhex("01 0000000000000000 0100000000000000")


def filled(*timers: tuple[int, int]) -> TimingWheel:
    wheel = TimingWheel()
    for seq, expires_ns in timers:
        wheel.add(seq, expires_ns)
    return wheel


def test_timers_end_in_the_order_of_their_time() -> None:
    wheel = filled((1, 300), (2, 100), (3, 200), (4, 100))
    assert wheel.next_expiry == 100
    assert wheel.take_expired(99, 10) == []
    assert wheel.take_expired(200, 10) == [(2, 100), (4, 100), (3, 200)]
    assert (wheel.count, wheel.next_expiry) == (1, 300)


def test_no_more_than_the_limit_is_taken_at_once() -> None:
    wheel = filled(*((seq, 10) for seq in range(1, 6)))
    assert wheel.take_expired(10, 2) == [(1, 10), (2, 10)]
    assert wheel.take_expired(10, 0) == []
    assert len(wheel.take_expired(10, 100)) == 3
    assert wheel.next_expiry is None


def test_a_removed_timer_does_not_end() -> None:
    wheel = filled((1, 10), (2, 20))
    assert wheel.remove(1, 10)
    assert not wheel.remove(1, 10)
    assert (wheel.count, wheel.next_expiry) == (1, 20)
    assert wheel.take_expired(100, 10) == [(2, 20)]


def test_removing_needs_the_right_time() -> None:
    wheel = filled((1, 10))
    assert not wheel.remove(1, 11)
    assert not wheel.remove(2, 10)
    assert len(wheel) == 1


def test_a_sequence_has_one_timer_which_can_change() -> None:
    wheel = filled((1, 10), (1, 30), (2, 20), (1, 5), (1, 30), (1, 30))
    assert (wheel.count, wheel.next_expiry) == (2, 20)
    assert wheel.take_expired(100, 10) == [(2, 20), (1, 30)]


def test_sequence_0_is_refused() -> None:
    with pytest.raises(ValueError, match="sequence 0"):
        TimingWheel().add(0, 1)


def test_times_before_1970_and_far_away_are_times() -> None:
    wheel = filled((1, -(1 << 63)), (2, (1 << 63) - 1), (3, 0))
    assert wheel.take_expired(0, 10) == [(1, -(1 << 63)), (3, 0)]
    assert wheel.next_expiry == (1 << 63) - 1


def test_memory_is_given_back_when_timers_go() -> None:
    wheel = TimingWheel()
    for seq in range(1, 100_001):
        wheel.add(seq, seq)
    full = wheel.memory_bytes
    assert full < 100_000 * 80
    for seq in range(1, 99_001):
        assert wheel.remove(seq, seq)
    assert wheel.memory_bytes < full / 20
    assert wheel.take_expired(1 << 62, 10_000) == [(seq, seq) for seq in range(99_001, 100_001)]
    assert wheel.memory_bytes == 0


def test_changing_a_timer_over_and_over_does_not_pile_up() -> None:
    wheel = filled((1, 0))
    for time in range(100_000):
        wheel.add(1, time)
    assert wheel.memory_bytes < 10_000
    assert wheel.take_expired(1 << 62, 10) == [(1, 99_999)]


def test_the_file_of_a_stream_without_timers_has_17_bytes() -> None:
    assert TimingWheel().encode(1) == EMPTY_FILE
    wheel, stamp = TimingWheel.decode(EMPTY_FILE)
    assert (wheel.count, stamp) == (0, 1)


def test_the_file_of_one_timer() -> None:
    data = struct.pack("<BQQ", 1, 1, 8) + bytes.fromhex("aef3ddb8c78ea5e831") + b"\x07"
    wheel, stamp = TimingWheel.decode(data)
    assert stamp == 8
    assert wheel.encode(8) == data
    assert wheel.take_expired(1 << 62, 9) == [(7, 1794766065474714839)]


@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        (b"", 0, "0 bytes are too few"),
        (EMPTY_FILE[:-1], 0, "16 bytes are too few"),
        (b"\x02" + EMPTY_FILE[1:], 0, "version 2"),
        (struct.pack("<BQQ", 1, 1 << 60, 1), 1, "1152921504606846976 timers do not fit in 0 bytes"),
        (struct.pack("<BQQ", 1, 1, 1) + b"\x80\x80", 17, "an expiry is cut off"),
        (struct.pack("<BQQ", 1, 1, 1) + b"\xff" * 9 + b"\x02\x01", 17, "an expiry is cut off"),
        (struct.pack("<BQQ", 1, 1, 1) + b"\x02\x80", 18, "a sequence is cut off"),
        (struct.pack("<BQQ", 1, 1, 1) + b"\x02\x00", 18, "a sequence is cut off, 0"),
        (struct.pack("<BQQ", 1, 1, 1) + b"\x02\x01\x01", 19, "1 bytes follow"),
        (struct.pack("<BQQ", 1, 2, 1) + b"\x02\x01\x04\x01", 1, "same sequence"),
    ],
)
def test_what_is_no_thw_db_is_refused(data: bytes, offset: int, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason) as caught:
        TimingWheel.decode(data, "msgs/thw.db")
    assert (caught.value.path, caught.value.offset) == ("msgs/thw.db", offset)
