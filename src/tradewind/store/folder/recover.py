"""Opens the folder of a stream.

Turns whatever is on disk into a correct FileStore, or an error with the reason.

Owns rebuilding a store from its blocks, and the handling of damage. A clean `index.db` is trusted,
as nats-server does; without one, every record of every block is read and verified, and `BlockTrust`
says what was cut off and what is damaged. Damaged bytes are copied aside, the block is rewritten
without them, their sequences are reported as lost, and everything around them is kept. It never
discards data after damage, and never deletes a file because another one is missing or wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from tradewind.errors import StoreError
from tradewind.store.contract import MessageCopy, StoreLimits
from tradewind.store.files.disk import DiskFault, MissingFile, read_readable
from tradewind.store.files.witness import Testimony, read_testimony
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.time_files import recover_timers
from tradewind.store.format.index_file import EMPTY_CHECKSUM
from tradewind.store.format.layout import (
    BLOCK_NUMBER_MAX,
    INDEX_FILE,
    RECORD_BYTES_MIN,
    SCHEDULES_FILE,
    SEQUENCE_MAX,
    TEMPORARY_SUFFIX,
    Position,
    block_file_name,
    block_numbers,
    is_encrypted,
)
from tradewind.store.format.sequence_set import SequenceSet
from tradewind.store.repair.block_trust import BlockTrust
from tradewind.store.repair.crowding import tell_crowded_out
from tradewind.store.repair.damage import LOST_LISTED_MAX, DamageEntry, DamageFolder, RecoveryReport
from tradewind.store.repair.damage_costs import MentionedSequences, block_costs, deletions
from tradewind.store.repair.damage_resolution import PATCHED_BYTES_MAX
from tradewind.store.repair.index_summary import (
    adopt_summary,
    contradicts,
    fits,
    forgotten,
    known_live,
    known_time,
    read_summary,
    same_messages,
)
from tradewind.store.repair.salvage import in_order, replacement
from tradewind.store.table.adoption import adopt_blocks, drop_below, forget_recovered
from tradewind.store.table.block import Block
from tradewind.store.table.marks import MARK_FLOOR_KIND, MARK_SYNCED_KIND
from tradewind.store.table.scan import BlockReport, recover_block
from tradewind.store.table.subject_index import SubjectIndex

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk
    from tradewind.store.folder.chain_recovery import StoreTail
    from tradewind.store.folder.stream_chain import ChainSettings
    from tradewind.store.format.index_file import StreamIndex
    from tradewind.store.repair.units import UnitRule

__all__ = ["Recovery", "RecoveryReport", "open_store"]

# How our own marks begin: their length, and a tombstone of sequence 0.
OUR_MARK_HEAD = b"\x1e\0\0\0" + (1 << 62).to_bytes(8, "little")
PROGRESS_BYTES = 256 * 1024 * 1024


class Recovery:
    """One rebuild. `progress(done_bytes, all_bytes)` is called repeatedly."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        name: str,
        progress: Callable[[int, int], None] | None = None,
        expired: Callable[[MessageCopy], None] | None = None,
        units: UnitRule | None = None,
        *,
        expires: bool = True,
        seen_seq: int = 0,
    ) -> None:
        self._expires = expires
        self._seen_seq = seen_seq
        self._disk = disk
        self._folder = folder
        self._messages = f"{folder}/msgs"
        self._name = name
        self._progress = progress
        self._expired = expired
        self._units = units
        self.report = RecoveryReport(name)
        self._evidence = DamageFolder(disk, folder)
        self._synced_before = 0  # the block that the witness knows of
        self._index: StreamIndex | None = None
        self._deleted = SequenceSet()
        self._used_up: dict[int, int] = {}  # by block: the last sequence that it may have held
        self._doubtful: set[int] = set()  # blocks that are read, not mapped
        self._index_is_latest = False  # nothing was stored since then
        self._chain: ChainSettings | None = None
        self._tail: StoreTail | None = None  # for the chain, if blocks were read

    def open(
        self,
        limits: StoreLimits,
        now_ns: int,
        chain: ChainSettings | None = None,
        **settings: Any,
    ) -> FileStore:
        """Read everything and return the store."""
        self._chain = chain
        self._finish_purge()
        names = self._disk.list_directory(self._messages)
        numbers = block_numbers(names)
        store = FileStore(self._disk, self._messages, self._name, limits, **settings)
        self._read_keys(store, names, numbers)
        for name in names:
            # A copy that was cut off; it may hold what was to be erased.
            block_name = name.removesuffix(TEMPORARY_SUFFIX)
            if block_name != name and block_name in names and block_numbers([block_name]):
                self._disk.remove(f"{self._messages}/{name}")
        said = read_testimony(self._disk, self._folder, self._name)
        # The witness is not rewritten before it was read.
        store.chores.adopt_testimony(None if said is None else said.held())
        # The commit that has said so had synced all that lies before this block.
        self._synced_before = said.block if said is not None else 0
        self._index = index = read_summary(store)
        usable = index is not None and fits(index, store, numbers)
        if index is not None and usable and self._needs_tombstones(store, limits, numbers[-1]):
            self._rebuild(store, numbers)
            self._follow(store, index)
        elif index is not None and usable and adopt_summary(store, index, numbers):
            if store.table.last.patched:
                store.table.add_block()  # nothing is appended to what is damaged
            is_foreign = not self._ends_with_our_mark(store, numbers[-1])
            store.recovered((0, 0), is_foreign=is_foreign)
            self._resolve_damage(store)
            self.report.blocks, self.report.messages = len(numbers), store.table.msgs
        else:
            self._rebuild(store, numbers)
            self._compare_with_index(store, limits, now_ns)
            self.report.messages = store.table.msgs
        if said is not None:
            self._ask_witness(store, numbers, said)
            if self._seen_seq <= said.reserved_seq and not self._has_journal:
                self._tell_cut(store, self._seen_seq, "a consumer was given")
        store.chores.index_file_present = INDEX_FILE in self._disk.list_directory(self._messages)
        recover_timers(store)
        if chain is not None:
            self._open_chain(store, chain)
        crowded = tell_crowded_out(store.table, self.report, self._evidence.earlier())
        if crowded is not None:
            self._evidence.save(crowded)
            self.report.add(crowded)
        if self._expires:
            store.table.apply_limits(now_ns, self._expired)
        else:
            store.table.begin_limits()
            while store.table.limit_step():
                pass
        self._recall_losses(store)
        self._resolve_damage(store)
        return store

    def _open_chain(self, store: FileStore, settings: ChainSettings) -> None:
        """Open the chain before limits remove anything, because it has to record that."""
        from tradewind.store.folder.chain_recovery import StoreTail, open_chain

        tail = self._tail or StoreTail(store.table.last_seq)
        tail.tell_cut = lambda seq: self._tell_cut(store, seq, "a checkpoint of its chain covers")
        # Including the findings of a start that was interrupted before the chain recorded them.
        tail.lost = [*self.report.lost]
        for report in self._evidence.earlier():
            tail.lost += report.lost
        open_chain(store, settings, tail)
        self.report.notes += store.chain.notes if store.chain is not None else []

    def _read_keys(self, store: FileStore, names: list[str], numbers: list[int]) -> None:
        """Read the keys of all blocks before anything is changed; if one is missing, nothing is.

        A block without a key that holds plain records existed before the stream was encrypted.
        """
        vault = store.vault
        if vault is None:
            if is_encrypted([*names, *self._disk.list_directory(self._folder)]):
                raise StoreError(
                    f"stream {self._name!r} is encrypted, and no key for it is configured"
                )
            return
        for number in numbers:
            try:
                vault.blocks.read(number)
            except MissingFile:
                block = Block(self._name, number, store.block_file(number))
                block.adopt_file()
                if block.size and not recover_block(block, SubjectIndex(), 0).records:
                    raise StoreError(
                        f"{vault.blocks.path(number)}: the key of this block is missing; put it"
                        " back from a copy"
                    ) from None
                block.close()
        vault.blocks.adopt_folder(names, numbers)
        if SCHEDULES_FILE in names:
            # nats-server has left it; it holds subjects in clear, and the messages have the same.
            self._disk.remove(f"{self._messages}/{SCHEDULES_FILE}")

    def _ask_witness(self, store: FileStore, numbers: list[int], said: Testimony) -> None:
        """Check whether blocks at the end are missing, or the end of the last one.

        No sequence that may have been assigned is assigned again. A loss is reported here unless it
        is already; how much a missing block held is unknown.
        """
        if max(numbers, default=0) >= said.block and store.table.last_seq >= said.last_seq:
            store.chores.adopt_testimony(said)
            return
        # An interrupted start may have begun the block after it.
        is_gone = said.block not in numbers
        # A summary that was written at the end knows it exactly; or all this was done before.
        is_told = self._index_is_latest and store.table.last_seq >= said.last_seq
        if not is_told and store.table.last_seq < said.reserved_seq:
            self._tell_missing_end(store, said, is_gone=is_gone)
            store.table.skip(said.reserved_seq, store.table.last_timestamp)
            store.commit()
        # The witness states that everything before the last block is on disk.
        store.chores.secure()
        store.chores.secured()
        store.chores.renew_testimony(said.serial)

    def _tell_missing_end(self, store: FileStore, said: Testimony, *, is_gone: bool) -> None:
        first, last = store.table.last_seq + 1, said.reserved_seq if is_gone else said.last_seq
        number = said.block if is_gone else store.table.last.number
        note = (
            f"the end of {block_file_name(number)} is missing, or all of it: sequences up to"
            f" {said.reserved_seq} may have been given out, the next one is {said.reserved_seq + 1}"
        )
        self.report.notes.append(note)
        if not is_gone and self._is_end_told(store):
            return
        entry = DamageEntry(number, 0 if is_gone else store.table.last.size, 0, False, first, last)
        self._save_missing(store, note, entry, said.reserved_seq)

    def _save_missing(
        self, store: FileStore, note: str, entry: DamageEntry, reserved_seq: int
    ) -> list[int]:
        """Record that the messages of an entry, the last ones of the stream, are lost."""
        found = RecoveryReport(self._name, notes=[note])
        found.damage.append(entry)
        missing = range(entry.first_lost, entry.last_lost + 1)
        found.add_lost(
            islice((seq for seq in missing if seq not in self._deleted), LOST_LISTED_MAX)
        )
        found.first_seq = store.table.first_seq if store.table.msgs else reserved_seq + 1
        self._evidence.save(found)
        self.report.damage += found.damage
        self.report.add_lost(found.lost)
        return found.lost

    @property
    def _has_journal(self) -> bool:
        """Whether missing messages may be about to be stored again, under their own sequences."""
        return self._units is not None and self._units.ends_at_hole

    def _tell_cut(self, store: FileStore, seen_seq: int, who: str) -> list[int]:
        """Report that the last block is cut after a record, which looks like a write that never
        was, if a witness knows better. Returns the lost sequences.

        None is assigned again, whatever else may have been stored after them.
        """
        first = store.table.last_seq + 1
        if seen_seq < first:
            return []
        said = read_testimony(self._disk, self._folder, self._name)
        last = max(seen_seq, said.reserved_seq if said is not None else 0)
        block = store.table.last
        note = (
            f"the end of {block_file_name(block.number)} is missing: {who} message {seen_seq}, and"
            f" the last one found is {first - 1}; the next sequence is {last + 1}"
        )
        self.report.notes.append(note)
        entry = DamageEntry(block.number, block.size, 0, False, first, seen_seq)
        lost = self._save_missing(store, note, entry, last)
        store.table.skip(last, store.table.last_timestamp)
        store.commit()
        if said is not None:
            store.chores.secure()
            store.chores.secured()
            store.chores.renew_testimony(said.serial)
        return lost

    def _is_end_told(self, store: FileStore) -> bool:
        """Whether damage explains the missing end: found now, or by an interrupted start that had
        repaired the end. That is what it had lost, then.
        """
        told = [entry for report in self._evidence.earlier() for entry in report.damage]
        told += self.report.damage
        return any(entry.last_lost == store.table.last_seq and not entry.torn for entry in told)

    def _resolve_damage(self, store: FileStore) -> None:
        """Resolve damage found after a good summary, as far as blocks were read."""
        if not store.table.has_open_damage:
            return
        for found in store.damage.resolve_all():
            self.report.add(found)

    def _recall_losses(self, store: FileStore) -> None:
        """Restore the known losses, which last until their sequences are removed."""
        for report in self._evidence.earlier():
            store.losses.add(report)
            if not report.stream:
                self.report.notes += report.notes

    def _needs_tombstones(self, store: FileStore, limits: StoreLimits, number: int) -> bool:
        """Whether only this index.db knows what a limit removed, as with the official server.

        Tradewind ends a block with a mark when it closes; then the blocks alone show the same.
        """
        if limits.msgs_max <= 0 and limits.bytes_max <= 0 and limits.subject_msgs_max <= 0:
            return False
        return not self._ends_with_our_mark(store, number)

    def _ends_with_our_mark(self, store: FileStore, number: int) -> bool:
        file = store.block_file(number)
        size = file.size
        try:
            end = file.read(size - RECORD_BYTES_MIN, 12) if size >= RECORD_BYTES_MIN else b""
        except DiskFault:
            return False
        return end == OUR_MARK_HEAD

    def _follow(self, store: FileStore, index: StreamIndex) -> None:
        """Write into the blocks what only the summary knew, before the first change removes it."""
        listed = {block.number: block for block in index.blocks}
        for block in list(store.table.blocks):
            entry = listed.get(block.number)
            store.table.load_index(block)
            for seq in block.live_sequences():
                if entry is None or seq < entry.first_seq or seq in entry.deleted:
                    store.table.remove(seq)
        store.commit()

    def _finish_purge(self) -> None:
        """Complete an interrupted purge of the official server: see its `__msgs__` folders."""
        fresh, old = f"{self._folder}/__new_msgs__", f"{self._folder}/__msgs__"
        if self._disk.exists(fresh):
            if block_numbers(self._disk.list_directory(fresh)):
                if self._disk.exists(self._messages):
                    self._disk.remove_tree(self._messages)
                self._disk.rename(fresh, self._messages)
            else:
                self._disk.remove_tree(fresh)
        if self._disk.exists(old):
            self._disk.remove_tree(old)
        if not self._disk.exists(self._messages):
            self._disk.make_directory(self._messages, sync=True)

    # ---------------------------------------------------------------- rebuild from blocks

    def _rebuild(self, store: FileStore, numbers: list[int]) -> None:
        found = self._read_blocks(store, numbers)
        if self._doubtful:
            # Zeros that a mapping shows may be a disk that does not give what it has.
            self.report = RecoveryReport(self._name, notes=self.report.notes)
            store.table.clear()
            found = self._read_blocks(store, numbers)
        trust = BlockTrust(self._units, self._synced_before)
        trust.judge(found, removes_for_others=store.table.limits.removes_for_others)
        if trust.hole is not None or any(report.damage for _, report in found):
            self._note_damage(found, trust)
            self._repair(found, trust.hole)
            store.table.clear()
            found = self._read_blocks(store, [block.number for block, _ in found])
        self.report.blocks = len(found)
        if not found:
            store.table.add_block(self._next_number)
            # With this commit there is a mark: whatever a crash leaves is known to be ours.
            store.commit()
            return
        if self._chain is not None:
            from tradewind.store.folder.chain_recovery import tail_of

            self._tail = tail_of(found, trust.synced)
        blocks = [block for block, _ in found]
        last_seq = max(block.last_seq for block in blocks)
        _, last_timestamp = max(_newest(report) for _, report in found)
        adopt_blocks(store.table, blocks, last_seq, known_time(last_timestamp))
        self._apply_removals(store, found)
        if blocks[-1].number < self._synced_before:
            store.table.add_block(self._next_number)
        store.recovered(trust.synced or (0, 0), sync=True, is_foreign=trust.synced is None)

    @property
    def _next_number(self) -> int:
        """The number of a block after the missing ones: the witness records that everything before
        these was synced, so a write that is cut off there would look like damage. Nor is the key of
        a missing block used for other bytes.
        """
        return min(self._synced_before + 1, BLOCK_NUMBER_MAX)

    def _read_blocks(self, store: FileStore, numbers: list[int]) -> list[tuple[Block, BlockReport]]:
        found: list[tuple[Block, BlockReport]] = []
        last_seq, done, all_bytes = 0, 0, self.report.bytes
        index_bytes, released, patched = 0, 0, 0
        if self._progress is not None:
            paths = (f"{self._messages}/{block_file_name(number)}" for number in numbers)
            all_bytes += sum(store.files.file(path).size for path in paths)
        for number in numbers:
            path = f"{self._messages}/{block_file_name(number)}"
            block = Block(self._name, number, store.block_file(number))
            if number in self._doubtful:
                block.adopt_readable()
            else:
                block.adopt_file()
            report = recover_block(block, store.table.index, last_seq)
            last_seq = max(last_seq, block.last_seq)
            if number not in self._doubtful:
                self._doubt(block, report)
            elif block.unreadable:
                patched += block.size
                self._note_unreadable(block, report, patched)
            block.unmap()
            done += block.size
            self.report.bytes += block.size
            self.report.records += report.records
            if self._progress is not None and done >= PROGRESS_BYTES:
                self._progress(self.report.bytes, all_bytes)
                done = 0
            if block.size == 0 and number != numbers[-1]:
                block.close()
                self._disk.remove(path)
                continue
            found.append((block, report))
            index_bytes += block.memory_bytes
            while index_bytes > store.table.index_bytes_max and released < len(found) - 1:
                # The needed ones are read once more, without their checksums.
                oldest = found[released][0]
                index_bytes -= oldest.memory_bytes
                oldest.release()
                released += 1
        return found

    def _doubt(self, block: Block, report: BlockReport) -> None:
        """Remember a block that the disk may not have read completely."""
        if not block.has_faulted() and (not report.damage or not block.written):
            return
        if block.has_faulted() or read_readable(block.file)[1]:
            self._doubtful.add(block.number)

    def _note_unreadable(self, block: Block, report: BlockReport, patched: int) -> None:
        """Mark unreadable parts as not cut off: they may be whole."""
        for damage in report.damage:
            damage.unfinished = False
        if patched > PATCHED_BYTES_MAX:
            raise StoreError(
                f"{block.path}: {block.unreadable} bytes of it and parts of other blocks cannot be"
                " read; the stream is left unchanged until the disk works again"
            )

    def _apply_removals(self, store: FileStore, found: list[tuple[Block, BlockReport]]) -> None:
        floor = 0
        self._deleted = deletions(found)
        # In the order of the messages: the index of each block is needed once.
        for seq in self._deleted:
            forget_recovered(store.table, seq)
        for _, report in found:
            for kind, value, _ in report.marks:
                if kind == MARK_FLOOR_KIND:
                    floor = max(floor, value)
        if floor:
            drop_below(store.table, floor)

    def _compare_with_index(self, store: FileStore, limits: StoreLimits, now_ns: int) -> None:
        """Compare with a summary that does not fit, but knows what existed when it was written."""
        index = self._index
        damaged = {entry.block for entry in self.report.damage}
        deleted = self._deleted
        if index is None:
            return
        is_older = contradicts(index, store.table.blocks, damaged)
        if self._has_lost_bytes(store, index):
            for seq in forgotten(index, store, deleted, damaged):
                store.table.remove(seq)
            store.commit()
        if is_older:
            return
        self._index_is_latest = True
        found = {block.number: block for block in store.table.blocks}
        gone: list[int] = []
        for entry in index.blocks:
            block = found.get(entry.number)
            if block is not None and same_messages(entry, block):
                continue
            if block is None and 0 < limits.age_max_ns <= now_ns - entry.last_time_ns:
                continue  # removed because it was too old
            # A floor that was said since then speaks for all below it.
            known = (seq for seq in known_live(entry) if seq >= store.table.limit_floor)
            live = (seq for seq in known if seq not in deleted)
            room = LOST_LISTED_MAX - len(gone)
            gone += islice((seq for seq in live if not store.table.is_live(seq)), room)
            if len(gone) == LOST_LISTED_MAX:
                break
        if index.last_seq > store.table.last_seq:
            store.table.skip(index.last_seq, store.table.last_timestamp)
        self.report.add_lost(gone)
        if gone:
            # The number and the report must not depend on a summary that is about to go.
            report = RecoveryReport(self._name, lost=gone, lost_total=len(gone))
            report.first_seq = store.table.first_seq
            self._evidence.save(report)
        store.commit()

    def _has_lost_bytes(self, store: FileStore, index: StreamIndex) -> bool:
        """Whether tombstones may be lost that existed when the summary was written."""
        found = {block.number: block for block in store.table.blocks}
        if any(not entry.torn for entry in self.report.damage):
            return True
        if any(entry.number not in found for entry in index.blocks):
            return True
        last = found[index.blocks[-1].number]
        if last.compressed or index.last_checksum == EMPTY_CHECKSUM:
            return False
        # The last block only grows: the end of then is still there unless it was cut off.
        return not last.written or index.last_checksum not in bytes(last.plain_view())

    # ---------------------------------------------------------------- damage

    def _note_damage(self, found: list[tuple[Block, BlockReport]], trust: BlockTrust) -> None:
        """Save the damaged bytes and the report before anything on disk is changed."""
        spoken = MentionedSequences(found)
        first_behind, last = 0, found[-1][0]
        for block, report in reversed(found):
            torn = {damage.offset for damage in report.damage if trust.is_torn(block, damage, last)}
            costs = block_costs(block, report, torn, first_behind, spoken)
            if costs.used_up:
                self._used_up[block.number] = costs.used_up
            for damage in reversed(report.damage):
                first, last_lost = damage.after_seq + 1, damage.after_seq
                if lost := costs.lost.get(damage.offset):
                    first, last_lost = min(lost), max(lost)
                    self.report.add_lost(lost)
                is_torn = damage.offset in torn
                entry = DamageEntry(
                    block.number, damage.offset, damage.size, is_torn, first, last_lost
                )
                entry.missing = damage.missing
                self.report.damage.append(entry)
            first_behind = block.lowest_seq() or first_behind
        self.report.damage.reverse()
        rotten = sorted({entry.block for entry in self.report.damage if not entry.torn})
        if rotten and self._index is None:
            names = ", ".join(map(block_file_name, rotten[:5])) + (", ..." if rotten[5:] else "")
            self.report.notes.append(
                f"deletions noted in the damaged bytes of {names} are forgotten, as there is no"
                " index.db"
            )
        if not self.report.is_clean:
            self.report.first_seq = self._first_live(found)
            self.report.last_seq = max(block.last_seq for block, _ in found)
            self._evidence.save(self.report, [block for block, _ in found])

    def _first_live(self, found: list[tuple[Block, BlockReport]]) -> int:
        deleted = deletions(found)
        floor = max(
            (
                value
                for _, report in found
                for kind, value, _ in report.marks
                if kind == MARK_FLOOR_KIND
            ),
            default=0,
        )
        live = (seq for block, _ in found if block.live_msgs for seq in known_live(block))
        last_seq = max((block.last_seq for block, _ in found), default=0)
        return next((seq for seq in live if seq >= floor and seq not in deleted), last_seq + 1)

    def _repair(self, found: list[tuple[Block, BlockReport]], hole: Position | None) -> None:
        """Rewrite damaged blocks without the damage, and without removals after a hole.

        A lost sequence leaves a skip record, so that its number is not given to another message.
        Later blocks first: as long as one is not done, the hole is still there to be found again.
        """
        noted = {(entry.block, entry.offset): entry for entry in self.report.damage}
        for block, report in reversed(found):
            cuts: list[tuple[int, int, bytes]] = []
            damages = [damage for damage in report.damage if not damage.out_of_order]
            for damage in damages:
                entry = noted[block.number, damage.offset]
                last_lost = entry.last_lost if entry.last_lost >= entry.first_lost else 0
                if damage is damages[-1]:
                    last_lost = max(last_lost, self._used_up.get(block.number, 0))
                    last_lost = min(last_lost, SEQUENCE_MAX)
                instead = b"" if entry.torn else replacement(block, damage, last_lost)
                cuts.append((damage.offset, damage.size, instead))
            if hole is not None:
                offsets = list(report.tombstones.offsets)
                offsets += [offset for kind, _, offset in report.marks if kind != MARK_SYNCED_KIND]
                cuts += [
                    (offset, RECORD_BYTES_MIN, b"")
                    for offset in offsets
                    if (block.number, offset) > hole
                ]
            misplaced = len(damages) < len(report.damage)
            if cuts or misplaced:
                self._cut(block, sorted(cuts))
                if misplaced:
                    block.adopt_file()
                    block.rewrite([in_order(block)], self._disk)
            block.close()

    def _cut(self, block: Block, cuts: list[tuple[int, int, bytes]]) -> None:
        parts: list[tuple[int, int] | bytes] = []
        start = 0
        for offset, size, instead in cuts:
            parts += [(start, offset - start), instead]
            start = offset + size
        parts.append((start, block.size - start))
        block.rewrite(parts, self._disk)


