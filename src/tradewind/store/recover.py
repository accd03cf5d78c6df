"""Opening a stream's folder: from whatever is on disk to a FileStore that is right, or an error that says why not.

Owns the rebuild from blocks and what happens to damage. A clean `index.db` is trusted as the official server trusts
it; without one every record of every block is read and verified. Damaged bytes are copied aside, the block is written
anew without them, the sequences they held are reported as lost, and everything around them stays. Nothing is ever cut
behind damage, and a missing or wrong file is never a reason to delete another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tradewind.errors import StoreError
from tradewind.store.block import Block
from tradewind.store.checkpoint import adopt_checkpoint, read_checkpoint
from tradewind.store.contract import LostMessages, StoreLimits
from tradewind.store.filestore import FileStore
from tradewind.store.layout import block_file_name, block_numbers, is_encrypted
from tradewind.store.scan import BlockReport, Damage, recover_block

if TYPE_CHECKING:
    from tradewind.store.disk import Disk

DAMAGE_FOLDER = "damage"  # in the stream's folder, ours; the official server does not look there
LOST_LISTED_MAX = 100_000
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
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._messages = f"{folder}/msgs"
        self._name = name
        self._progress = progress
        self.report = RecoveryReport(name)
        self._tombstones: list[int] = []
        self._suspects: list[tuple[int, int]] = []

    def open(self, limits: StoreLimits, now_ns: int, **settings: Any) -> FileStore:
        """Read everything and give the store."""
        self._finish_purge()
        names = self._disk.list_directory(self._messages)
        if is_encrypted([*names, *self._disk.list_directory(self._folder)]):
            raise StoreError(
                f"stream {self._name!r} is encrypted; this server cannot read encrypted streams"
            )
        store = FileStore(self._disk, self._messages, self._name, limits, **settings)
        numbers = block_numbers(names)
        index = read_checkpoint(self._disk, self._messages, self._name, numbers)
        if index is not None:
            adopt_checkpoint(store, index, numbers)
            self.report.blocks, self.report.messages = len(numbers), store.msgs
            store.synced_seq = store.last_seq
        else:
            self._rebuild(store, numbers)
        store.index_file_present = "index.db" in names
        store.apply_limits(now_ns)
        self._write_report()
        return store

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
        blocks: list[Block] = []
        last_seq, last_timestamp, done = 0, 0, 0
        for number in numbers:
            block, report = self._read_block(store, number, last_seq)
            done += block.size
            self.report.bytes += block.size
            self.report.records += report.records
            if self._progress is not None and done >= PROGRESS_BYTES:
                self._progress(self.report.bytes, 0)
                done = 0
            if block.size == 0 and number != numbers[-1]:
                block.close()
                self._disk.remove(f"{self._messages}/{block_file_name(number)}")
                continue
            for seq, timestamp in report.tombstones:
                self._tombstones.append(seq)
                last_timestamp = max(last_timestamp, timestamp)
            last_seq = max(last_seq, block.last_seq)
            last_timestamp = max(last_timestamp, block.last_timestamp)
            blocks.append(block)
        self.report.blocks = len(blocks)
        if not blocks:
            store.add_block()
            return
        store.adopt(blocks, last_seq, last_timestamp)
        for seq in self._tombstones:
            store.forget(seq)
        self.report.messages = store.msgs
        self._count_losses(store)
        store.synced_seq = store.last_seq

    def _read_block(self, store: FileStore, number: int, after: int) -> tuple[Block, BlockReport]:
        """A block with its index; a damaged one is repaired on disk first."""
        path = f"{self._messages}/{block_file_name(number)}"
        block = Block(self._name, number, self._disk.open(path))
        block.adopt_file()
        report = recover_block(block, store.index, after)
        if report.damage:
            self._repair(block, report)
        return block, report

    def _repair(self, block: Block, report: BlockReport) -> None:
        """Copy the damaged bytes aside, and write the block anew without them."""
        for damage in report.damage:
            self._save_damage(block, damage)
        block.rewrite_without(
            [(damage.offset, damage.size) for damage in report.damage], self._disk
        )

    def _save_damage(self, block: Block, damage: Damage) -> None:
        folder = f"{self._folder}/{DAMAGE_FOLDER}"
        self._disk.make_directory(folder)
        name = f"{block.number}-{damage.offset}.bin"
        self._disk.write_file_atomically(f"{folder}/{name}", damage.data)
        # A cut-off write was never promised to anybody; a whole record with a wrong checksum may have been.
        first = damage.after_seq + 1
        last = damage.before_seq - 1 if damage.before_seq else damage.record_seq
        if last >= first:
            self._suspects.append((first, last))
        last = max(last, first - 1)
        self.report.damage.append(
            DamageEntry(
                block.number, damage.offset, damage.size, damage.torn, first, last, name
            )
        )

    def _count_losses(self, store: FileStore) -> None:
        """The sequences in damaged places that nothing says were deleted."""
        deleted = set(self._tombstones)
        for first, last in self._suspects:
            lost = range(first, min(last, first + LOST_LISTED_MAX) + 1)
            self.report.lost.extend(seq for seq in lost if seq not in deleted)
            if last > store.last_seq:
                # Somebody may know a message by this number: it is not given to another one.
                store.skip(last, store.last_timestamp)
        if self.report.lost:
            size = sum(entry.size for entry in self.report.damage)
            store.set_lost(LostMessages(tuple(self.report.lost), size))

    def _write_report(self) -> None:
        if not self.report.is_clean:
            path = f"{self._folder}/{DAMAGE_FOLDER}/report.json"
            self._disk.make_directory(f"{self._folder}/{DAMAGE_FOLDER}")
            self._disk.write_file_atomically(path, msgspec.json.encode(self.report))


def open_store(
    disk: Disk,
    folder: str,
    name: str,
    limits: StoreLimits | None = None,
    *,
    now_ns: int,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> tuple[FileStore, RecoveryReport]:
    """Open the store of one stream below `folder` (the stream's own), making it if it is new."""
    recovery = Recovery(disk, folder, name, progress)
    store = recovery.open(limits or StoreLimits(), now_ns, **settings)
    return store, recovery.report
