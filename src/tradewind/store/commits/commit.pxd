"""State of a commit; the code and the explanation are in commit.pyx."""

from libc.stdint cimport uint64_t


cdef class Commit:
    cdef readonly object disk
    cdef readonly uint64_t last_seq
    cdef readonly tuple position        # block number and offset up to which all is covered
    cdef public tuple marked            # what the marks in these bytes state to be synced
    cdef public uint64_t floor          # all sequences below are gone, and these bytes state it
    cdef public list files              # of DiskFile
    cdef readonly list asides           # ... that a rename gives their names when it is finished
    cdef list _paths                    # keeps what `descriptors` has pointed to
    cdef public list folders            # paths
    cdef readonly set given_up          # ... of which these may be missing: they are being removed
    cdef public object stale_index      # path of an index.db to remove first; or None
    cdef public object settling         # CreationSyncs, for which no client has waited; or None
    cdef public object keys             # KeyWrite: of blocks to come, in front of the folders
    cdef public list removed_keys       # numbers of blocks whose removal these folders make durable
    cdef public object witness          # TestimonyWrite: states that all before it was there
    cdef public object evidence         # of damage; repairs based on it come later
    cdef public list rewrites
    cdef public object error            # StoreError, or None
    cdef public bint has_chores         # more is to be done than to sync what was appended

    cdef int descriptors(self, int* found, const char** paths, int count_max) except -2
    cdef int sync_failed(self, int index, int error) except -1


cdef class SyncTarget:
    cdef readonly object failure        # StoreError, or None

    cpdef bint has_changes(self) except -1
    cpdef bint wants_commit(self) except -1
    cpdef bint wants_another(self) except -1
    cpdef void flush(self) except *
    cpdef Commit begin_commit(self)
    cpdef void finish_commit(self, Commit commit) except *
    cpdef void drop_commit(self, Commit commit) except *
    cpdef bint resume(self) except -1
    cpdef void mark_idle(self) except *
