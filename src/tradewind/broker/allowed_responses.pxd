"""State of the answers that a session may give; the code is in allowed_responses.pyx."""

from libc.stdint cimport int64_t


cdef class AllowedResponses:
    cdef object rule                        # ResponseRule
    cdef dict left                          # reply -> [answers left, deadline]

    cdef int allow(self, bytes reply, int64_t now_ns) except -1
    cdef bint take(self, bytes reply, int64_t now_ns) except -1
