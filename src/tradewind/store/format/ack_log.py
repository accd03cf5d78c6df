"""tradewind.acks.<N>: changes of the consumers of a stream since their o.dat was written.

Owns the format of this log and of the trailer of an o.dat that its records follow, and applying the
one to the other. It never touches the disk. nats-server knows neither: it reads an o.dat up to the
end of its state, and leaves unknown files alone.

    o.dat:   the state (`consumer_file`), then
             if times have parts of a second: 8 bytes "twexact1", uvarint number of them, for each
                 uvarint stream seq - floor, varint nanoseconds to add
             8 bytes "twacks-1", 8 LE number of this o.dat, 8 LE hash of all before
    the log: 8 bytes "twacks-1", 8 LE number N, then records:
             4 LE size of the body, 8 LE hash of N, the record's offset and the body, body
             then possibly zeros, which later records overwrite

    body:    uvarint size of the name, name of the consumer, uvarint number of the o.dat it follows
             uvarint ack floor: consumer seq, stream seq; uvarint delivered: the same
             uvarint number of messages that have changed, for each, rising
                 uvarint stream seq - that of the one before
                 uvarint 1 if it is pending, plus 2 if it was redelivered, plus 4 if it is exact
                 if pending: uvarint consumer seq, varint time in seconds
                 if exact: varint nanoseconds to add
                 if redelivered: uvarint redeliveries

A record belongs to the o.dat with its number, and to no other: one that nats-server has written
since has none. A number is used once in a stream, and all records that follow one o.dat are in one
log. They are only appended, and a commit syncs all before it; so the first one that does not verify
is where a write was cut off, and it was never promised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from tradewind.durations import SECOND_NS
from tradewind.errors import CorruptRecord
from tradewind.store.format.consumer_file import (
    TIME_NS_MAX,
    ConsumerState,
    PendingDelivery,
    SequencePair,
    read_consumer_state,
)
from tradewind.store.format.hash import key_for
from tradewind.store.format.varint import U64_MASK, ByteReader, append_uvarint

LOG_PREFIX: Final = "tradewind.acks."
# Numbers are times, until the year 2116; what is above was not written by us.
NUMBER_MAX: Final = 1 << 62
MAGIC: Final = b"twacks-1"
HEADER_BYTES: Final = 16
TRAILER_BYTES: Final = 24
_FRAME_BYTES: Final = 12
_IS_PENDING: Final = 1
_IS_REDELIVERED: Final = 2
_IS_EXACT: Final = 4
_EXACT_MAGIC: Final = b"twexact1"
_EXACT_BYTES_MIN: Final = 2
_CHANGE_BYTES_MIN: Final = 2
_KEY: Final = key_for("tradewind acks")


def log_name(number: int) -> str:
    """The file name of a log."""
    return f"{LOG_PREFIX}{number}"


def log_numbers(names: list[str]) -> list[int]:
    """The numbers of the logs among the files of a stream."""
    found = [name.removeprefix(LOG_PREFIX) for name in names if name.startswith(LOG_PREFIX)]
    numbers = [int(digits) for digits in found if digits.isascii() and digits.isdigit()]
    return [number for number in numbers if number < NUMBER_MAX and log_name(number) in names]


def next_number(last: int, now_ns: int) -> int:
    """A number that was never used: `last` is the highest known, and a clock may have been set
    back.
    """
    return max(last + 1, min(now_ns, NUMBER_MAX // 2))


def with_trailer(state: bytes, number: int) -> bytes:
    """An o.dat with this number, which records may follow."""
    content = state + MAGIC + number.to_bytes(8, "little")
    return content + _KEY.hash(content)


def decode_with_trailer(data: bytes, path: str = "o.dat") -> tuple[ConsumerState, int]:
    """The state in an o.dat, and its number; 0: it has none, so no record can follow."""
    state, end = read_consumer_state(data, path)
    times: list[tuple[int, int]] = []
    if data.startswith(_EXACT_MAGIC, end):
        times, end = _read_exact_times(data, path, end, state)
    if len(data) - end != TRAILER_BYTES or data[end : end + len(MAGIC)] != MAGIC:
        return state, 0
    if _KEY.hash(data[:-8]) != data[-8:]:
        raise CorruptRecord(path, len(data) - 8, "the checksum does not match the state")
    number = int.from_bytes(data[end + len(MAGIC) : -8], "little")
    if number >= NUMBER_MAX:
        raise CorruptRecord(path, end, f"its number is {number}, it must be below 2^62")
    for seq, time_ns in times:
        state.pending[seq] = replace(state.pending[seq], time_ns=time_ns)
    return state, number


def _read_exact_times(
    data: bytes, path: str, start: int, state: ConsumerState
) -> tuple[list[tuple[int, int]], int]:
    """Parse [(sequence, time)]; returns also where this ends. It counts only if the checksum after
    it fits.
    """
    reader = ByteReader(data, path, start + len(_EXACT_MAGIC))
    times = []
    for _ in range(reader.count("number exact", _EXACT_BYTES_MIN)):
        seq = reader.uvarint("exact sequence") + state.ack_floor.stream_seq & U64_MASK
        rest_ns = reader.varint("part of a second")
        if seq not in state.pending:
            raise reader.corrupt(f"sequence {seq} has an exact time and is not pending")
        times.append((seq, _exact_time(reader, state.pending[seq].time_ns, rest_ns)))
    return times, reader.offset


def _exact_time(reader: ByteReader, whole_ns: int, rest_ns: int) -> int:
    if not -SECOND_NS < rest_ns < SECOND_NS:
        raise reader.corrupt(f"a time has {rest_ns} ns beside its seconds")
    return min(max(whole_ns + rest_ns, -TIME_NS_MAX), TIME_NS_MAX)


def log_header(number: int) -> bytes:
    """The beginning of a log."""
    return MAGIC + number.to_bytes(8, "little")


def record_prefix(consumer: str, follows: int) -> bytes:
    """The prefix of the bodies of records that follow the o.dat with number `follows`."""
    name = consumer.encode()
    body = bytearray()
    append_uvarint(body, len(name))
    body += name
    append_uvarint(body, follows)
    return bytes(body)


def frame_record(number: int, offset: int, body: bytes) -> bytes:
    """A record with this body that begins at `offset` of the log `number`."""
    return len(body).to_bytes(4, "little") + _record_hash(number, offset, body) + body


def _record_hash(number: int, offset: int, body: bytes) -> bytes:
    return _KEY.hash_parts([number.to_bytes(8, "little"), offset.to_bytes(8, "little"), body])


class LogRecord(msgspec.Struct, frozen=True):
    """A complete record; `changes` begins with the changed values."""

    consumer: str
    follows: int
    changes: ByteReader


def read_log(number: int, data: bytes, path: str) -> list[LogRecord]:
    """The complete records of a log."""
    if data[:HEADER_BYTES] != log_header(number):
        return []
    offset, records = HEADER_BYTES, []
    while len(data) - offset > _FRAME_BYTES:
        start = offset + _FRAME_BYTES
        end = start + int.from_bytes(data[offset : offset + 4], "little")
        if (
            end > len(data)
            or _record_hash(number, offset, data[start:end]) != data[offset + 4 : start]
        ):
            break
        reader = ByteReader(data, path, start, end)
        name = reader.take(reader.uvarint("size of the name"), "name").decode(errors="replace")
        records.append(LogRecord(name, reader.uvarint("number of the state"), reader))
        offset = end
    return records


def apply_records(state: ConsumerState, number: int, records: Iterable[LogRecord]) -> None:
    """Update the state in an o.dat of this number with the records of its consumer."""
    for record in records:
        if number and record.follows == number:
            _apply_record(state, record.changes)


def _apply_record(state: ConsumerState, reader: ByteReader) -> None:
    """Apply a record that verifies; an error in it is reported with its place, since only this
    format's writer can have made it.
    """
    floor = SequencePair(reader.uvarint("ack floor"), reader.uvarint("stream ack floor"))
    state.delivered = SequencePair(reader.uvarint("delivered"), reader.uvarint("stream delivered"))
    state.ack_floor = floor
    seq = 0
    for _ in range(reader.count("number changed", _CHANGE_BYTES_MIN)):
        seq = seq + reader.uvarint("changed sequence") & U64_MASK
        known = reader.uvarint("what is known")
        state.pending.pop(seq, None)
        state.redelivered.pop(seq, None)
        if known & _IS_PENDING:
            consumer_seq, seconds = reader.uvarint("pending delivery"), reader.varint("time")
            if not -TIME_NS_MAX <= seconds * SECOND_NS <= TIME_NS_MAX:
                raise reader.corrupt(f"a pending message has the time {seconds} s")
            time_ns = seconds * SECOND_NS
            if known & _IS_EXACT:
                time_ns = _exact_time(reader, time_ns, reader.varint("part of a second"))
            state.pending[seq] = PendingDelivery(consumer_seq, time_ns)
        if known & _IS_REDELIVERED:
            state.redelivered[seq] = reader.uvarint("redeliveries")
    reader.expect_end()