def _newest(report: BlockReport) -> tuple[int, int]:
    """The sequence and time of the last message that a block mentions."""
    stamps = zip(report.tombstones.sequences, report.tombstones.timestamps, strict=True)
    return max(report.newest, max(stamps, default=(0, 0)))


def open_store(
    disk: Disk,
    folder: str,
    name: str,
    limits: StoreLimits | None = None,
    *,
    now_ns: int,
    progress: Callable[[int, int], None] | None = None,
    expired: Callable[[MessageCopy], None] | None = None,
    secures: bool = True,
    units: UnitRule | None = None,
    expires: bool = True,
    seen_seq: int = 0,
    **settings: Any,
) -> tuple[FileStore, RecoveryReport]:
    """Open the store of one stream below `folder` (the stream's own), making it if it is new.

    `secures`: it may be used at once; else `CommitChores.secure` is left to the caller.

    `expired` is called for messages that have expired since it was closed, see `Store.expire`.

    `units`: which messages are stored together or not at all.

    `expires`: expired messages are removed at once; otherwise that is left to the caller.

    `seen_seq`: a message of this sequence existed, because it was delivered.
    """
    recovery = Recovery(
        disk, folder, name, progress, expired, units, expires=expires, seen_seq=seen_seq
    )
    store = recovery.open(limits or StoreLimits(), now_ns, **settings)
    if secures:
        store.chores.secure()
        store.chores.secured()
    return store, recovery.report
