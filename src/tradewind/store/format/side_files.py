"""sched.db and sources.db: data that a stream would otherwise have to find in all its messages.

Owns both formats. It never touches the disk. Each file has a stamp, the stream's next sequence when
it was written: the contents cover all lower sequences, and the reader scans the messages from
there. An old or missing file is therefore harmless, and a corrupt one is treated as missing.
Neither has a checksum.

    1 | u64 LE count | u64 LE stamp | count times:
    sched.db     u16 LE length, subject | varint next fire time in ns | uvarint seq
    sources.db   uvarint length, source name | uvarint seq | uvarint length, identity
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tradewind.store.format.varint import ByteReader, append_uvarint, append_varint

VERSION: Final = 1
SUBJECT_BYTES_MAX: Final = 0xFFFF
_SCHEDULE_BYTES_MIN: Final = 4
_SOURCE_BYTES_MIN: Final = 3


class Schedule(msgspec.Struct, frozen=True):
    """A message `seq` on `subject` with the time of its next publish."""

    subject: bytes
    fire_ns: int
    seq: int


class SourcePosition(msgspec.Struct, frozen=True):
    """The last sequence taken from a source.

    `name` is the source with its filter and destination, as in the Nats-Stream-Source header;
    `identity` distinguishes streams that had the same name at different times.
    """

    name: bytes
    seq: int
    identity: bytes


def encode_schedules(schedules: Sequence[Schedule], stamp: int) -> bytes:
    """Encode a sched.db of these schedules, complete for all sequences below `stamp`."""
    target = _head(len(schedules), stamp)
    for schedule in schedules:
        if len(schedule.subject) > SUBJECT_BYTES_MAX:
            raise ValueError(f"a subject of {len(schedule.subject)} bytes in a schedule")
        target += len(schedule.subject).to_bytes(2, "little")
        target += schedule.subject
        append_varint(target, schedule.fire_ns)
        append_uvarint(target, schedule.seq)
    return bytes(target)


def decode_schedules(data: bytes, path: str = "sched.db") -> tuple[list[Schedule], int]:
    """The schedules and the stamp of a sched.db."""
    reader = ByteReader(data, path)
    count, stamp = _read_head(reader, _SCHEDULE_BYTES_MIN)
    schedules = []
    for _ in range(count):
        subject = reader.take(reader.fixed(2, "subject length"), "subject")
        schedules.append(Schedule(subject, reader.varint("fire time"), reader.uvarint("sequence")))
    reader.expect_end()
    return schedules, stamp


def encode_sources(sources: Sequence[SourcePosition], stamp: int) -> bytes:
    """Encode a sources.db of these positions, complete for all sequences below `stamp`."""
    target = _head(len(sources), stamp)
    for source in sources:
        append_uvarint(target, len(source.name))
        target += source.name
        append_uvarint(target, source.seq)
        append_uvarint(target, len(source.identity))
        target += source.identity
    return bytes(target)


def decode_sources(data: bytes, path: str = "sources.db") -> tuple[list[SourcePosition], int]:
    """The positions and the stamp of a sources.db."""
    reader = ByteReader(data, path)
    count, stamp = _read_head(reader, _SOURCE_BYTES_MIN)
    sources = []
    for _ in range(count):
        name = reader.take(reader.uvarint("length of a source's name"), "source name")
        seq = reader.uvarint("source sequence")
        identity = reader.take(reader.uvarint("length of a source's identity"), "identity")
        sources.append(SourcePosition(name, seq, identity))
    reader.expect_end()
    return sources, stamp


def _head(count: int, stamp: int) -> bytearray:
    return bytearray((VERSION, *count.to_bytes(8, "little"), *stamp.to_bytes(8, "little")))


def _read_head(reader: ByteReader, entry_bytes_min: int) -> tuple[int, int]:
    version = reader.fixed(1, "version")
    if version != VERSION:
        raise reader.corrupt(f"version {version} is not known, only 1 is", 0)
    count = reader.fixed(8, "count")
    stamp = reader.fixed(8, "stamp")
    if count > reader.left // entry_bytes_min:
        raise reader.corrupt(f"{count} entries do not fit in {reader.left} bytes", 1)
    return count, stamp
