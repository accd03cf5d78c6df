"""o.dat, the state of a consumer."""

from __future__ import annotations

import pytest

from tradewind.errors import CorruptRecord
from tradewind.store.format.consumer_file import (
    ConsumerState,
    PendingDelivery,
    SequencePair,
    encode_consumer_state,
    read_consumer_state,
)
from tradewind.store.format.varint import append_uvarint, append_varint

SECOND = 1_000_000_000
BASE = 1794766067
# A real file: floor (2, 3), delivered (11, 11), pending 11, 4, 9, 10, redelivered 10, 4, 9.
REAL = bytes.fromhex(
    "16 02 02 03 0b 0b 04 e6d3cfaf0d 080604 010104 060404 070504 03 0701 0101 0601"
)
REAL_STATE = ConsumerState(
    delivered=SequencePair(11, 11),
    ack_floor=SequencePair(2, 3),
    pending={
        11: PendingDelivery(8, (BASE - 2) * SECOND),
        4: PendingDelivery(3, (BASE - 2) * SECOND),
        9: PendingDelivery(6, (BASE - 2) * SECOND),
        10: PendingDelivery(7, (BASE - 2) * SECOND),
    },
    redelivered={10: 1, 4: 1, 9: 1},
)


def decode(data: bytes, path: str = "o.dat") -> ConsumerState:
    return read_consumer_state(data, path)[0]


def numbers(version: int, *values: int) -> bytes:
    """A file of uvarints behind the two bytes of the head."""
    target = bytearray((22, version))
    for value in values:
        append_uvarint(target, value)
    return bytes(target)


def test_a_real_file_is_read_and_written_to_the_byte() -> None:
    assert decode(REAL) == REAL_STATE
    assert encode_consumer_state(REAL_STATE, BASE * SECOND) == REAL


def test_a_fresh_consumer_of_new_messages() -> None:
    data = bytes.fromhex("1602001700170000")
    state = decode(data)
    assert state == ConsumerState(SequencePair(0, 23), SequencePair(0, 23))
    assert encode_consumer_state(state, 0) == data


def test_an_empty_file_is_a_consumer_that_never_delivered() -> None:
    assert decode(b"") == ConsumerState()


def test_the_write_time_is_rounded_to_seconds() -> None:
    assert encode_consumer_state(REAL_STATE, BASE * SECOND + SECOND // 2 - 1) == REAL
    assert encode_consumer_state(REAL_STATE, BASE * SECOND - SECOND // 2) == REAL
    assert encode_consumer_state(REAL_STATE, BASE * SECOND + SECOND // 2) != REAL


def test_times_are_cut_to_seconds() -> None:
    state = ConsumerState(
        pending={1: PendingDelivery(1, 5 * SECOND + 999_999_999), 2: PendingDelivery(2, -1)}
    )
    again = decode(encode_consumer_state(state, 7 * SECOND))
    assert again.pending == {1: PendingDelivery(1, 5 * SECOND), 2: PendingDelivery(2, 0)}


def test_a_time_in_the_future_does_not_become_a_negative_difference() -> None:
    state = ConsumerState(
        pending={1: PendingDelivery(1, 9 * SECOND), 2: PendingDelivery(2, 4 * SECOND)}
    )
    data = encode_consumer_state(state, 8 * SECOND)
    assert data == numbers(2, 0, 0, 0, 0, 2, 18, 1, 1, 0, 2, 2, 10, 0)
    assert decode(data) == state


def test_what_lies_below_the_floor_wraps_around() -> None:
    state = ConsumerState(
        SequencePair(5, 50), SequencePair(4, 40), {39: PendingDelivery(3, 0)}, {38: 2, 41: 1}
    )
    data = encode_consumer_state(state, 0)
    assert len(data) > 40
    assert decode(data) == state


def test_old_bytes_behind_the_state_are_ignored() -> None:
    assert decode(REAL + b"\xff\xff") == REAL_STATE


def test_redeliveries_at_the_floor_or_of_count_0_are_skipped() -> None:
    data = numbers(2, 3, 3, 7, 7, 0, 3, 0, 4, 2, 0, 1, 3)
    assert decode(data).redelivered == {4: 3}


@pytest.mark.parametrize(
    ("floor", "stored", "delivered"), [((0, 0), (5, 6), (5, 6)), ((3, 4), (5, 5), (7, 8))]
)
def test_version_1_has_the_next_sequences_relative_to_the_floor(
    floor: tuple[int, int], stored: tuple[int, int], delivered: tuple[int, int]
) -> None:
    state = decode(numbers(1, *floor, *stored, 0, 0))
    assert state == ConsumerState(SequencePair(*delivered), SequencePair(*floor))


def test_version_1_has_no_consumer_sequences_and_adds_times() -> None:
    data = bytearray(numbers(1, 3, 3, 5, 5, 2))
    append_varint(data, 100)
    for offset, seconds in ((1, 0), (4, 7)):
        append_uvarint(data, offset)
        append_varint(data, seconds)
    data += bytes((1, 4, 2))
    state = decode(bytes(data))
    assert state.pending == {
        4: PendingDelivery(0, 100 * SECOND),
        7: PendingDelivery(0, 107 * SECOND),
    }
    assert state.redelivered == {7: 2}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x16", "version: 1 bytes are needed"),
        (b"\x15\x02", "starts with 21 and 2"),
        (b"\x16\x03", "starts with 22 and 3"),
        (REAL[:5], "stream delivered: the number is cut off"),
        (REAL[:6], "number pending: the number is cut off"),
        (REAL[:-1], "number redelivered is 3, but only 5 bytes follow"),
        (REAL[:24], "number redelivered: the number is cut off"),
        (numbers(2, 0, 1 << 63, 0, 0, 0, 0), "bit 63"),
        (numbers(2, 0, 0, 0, 1 << 63, 0, 0), "bit 63"),
        (numbers(2, 0, 0, 0, 0, 1 << 62), "number pending is 4611686018427387904"),
        (numbers(2, 0, 0, 0, 0, 0, 1 << 62), "number redelivered is 4611686018427387904"),
        (numbers(2, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0), "sequence 0 is pending twice or is 0"),
        (numbers(2, 0, 0, 0, 0, 2, 0, 1, 1, 0, 1, 1, 0, 0), "sequence 1 is pending twice"),
        (numbers(2, 0, 0, 0, 0, 1, 1 << 63, 1, 1, 0, 0), "has the time 4611686018427387904 s"),
        (numbers(2, 0, 0, 0, 0, 1, 0, 1, 1), "pending time: the number is cut off"),
    ],
)
def test_what_is_no_state_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason) as caught:
        decode(data, "obs/C/o.dat")
    assert caught.value.path == "obs/C/o.dat"
