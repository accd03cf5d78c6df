"""What happens to the files of a stream in every turn in which something was published.

Owns the way of appended bytes through a commit: written, handed to a worker, marked as synced. Most
commits are nothing but that. Whatever else one may have to do (*chores*: names, copies of blocks,
damage, files of others) is in the subclass, `FileStore`; the order rules are there too, and hold
here. It opens no file by itself.
"""

from libc.stdint cimport uint64_t
from tradewind.store.table.block cimport Block
from tradewind.store.folder.commit cimport Commit
from tradewind.store.table.message_core cimport MARK_SYNCED
from tradewind.store.table.messages cimport MessageStore
from tradewind.store.files.open_files cimport BlockFile

from tradewind.errors import StoreError


cdef class RewriteQueues:
    """Which blocks are to be written anew; `Rewriter` fills and empties the queues, and has
    `can_begin`.
    """

    def __cinit__(self):
        self._to_repair = {}
        self._to_compress = {}
        self._to_erase = {}
        self._sparse = {}

    cdef bint is_waiting(self) except -1:
        if self._pause or not (
                self._to_repair or self._to_compress or self._to_erase or self._sparse):
            return False
        return self.can_begin()

    cpdef bint note_commit(self) noexcept:
        """A commit passes; true if it is one of those that nothing is rewritten in."""
        if self._pause == 0:
            return False
        self._pause -= 1
        return True

    @property
    def has_work(self):
        """Whether the next commits have something to rewrite."""
        return self.is_waiting()


cdef class FileCore(MessageStore):
    """The subclass has `fail`, which makes it read-only, `write_first_mark`, and the chores:

    - `prepare_chores` does what comes before the last write of a commit, and gives the evidence of
      damage that the commit is to save, or None;
    - `add_chores(commit, evidence)` adds to the commit what a worker is to do after its syncs;
    - `finish_chores(commit)` goes on from there, `drop_chores(commit)` if it has failed;
    - `settled(evidence)`: that is on disk.
    """

    def __cinit__(self):
        self._unsynced = {}
        self._trash = []
        self._pinned = []
        self.unsafe_files = []
        self._synced_position = self._marked_position = self._durable_mark = self._clean = (0, 0)

    cdef bint is_waiting(self) except -1:
        cdef RewriteQueues rewriter = self.rewriter
        return len(self._trash) > 0 or (self.unsettled and self._settlement.has_work) or (
            (rewriter._to_repair or rewriter._to_compress or rewriter._to_erase
             or rewriter._sparse) and rewriter.is_waiting())

    @property
    def wants_commit(self):
        """Whether blocks wait to be removed, which takes two commits, to be rewritten or read."""
        return self.is_waiting()

    cdef bint is_changed(self) except -1:
        return self._names_changed or len(self._unsynced) > 0 or (
            self.last is not None and (self.last.number, self.last.size) != self._clean
        ) or self.is_waiting()

    @property
    def is_dirty(self):
        """Whether a commit has anything to do."""
        return self.is_changed()

    # -------------------------------------------------------------- writing

    cpdef void write(self, Block block) except *:
        """Hand all of a block to the system; StoreError makes the store read-only."""
        if block.size == block.written:
            return
        try:
            if self._is_unmarked:
                self.write_first_mark(block)
            block.write_tail()
        except StoreError as error:
            if self.failure is None:
                self.fail(error, resumable=True)
            raise
        self._unsynced[(<BlockFile?>block.file).path] = block.file

    cpdef void flush(self) except *:
        """Write what was appended, one write per block; StoreError makes the store read-only."""
        if self.failure is not None:
            self.check_writable()
        if self.last is not None:
            self.write(self.last)

    # -------------------------------------------------------------- syncing

    cpdef Commit begin_commit(self):
        """All that was appended, for a worker; None if there is nothing or one is under way."""
        cdef Commit commit
        cdef BlockFile file
        cdef bint has_chores
        evidence = None
        if self._committing is not None or self.last is None:
            return None
        # Whether it has more to do than to sync what was appended.
        has_chores = self._names_changed or self.failure is not None or self.unsettled \
            or len(self.unsafe_files) > 0 or self.index_file_present \
            or self.last_seq > self.reserved_seq or self.is_waiting()
        if not has_chores and (self.limit_floor > self.said_floor or self.blocks_went):
            self.say_floor()
            has_chores = self._names_changed    # its mark has begun a block
        if not self.is_changed():
            return None
        if has_chores:
            evidence = self.prepare_chores()
            self.say_floor()
            self.check_writable()
        self.write(self.last)
        commit = Commit(self.disk, self.last_seq, (self.last.number, self.last.written))
        commit.marked = self._marked_position
        commit.floor = self.said_floor
        # Blocks that wait to be removed too: a mark says of everything before it that it is whole.
        for file in self._unsynced.values():
            if file.pin():
                self._pinned.append(file)
        commit.files.extend(self._pinned)
        if has_chores:
            commit.has_chores = True
            self.add_chores(commit, evidence)
        elif self.rewriter._pause:
            self.rewriter.note_commit()
        self._unsynced = {}
        self._names_changed = False
        self._clean = commit.position
        self._committing = commit
        return commit

    cpdef void finish_commit(self, Commit commit) except *:
        """The worker is done with it. Raises its error, after making the store read-only."""
        assert commit is self._committing
        self.unpin()
        if commit.error is not None:
            # Also a full disk: after a failed sync nobody knows what has arrived.
            if commit.has_chores:
                self.drop_chores(commit)
            self.fail(commit.error, resumable=False)
            raise commit.error
        self.synced_seq = max(self.synced_seq, commit.last_seq)
        self._synced_position = max(self._synced_position, commit.position)
        self._durable_mark = max(self._durable_mark, commit.marked)
        if commit.has_chores:
            self.finish_chores(commit)
        self.mark_synced()
        if commit.evidence is not None:
            self.settled(commit.evidence)

    def drop_commit(self, Commit commit not None):
        """See `SyncTarget`. Names that it would have changed may be those of another stream now."""
        assert commit is self._committing
        self.unpin()
        self.rewriter.failed()
        if commit.error is not None:
            self.fail(commit.error, resumable=False)

    cdef int unpin(self) except -1:
        """No commit is under way any more: its files may be closed."""
        cdef BlockFile file
        self._committing = None
        for file in self._pinned:
            file._pins -= 1
            if file is not self.last.file:
                file.rest()
        self._pinned.clear()
        return 0

    cpdef void mark_synced(self) except *:
        """Let the next bytes say how far the ones before are known to be on disk.

        The mark is the first record of the next group wherever possible, and not worth a commit of
        its own unless a block waits for it to be removed.
        """
        cdef uint64_t number, offset
        cdef bint nothing_else
        if self._synced_position <= self._marked_position:
            return
        nothing_else = (self.last.number, self.last.size) == self._clean
        number, offset = self._synced_position
        self.append_own_mark(MARK_SYNCED, number << 32 | offset)
        self._marked_position = self._synced_position
        if nothing_else and not self.is_waiting():
            self._clean = (self.last.number, self.last.size)
