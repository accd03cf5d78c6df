"""The files of a stream's messages, in the official format, and how they become durable.

Owns the files below `msgs/` of one stream, which parts are written and synced, and what a mark
records of that. The messages themselves are in its `table`, a `MessageStore` that has this for its
`BlockKeeper`. Appends go into the tail of the last block; `flush` writes each block once;
`begin_commit`/`finish_commit` make it durable. Appended messages are promised only when
`table.synced_seq` has reached it.

Most commits only write what was appended and sync it, so this module is compiled. Whatever else
one may have to do are its *chores*: names, copies of blocks, damage, files of others. They have a
part of their own, `CommitChores`, with the rules of the order in which files come and go.

The first failed write or sync makes the store read-only (`failure`); a full disk may be resumed,
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tradewind import invariants
from tradewind.errors import StoreError
from tradewind.store.commits.commit import Commit, SyncTarget
from tradewind.store.contract import LostMessages, StoreLimits
from tradewind.store.files.disk import DiskFull
from tradewind.store.files.open_files import BlockFile, OpenFiles, open_files
from tradewind.store.files.witness import FIRST_TESTIMONY, Witness
from tradewind.store.folder.commit_chores import CommitChores
from tradewind.store.folder.rewrite import COMPACT_BYTES_MIN, Rewriter
from tradewind.store.folder.time_files import time_files
from tradewind.store.format.layout import INDEX_FILE, RECORD_BYTES_MIN, Position, block_file_name
from tradewind.store.repair.damage import DamageFolder
from tradewind.store.repair.damage_resolution import DamageResolution
from tradewind.store.repair.index_summary import encode_summary
from tradewind.store.repair.known_losses import KnownLosses
from tradewind.store.table.adoption import drop_leading_blocks
from tradewind.store.table.block import Block
from tradewind.store.table.marks import (
    MARK_SYNCED_KIND,
    mark_limit_floor,
    write_floor,
    write_lengths,
    write_mark,
)
from tradewind.store.table.message_store import MessageStore
from tradewind.store.table.totals_audit import verify_totals

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk, DiskFile
    from tradewind.store.files.unsettled import UnsettledCreations
    from tradewind.store.files.vault import StreamVault
    from tradewind.store.folder.stream_chain import StreamChain

TOMBSTONE = 1 << 62
RESUMED_REMOVALS_MAX = 10_000
# Messages of at least this size are worth a mark that proves their lengths.
PROVED_BYTES_MIN = 1024
IS_CHECKED = invariants.are_checked()


def first_block(name: str) -> bytes:
    """The content of a new stream's first block: a mark that identifies it as Tradewind's."""
    return Block(name, 1).mark_bytes(TOMBSTONE, MARK_SYNCED_KIND << 56)


def _nothing() -> None:
    pass


class ReadOnlyError(StoreError):
    """The stream accepts no changes, because its disk failed; reading continues."""


class FileStore(SyncTarget):
    """The messages of one stream below `folder` (its `msgs` directory).

    Made by `recover.open_store`.
    """

    def __init__(
        self,
        disk: Disk,
        folder: str,
        name: str,
        limits: StoreLimits | None = None,
        *,
        compresses: bool = False,
        compact_bytes_min: int = COMPACT_BYTES_MIN,
        files: OpenFiles | None = None,
        vault: StreamVault | None = None,
        **settings: Any,
    ) -> None:
        self.name = name
        self.vault = vault
        self.keeps_schedules = False
        self.disk = disk
        # All streams of the loop share theirs; a store that a worker makes has its own.
        self.files = files or open_files(disk)
        self.folder = folder
        self.table = MessageStore(name, limits, keeper=self, **settings)
        self.rewriter = Rewriter(self, compresses=compresses, compact_bytes_min=compact_bytes_min)
        self.failure: StoreError | None = None
        stream_folder = folder.rpartition("/")[0]
        self.losses = KnownLosses(self.table)
        self.damage = DamageResolution(self, DamageFolder(disk, stream_folder), self.losses)
        witness = Witness(disk, stream_folder, name)
        self.chores = CommitChores(
            self, disk, folder, self.table, self.rewriter, self.damage, witness, vault
        )
        self._begins = False
        self._may_resume = False
        self._unsynced: dict[str, BlockFile] = {}
        self._synced_position: Position = (0, 0)
        self._marked_position: Position = (0, 0)
        self._durable_mark: Position = (0, 0)
        self._clean: Position = (0, 0)
        self._is_unmarked = False
        self.committing: Commit | None = None
        self._pinned: list[BlockFile] = []
        self.is_fenced = False
        self._fenced_blocks: list[Block] = []
        self.chain: StreamChain | None = None
        # Unsynced creations in its folder, if the stream does not wait for the disk.
        self.unsettled: UnsettledCreations | None = None

    def attach_chain(self, chain: StreamChain | None) -> None:
        """Chain all changes from now on; the chain itself covers the time before."""
        self.chain = chain
        self.table.chain = None if chain is None else chain.links

    # -------------------------------------------------------------- keeping the table's blocks

    def begin(self) -> None:
        """Begin the store of a new stream, whose first block (`first_block`) and witness testimony
        are already on disk.
        """
        self._begins = True
        self.chores.adopt_testimony(FIRST_TESTIMONY)
        self.table.add_block()
        self.table.last.assume_written()
        self._synced_position = self._clean = (self.table.last.number, self.table.last.size)
        self._mark_synced()

    def open_block(self, number: int) -> Block:
        """Create a block file; its name becomes durable with the next commit."""
        if self._begins:
            self._begins = False
            return Block(self.name, number, self.block_file(number))
        with self.changing(resumable=True):
            cipher = None if self.vault is None else self.vault.blocks.take(number)
            file = self.files.create(f"{self.folder}/{block_file_name(number)}", cipher)
        self.chores.names_changed = True
        return Block(self.name, number, file)

    def block_file(self, number: int) -> BlockFile:
        """The file of an existing block."""
        cipher = None if self.vault is None else self.vault.blocks.cipher(number)
        return self.files.file(f"{self.folder}/{block_file_name(number)}", cipher)

    @contextmanager
    def changing(self, *, resumable: bool = False) -> Iterator[None]:
        """A context in which the first failure of a change makes the store read-only."""
        try:
            yield
        except StoreError as error:
            self.fail(error, resumable=resumable)
            raise

    def fail(self, error: StoreError, *, resumable: bool) -> None:
        """Accept no changes from now on."""
        self.failure = error
        self.table.read_only = True
        self._may_resume = resumable and isinstance(error, DiskFull)
        self.damage.interrupted(error)

    def block_sealed(self, block: Block) -> None:
        """Write the rest of a block now; it is synced with the next commit."""
        if self.is_fenced:
            self._fenced_blocks.append(block)
        self._write(block)
        self.rewriter.sealed(block)

    def block_sparse(self, block: Block) -> None:
        """Have a block compacted by one of the next commits."""
        self.rewriter.sparse(block)

    def erase_record(self, block: Block, seq: int, offset: int) -> None:
        """Erase a record immediately if it is not in the file yet, otherwise with the next
        commit.
        """
        if not block.erase_in_tail(seq, offset):
            self.rewriter.erase(block, seq)

    def block_opened(self) -> None:
        """Begin the block with a mark of how far all before it is synced, which identifies it as
        Tradewind's.
        """
        self._append_mark()

    def _append_mark(self) -> None:
        number, offset = self._synced_position
        write_mark(self.table, MARK_SYNCED_KIND, number << 32 | offset)

    def blocks_dropped(self, blocks: list[Block]) -> None:
        """Remove the files of blocks without live messages together, once that is known on disk."""
        self.chores.discard(blocks)

    def _write_first_mark(self, block: Block) -> None:
        """Write the first mark before any other bytes, so that what a crash leaves after it is
        known to be Tradewind's.

        The rest of the mark itself is too small to be taken for anything but a cut off write. A
        summary of the other server might fit it, if its last block is empty: that is removed
        before.
        """
        self.chores.remove_stale_index()
        block.flush(RECORD_BYTES_MIN)
        self._is_unmarked = False
        with self.changing():
            block.file.sync_all()

    # -------------------------------------------------------------- commits

    def wants_commit(self) -> bool:
        """Whether blocks wait to be removed, which takes two commits, to be rewritten or read."""
        return self.chores.are_waiting()

    def has_changes(self) -> bool:
        """Whether a commit has anything to do."""
        return (
            self.chores.names_changed
            or len(self._unsynced) > 0
            or not self._is_clean()
            or self.chores.are_waiting()
            or (self.chain is not None and self.chain.is_dirty)
            or (self.unsettled is not None and len(self.unsettled.waiting) > 0)
        )

    def _is_clean(self) -> bool:
        last = self.table.last
        return last is None or (last.number, last.size) == self._clean

    def _write(self, block: Block) -> int:
        """Write all of a block to the system; StoreError makes the store read-only."""
        if block.size == block.written or self.is_fenced:
            return 0
        try:
            if self._is_unmarked:
                self._write_first_mark(block)
            block.flush()
        except StoreError as error:
            if self.failure is None:
                self.fail(error, resumable=True)
            raise
        self._unsynced[block.file.path] = block.file
        return 0

    @property
    def unwritten_bytes(self) -> int:
        """The bytes of the last block that the operating system has not received yet."""
        return self.table.last.pending_bytes if self.table.last is not None else 0

    def flush(self) -> None:
        """Write the appended bytes, one write per block; StoreError makes the store read-only."""
        if self.failure is not None:
            self.check_writable()
        if self.table.last is not None:
            self._write(self.table.last)
            if self.chain is not None:
                self._write_chain()
            if not self.is_fenced:
                self.table.written_seq = self.table.last_seq

    def flush_unless_failed(self) -> None:
        """The same, but nothing if the store accepts no changes."""
        if self.failure is None:
            self.flush()

    def _write_chain(self) -> int:
        """Write the links of everything appended; they are synced with it."""
        assert self.chain is not None
        if self.is_fenced or self.failure is not None:
            return 0
        try:
            files = self.chain.write()
        except StoreError as error:
            self.fail(error, resumable=True)
            raise
        for file in files:
            self._unsynced[file.path] = file
        return 0

    def fence(self) -> None:
        """Write nothing until `lift_fence`: appended bytes must not be on disk before that."""
        self.is_fenced = True

    def lift_fence(self) -> None:
        """Write what was appended since `fence`; StoreError makes the store read-only."""
        self.is_fenced = False
        blocks, self._fenced_blocks = self._fenced_blocks, []
        if self.failure is None:
            for block in blocks:
                self._write(block)
            self.flush()

    def _has_chores(self) -> bool:
        """Whether a commit has more to do than to sync what was appended."""
        return (
            self.chores.are_due()
            or self.failure is not None
            or (self.chain is not None and len(self.chain.new_folders) > 0)
        )

    def begin_commit(self) -> Commit | None:
        """Begin a commit of everything appended; None if there is nothing to do or a commit is in
        progress.
        """
        if self.committing is not None or self.table.last is None or self.is_fenced:
            return None
        if self.chain is not None:
            self._write_chain()
        has_chores = self._has_chores()
        if not has_chores:
            write_floor(self.table)
            has_chores = self.chores.names_changed  # its mark has begun a block
        if not self.has_changes():
            return None
        evidence = None
        if has_chores:
            evidence = self.chores.prepare(self._durable_mark[0])
            write_floor(self.table)
            self.check_writable()
        last = self.table.last
        if IS_CHECKED:
            verify_totals(self.table)
        self._write(last)
        self.table.written_seq = self.table.last_seq
        commit = Commit(self.disk, self.table.last_seq, (last.number, last.written))
        commit.marked = self._marked_position
        commit.floor = self.table.written_floor
        if self.unsettled is not None and self.unsettled.waiting:
            commit.settling = self.unsettled.take()
        # Blocks that wait to be removed too: a mark says of everything before it that it is whole.
        for file in self._unsynced.values():
            if file.pin():
                self._pinned.append(file)
        commit.files.extend(self._pinned)
        if has_chores:
            self.chores.add_to(commit, evidence, self._durable_mark[0])
            if self.chain is not None:
                commit.folders += self.chain.take_folders()
        else:
            self.rewriter.note_commit()
        self._unsynced = {}
        self._clean = commit.position
        self.committing = commit
        if self.chain is not None:
            self.chain.begin(self.table)
        return commit

    def finish_commit(self, commit: Commit) -> None:
        """End a commit in the loop. Raises its error, after making the store read-only."""
        assert commit is self.committing
        self._unpin()
        if commit.error is not None:
            # Even a full disk: after a failed sync it is unknown what has arrived.
            if commit.has_chores:
                self.chores.failed(commit)
            self.fail(commit.error, resumable=False)
            raise commit.error
        if IS_CHECKED:
            self._verify_commit(commit)
        self.table.synced_seq = max(self.table.synced_seq, commit.last_seq)
        if self.chain is not None:
            self.chain.finish()
        self._synced_position = max(self._synced_position, commit.position)
        self._durable_mark = max(self._durable_mark, commit.marked)
        if commit.has_chores:
            self.chores.finish(commit)
        self._mark_synced()
        if commit.evidence is not None:
            self.damage.resolved(commit.evidence)

    def _verify_commit(self, commit: Commit) -> None:
        """Assert that a commit promises no more than was written, and no less than before."""
        last = self.table.last
        assert commit.last_seq <= self.table.last_seq, (commit.last_seq, self.table.last_seq)
        assert commit.position <= (last.number, last.written), (commit.position, last.number)
        assert commit.marked <= commit.position, (commit.marked, commit.position)
        assert not self._pinned, "the files of a commit are let go before it is promised"

    def drop_commit(self, commit: Commit) -> None:
        """See `SyncTarget`. Names that it would have changed may be those of another stream now."""
        assert commit is self.committing
        self._unpin()
        self.rewriter.failed()
        if commit.error is not None:
            self.fail(commit.error, resumable=False)

    def _unpin(self) -> int:
        """Allow the files of the ended commit to be closed."""
        self.committing = None
        for file in self._pinned:
            file.unpin()
            if file is not self.table.last.file and (
                self.chain is None or file is not self.chain.file
            ):
                file.rest()
        self._pinned.clear()
        return 0

    def _mark_synced(self) -> int:
        """Append a mark of how far the bytes before it are known to be on disk.

        The mark is the first record of the next group wherever possible, and not worth a commit of
        its own unless a block waits for it to be removed.
        """
        if self._synced_position <= self._marked_position:
            return 0
        nothing_else = self._is_clean()
        write_lengths(self.table, PROVED_BYTES_MIN)
        self._append_mark()
        self._marked_position = self._synced_position
        if nothing_else and not self.chores.are_waiting():
            self._clean = (self.table.last.number, self.table.last.size)
        return 0

    def replace_file(self, block: Block, copy_path: str, copy: DiskFile | None) -> None:
        """Replace a block's file by a copy. One that is open may have unsynced bytes."""
        self.disk.rename(copy_path, block.path)
        self.damage.file_replaced(block)
        self.chores.names_changed = True
        self._unsynced.pop(block.path, None)
        if copy is None:
            block.file.close()
        else:
            block.file.adopt(copy)
            self._unsynced[block.path] = block.file

    def mark_idle(self) -> None:
        """Write the mark of the last commit too, because nothing else is being written."""
        if self.committing is None and self.failure is None and self.table.last is not None:
            self.flush()

    def commit(self) -> None:
        """Commit everything now, in this thread; for tests, tools and shutdown."""
        while (commit := self.begin_commit()) is not None:
            commit.run()
            self.finish_commit(commit)

    def check_writable(self) -> None:
        """ReadOnlyError, with the reason, after a failed write or sync."""
        if self.failure is not None:
            raise ReadOnlyError(f"stream {self.name!r} is read-only: {self.failure}")

    def resume(self) -> bool:
        """Take changes again if a full disk has room; false if it is still full.

        Any other failure stays: after a failed sync the content of the disk is unknown.
        """
        if self.failure is None:
            return True
        if not self._may_resume:
            return False
        failure = self.failure
        self.failure, self.table.read_only = None, False
        try:
            if self.table.last is not None:
                self._write(self.table.last)
                if self.chain is not None:
                    self._write_chain()
                # A removal by a limit may be what was refused; its owner goes on with many.
                self.table.begin_limits()
                self.table.limit_step(RESUMED_REMOVALS_MAX)
        except StoreError:
            self.failure, self.table.read_only = failure, True
            return False
        self.rewriter.resumed()
        return True

    def close(self) -> None:
        """Make everything durable and close the files.

        An index.db is left for the next start.
        """
        self.begin_close()()

    def begin_close(self) -> Callable[[], None]:
        """The part of `close` for the owner; any thread may call what it returns."""
        finish = _nothing
        if self.failure is None and not self.is_fenced:
            mark_limit_floor(self.table)
            self.rewriter.closing()
            if self.has_changes() or not self.chores.index_file_present:
                finish = self._write_summary()
        for block in self.table.blocks:
            block.close()
        if self.chain is not None:
            self.chain.close()
        return finish

    def _write_summary(self) -> Callable[[], None]:
        self.commit()
        # The mark of that commit is all that is left; nothing follows it.
        self.flush()
        unsynced = list(self._unsynced)
        files = time_files(self)
        if not self.table.has_open_damage:
            content = encode_summary(self)
            files[INDEX_FILE] = content if self.vault is None else self.vault.seal_index(content)

        def finish() -> None:
            for path in unsynced:
                with self.disk.open(path) as file:
                    file.sync()
            for name, content in files.items():
                self.disk.write_file_atomically(f"{self.folder}/{name}", content)

        return finish

    def abandon(self) -> None:
        """Release the files and write nothing: the stream is deleted, or its disk has failed."""
        for block in [*self.table.blocks, *self.chores.unremoved_blocks]:
            block.close()
        if self.chain is not None:
            self.chain.close()

    # -------------------------------------------------------------- recovery and damage

    def recovered(self, marked: Position, *, sync: bool = False, is_foreign: bool = False) -> None:
        """Called by recovery: everything read counts as synced; `marked` is the mark on disk.

        `sync`: a process that was killed may have left bytes that are only in the system's memory;
        `CommitChores.secure` has to be called. `is_foreign`: there is no mark of Tradewind's.
        """
        if sync:
            self.chores.note_unsafe(marked[0])
        self.table.synced_seq = self.table.last_seq
        self._synced_position = (self.table.last.number, self.table.last.written)
        # A mark may name a block that is lost: nothing after what is left was ever synced.
        self._marked_position = self._durable_mark = min(marked, self._synced_position)
        self._is_unmarked = is_foreign
        is_written = self.table.last.size == 0 and sync
        if is_foreign and not is_written and not self.table.last.compressed:
            self._append_mark()  # written before the next bytes; not worth a write of its own
        self._clean = (self.table.last.number, self.table.last.size)
        if is_written:
            self._append_mark()
            self.commit()
        drop_leading_blocks(self.table)

    @property
    def lost(self) -> LostMessages | None:
        """See `BlockKeeper`."""
        return self.losses.messages

    def block_damaged(self, block: Block) -> None:
        """Called when a block that is read is damaged: continue with all its good records."""
        self.damage.found(block)

    def record_damaged(self, block: Block) -> None:
        """Called when a record of the block being written is damaged: it is never returned."""
        self.damage.found_in_last(block)

    def verify(self) -> None:
        """Assert every invariant by recounting, all damage resolved; for tests and tools."""
        for block in list(self.table.blocks):
            self.table.load_index(block)
        if self.table.has_open_damage:
            self.damage.resolve_all()
        self.table.verify()
