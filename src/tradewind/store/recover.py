"""Opening a stream's folder.

From whatever is on disk to a FileStore that is right, or an error that says why not.

Owns the rebuild from blocks and what happens to damage. A clean `index.db` is trusted as the
official server trusts it; without one every record of every block is read and verified. Damaged
bytes are copied aside, the block is written anew without them, the sequences they held are reported
as lost, and everything around them stays. Nothing is ever cut behind damage, and a missing or wrong
file is never a reason to delete another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from tradewind.errors import StoreError
from tradewind.store.block import Block
from tradewind.store.checkpoint import adopt_checkpoint, fits, known_time, read_checkpoint
from tradewind.store.contract import LostMessages, StoredMessage, StoreLimits
from tradewind.store.filestore import FileStore, Position
from tradewind.store.layout import (
    TEMPORARY_SUFFIX,
    block_file_name,
    block_numbers,
    is_encrypted,
)
from tradewind.store.message_core import (
    MARK_FLOOR_KIND,
    MARK_PREVIOUS_KIND,
    MARK_SYNCED_KIND,
)
from tradewind.store.scan import BlockReport, Damage, recover_block

if TYPE_CHECKING:
    from tradewind.store.disk import Disk
    from tradewind.store.index_file import StreamIndex

DAMAGE_FOLDER = "damage"  # in the stream's folder, ours; the official server does not look there
LOST_LISTED_MAX = 100_000
RECORD_BYTES_MIN = 30
# How our own marks begin: their length, and a tombstone of sequence 0.
OUR_MARK_HEAD = b"\x1e\0\0\0" + (1 << 62).to_bytes(8, "little")
PROGRESS_BYTES = 256 * 1024 * 1024


@dataclass(slots=True)
class DamageEntry:
    """One piece of damage, as the report names it."""

    block: int
    offset: int
    size: int
    torn: bool
    first_lost: int
    last_lost: int
    saved_as: str


@dataclass(slots=True)
class RecoveryReport:
    """What opening a stream found; machine-readable through msgspec."""

    stream: str
    blocks: int = 0
    bytes: int = 0
    records: int = 0
    messages: int = 0
    damage: list[DamageEntry] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was wrong."""
        return not self.damage and not self.lost


