"""State of the responses that a session may publish; the code is in allowed_responses.pyx."""

from libc.stdint cimport int64_t


cdef class AllowedResponses:
    cdef object rule                        # ResponseRule
    cdef dict left                          # reply -> [responses left, deadline]

    cdef int allow(self, bytes reply, int64_t now_ns) except -1
    cdef bint take(self, bytes reply, int64_t now_ns) except -1
