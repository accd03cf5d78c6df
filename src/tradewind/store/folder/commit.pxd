"""State of a commit; the code and the explanation are in commit.pyx."""

from libc.stdint cimport uint64_t


cdef class Commit:
    cdef readonly object disk
    cdef readonly uint64_t last_seq
    cdef readonly tuple position        # block number and offset up to which everything is covered
    cdef public tuple marked            # what the marks in these bytes say is synced
    cdef public uint64_t floor          # all sequences below are gone, and these bytes say so
    cdef public list files              # of DiskFile
    cdef public list folders            # paths
    cdef public object stale_index      # path of an index.db that is to go first; or None
    cdef public object witness          # TestimonyWrite: says that all before it was there
    cdef public object evidence         # of damage; what is repaired because of it comes later
    cdef public list rewrites
    cdef public object error            # StoreError, or None
    cdef public bint has_chores         # more is to be done than to sync what was appended

    cdef int descriptors(self, int* found, int count_max) except -2
    cdef int sync_failed(self, int index, int error) except -1
