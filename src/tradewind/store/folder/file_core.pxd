"""State of a stream's files that every turn looks at; the explanation is in file_core.pyx."""

from libc.stdint cimport uint64_t
from tradewind.store.table.block cimport Block
from tradewind.store.folder.commit cimport Commit
from tradewind.store.table.messages cimport MessageStore


cdef class RewriteQueues:
    cdef public dict _to_repair             # block number -> Block
    cdef public dict _to_compress           # block number -> Block
    cdef public dict _to_erase              # block number -> (Block, sequences)
    cdef public dict _sparse                # block number -> Block
    cdef public int _pause                  # commits to wait, after a full disk

    cdef bint is_waiting(self) except -1
    cpdef bint note_commit(self) noexcept


cdef class FileCore(MessageStore):
    cdef public object failure              # StoreError: why it takes no changes; or None
    cdef public RewriteQueues rewriter
    cdef public object _settlement          # of damage that was found
    cdef public bint index_file_present
    cdef public dict _unsynced              # path -> BlockFile: written and in no commit yet
    cdef public bint _names_changed
    # Blocks to remove, each group with the position that a mark on disk must have reached.
    cdef public list _trash
    # Block number and offset: up to there everything is synced, and up to there a mark says so.
    cdef public tuple _synced_position
    cdef public tuple _marked_position
    cdef public tuple _durable_mark         # up to there a mark that is on disk says so
    cdef public tuple _clean                # the end of the last block when nothing was to commit
    # The blocks are those of another server: nothing in them says how far they were synced.
    cdef public bint _is_unmarked
    cdef public list unsafe_files           # paths of those that `secure` has to sync
    cdef readonly Commit _committing        # the one under way, or None
    cdef list _pinned                       # of BlockFile: those that it syncs
    cdef public uint64_t reserved_seq       # beyond it a commit has to tell the witness

    cdef bint is_waiting(self) except -1
    cdef bint is_changed(self) except -1
    cpdef void write(self, Block block) except *
    cpdef void flush(self) except *
    cpdef Commit begin_commit(self)
    cpdef void finish_commit(self, Commit commit) except *
    cdef int unpin(self) except -1
    cpdef void mark_synced(self) except *
