"""An open fast batch, and how its messages name it; the code is in fast_core.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum FastOperation:
    FAST_START = 0
    FAST_APPEND = 1
    FAST_COMMIT = 2         # with a last message
    FAST_END = 3            # without one
    FAST_PING = 4

ctypedef struct FastReply:
    const char* id
    uint32_t id_size
    uint64_t flow           # 1 to 65535
    bint takes_gaps
    uint64_t number         # of the message in its batch, from 1 on
    int operation

# Parses a reply subject; -1 if it is not that of a fast batch, although it ends like one.
cdef int parse_reply(const char* reply, uint32_t size, FastReply* found) noexcept nogil
cdef bint is_fast_reply(const char* reply, uint32_t size) noexcept nogil


cdef class OpenFastBatch:
    cdef readonly bytes id
    cdef readonly uint64_t flow             # the largest step that its client requested
    cdef readonly bint takes_gaps
    cdef public uint64_t last               # the number of its last message
    cdef public uint64_t acked              # ... up to which its client was notified
    cdef public uint64_t step               # it is notified after this many more
    cdef public uint64_t stored_seq         # of its last stored message; 0: none
    cdef public int64_t used_ns             # when its last message arrived (monotonic)
