"""o.dat: the delivered and unacknowledged messages of a consumer.

Owns the format. It never touches the disk and never interprets the state. The file has no checksum,
so the decoder rejects everything that it can prove wrong.

    22, version 2
    uvarint ack floor: consumer seq, stream seq
    uvarint delivered: consumer seq, stream seq
    uvarint number pending; only if that is not 0: varint base time in seconds, and for each
        uvarint stream seq - floor, uvarint consumer seq - floor, varint base - time in seconds
    uvarint number redelivered, for each
        uvarint stream seq - floor, uvarint redeliveries (deliveries - 1)

Subtractions wrap at 64 bits. Bytes that follow are ignored: older servers wrote a shorter state
over a longer one. Version 1, which is only read, has the next sequences instead of the delivered
ones and relative to the floor, no consumer sequence per pending message, and base + time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from tradewind.durations import SECOND_NS
from tradewind.store.format.varint import U64_MASK, ByteReader, append_uvarint, append_varint

MAGIC: Final = 22
VERSION: Final = 2
_STREAM_SEQ_MAX: Final = (1 << 63) - 1
TIME_NS_MAX: Final = (1 << 63) - 1
_PENDING_BYTES_MIN: Final = 3
_PENDING_BYTES_MIN_VERSION_1: Final = 2
_REDELIVERED_BYTES_MIN: Final = 2


class SequencePair(NamedTuple):
    """One delivery: `consumer_seq` counts deliveries, `stream_seq` is the message."""

    consumer_seq: int = 0
    stream_seq: int = 0


NOTHING: Final = SequencePair()


class PendingDelivery(msgspec.Struct, frozen=True):
    """A message that was delivered and not acknowledged.

    `consumer_seq` is that of its first delivery. `time_ns` plus the ack wait is when it is due
    again; on disk it has whole seconds.
    """

    consumer_seq: int
    time_ns: int


class ConsumerState(msgspec.Struct):
    """The content of an o.dat; both tables are by stream sequence."""

    delivered: SequencePair = NOTHING
    ack_floor: SequencePair = NOTHING
    pending: dict[int, PendingDelivery] = {}
    redelivered: dict[int, int] = {}

    # A `StateSource` of `consumer_states` that is always written as a whole.

    @property
    def entry_count(self) -> int:
        """The number of messages in the state."""
        return len(self.pending) + len(self.redelivered)

    def encode_whole(self, now_ns: int) -> bytes:
        """Encode the whole state."""
        return encode_consumer_state(self, now_ns)

    def take_changes(self) -> bytes | None:
        """None, because changes are not recorded here."""
        return None


def encode_consumer_state(state: ConsumerState, now_ns: int) -> bytes:
    """Encode this state, written at `now_ns`."""
    floor = state.ack_floor
    target = bytearray((MAGIC, VERSION))
    append_uvarint(target, floor.consumer_seq)
    append_uvarint(target, floor.stream_seq)
    append_uvarint(target, state.delivered.consumer_seq)
    append_uvarint(target, state.delivered.stream_seq)
    append_uvarint(target, len(state.pending))
    if state.pending:
        latest_ns = max(pending.time_ns for pending in state.pending.values())
        # Not before the latest time: a difference of -1 means corruption to older servers.
        base_seconds = max(_rounded_seconds(now_ns), _seconds(latest_ns))
        append_varint(target, base_seconds)
        for stream_seq, pending in state.pending.items():
            append_uvarint(target, stream_seq - floor.stream_seq & U64_MASK)
            append_uvarint(target, pending.consumer_seq - floor.consumer_seq & U64_MASK)
            append_varint(target, base_seconds - _seconds(pending.time_ns))
    append_uvarint(target, len(state.redelivered))
    for stream_seq, redeliveries in state.redelivered.items():
        append_uvarint(target, stream_seq - floor.stream_seq & U64_MASK)
        append_uvarint(target, redeliveries)
    return bytes(target)


def _rounded_seconds(time_ns: int) -> int:
    return _seconds(time_ns + SECOND_NS // 2)


def _seconds(time_ns: int) -> int:
    """Whole seconds, truncated towards zero as in Go."""
    return time_ns // SECOND_NS if time_ns >= 0 else -(-time_ns // SECOND_NS)


def read_consumer_state(data: bytes, path: str) -> tuple[ConsumerState, int]:
    """Decode the file; returns also where it ends: bytes that follow are ignored here.

    An empty file is that of a consumer that never delivered.
    """
    if not data:
        return ConsumerState(), 0
    reader = ByteReader(data, path)
    magic, version = reader.fixed(1, "magic"), reader.fixed(1, "version")
    if magic != MAGIC or version not in (1, VERSION):
        raise reader.corrupt(
            f"it starts with {magic} and {version}, not with 22 and a version 1 or 2", 0
        )
    floor = SequencePair(reader.uvarint("ack floor"), reader.uvarint("stream ack floor"))
    delivered = SequencePair(reader.uvarint("delivered"), reader.uvarint("stream delivered"))
    if version == 1:
        delivered = SequencePair(
            _delivered_before_version_2(delivered.consumer_seq, floor.consumer_seq),
            _delivered_before_version_2(delivered.stream_seq, floor.stream_seq),
        )
    if floor.stream_seq > _STREAM_SEQ_MAX or delivered.stream_seq > _STREAM_SEQ_MAX:
        raise reader.corrupt("no stream sequence has bit 63", 2)
    state = ConsumerState(delivered, floor)
    _read_pending(reader, version, state)
    _read_redelivered(reader, state)
    return state, reader.offset


def _delivered_before_version_2(next_offset: int, floor: int) -> int:
    """The delivered sequence in version 1, which has the next one, relative to the floor if there
    is one.
    """
    return next_offset + floor - 1 & U64_MASK if floor > 1 else next_offset


def _read_pending(reader: ByteReader, version: int, state: ConsumerState) -> None:
    floor = state.ack_floor
    entry_bytes_min = _PENDING_BYTES_MIN if version == VERSION else _PENDING_BYTES_MIN_VERSION_1
    count = reader.count("number pending", entry_bytes_min)
    if not count:
        return
    base_seconds = reader.varint("base time")
    for _ in range(count):
        start = reader.offset
        stream_seq = reader.uvarint("pending sequence") + floor.stream_seq & U64_MASK
        consumer_seq = 0
        if version == VERSION:
            offset = reader.uvarint("pending delivery")
            consumer_seq = offset + floor.consumer_seq & U64_MASK
        seconds = reader.varint("pending time")
        seconds = base_seconds - seconds if version == VERSION else base_seconds + seconds
        time_ns = seconds * SECOND_NS
        if not -TIME_NS_MAX <= time_ns <= TIME_NS_MAX:
            raise reader.corrupt(f"a pending message has the time {seconds} s", start)
        if stream_seq == 0 or stream_seq in state.pending:
            raise reader.corrupt(f"sequence {stream_seq} is pending twice or is 0", start)
        state.pending[stream_seq] = PendingDelivery(consumer_seq, time_ns)


def _read_redelivered(reader: ByteReader, state: ConsumerState) -> None:
    for _ in range(reader.count("number redelivered", _REDELIVERED_BYTES_MIN)):
        offset = reader.uvarint("redelivered sequence")
        redeliveries = reader.uvarint("redeliveries")
        # The message at the floor is acknowledged, so the official server skips it too.
        if offset and redeliveries:
            state.redelivered[offset + state.ack_floor.stream_seq & U64_MASK] = redeliveries
