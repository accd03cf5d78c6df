"""A request to get messages; the code and the explanation are in get_request.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.stream.header_scan cimport TextSpan

cdef class GetRequest:
    cdef uint64_t seq
    cdef uint64_t up_to_seq
    cdef int64_t batch
    cdef int64_t max_bytes
    cdef int64_t start_ns           # only if it has a start time
    cdef int64_t up_to_ns
    cdef bint has_start
    cdef bint has_up_to
    cdef bint no_header
    cdef TextSpan last_subject      # into the body, or into `_last`; size 0: none
    cdef TextSpan next_subject
    cdef list last_subjects         # bytes; None: none
    cdef bytes _last                # what a span points into if the body was not plain
    cdef bytes _next

    cdef int clear(self) except -1
    cdef bint parse(self, const char* body, size_t size) except -1
    cdef int adopt(self, request) except -1
    cdef bint names_nothing(self) noexcept
    cdef bint has_conflict(self) noexcept
    cdef bint asks_for_more(self) noexcept
