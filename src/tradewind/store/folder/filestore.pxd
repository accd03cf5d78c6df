"""State of a stream's files for compiled callers; the code and the explanation are in filestore.py.

That module is compiled Python, because a commit reads these fields in every turn.
"""

import cython

from tradewind.store.files.open_files cimport BlockFile, OpenFiles
from tradewind.store.commits.commit cimport Commit, SyncTarget
from tradewind.store.folder.commit_chores cimport CommitChores
from tradewind.store.folder.rewrite cimport Rewriter
from tradewind.store.table.block cimport Block
from tradewind.store.table.message_store cimport MessageStore


cdef class FileStore(SyncTarget):
    cdef readonly MessageStore table
    cdef readonly object disk               # Disk
    cdef readonly str folder                # the `msgs` directory of the stream
    cdef readonly str name
    cdef readonly Rewriter rewriter
    cdef public bint keeps_schedules        # sched.db is to be written at the end
    cdef readonly OpenFiles files
    cdef readonly object vault              # StreamVault; None: the stream is not encrypted
    cdef readonly object losses             # KnownLosses
    cdef readonly object damage             # DamageResolution
    cdef readonly CommitChores chores       # what else waits for a commit
    cdef bint _begins                       # the first block is on disk already
    cdef bint _may_resume
    cdef dict _unsynced                     # path -> BlockFile: written and in no commit yet
    # Block number and offset up to which everything is synced, and up to which a mark states it.
    cdef tuple _synced_position
    cdef tuple _marked_position
    cdef tuple _durable_mark                # up to there a mark that is on disk says so
    cdef tuple _clean                       # the end of the last block when nothing was to commit
    # The blocks are those of another server: nothing in them states how far they were synced.
    cdef bint _is_unmarked
    cdef readonly Commit committing         # the one under way, or None
    # Nothing is written: what was appended depends on something that is not yet durable elsewhere.
    cdef readonly bint is_fenced
    cdef list _fenced_blocks                # those that were sealed meanwhile
    cdef list _pinned                       # of BlockFile: those that it syncs
    cdef readonly object chain              # StreamChain; None: the stream has none
    cdef public object unsettled            # UnsettledCreations: of a stream that waits for nothing

    cpdef bint has_changes(self) except -1
    cpdef bint wants_commit(self) except -1
    cdef int _write(self, Block block) except -1
    cdef int _write_chain(self) except -1
    cdef bint _has_chores(self) except -1
    cpdef void flush(self) except *
    cpdef void flush_unless_failed(self) except *
    cpdef void finish_commit(self, Commit commit) except *
    cpdef void drop_commit(self, Commit commit) except *
    cpdef bint resume(self) except -1
    cpdef void mark_idle(self) except *
    cdef int _mark_synced(self) except -1

    @cython.locals(last=Block)
    cdef bint _is_clean(self) except -1

    @cython.locals(commit=Commit, file=BlockFile, last=Block, has_chores=bint)
    cpdef Commit begin_commit(self)

    @cython.locals(file=BlockFile)
    cdef int _unpin(self) except -1