class Recovery:
    """One rebuild. `progress(done_bytes, all_bytes)` is called now and then."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        name: str,
        progress: Callable[[int, int], None] | None = None,
        expired: Callable[[StoredMessage], None] | None = None,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._messages = f"{folder}/msgs"
        self._name = name
        self._progress = progress
        self._expired = expired
        self.report = RecoveryReport(name)
        self._synced: Position | None = None
        self._index: StreamIndex | None = None
        self._deleted: list[int] = []

    def open(self, limits: StoreLimits, now_ns: int, **settings: Any) -> FileStore:
        """Read everything and give the store."""
        self._finish_purge()
        names = self._disk.list_directory(self._messages)
        if is_encrypted([*names, *self._disk.list_directory(self._folder)]):
            raise StoreError(
                f"stream {self._name!r} is encrypted; this server cannot read encrypted streams"
            )
        for name in names:
            # A copy that was cut off; it may hold what was to be erased.
            block_name = name.removesuffix(TEMPORARY_SUFFIX)
            if block_name != name and block_name in names and block_numbers([block_name]):
                self._disk.remove(f"{self._messages}/{name}")
        store = FileStore(self._disk, self._messages, self._name, limits, **settings)
        numbers = block_numbers(names)
        self._index = index = read_checkpoint(self._disk, self._messages, self._name)
        usable = index is not None and fits(index, self._disk, self._messages, numbers)
        if index is not None and usable and self._needs_tombstones(limits, numbers[-1]):
            self._rebuild(store, numbers)
            self._follow(store, index)
        elif index is not None and usable:
            adopt_checkpoint(store, index, numbers)
            self.report.blocks, self.report.messages = len(numbers), store.msgs
            store.recovered((0, 0))
        else:
            self._rebuild(store, numbers)
        store.index_file_present = "index.db" in names
        if self.report.lost:
            size = sum(entry.size for entry in self.report.damage)
            store.set_lost(LostMessages(tuple(self.report.lost), size))
        store.recover_timers()
        store.apply_limits(now_ns, self._expired)
        return store

    def _needs_tombstones(self, limits: StoreLimits, number: int) -> bool:
        """Whether only this index.db knows what a limit removed, as with the official server.

        We do, and end a block with a mark when we close; then the blocks alone say the same.
        """
        if limits.msgs_max <= 0 and limits.bytes_max <= 0 and limits.subject_msgs_max <= 0:
            return False
        with self._disk.open(f"{self._messages}/{block_file_name(number)}") as file:
            size = file.size
            end = file.read(size - RECORD_BYTES_MIN, 12) if size >= RECORD_BYTES_MIN else b""
        return end != OUR_MARK_HEAD

    def _follow(self, store: FileStore, index: StreamIndex) -> None:
        """Say in the blocks what the summary alone knew, before it goes with our first change."""
        listed = {block.number: block for block in index.blocks}
        for block in list(store.blocks):
            entry = listed.get(block.number)
            store.load(block)
            for seq in block.live_sequences():
                if entry is None or seq < entry.first_seq or seq in entry.deleted:
                    store.remove(seq)
        store.commit()

    def _finish_purge(self) -> None:
        """A purge of the official server that was cut off: see its `__msgs__` folders."""
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
        hole = self._first_hole(found)
        if hole is not None and store.limits.removes_for_others:
            self._give_up_behind(hole, found)
        if hole is not None or any(report.damage for _, report in found):
            self._note_damage(found)
            self._repair(found, hole)
            store.clear()
            found = self._read_blocks(store, [block.number for block, _ in found])
        self.report.blocks = len(found)
        if not found:
            store.add_block()
            # From here on there is a mark, so whatever a crash leaves is known to be ours.
            store.commit()
            return
        blocks = [block for block, _ in found]
        last_seq = max(block.last_seq for block in blocks)
        stamps = [(seq, stamp) for _, report in found for seq, stamp, _ in report.tombstones]
        _, last_timestamp = max([(0, 0), *stamps, *(report.newest for _, report in found)])
        store.adopt(blocks, last_seq, known_time(last_timestamp))
        self._apply_removals(store, found)
        store.recovered(self._synced or (0, 0), sync=True)
        self._compare_with_index(store, numbers)
        self.report.messages = store.msgs

    def _read_blocks(self, store: FileStore, numbers: list[int]) -> list[tuple[Block, BlockReport]]:
        found: list[tuple[Block, BlockReport]] = []
        last_seq, done = 0, 0
        for number in numbers:
            path = f"{self._messages}/{block_file_name(number)}"
            block = Block(self._name, number, store.files.file(path))
            block.adopt_file()
            report = recover_block(block, store.index, last_seq)
            last_seq = max(last_seq, block.last_seq)
            block.unmap()
            done += block.size
            self.report.bytes += block.size
            self.report.records += report.records
            if self._progress is not None and done >= PROGRESS_BYTES:
                self._progress(self.report.bytes, 0)
                done = 0
            if block.size == 0 and number != numbers[-1]:
                block.close()
                self._disk.remove(path)
                continue
            found.append((block, report))
        return found

    def _first_hole(self, found: list[tuple[Block, BlockReport]]) -> Position | None:
        """Where the bytes that were never promised begin to be untrustworthy; None if they do not.

        Behind the last point that a mark says was synced, bytes may have reached the disk in any
        order. Messages there are what they are, but a removal behind a hole may have lost its
        cause.
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
        self._synced = synced
        sizes = {block.number: block.size for block, _ in found}
        holes: list[Position] = [
            (block.number, damage.offset)
            for block, report in found
            for damage in report.damage
            if (block.number, damage.offset) >= synced
        ]
        for _, report in found:
            for kind, value, _ in report.marks:
                number, size = value >> 32, value & 0xFFFFFFFF
                if kind == MARK_PREVIOUS_KIND and number >= synced[0]:
                    actual = sizes.get(number, 0)
                    # So much of it was synced, with its name: somebody else has made it shorter.
                    is_foreign = number == synced[0] and actual < synced[1]
                    if actual < size and not is_foreign:
                        holes.append((number, actual))
        return min(holes, default=None)

    def _give_up_behind(self, hole: Position, found: list[tuple[Block, BlockReport]]) -> None:
        """Treat everything behind the hole as torn, for a store whose limits remove messages.

        A message there would push out another one, though the removal that had made room for it may
        be lost in the hole.
        """
        for block, report in found:
            start = hole[1] if block.number == hole[0] else 0
            data = block.bytes_from(start) if block.number >= hole[0] else b""
            if not data:
                continue
            before = [damage for damage in report.damage if damage.offset < start]
            after_seq = before[-1].after_seq if before else 0
            torn = Damage(start, len(data), after_seq, 0, True, 0, data)
            report.damage = [*before, torn]
            report.tombstones = [entry for entry in report.tombstones if entry[2] < start]
            report.marks = [entry for entry in report.marks if entry[2] < start]

    def _apply_removals(self, store: FileStore, found: list[tuple[Block, BlockReport]]) -> None:
        floor = 0
        for _, report in found:
            for seq, _, _ in report.tombstones:
                self._deleted.append(seq)
                store.forget(seq)
            for kind, value, _ in report.marks:
                if kind == MARK_FLOOR_KIND:
                    floor = max(floor, value)
        if floor:
            store.drop_below(floor)

    def _compare_with_index(self, store: FileStore, numbers: list[int]) -> None:
        """An outdated summary still knows what was there when it was written."""
        index = self._index
        if index is None or numbers[-1] > index.blocks[-1].number:
            return
        ended = store.last.number == index.blocks[-1].number
        if ended and store.last.last_checksum() != index.last_checksum:
            return  # written to since: the official server leaves the file lying while it runs
        deleted = set(self._deleted)
        missing = [block for block in index.blocks if block.number not in numbers]
        gone = [
            seq
            for block in missing
            for seq in islice(range(block.first_seq, block.last_seq + 1), LOST_LISTED_MAX)
            if seq not in block.deleted and seq not in deleted
        ]
        if index.last_seq > store.last_seq:
            store.skip(index.last_seq, store.last_timestamp)
        known = set(self.report.lost)
        self.report.lost += [seq for seq in dict.fromkeys(gone) if seq not in known]
        if gone:
            # The number and the report must not depend on a summary that is about to go.
            self._write_report()
        store.commit()

    # ---------------------------------------------------------------- damage

    def _note_damage(self, found: list[tuple[Block, BlockReport]]) -> None:
        """Save the damaged bytes and the report before anything on disk is changed."""
        absent = {seq for _, report in found for seq, _, _ in report.tombstones}
        absent.update(seq for block, _ in found for seq in block.live_sequences())
        first_behind = 0
        for block, report in reversed(found):
            for damage in reversed(report.damage):
                torn = self._is_torn(block, damage, found[-1][0])
                first, last = damage.after_seq + 1, damage.after_seq
                if not torn:
                    before = damage.before_seq or first_behind
                    last = max(before - 1 if before else damage.record_seq, damage.after_seq)
                    # So many bytes hold so many records at most; sequences further back went
                    # before.
                    first = max(first, last + 1 - max(damage.size // RECORD_BYTES_MIN, 1))
                    self.report.lost += [seq for seq in range(first, last + 1) if seq not in absent]
                self._save_damage(block, damage, torn=torn, first=first, last=last)
            first_behind = block.lowest_seq() or first_behind
        self.report.lost = sorted(set(self.report.lost))
        self.report.damage.reverse()
        self._write_report()

    def _is_torn(self, block: Block, damage: Damage, last: Block) -> bool:
        """Whether this is the end of a write that was cut off, and not rot.

        Our own blocks say how far they were synced. In blocks without marks it is the end of the
        last block, unless it looks like a whole record with a wrong checksum.
        """
        if self._synced is not None:
            return (block.number, damage.offset) >= self._synced
        return damage.torn and block is last and damage.record_seq == 0

    def _save_damage(
        self, block: Block, damage: Damage, *, torn: bool, first: int, last: int
    ) -> None:
        folder = f"{self._folder}/{DAMAGE_FOLDER}"
        self._disk.make_directory(folder)
        name = f"{block.number}-{damage.offset}.bin"
        self._disk.write_file_atomically(f"{folder}/{name}", damage.data)
        self.report.damage.append(
            DamageEntry(block.number, damage.offset, damage.size, torn, first, last, name)
        )

    def _repair(self, found: list[tuple[Block, BlockReport]], hole: Position | None) -> None:
        """Write damaged blocks anew without the damage, and without removals behind a hole.

        A lost sequence leaves a skip record, so that its number is not given to another message.
        Later blocks first: as long as one is not done, the hole is still there to be found again.
        """
        noted = {(entry.block, entry.offset): entry for entry in self.report.damage}
        for block, report in reversed(found):
            cuts: list[tuple[int, int, bytes]] = []
            for damage in report.damage:
                entry = noted[block.number, damage.offset]
                # Sequences must ascend in a block: a record out of its order leaves nothing behind.
                lost = entry.last_lost >= entry.first_lost and not damage.out_of_order
                mark = block.mark_bytes(1 << 63 | entry.last_lost, 0) if lost else b""
                cuts.append((damage.offset, damage.size, mark))
            if hole is not None:
                offsets = [offset for _, _, offset in report.tombstones]
                offsets += [offset for kind, _, offset in report.marks if kind != MARK_SYNCED_KIND]
                cuts += [
                    (offset, RECORD_BYTES_MIN, b"")
                    for offset in offsets
                    if (block.number, offset) > hole
                ]
            if cuts:
                self._cut(block, sorted(cuts))
            else:
                block.close()

    def _cut(self, block: Block, cuts: list[tuple[int, int, bytes]]) -> None:
        parts: list[tuple[int, int] | bytes] = []
        start = 0
        for offset, size, instead in cuts:
            parts += [(start, offset - start), instead]
            start = offset + size
        parts.append((start, block.size - start))
        block.rewrite(parts, self._disk)
        block.close()

    def _write_report(self) -> None:
        if not self.report.is_clean:
            path = f"{self._folder}/{DAMAGE_FOLDER}/report.json"
            self._disk.make_directory(f"{self._folder}/{DAMAGE_FOLDER}", sync=True)
            self._disk.write_file_atomically(path, msgspec.json.encode(self.report))


def open_store(
    disk: Disk,
    folder: str,
    name: str,
    limits: StoreLimits | None = None,
    *,
    now_ns: int,
    progress: Callable[[int, int], None] | None = None,
    expired: Callable[[StoredMessage], None] | None = None,
    **settings: Any,
) -> tuple[FileStore, RecoveryReport]:
    """Open the store of one stream below `folder` (the stream's own), making it if it is new.

    `expired` is told of messages that have expired since it was closed, see `Store.expire`.
    """
    recovery = Recovery(disk, folder, name, progress, expired)
    store = recovery.open(limits or StoreLimits(), now_ns, **settings)
    return store, recovery.report
