"""What happens to the files of a stream in every turn in which something was published.

Owns the state that decides whether a turn may take the short way: write the last block, or write
it and have it synced, with nothing else to do. All else is in the subclass, `FileStore`; the order
rules are there too, and hold here. It opens no file by itself.
"""

from libc.stdint cimport uint64_t
from tradewind.store.block cimport Block
from tradewind.store.commit cimport Commit
from tradewind.store.message_core cimport MARK_SYNCED
from tradewind.store.messages cimport MessageStore
from tradewind.store.open_files cimport BlockFile

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

    cdef bint note_commit(self) noexcept:
        """A commit passes; true if it is one of those that nothing is rewritten in."""
        if self._pause == 0:
            return False
        self._pause -= 1
        return True

    def commit_passes(self):
        """The same for the subclass."""
        return self.note_commit()

    @property
    def has_work(self):
        """Whether the next commits have something to rewrite."""
        return self.is_waiting()


cdef class FileCore(MessageStore):
    """The subclass has `fail`, which makes it read-only, and `write_first_mark`."""

    def __cinit__(self):
        self._unsynced = {}
        self._trash = []
        self.unsafe_files = []
        self._synced_position = self._marked_position = self._durable_mark = self._clean = (0, 0)

    cdef bint is_waiting(self) except -1:
        return len(self._trash) > 0 or self.rewriter.is_waiting() \
            or (self.unsettled and self._settlement.has_work)

    @property
    def wants_commit(self):
        """Whether blocks wait to be removed, which takes two commits, to be rewritten or read."""
        return self.is_waiting()

    # -------------------------------------------------------------- writing

    cdef int write_block(self, Block block) except -1:
        if block.size == block.written:
            return 0
        try:
            if self._is_unmarked:
                self.write_first_mark(block)
            block.write_tail()
        except StoreError as error:
            if self.failure is None:
                self.fail(error, resumable=True)
            raise
        self._unsynced[block.file.path] = block.file
        return 0

    def write(self, Block block not None):
        """Hand all of a block to the system; StoreError makes the store read-only."""
        self.write_block(block)

    cdef int write_last(self) except -1:
        if self.failure is not None:
            self.check_writable()
        if self.last is not None:
            self.write_block(self.last)
        return 0

    def flush(self):
        """Write what was appended, one write per block; StoreError makes the store read-only."""
        self.write_last()

    # -------------------------------------------------------------- syncing

    cdef Commit begin_short(self):
        """The commit of a stream to which nothing but an append has happened; None if there is more
        to it, or nothing.
        """
        cdef Block block = self.last
        cdef Commit commit
        cdef BlockFile file
        if block is None or self._committing is not None or self._names_changed \
                or self.failure is not None or self.unsettled or self.unsafe_files \
                or self.index_file_present \
                or self.last_seq > self.reserved_seq or self.is_waiting():
            return None
        file = block.file
        if len(self._unsynced) > 1 or (self._unsynced and file.path not in self._unsynced):
            return None
        self.say_floor()
        if block is not self.last:
            return None         # the mark of the floor began a new block
        if (block.number, block.size) == self._clean and not self._unsynced:
            return None
        self.write_block(block)
        if not file.needs_sync:
            return None         # it was synced before it was closed
        self.rewriter.note_commit()
        self._clean = (block.number, block.written)
        commit = Commit(self.disk, self.last_seq, self._clean, [file], None, True)
        commit.marked = self._marked_position
        commit.floor = self.said_floor
        file.pin()
        self._unsynced.clear()
        self._committing = commit
        return commit

    cdef int finish_short(self, Commit commit) except -1:
        """A thread is done with it. Raises its error, after making the store read-only."""
        cdef BlockFile file = commit.files[0]
        self._committing = None
        file.unpin()
        if file is not self.last.file:
            file.rest()
        if commit.error is not None:
            self.fail(commit.error, resumable=False)
            raise commit.error
        self.synced_seq = max(self.synced_seq, commit.last_seq)
        self._synced_position = max(self._synced_position, commit.position)
        self._durable_mark = max(self._durable_mark, commit.marked)
        self.mark_synced()
        return 0

    def short_commit(self):
        """`begin_short` for the subclass."""
        return self.begin_short()

    def finish_short_commit(self, Commit commit not None):
        """`finish_short` for the subclass."""
        self.finish_short(commit)

    cdef int mark_synced(self) except -1:
        """Let the next bytes say how far the ones before are known to be on disk.

        The mark is the first record of the next group wherever possible, and not worth a commit of
        its own unless a block waits for it to be removed.
        """
        cdef uint64_t number, offset
        cdef bint nothing_else
        if self._synced_position <= self._marked_position:
            return 0
        nothing_else = (self.last.number, self.last.size) == self._clean
        number, offset = self._synced_position
        self.append_own_mark(MARK_SYNCED, number << 32 | offset)
        self._marked_position = self._synced_position
        if nothing_else and not self.is_waiting():
            self._clean = (self.last.number, self.last.size)
        return 0

    def say_synced(self):
        """The same for the subclass."""
        self.mark_synced()
