"""State of a sum of bytes; the code and the explanation are in usage.pyx."""

from libc.stdint cimport int64_t
from tradewind.stream.ingest cimport Ingest

cdef class Usage:
    cdef public int64_t memory
    cdef public int64_t storage
    cdef public int64_t reserved_memory
    cdef public int64_t reserved_storage


cdef class UsageShare:
    cdef Ingest _ingest
    cdef Usage _of_account
    cdef Usage _of_server
    cdef Usage _counted                     # what the stream has in both
    cdef public int64_t kept_bytes          # beside its messages; for file storage only
    cdef object _room_share
    cdef bint _is_tight                     # it has to request credit in every turn

    cdef int update(self) except -1
