"""How far the blocks found at a start are to be trusted.

Owns the difference between the two reasons why bytes are not as they were written: a write that was
cut off, of which nothing was promised, and damage, which has lost something. Blocks record
themselves how far they were synced (`marks`); after that point bytes may have reached the disk in
any order. Corrects the results of a scan. Never changes a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.store.format.layout import RECORD_BYTES_MIN, Position
from tradewind.store.repair.units import UnitRule, half_units
from tradewind.store.table.marks import MARK_PREVIOUS_KIND, MARK_SYNCED_KIND
from tradewind.store.table.scan import BlockReport, Damage

if TYPE_CHECKING:
    from tradewind.store.table.block import Block


class BlockTrust:
    """The judgement of one start; `judge` comes first.

    `synced` is the point up to which a mark states that all is synced, None: no mark of Tradewind's
    does. `hole` is where untrustworthy bytes begin, None: there are none.
    """

    def __init__(self, units: UnitRule | None, synced_before: int) -> None:
        """`synced_before`: everything before this block was synced, according to the witness."""
        self.synced: Position | None = None
        self.hole: Position | None = None
        self._units = units
        self._synced_before = synced_before
        self._sizes: dict[int, int] = {}  # of blocks, as the next ones remember them

    def judge(self, found: list[tuple[Block, BlockReport]], *, removes_for_others: bool) -> None:
        """Find the hole, and add to the reports what a scan of single blocks cannot see.

        `removes_for_others`: whether a new message may remove another one.
        """
        self.hole = hole = self._cut_half_units(self._first_hole(found), found)
        ends_at_hole = self._units is not None and self._units.ends_at_hole
        if hole is not None and (removes_for_others or ends_at_hole):
            self._give_up_behind(hole, found)
        self._find_cuts(found)

    def _first_hole(self, found: list[tuple[Block, BlockReport]]) -> Position | None:
        """Find where the bytes that were never promised begin to be untrustworthy; None if they do
        not.

        After the last point that a mark states was synced, bytes may have reached the disk in any
        order. Messages there are valid, but a removal after a hole may have lost its cause.
        """
        synced = max(
            (
                (value >> 32, value & 0xFFFFFFFF)
                for _, report in found
                for kind, value, _ in report.marks
                if kind == MARK_SYNCED_KIND
            ),
            default=None,
        )
        if synced is None:
            return None
        self.synced = synced = max(synced, (self._synced_before, 0))
        sizes = {block.number: block.size for block, _ in found}
        holes: list[Position] = [
            (block.number, damage.offset)
            for block, report in found
            for damage in report.damage
            if damage.unfinished and (block.number, damage.offset) >= synced
        ]
        for _, report in found:
            for kind, value, _ in report.marks:
                number, size = value >> 32, value & 0xFFFFFFFF
                if kind == MARK_PREVIOUS_KIND and number >= synced[0]:
                    if number not in sizes and number == synced[0] and synced[1]:
                        continue  # its name was durable: it went later
                    actual = sizes.get(number, 0)
                    # This much of it was synced, with its name: another program has made it
                    # shorter.
                    is_foreign = number == synced[0] and actual < synced[1]
                    if actual < size and not is_foreign:
                        holes.append((number, actual))
        return min(holes, default=None)

    def _cut_half_units(
        self, hole: Position | None, found: list[tuple[Block, BlockReport]]
    ) -> Position | None:
        """Treat the rest of incomplete units as torn; returns where trust ends now.

        Removals after the first of them may have been made for its sake.
        """
        rule, synced = self._units, self.synced
        if rule is None or synced is None:
            return hole
        for block, report in found:
            if block.number < synced[0] or not block.written or block.compressed:
                continue
            start = synced[1] if block.number == synced[0] else 0
            trusted = None
            if hole is not None and block.number >= hole[0]:
                trusted = hole[1] if block.number == hole[0] else 0
            places = half_units(block, report, start, trusted, rule)
            if places:
                hole = min(
                    hole or (block.number, places[0].offset), (block.number, places[0].offset)
                )
            report.damage += [
                Damage(place.offset, place.size, place.seq - 1, 0, torn=True, unfinished=True)
                for place in places
            ]
            report.damage.sort(key=lambda damage: damage.offset)
        return hole

    def _give_up_behind(self, hole: Position, found: list[tuple[Block, BlockReport]]) -> None:
        """Treat everything after the hole as torn, for a store whose limits remove messages.

        A message there would remove another one, though the removal that had made room for it may
        be lost in the hole.
        """
        for block, report in found:
            start = hole[1] if block.number == hole[0] else 0
            if block.number < hole[0] or block.size <= start:
                continue
            before = [damage for damage in report.damage if damage.offset < start]
            after_seq = before[-1].after_seq if before else 0
            torn = Damage(start, block.size - start, after_seq, 0, torn=True, unfinished=True)
            report.damage = [*before, torn]
            report.tombstones.cut(start)
            report.marks = [entry for entry in report.marks if entry[2] < start]

    def _find_cuts(self, found: list[tuple[Block, BlockReport]]) -> None:
        """Find blocks that are shorter than the next one remembers.

        A compacted block is shorter by right; it has no mark at its beginning.
        """
        for _, report in found:
            for kind, value, _ in report.marks:
                if kind == MARK_PREVIOUS_KIND:
                    self._sizes[value >> 32] = value & 0xFFFFFFFF
        behind = 0
        for block, report in reversed(found):
            missing = self._sizes.get(block.number, 0) - block.size
            is_original = any(
                offset == 0 and kind == MARK_SYNCED_KIND for kind, _, offset in report.marks[:1]
            ) or any(damage.offset == 0 for damage in report.damage[:1])
            if (
                is_original
                and missing > 0
                and self.synced is not None
                and (block.number, block.size) < self.synced
            ):
                if report.damage and report.damage[-1].torn:
                    report.damage[-1].missing = missing
                elif missing >= RECORD_BYTES_MIN and behind > block.last_seq + 1:
                    after = block.last_seq
                    report.damage.append(
                        Damage(block.size, 0, after, 0, torn=True, missing=missing)
                    )
            behind = block.lowest_seq() or behind

    def is_torn(self, block: Block, damage: Damage, last: Block) -> bool:
        """Whether this is the end of a write that was cut off, and not rot.

        Tradewind's blocks record how far they were synced. In blocks without marks it is the end of
        the last block, unless it looks like a whole record with a wrong checksum.
        """
        if damage.offset >= self._sizes.get(block.number, 1 << 32) and not damage.missing:
            return True  # after the end that the next block knows of
        if self.hole is not None and (block.number, damage.offset) >= self.hole:
            return True  # nothing after a write that was cut off was promised, whatever is left
        if self.synced is not None:
            return damage.unfinished and (block.number, damage.offset) >= self.synced
        return damage.torn and damage.unfinished and block is last and not damage.claimed
