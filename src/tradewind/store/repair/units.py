"""Groups of messages that must exist together or not at all after a crash.

Owns finding groups that have arrived only in part. A group is stored in one block between two
commits, so it is synced as a whole, or none of it was acknowledged. Only bytes after the last known
sync can contain a part of a group.

A mark before a group defines what belongs to it. After the first hole, which only a power
failure leaves, that mark may be lost; there the headers of the messages are used, which the caller
interprets (`UnitRule`). Headers alone would not be enough: a message that was stored on its own may
contain the same headers, and may have been acknowledged before any sync. It never changes anything.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.errors import StoreError
from tradewind.store.format.layout import RECORD_BYTES_MIN
from tradewind.store.table.marks import MARK_UNIT_KIND

if TYPE_CHECKING:
    from tradewind.store.table.block import Block
    from tradewind.store.table.scan import BlockReport

_HEAD: Final = struct.Struct("<IQqH")  # length, sequence, time, size of the subject
_HEADER_FLAG: Final = 1 << 31
_TOMBSTONE: Final = 1 << 62
_SKIP: Final = 1 << 63


class UnitPart(msgspec.Struct, frozen=True):
    """The place of a message in its unit; `number` counts from 1."""

    unit: bytes
    number: int
    is_last: bool


class UnitRule(msgspec.Struct, frozen=True):
    """The rule for recognising units.

    `part_of` returns the part that a message with this header is, None if it is not in a unit.
    `sign` is in the header of every part: messages without it are skipped. `ends_at_hole`: nothing
    after a hole is kept, because it is going to be stored again, in its order.
    """

    part_of: Callable[[bytes], UnitPart | None]
    sign: bytes
    ends_at_hole: bool = False


class MessagePlace(msgspec.Struct, frozen=True, order=True):
    """The place of a message that may have to be cut out."""

    offset: int
    size: int
    seq: int


class _Unit(msgspec.Struct):
    """The found parts of a unit. `first_seq` is the sequence of its part 1, whether that exists or
    not.
    """

    first_seq: int
    places: list[MessagePlace]
    last_seq: int = 0  # of its last part, if that is there


def half_units(
    block: Block, report: BlockReport, start: int, hole: int | None, rule: UnitRule
) -> list[MessagePlace]:
    """The messages to remove after an offset of a block: incomplete units, with their marks, in
    order. `hole` is where the first hole is, None: there is none up to the end of the block.

    Deleted messages are still there, or have left a record in their place.
    """
    marks = [
        (offset, count)
        for kind, count, offset in report.marks
        if kind == MARK_UNIT_KIND and offset >= start and (hole is None or offset < hole)
    ]
    if not marks and hole is None:
        return []
    with block.plain_view() as view:
        data = bytes(view)
    block.unmap()
    if not marks and data.find(rule.sign, start) < 0:
        return []
    found = [(place, head) for place, head in _messages(data, report) if place.offset >= start]
    places = [place for place, _ in found]
    there = {place.seq for place in places}
    cut = _half_marked(marks, places, there, hole)
    if hole is not None:
        cut |= _half_by_header([one for one in found if one[0].offset >= hole], there, rule)
    return sorted(cut)


def _half_marked(
    marks: list[tuple[int, int]], places: list[MessagePlace], there: set[int], hole: int | None
) -> set[MessagePlace]:
    """The messages of incomplete units according to marks, each given by its offset and number of
    messages.
    """
    cut: set[MessagePlace] = set()
    ends = [offset for offset, _ in marks[1:]]
    for (offset, count), end in zip_longest(marks, ends):
        if count == 0:
            continue  # it only ends the one before
        behind = [place for place in places if place.offset > offset]
        if behind and (hole is None or behind[0].offset < hole):
            first_seq = behind[0].seq
            unit = range(first_seq, first_seq + count)
            if end is not None:
                # Another mark follows before all parts: the unit was given up and reported.
                unit = range(first_seq, min(unit.stop, _seq_behind(places, end)))
            if all(seq in there for seq in unit):
                continue
            cut.update(place for place in behind if place.seq in unit)
        seq = behind[0].seq if behind else places[-1].seq + 1 if places else 1
        cut.add(MessagePlace(offset, RECORD_BYTES_MIN, seq))
    return cut


def _seq_behind(places: list[MessagePlace], offset: int) -> int:
    """The first sequence after an offset."""
    later = (place.seq for place in places if place.offset > offset)
    return next(later, places[-1].seq + 1)


def _half_by_header(
    found: list[tuple[MessagePlace, bytes]], there: set[int], rule: UnitRule
) -> set[MessagePlace]:
    """The messages of incomplete units according to their headers."""
    units: dict[tuple[bytes, int], _Unit] = {}
    for place, header in found:
        part = rule.part_of(header) if rule.sign in header else None
        if part is not None:
            first_seq = place.seq - part.number + 1
            unit = units.setdefault((part.unit, first_seq), _Unit(first_seq, []))
            unit.places.append(place)
            if part.is_last:
                unit.last_seq = place.seq
    halves = (unit for unit in units.values() if not _is_whole(unit, there))
    return {place for unit in halves for place in unit.places}


def _is_whole(unit: _Unit, there: set[int]) -> bool:
    # The sequence after the last part that is there can only be the end of the unit, erased.
    last_seq = unit.last_seq or unit.places[-1].seq + 1
    return all(seq in there for seq in range(unit.first_seq, last_seq + 1))


def _messages(data: bytes, report: BlockReport) -> Iterator[tuple[MessagePlace, bytes]]:
    """All messages and their headers; a record that only uses a sequence has none."""
    damage = {entry.offset: entry.size for entry in report.damage if not entry.out_of_order}
    offset = 0
    while offset < len(data):
        if offset in damage:
            offset += max(damage[offset], 1)
            continue
        length, sequence, _, subject_size = _HEAD.unpack_from(data, offset)
        size = length & ~_HEADER_FLAG
        if size < _HEAD.size:
            raise StoreError(f"byte {offset} of a block that was read is not a record")
        if not sequence & _TOMBSTONE:
            header = b""
            if length & _HEADER_FLAG and not sequence & _SKIP:
                begin = offset + _HEAD.size + subject_size + 4
                header_size = int.from_bytes(data[begin - 4 : begin], "little")
                header = data[begin : begin + header_size]
            yield MessagePlace(offset, size, sequence & ~_SKIP), header
        offset += size
