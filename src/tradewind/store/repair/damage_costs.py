"""The sequences that damage may have cost, if no summary knows them exactly.

Owns the estimate from the remains: the neighbours, the sizes, and readable parts of damaged
records. All damage between the same two messages of a block is one question with one answer, so
that no more sequences are named than there was room for. Changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container
from itertools import chain, groupby, islice, pairwise
from typing import TYPE_CHECKING

import msgspec

from tradewind.store.format.layout import RECORD_BYTES_MIN
from tradewind.store.format.sequence_set import SequenceSet
from tradewind.store.repair.index_summary import known_live

if TYPE_CHECKING:
    from tradewind.store.table.block import Block
    from tradewind.store.table.scan import BlockReport, Damage


def deletions(found: list[tuple[Block, BlockReport]]) -> SequenceSet:
    """The sequences of all tombstones."""
    deleted = SequenceSet()
    for _, report in found:
        for seq in report.tombstones.sequences:
            deleted.insert(seq)
    return deleted


class MentionedSequences:
    """The sequences that undamaged records mention: live messages, deleted and misplaced ones."""

    def __init__(self, found: list[tuple[Block, BlockReport]]) -> None:
        self._deleted = deletions(found)
        self._blocks = [block for block, _ in found if block.live_msgs]
        for _, report in found:
            for damage in report.damage:
                if damage.out_of_order:
                    self._deleted.insert(damage.before_seq)

    def __contains__(self, seq: object) -> bool:
        if not isinstance(seq, int):
            return False
        if seq in self._deleted:
            return True
        place = bisect_left(self._blocks, seq, key=lambda block: block.last_seq)
        if place == len(self._blocks):
            return False
        block = self._blocks[place]
        return block.first_seq <= seq and seq not in block.deleted


class BlockCosts(msgspec.Struct):
    """The possible costs of the damage of one block."""

    lost: dict[int, set[int]] = {}  # by the offset of the damage
    used_up: int = 0  # the last sequence that the end of the block may have held; 0: it is known


def block_costs(
    block: Block, report: BlockReport, torn: set[int], first_behind: int, spoken: Container[int]
) -> BlockCosts:
    """The costs of all damage except `torn` parts (by offset), which were never promised.

    `first_behind` is the first sequence of the following blocks; none is lost that is `spoken` of.
    """
    costs = BlockCosts()
    room = sum(damage.size + damage.missing for damage in report.damage) // RECORD_BYTES_MIN
    if any(damage.out_of_order for damage in report.damage):
        costs.lost[report.damage[-1].offset] = _of_mixed(block, report, first_behind, spoken)
        if not first_behind:
            costs.used_up = block.last_seq + max(room, 1)
        return costs
    rotten = (damage for damage in reversed(report.damage) if damage.offset not in torn)
    for after_seq, pieces in groupby(rotten, key=lambda damage: damage.after_seq):
        gap = list(pieces)
        lost = _of_gap(gap, first_behind, room, spoken)
        room -= len(lost)
        if not (lost or gap[0].before_seq or first_behind):
            # The content of the end is unknown; its numbers are not assigned again.
            costs.used_up = after_seq + max(room, 1)
        for damage in gap:
            costs.lost[damage.offset] = lost
    return costs


def _of_gap(gap: list[Damage], first_behind: int, room: int, spoken: Container[int]) -> set[int]:
    """The sequences that were in all damage between two messages, as far as can be determined.

    `room` is the number of records that fit into all damage of the block. If there are more
    sequences than that, messages were removed before, or sequences were skipped: then the readable
    parts of damaged records decide, or else which good neighbour is in the same block.
    """
    after_seq, before_seq = gap[0].after_seq, gap[0].before_seq
    sizes = [damage.size + damage.missing for damage in gap]
    claimed = {seq for damage in gap for seq in damage.claimed}
    low, before = after_seq + 1, before_seq or first_behind
    records = sum(sizes) // RECORD_BYTES_MIN or max(room, 1)
    if not before:
        highest_claim = min(max(claimed, default=0), low + records - 1)
        return {seq for seq in range(low, highest_claim + 1) if seq not in spoken}
    # The first bytes of a record may be all that is left of it.
    most = max(records, sum(-(-size // RECORD_BYTES_MIN) for size in sizes))
    sequences = range(low, before)
    ascending = list(islice((seq for seq in sequences if seq not in spoken), most + 1))
    if len(ascending) <= most:
        return set(ascending)
    lowest = set(ascending[:records])
    highest = set(islice((seq for seq in reversed(sequences) if seq not in spoken), records))
    if claimed and lowest.isdisjoint(claimed) != highest.isdisjoint(claimed):
        return highest if lowest.isdisjoint(claimed) else lowest
    claimed = {seq for seq in claimed if seq in sequences and seq not in spoken}
    if claimed and lowest.isdisjoint(claimed) and highest.isdisjoint(claimed):
        return claimed
    if after_seq == 0 or (before_seq and any(damage.at_start for damage in gap)):
        return highest
    return lowest


def _of_mixed(
    block: Block, report: BlockReport, first_behind: int, spoken: Container[int]
) -> set[int]:
    """The sequences lost by all damage of a block whose records are out of order."""
    misplaced = [damage.before_seq for damage in report.damage if damage.out_of_order]
    live = known_live(block) if block.live_msgs else ()
    present = sorted([*live, *misplaced])
    low = min(damage.after_seq for damage in report.damage)
    ends = [low, *present, first_behind or present[-1] + 1]
    # Sequences far from the messages of this block were removed before, or skipped.
    records = sum(damage.size for damage in report.damage if not damage.out_of_order)
    records //= RECORD_BYTES_MIN
    gaps = sorted((range(left + 1, right) for left, right in pairwise(ends)), key=len)
    from_neighbours = [gap if gap.start > low + 1 else gap[::-1] for gap in gaps]
    narrow = [gap for gap in from_neighbours if len(gap) <= records]
    wide = [gap[:records] for gap in from_neighbours if len(gap) > records]
    in_turn = (seq for nth in zip(*wide, strict=True) for seq in nth)
    candidates = (seq for seq in chain(*narrow, in_turn) if seq not in spoken)
    return set(islice(candidates, records))
