"""Salvages intact records from a damaged block.

Owns how damaged bytes are replaced: by a record of the same size that states only which sequence is
lost, so that no other record moves and all known offsets and sizes stay valid. It never changes a
file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import msgspec

from tradewind.store.format.layout import RECORD_BYTES_MIN
from tradewind.store.repair.damage import DamageEntry
from tradewind.store.repair.index_summary import known_live
from tradewind.store.table.block import Block
from tradewind.store.table.scan import Damage, record_places, recover_block
from tradewind.store.table.subject_index import SubjectIndex

SKIP = 1 << 63
# A tombstone of sequence 0 with time 0: both servers pass over it.
NOTHING = 1 << 62


class Salvage(msgspec.Struct):
    """The damage of a block, and the messages that it cost."""

    block: Block
    entries: list[DamageEntry]
    lost: list[int]
    is_told: bool = False  # in the log
    is_whole: bool = False  # nothing is wrong with it after all


def replacement(block: Block, damage: Damage, last_lost: int) -> bytes:
    """The bytes to write over damage; `last_lost` is the highest sequence that it cost, 0 if none.

    Bytes too few for a record are cut out instead.
    """
    flags = SKIP | last_lost if last_lost else NOTHING
    size = damage.size + damage.missing
    if size >= RECORD_BYTES_MIN:
        return block.filler_bytes(flags, size)
    return block.filler_bytes(flags, RECORD_BYTES_MIN) if last_lost else b""


def in_order(block: Block) -> bytes:
    """The bytes of a block whose records are all intact, with its messages in ascending order."""
    plain = block.plain()
    places = sorted(record_places(block), key=lambda place: place[0])
    return b"".join(plain[offset : offset + size] for _, offset, size in places)


def salvage_block(block: Block, stream: str) -> Salvage:
    """Find the intact content of a block whose totals are known, and continue with it in memory.

    Messages that the totals count as live and that cannot be found are lost: here that is known
    exactly. The caller updates the block itself.
    """
    probe = Block(stream, block.number, block.file)
    probe.adopt_readable()
    probe.suspects = block.suspects
    report = recover_block(probe, SubjectIndex(), max(block.first_seq, 1) - 1)
    damages = [damage for damage in report.damage if not damage.out_of_order]
    misplaced = [damage for damage in report.damage if damage.out_of_order]
    found = {*probe.live_sequences(), *(damage.before_seq for damage in misplaced)}
    lost = [seq for seq in known_live(block) if seq not in found]
    plain = probe.plain()
    if block.has_faulted() and not report.damage and not lost and len(plain) == block.size:
        # The disk did not give it a moment ago, and does now.
        block.adopt_again()
        return Salvage(block, [], [], is_whole=True)
    block.unreadable = probe.unreadable
    entries = [
        DamageEntry(block.number, damage.offset, damage.size, False, damage.before_seq, 0)
        for damage in misplaced
    ]
    parts: list[bytes] = []
    start, unexplained = 0, set(lost)
    for damage in damages:
        low = bisect_right(lost, damage.after_seq)
        high = bisect_left(lost, damage.before_seq) if damage.before_seq else len(lost)
        costs = lost[low:high]
        first, last = (costs[0], costs[-1]) if costs else (damage.after_seq + 1, damage.after_seq)
        entries.append(DamageEntry(block.number, damage.offset, damage.size, False, first, last))
        parts.append(plain[start : damage.offset])
        parts.append(replacement(probe, damage, last if costs else 0))
        start = damage.offset + damage.size
        unexplained.difference_update(costs)
    parts.append(plain[start:])
    if unexplained:
        # The file was cut, or other records are where these were.
        first, last = min(unexplained), max(unexplained)
        entries.append(DamageEntry(block.number, len(plain), 0, False, first, last))
        if last > max(found, default=0):
            parts.append(probe.filler_bytes(SKIP | block.last_seq, RECORD_BYTES_MIN))
    block.patch(b"".join(parts))
    if misplaced:
        block.patch(in_order(block))
        block.suspects = None  # other records are at those offsets now
    return Salvage(block, entries, lost)
