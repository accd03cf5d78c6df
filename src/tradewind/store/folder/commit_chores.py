"""The chores of a commit: its work besides syncing what was appended.

Owns what waits for a commit of one stream: names of files that are new or gone, unneeded blocks,
keys of blocks, the witness, an index.db that does not fit any more, and files that a killed process
has left unsynced. Copies of blocks and repairs wait in the rewriter and in the resolution of
damage; here they get their turn. Never writes a block itself, and does not know which bytes a
commit syncs.

Most commits have no chores, and ask only that (`are_due`). One that has some takes three steps:
`prepare` before its last write, `add_to` when that is done, and `finish` or `failed` at the end.

Order rules, which every crash test checks
- a block's name is durable before anything in it is promised;
- a tombstone is durable before the block with the deleted record goes, because blocks go one commit
  later at the earliest, oldest first, and one at a time unless a floor on disk speaks for all of
  them: no message comes back because a file did;
- `index.db` is of use only while the store is closed. The first commit removes it, durably, or the
  first one after damage is resolved that it may know more about (`DamageResolution`). Until then it
  does not fit: whatever changes a store appends to its last block or begins another
  (`index_summary.fits`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Protocol

from tradewind.errors import StoreError
from tradewind.store.files.disk import MissingFile
from tradewind.store.files.witness import Testimony, TestimonyWrite
from tradewind.store.folder.rewrite import Rewriter
from tradewind.store.format.layout import INDEX_FILE, Position
from tradewind.store.table.block import Block
from tradewind.store.table.message_store import MessageStore

if TYPE_CHECKING:
    from tradewind.store.commits.commit import Commit
    from tradewind.store.files.disk import Disk
    from tradewind.store.files.vault import StreamVault
    from tradewind.store.files.witness import Witness
    from tradewind.store.repair.damage_resolution import DamageResolution, Evidence

# Block files removed after one commit, in addition to as many as were added.
FILES_REMOVED_MAX = 4


class ChoresOwner(Protocol):
    """The store that owns the chores."""

    def flush(self) -> None:
        """Write the appended bytes."""

    def changing(self) -> AbstractContextManager[None]:
        """A context in which the first failure makes the store read-only."""


class BlockTrash:
    """Unneeded blocks whose files still exist, in groups that are removed together."""

    def __init__(self) -> None:
        self._groups: list[tuple[Position, list[Block]]] = []
        self._newest_then = 0

    def is_empty(self) -> bool:
        """Whether there are no blocks; called by every commit."""
        return len(self._groups) == 0

    def add(self, position: Position, blocks: list[Block]) -> None:
        """Add blocks that may go when a mark on disk has reached the position."""
        self._groups.append((position, blocks))

    @property
    def blocks(self) -> list[Block]:
        """All blocks, oldest first."""
        return [block for _, blocks in self._groups for block in blocks]

    def take(self, marked: Position, floor: int, newest: int) -> Iterator[list[Block]]:
        """Take the blocks whose files can be removed now, oldest first; `newest` is the number of
        the last block.

        One group at a time, for names may reach the disk in any order, and a block may hold
        tombstones for another. Below a floor that is on disk no tombstone is needed: then several
        go at once, though not more than take a moment; but blocks go as fast as they come.
        """
        is_first, left = True, FILES_REMOVED_MAX + newest - (self._newest_then or newest)
        self._newest_then = newest
        while self._groups and left and marked >= self._groups[0][0]:
            position, blocks = self._groups[0]
            if not is_first and any(block.last_seq >= floor for block in blocks):
                return
            is_first = False
            if blocks[left:]:
                self._groups[0] = position, blocks[left:]
            else:
                del self._groups[0]
            yield blocks[:left]
            left -= len(blocks[:left])


class CommitChores:
    """The chores of one store, its `owner`; `folder` is that of the blocks."""

    def __init__(
        self,
        owner: ChoresOwner,
        disk: Disk,
        folder: str,
        table: MessageStore,
        rewriter: Rewriter,
        damage: DamageResolution,
        witness: Witness,
        vault: StreamVault | None,
    ) -> None:
        self._owner = owner
        self._disk = disk
        self._folder = folder
        self._table = table
        self._rewriter = rewriter
        self._damage = damage
        self._witness = witness
        self._vault = vault
        self.names_changed = False
        self.index_file_present = False
        self.unsafe_files: list[str] = []
        self._insecure: StoreError | None = None
        self._reserved_seq = 0
        self._keys_to_remove: list[int] = []
        self._trash = BlockTrash()

    # -------------------------------------------------------------- told by the store

    def discard(self, blocks: list[Block]) -> None:
        """Remove blocks without live messages together, once that is known on disk."""
        for block in blocks:
            self._rewriter.dropped(block)
        self._trash.add((self._table.last.number, self._table.last.size), blocks)

    @property
    def unremoved_blocks(self) -> list[Block]:
        """Blocks that are no longer needed, whose files still exist."""
        return self._trash.blocks

    @property
    def _stale_index(self) -> str | None:
        """The index.db that a commit has to remove, because the store has changed; or None.

        None while it may know of deletions that damaged bytes no longer show. A start that finds it
        with later changes takes nothing else from it.
        """
        is_stale = self.index_file_present and not self._table.has_open_damage
        return f"{self._folder}/{INDEX_FILE}" if is_stale else None

    def remove_stale_index(self) -> None:
        """Remove a stale index.db durably, because the next write might make it fit."""
        if (stale_index := self._stale_index) is not None:
            self._disk.remove(stale_index)
            self._disk.sync_directory(self._folder)
            self.index_file_present = False

    # -------------------------------------------------------------- told by recovery

    def adopt_testimony(self, testimony: Testimony | None) -> None:
        """Adopt the testimony of this stream's witness; None: the next commit has to update it."""
        self._witness.adopt(testimony)
        self._reserved_seq = self._witness.reserved_seq

    def renew_testimony(self, serial: int) -> None:
        """Replace the testimony after its missing messages were recorded on disk."""
        self.adopt_testimony(Testimony(serial, 0, 0, 0))
        write = self._witness.next(self._table.last.number, self._table.last_seq)
        assert write is not None
        with self._owner.changing():
            write.save()
        self._note_testimony(write)

    def _note_testimony(self, write: TestimonyWrite) -> None:
        """Note whether a testimony was saved; if there was no room, the next commit tries again."""
        if not write.is_saved:
            self._witness.not_saved()
        self._reserved_seq = self._witness.reserved_seq

    def note_unsafe(self, first_number: int) -> None:
        """Note that blocks from this one on may be only in the system's memory: a process was
        killed.
        """
        # Blocks that are to go too: what follows them would be worthless after a hole.
        blocks = [*self._table.blocks, *self.unremoved_blocks]
        self.unsafe_files = [block.path for block in blocks if block.number >= first_number]

    def secure(self) -> None:
        """Sync what recovery has found after the last mark; before that nothing is promised.

        Any thread may do it as long as the store is not changed. A failure is remembered for
        `secured`.
        """
        try:
            for path in self.unsafe_files:
                with self._disk.open(path) as file:
                    file.sync()
            if self.unsafe_files:
                self._disk.sync_directory(self._folder)
            self.unsafe_files = []
        except StoreError as error:
            self._insecure = error

    def secured(self) -> None:
        """Called after `secure`; makes the store read-only if that failed, and raises the
        failure.
        """
        if self._insecure is not None:
            with self._owner.changing():
                raise self._insecure

    # -------------------------------------------------------------- with the commits

    def are_due(self) -> bool:
        """Whether a commit has chores; called by every commit."""
        return (
            self.names_changed
            or self._table.has_open_damage
            or len(self.unsafe_files) > 0
            or self.index_file_present
            or self._table.last_seq > self._reserved_seq
            or self._wants_keys()
            or self.are_waiting()
        )

    def are_waiting(self) -> bool:
        """Whether any chores are worth a commit of their own; called in every turn."""
        return (
            not self._trash.is_empty()
            or (self._table.has_open_damage and self._damage.has_work)
            or self._rewriter.is_waiting()
        )

    def _wants_keys(self) -> bool:
        """Whether the next block may begin soon, and has no key yet."""
        if self._vault is None:
            return False
        last = self._table.last
        is_soon = 2 * last.size >= self._table.block_bytes_max
        return is_soon and self._vault.blocks.wants(last.number)

    def prepare(self, marked_block: int) -> Evidence | None:
        """Prepare the chores before the last write of a commit; returns the evidence of damage to
        save.

        Blocks below `marked_block` are whole according to a mark on disk.
        """
        if self.unsafe_files:
            self.secure()
            self.secured()
        evidence = None
        if self._damage.has_work:
            self._owner.flush()
            evidence = self._damage.next_evidence()
        self._rewriter.prepare(marked_block)
        return evidence

    def add_to(self, commit: Commit, evidence: Evidence | None, marked_block: int) -> None:
        """Add the chores to the work of the worker."""
        commit.has_chores = True
        commit.evidence = evidence
        commit.stale_index = self._stale_index
        commit.rewrites = self._rewriter.begin(marked_block, self.unremoved_blocks)
        if self.names_changed or self._wants_keys():
            self._add_keys(commit)
            commit.folders.append(self._folder)
        self.names_changed = False
        commit.witness = self._witness.next(self._table.last.number, self._table.last_seq)
        self._reserved_seq = self._witness.reserved_seq

    def _add_keys(self, commit: Commit) -> None:
        """Add the keys of future blocks, which are written with the names, and of removed ones."""
        if self._vault is None:
            return
        if self._wants_keys():
            commit.keys = self._vault.blocks.prepare(self._table.last.number)
        commit.removed_keys, self._keys_to_remove = self._keys_to_remove, []

    def failed(self, commit: Commit) -> None:
        """Called when the worker could not complete the chores."""
        self._rewriter.failed()
        if commit.keys is not None and self._vault is not None:
            self._vault.blocks.prepared(None)
        if commit.evidence is not None:
            assert commit.error is not None
            self._damage.interrupted(commit.error)

    def finish(self, commit: Commit) -> None:
        """Called when the worker has completed the chores."""
        if commit.stale_index is not None:
            self.index_file_present = False
        if commit.witness is not None:
            self._note_testimony(commit.witness)
        if commit.keys is not None and self._vault is not None:
            self._vault.blocks.prepared(commit.keys)
        with self._owner.changing():
            if commit.removed_keys and self._vault is not None:
                self._vault.blocks.remove(commit.removed_keys)
            self._rewriter.finish()
            self._empty_trash(commit)

    def _empty_trash(self, commit: Commit) -> None:
        """Remove the files of blocks that are due."""
        if self._damage.has_work:
            return  # damaged bytes are evidence, wherever they are
        newest = 0 if self._table.last is None else self._table.last.number
        for blocks in self._trash.take(commit.marked, commit.floor, newest):
            for block in blocks:
                self._remove(block)

    def _remove(self, block: Block) -> None:
        block.close()
        with suppress(MissingFile):
            self._disk.remove(block.path)
        if self._vault is not None:
            self._keys_to_remove.append(block.number)
        self.names_changed = True
        self._rewriter.removed(block)
