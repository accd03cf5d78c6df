"""Repairs a store in which damage is found while it is in use.

Owns the steps from the first damaged record that was read to intact files, and which listeners are
notified. Repair takes as long as reading the stream, so it proceeds with the commits of the store,
a few blocks at a time: the event loop never waits longer than that, and the store stays usable.

1. All blocks are read, so that all damage is found. Meanwhile subjects are counted again, because
   the subjects of the lost messages are unknown; and the contents of the files are compared with
   the tombstones, because damaged bytes may have been the only record of a deletion.
2. One commit rewrites the records that were lost this way, and writes the evidence: the damaged
   bytes and a report.
3. The following commits replace the damaged files by intact ones.

`index.db`, if it exists, stays until 2 is on disk: deletions recorded in damaged bytes are known
only to it and in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tradewind.errors import StoreError
from tradewind.store.format.sequence_set import SequenceSet
from tradewind.store.repair.damage import DamageFolder, RecoveryReport
from tradewind.store.repair.salvage import Salvage, salvage_block
from tradewind.store.table.adoption import drop_leading_blocks
from tradewind.store.table.losses import (
    count_block,
    finish_count,
    suspect_records,
    take_salvaged,
)
from tradewind.store.table.marks import write_again
from tradewind.store.table.scan import note_removals

if TYPE_CHECKING:
    from tradewind.store.folder.filestore import FileStore
    from tradewind.store.repair.known_losses import KnownLosses
    from tradewind.store.table.block import Block

# How much is read with one commit; one block at least.
STEP_BYTES = 8 * 1024 * 1024
# The intact content of damaged blocks is held in memory up to this size; the rest is read again.
PATCHED_BYTES_MAX = 64 * 1024 * 1024


class Evidence(msgspec.Struct):
    """A report and the damaged bytes; `save` is for the worker of a commit."""

    folder: DamageFolder
    report: RecoveryReport
    blocks: list[Block] = msgspec.field(default_factory=list)

    def save(self) -> None:
        """Save it durably, before anything replaces those bytes."""
        if not self.report.is_clean:
            self.folder.save(self.report, self.blocks)


class DamageResolution:
    """The resolution of damage in one store; it has nothing to do until damage is found.

    `on_report` is called with the losses, `on_work` if it takes commits to resolve the damage.
    """

    def __init__(self, store: FileStore, folder: DamageFolder, losses: KnownLosses) -> None:
        self.on_report: Callable[[RecoveryReport], None] | None = None
        self.on_work: Callable[[], None] | None = None
        self._store = store
        self._folder = folder
        self._losses = losses
        self._resolved: list[RecoveryReport] = []
        self._found: list[Salvage] = []
        self._reported: set[tuple[int, int]] = set()  # block and offset
        self._damaged_last: Block | None = None
        self._held = SequenceSet()  # messages that lie in blocks though they are gone
        self._told = SequenceSet()  # those that tombstones say are gone
        self._is_read = False
        self._is_stuck = False

    @property
    def has_work(self) -> bool:
        """Whether the next commits have to continue the resolution."""
        return self._store.table.has_open_damage and not self._is_stuck

    # -------------------------------------------------------------- told by the store

    def found(self, block: Block) -> None:
        """Continue with the intact records of a block that does not match its known content."""
        self._salvage(block)
        self._wake()

    def _salvage(self, block: Block) -> None:
        block.suspects = suspect_records(self._store.table, block)
        found = salvage_block(block, self._store.name)
        if found.is_whole:
            self._store.table.load_index(block)
            return
        take_salvaged(self._store.table, block, found.lost)
        places = {(entry.block, entry.offset) for entry in found.entries}
        self._is_read = self._is_read and places <= self._reported
        if not found.entries or not places <= self._reported:
            self._reported |= places
            self._found.append(found)
            self._losses.add(self._report([found]))
        if self._store.failure is not None:
            self.interrupted(self._store.failure)
        self._limit_memory(block)

    def found_in_last(self, block: Block) -> None:
        """Note damage in the block that is being written: it has to be sealed before anything
        else.
        """
        self._damaged_last = block
        self._store.table.has_open_damage = True
        self._is_read = False
        self._wake()

    def file_replaced(self, block: Block) -> None:
        """Forget the reported damage of a block whose file was replaced."""
        self._reported = {place for place in self._reported if place[0] != block.number}

    def interrupted(self, error: StoreError) -> None:
        """Report what is known, because the disk has failed; repairs have to wait."""
        untold = [salvage for salvage in self._found if not salvage.is_told]
        if untold:
            report = self._report(untold)
            report.notes.append(f"the stream is read-only, the damage is not repaired yet: {error}")
            self._tell(report, untold)

    def _limit_memory(self, kept: Block) -> None:
        patched = sum(salvage.block.size for salvage in self._found if salvage.block.patched)
        for salvage in self._found:
            if patched <= PATCHED_BYTES_MAX:
                return
            if salvage.block.patched and salvage.block is not kept:
                patched -= salvage.block.size
                salvage.block.unpatch()

    # -------------------------------------------------------------- with the commits

    def next_evidence(self) -> Evidence | None:
        """Read some blocks; after the last one, repeat lost tombstones and return the evidence to
        be saved.

        Everything appended must have been written.
        """
        try:
            if not self._is_read and not self._read_some():
                return None
        except StoreError as error:
            if self._store.failure is not None:
                raise
            # A file cannot be read: the next start is the next chance.
            self._is_stuck = True
            note = f"the stream cannot be read, damage is not repaired: {error}"
            self._tell(RecoveryReport(self._store.name, notes=[note]), [])
            return None
        if not self._is_read:
            self._is_read = True
            finish_count(self._store.table)
            write_again(self._store.table, [seq for seq in self._held if seq not in self._told])
            self._held, self._told = SequenceSet(), SequenceSet()
        return Evidence(
            self._folder, self._report(self._found), [found.block for found in self._found]
        )

    def _read_some(self) -> bool:
        """Read some blocks; false as long as there are more."""
        store, left = self._store, STEP_BYTES
        self._seal_damaged()
        if store.table.recount.below == 0:
            self._held, self._told = SequenceSet(), SequenceSet()
        while (block := self._next_block()) is not None:
            if left <= 0 and block is not store.table.last:
                return False
            count_block(store.table, block)
            note_removals(block, self._held, self._told)
            left -= block.size
        for block in store.chores.unremoved_blocks:
            note_removals(block, self._held, SequenceSet())
            block.release()
        return True

    def _next_block(self) -> Block | None:
        below = self._store.table.recount.below
        return next((block for block in self._store.table.blocks if block.number >= below), None)

    def _seal_damaged(self) -> None:
        """Seal a damaged block: files are only repaired when nothing is appended to them any
        more.
        """
        store, block = self._store, self._damaged_last
        self._damaged_last = None
        if block is store.table.last:
            store.table.add_block()
            store.flush()
        if block is not None and block in store.table.blocks:
            self.found(block)

    def resolved(self, evidence: Evidence) -> None:
        """Called when the evidence is on disk: the files can be repaired."""
        done = {id(block) for block in evidence.blocks}
        saved = [salvage for salvage in self._found if id(salvage.block) in done]
        self._found = [salvage for salvage in self._found if id(salvage.block) not in done]
        report = evidence.report
        if report.is_clean:
            report.notes.append("subjects in the blocks were not those of index.db")
        if not all(salvage.is_told for salvage in saved) or not saved:
            self._tell(report, saved)
        for salvage in saved:
            self._store.rewriter.repair(salvage.block)
        drop_leading_blocks(self._store.table)
        if self._is_read and not self._found:
            self._is_read = False
            self._store.table.has_open_damage = False
            self._store.table.begin_trimming()
            self._wake()
        self._resolved.append(report)

    def resolve_all(self) -> list[RecoveryReport]:
        """Resolve all damage found now; for recovery, tests and tools."""
        try:
            self._store.commit()
        except StoreError:
            assert self._store.failure is not None  # the next write gets the error
        while self._store.table.limit_step():
            pass
        resolved, self._resolved = self._resolved, []
        return resolved

    def _report(self, found: list[Salvage]) -> RecoveryReport:
        report = RecoveryReport(self._store.name)
        for salvage in found:
            report.damage += salvage.entries
            report.add_lost(salvage.lost)
        report.first_seq = self._store.table.first_seq
        return report

    def _tell(self, report: RecoveryReport, found: list[Salvage]) -> None:
        for salvage in found:
            salvage.is_told = True
        if self.on_report is not None:
            self.on_report(report)

    def _wake(self) -> None:
        """Have a commit begun, because something is left to be done."""
        if self.on_work is not None:
            self.on_work()
