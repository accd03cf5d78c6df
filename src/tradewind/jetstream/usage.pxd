"""State of a sum of bytes; the code and the explanation are in usage.py.

That module is compiled Python, because every turn in which something is stored updates the sums.
"""

import cython

from libc.stdint cimport int64_t
from tradewind.stream.ingest cimport Ingest

cdef bint is_checked
cdef int64_t CREDIT_BYTES


cdef class Usage:
    cdef public int64_t memory
    cdef public int64_t storage
    cdef public int64_t reserved_memory
    cdef public int64_t reserved_storage

    cpdef replace(self, Usage old, Usage new)


cdef check_sums(Usage account, Usage server)


cdef class UsageShare:
    cdef Ingest _ingest
    cdef Usage _of_account
    cdef Usage _of_server
    cdef Usage _counted                     # what the stream has in both
    cdef public int64_t kept_bytes          # beside its messages; for file storage only
    cdef object _room_share
    cdef bint _is_tight                     # it has to request credit in every turn

    @cython.locals(usage=Usage, more=int64_t)
    cdef int update(self) except -1

    @cython.locals(share=int64_t)
    cpdef grant_credit(self)

    cpdef count(self, Usage usage)
