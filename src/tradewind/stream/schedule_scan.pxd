"""The common form of the time of a schedule; the code is in schedule_scan.pyx."""

from libc.stdint cimport int64_t

cdef enum:
    NO_TIME = -1

cdef int64_t time_of(const char* text, size_t size) noexcept nogil
