"""Blocks that are written anew while the store is in use: compressed, erased, compacted, repaired.

Owns which blocks those are and the steps from the old file to the new one. Messages, totals and
the order of commits belong to the store; what a copy keeps is decided in `block_copy`.

- A copy is made by the worker of a commit, after its syncs, from a snapshot of the block, as
  `N.blk.tmp`, and synced. The loop gives it its name when the commit is finished; the next commit
  makes the name durable. Until then a power failure leaves the old file or the new one, and either
  is right.
- A block is compressed once it is sealed. The plain bytes stay the same, so nothing else changes.
- Erasing overwrites records by others of the same size; the last block is copied as far as it is
  written, and what was appended meanwhile is added before the copy gets its name.
- Compaction moves records, so it waits until a mark on disk says that the block is whole: only then
  nothing else speaks of its size. The records that it leaves out were removed by this commit at the
  latest.
- A damaged block is repaired by the bytes that memory holds in its place; `damage_resolution`
  says when. Until then nothing else is done to it.
- A tombstone is left out of a compacted block only when no power failure can bring back the record
  that it speaks of: names that are removed or replaced count from the next commit on.
- A full disk only puts rewriting off. Whatever else fails ends the store's changes, like any write.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.files.disk import TEMPORARY_SUFFIX, DiskFull
from tradewind.store.files.file_mapping import is_unreadable
from tradewind.store.format import s2
from tradewind.store.format.sequence_set import SequenceSet
from tradewind.store.repair.salvage import salvage_block
from tradewind.store.table.block_copy import OlderBlocks, compacted_copy, erased_copy, find_sparse
from tradewind.store.table.marks import repeat_last

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tradewind.store.files.disk import Disk, DiskFile
    from tradewind.store.folder.filestore import FileStore
    from tradewind.store.table.block import Block

# How much one commit compresses or erases; the rest waits for the next one.
REWRITE_BYTES_MAX = 32 * 1024 * 1024
# A smaller block is not worth a compaction.
COMPACT_BYTES_MIN = 8192
# After a full disk, this many commits pass before rewriting is tried again.
PAUSE_COMMITS = 64
TOMBSTONE_BYTES = 30


class Compaction(msgspec.Struct):
    """The facts that a compaction needs about the block when it began, and its result."""

    live_offsets: bytes
    older: OlderBlocks
    lowest: int
    deleted: SequenceSet
    last_seq: int
    last_timestamp: int
    messages: int = 0
    tombstones: int = 0


class Rewrite(msgspec.Struct):
    """One copy of one block. `run` is for the worker, everything else for the loop."""

    disk: Disk
    block: Block
    plain: memoryview
    is_last: bool
    compress: bool
    erase: list[int]
    compaction: Compaction | None = None
    is_repair: bool = False
    copy: DiskFile | None = None
    plain_bytes: int = 0  # of the copy
    is_full: bool = False  # the disk had no room
    is_damaged: bool = False  # the block cannot be copied as it is
    is_empty: bool = False  # nothing of the block is needed

    @property
    def path(self) -> str:
        """The path of the copy."""
        return self.block.path + TEMPORARY_SUFFIX

    def run(self) -> None:
        """Create the copy, durably except for its name."""
        content = self._content()
        if content is None:
            return
        try:
            self.copy = self.disk.create(self.path, replace=True)
            self.copy.write(self.block.file.stored(content), 0)
            self.copy.sync()
            if not self.is_last:
                self.copy.close()
        except DiskFull:
            self.is_full = True
            self.discard()

    def _content(self) -> bytes | None:
        plain: bytes | None
        if self.compaction is not None:
            compaction = self.compaction
            made = compacted_copy(self.block, self.plain, compaction.live_offsets, compaction.older)
            plain = None
            if made is not None:
                plain, self.compaction.messages, self.compaction.tombstones = made
                self.is_empty = not self.compaction.messages and not self.compaction.tombstones
        elif self.erase:
            plain = erased_copy(self.block, self.plain, self.erase)
        else:
            plain = bytes(self.plain)
        # A copy of places that the disk could not supply must not replace the file.
        self.is_damaged = plain is None or is_unreadable(self.plain)
        if plain is None or self.is_damaged or self.is_empty:
            return None
        self.plain_bytes = len(plain)
        if self.compress:
            packed = s2.encode_block(plain)
            return packed if len(packed) < len(plain) else plain
        return plain

    def discard(self) -> None:
        """Remove the copy."""
        copy, self.copy = self.copy, None
        if copy is not None:
            copy.close()
            with suppress(StoreError):
                self.disk.remove(self.path)


class Rewriter:
    """The rewriting of one store's blocks."""

    def __init__(self, store: FileStore, *, compresses: bool, compact_bytes_min: int) -> None:
        self.compresses = compresses
        self._store = store
        self._compact_bytes_min = compact_bytes_min
        self._to_repair: dict[int, Block] = {}
        self._to_compress: dict[int, Block] = {}
        self._to_erase: dict[int, tuple[Block, set[int]]] = {}
        self._sparse: dict[int, Block] = {}
        self._pause = 0
        self._under_way: list[Rewrite] = []
        self._removed: list[Block] = []
        self._copied: list[tuple[Block, Compaction]] = []
        self._removing: list[Block] = []
        self._copying: list[tuple[Block, Compaction]] = []
        self._freed_records = 0
        self._looked = False

    # -------------------------------------------------------------- told by the store

    def is_waiting(self) -> bool:
        """Whether one of the waiting blocks may be rewritten now; asked in every turn."""
        if not (self._to_repair or self._to_compress or self._to_erase or self._sparse):
            return False
        return not self._pause and self._can_begin()

    def note_commit(self) -> bool:
        """Count a commit; true if nothing may be rewritten in it."""
        if self._pause == 0:
            return False
        self._pause -= 1
        return True

    def _can_begin(self) -> bool:
        return bool(self._to_repair) or any(not block.patched for block in self._waiting())

    def _waiting(self) -> Iterator[Block]:
        yield from (block for block, _ in self._to_erase.values())
        yield from self._to_compress.values()
        yield from self._sparse.values()

    def sealed(self, block: Block) -> None:
        """Called when nothing more will be appended to a block."""
        if self.compresses and block.size:
            self._to_compress[block.number] = block

    def repair(self, block: Block) -> None:
        """Repair a block whose damage is recorded on disk."""
        if self._is_kept(block):
            self._to_repair[block.number] = block

    def erase(self, block: Block, seq: int) -> None:
        """Overwrite the record of a deleted message in the file."""
        if self._is_kept(block):
            self._to_erase.setdefault(block.number, (block, set()))[1].add(seq)

    def sparse(self, block: Block) -> None:
        """Compact a block, most of whose records are dead."""
        block.queued = True
        if block.size >= self._compact_bytes_min:
            self._sparse[block.number] = block

    def dropped(self, block: Block) -> None:
        """Forget a block whose file will be removed."""
        self._to_repair.pop(block.number, None)
        self._to_compress.pop(block.number, None)
        self._to_erase.pop(block.number, None)
        self._sparse.pop(block.number, None)

    def removed(self, block: Block) -> None:
        """Note that a block's file was removed, which a power failure may undo."""
        self._removed.append(block)

    def closing(self) -> None:
        """Stop compactions, because the store is closing."""
        self._sparse.clear()

    def resumed(self) -> None:
        """Continue, because there is room on the disk again."""
        self._pause = 0

    def _is_kept(self, block: Block) -> bool:
        blocks = self._store.table.blocks
        index = bisect_left(blocks, block.number, key=lambda other: other.number)
        return index < len(blocks) and blocks[index] is block

    # -------------------------------------------------------------- a commit

    def prepare(self, marked_block: int) -> None:
        """Record what a compaction will remove; called before the last write of a commit."""
        if not self._looked:
            self._looked = True
            self._look()
        if self._next_sparse(marked_block) is not None:
            repeat_last(self._store.table)

    def begin(self, marked_block: int, trash: list[Block]) -> list[Rewrite]:
        """Begin the copies for the worker to make; everything appended has been written already.

        Blocks below `marked_block` are whole according to a mark on disk. `trash` is still on disk
        too.
        """
        self._removing, self._removed = self._removed, []
        self._copying, self._copied = self._copied, []
        if self.note_commit():
            return []
        left = REWRITE_BYTES_MAX
        chosen = self._next_sparse(marked_block)
        if chosen is not None and (compaction := self._compaction(chosen, trash)) is not None:
            self._under_way.append(self._rewrite(chosen, compaction))
            left -= chosen.size
        waiting = [*self._to_repair.values()]
        waiting += [block for block, _ in self._to_erase.values() if not block.patched]
        waiting += [block for block in self._to_compress.values() if not block.patched]
        for block in waiting:
            if left > 0 and all(block is not rewrite.block for rewrite in self._under_way):
                left -= block.size
                self._under_way.append(self._rewrite(block, None))
        return list(self._under_way)

    def _rewrite(self, block: Block, compaction: Compaction | None) -> Rewrite:
        _, erase = self._to_erase.pop(block.number, (block, set()))
        self._to_compress.pop(block.number, None)
        is_repair = self._to_repair.pop(block.number, None) is not None
        if is_repair and not block.patched:
            salvage_block(block, self._store.name)  # there was no memory to keep what is good
        is_last = block is self._store.table.last
        return Rewrite(
            self._store.disk,
            block,
            block.plain_view(),
            is_last,
            self.compresses and not is_last,
            sorted(erase),
            compaction,
            is_repair,
        )

    def _next_sparse(self, marked_block: int) -> Block | None:
        ready = (block for block in self._sparse.values() if not block.patched)
        return next((block for block in ready if block.number < marked_block), None)

    def _compaction(self, block: Block, trash: list[Block]) -> Compaction | None:
        """The facts for a compaction; None if it is not worthwhile after all."""
        del self._sparse[block.number]
        block.queued = False
        try:
            self._store.table.load_index(block)
        except CorruptRecord:
            return None  # the next reader gets the error
        index = bisect_left(self._store.table.blocks, block.number, key=lambda other: other.number)
        older = self._store.table.blocks[:index]
        older += [gone for gone in (*trash, *self._removing) if gone.number < block.number]
        dead_before = sum(other.dead_records() for other in older)
        if not block.is_sparse(dead_before):
            return None
        block.queued = True
        deleted = SequenceSet.decode(block.deleted.encode())[0]
        offsets = block.live_offsets()
        return Compaction(offsets, OlderBlocks(older), block.first_seq, deleted, *block.last_live())

    def finish(self) -> None:
        """Rename the copies after the commit succeeded; those of the previous commit are
        durable.
        """
        for block, compaction in self._copying:
            freed = block.file_records - compaction.messages
            self._freed_records += freed
            block.finish_compaction(
                compaction.messages,
                compaction.lowest,
                compaction.deleted,
                compaction.last_seq,
                compaction.last_timestamp,
            )
        self._freed_records += sum(block.file_records for block in self._removing)
        self._copying, self._removing = [], []
        done, self._under_way = self._under_way, []
        for rewrite in done:
            self._finish(rewrite)
        if self._freed_records * TOMBSTONE_BYTES >= self._store.table.block_bytes_max // 2:
            self._freed_records = 0
            self._look()

    def failed(self) -> None:
        """Called when the commit failed: discard the copies."""
        done, self._under_way = self._under_way, []
        for rewrite in done:
            rewrite.discard()

    def _look(self) -> None:
        """Check all blocks: tombstones that are no longer needed may make them sparse."""
        dead = sum(block.dead_records() for block in (*self._removed, *self._removing))
        for block in find_sparse(self._store.table.blocks, dead, self._compact_bytes_min):
            self.sparse(block)

    def _finish(self, rewrite: Rewrite) -> None:
        block, compaction = rewrite.block, rewrite.compaction
        if not self._is_kept(block) or rewrite.is_damaged:
            block.queued = rewrite.is_damaged
            rewrite.discard()
            return
        if rewrite.is_full:
            self._pause = PAUSE_COMMITS
            self._again(rewrite)
            return
        if block.patched and not block.is_patched_with(rewrite.plain.obj):
            # The block was found to be damaged after the copy was begun.
            rewrite.discard()
            self._again(rewrite)
            return
        if rewrite.is_empty:
            self._store.table.drop_block(block)
            return
        copy = rewrite.copy
        assert copy is not None
        if rewrite.is_last:
            rest = block.plain_view(rewrite.plain_bytes)
            copy.write(block.file.stored(rest, rewrite.plain_bytes), rewrite.plain_bytes)
        self._store.replace_file(block, rewrite.path, copy if rewrite.is_last else None)
        if rewrite.is_repair:
            block.repaired(rewrite.plain_bytes)
        if compaction is None:
            block.unmap()
            return
        block.adopt_compacted(rewrite.plain_bytes, compaction.tombstones)
        self._copied.append((block, compaction))
        if block.live_msgs == 0 and block.tombstones == 0:
            self._store.table.drop_block(block)

    def _again(self, rewrite: Rewrite) -> None:
        block = rewrite.block
        if rewrite.is_repair:
            self._to_repair[block.number] = block
        elif rewrite.compaction is not None:
            self._sparse[block.number] = block
        elif rewrite.compress and not block.compressed:
            self._to_compress[block.number] = block
        for seq in rewrite.erase:
            self.erase(block, seq)
