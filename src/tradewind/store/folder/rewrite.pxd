"""The choice of blocks to be rewritten, for compiled callers; the rest is in rewrite.py."""

from libc.stdint cimport uint64_t


cdef class Rewriter:
    cdef public bint compresses
    cdef object _store                      # FileStore
    cdef uint64_t _compact_bytes_min
    cdef dict _to_repair                    # block number -> Block
    cdef dict _to_compress                  # block number -> Block
    cdef dict _to_erase                     # block number -> (Block, sequences)
    cdef dict _sparse                       # block number -> Block
    cdef int _pause                         # commits to wait, after a full disk
    cdef list _under_way                    # of Rewrite
    # Files that are gone, and copies that have their name, but only in the system's memory yet:
    # first those that wait for a commit, then those that the commit under way makes durable.
    cdef list _removed                      # of Block
    cdef list _copied                       # of (Block, Compaction)
    cdef list _removing
    cdef list _copying
    # Dead records that are gone for good: as many tombstones may be of no use any more.
    cdef uint64_t _freed_records
    cdef bint _looked

    cdef bint is_waiting(self) except -1
    cpdef bint note_commit(self) noexcept
