"""What a header says about message tracing: whether the message is to have no effects.

Owns nothing; looked at for every publish with a header. This server makes no traces yet. All it
knows of them is how to do no harm: a message that is only traced must reach nobody. The fields are
read as nats-server does, byte for byte: a name reaches from the end of the line before to the next
colon, so a line without one becomes part of the next name.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp
from tradewind.route.sublist cimport subject_valid

cdef extern from "string.h" nogil:
    void* memmem(const void* area, size_t area_size, const void* wanted, size_t wanted_size)

cdef enum TraceKind:
    TRACE_NONE = 0          # an ordinary message
    TRACE_TOO = 1           # a trace is wanted besides
    TRACE_ONLY = 2          # nobody is to get the message
    TRACE_IMPOSSIBLE = 3    # the same, and there could be no trace: it is dropped without a word

ctypedef struct TraceRequest:
    const char* destination
    uint32_t destination_size


cdef inline bint is_field(const char* name, size_t size, const char* wanted,
                          size_t wanted_size) noexcept nogil:
    return size == wanted_size and memcmp(name, wanted, size) == 0


cdef inline bint says_yes(const char* value, size_t size) noexcept nogil:
    """`1`, `true` or `on`, in any case."""
    if size == 1:
        return value[0] == 49
    if size == 2:
        return (value[0] | 32) == 111 and (value[1] | 32) == 110
    return size == 4 and (value[0] | 32) == 116 and (value[1] | 32) == 114 \
        and (value[2] | 32) == 117 and (value[3] | 32) == 101


cdef inline int trace_kind(const char* header, size_t size, TraceRequest* request) noexcept nogil:
    """What is wanted, and where traces would go. The first value of a field that is not empty
    counts.
    """
    cdef const char* at = header + 10
    cdef const char* end = header + size
    cdef const char* colon
    cdef const char* start
    cdef const char* line_end
    cdef const char* value_end
    cdef bint only = False, only_known = False, has_origin = False
    request.destination = NULL
    request.destination_size = 0
    if size < 10 or memcmp(header, b"NATS/1.0\r\n", 10) != 0 \
            or memmem(at, end - at, b"Nats-Trace-Dest:", 16) == NULL:
        return TRACE_NONE
    while at < end:
        colon = <const char*>memchr(at, 58, end - at)
        if colon == NULL:
            break
        start = colon + 1
        line_end = <const char*>memmem(start, end - start, b"\r\n", 2)
        if line_end == NULL:
            break
        value_end = line_end
        while start < value_end and (start[0] == 32 or start[0] == 9):
            start += 1
        while start < value_end and ((value_end - 1)[0] == 32 or (value_end - 1)[0] == 9):
            value_end -= 1
        if start < value_end:
            if is_field(at, colon - at, b"Nats-Trace-Dest", 15):
                if request.destination_size == 0:
                    request.destination = start
                    request.destination_size = <uint32_t>(value_end - start)
            elif is_field(at, colon - at, b"Nats-Trace-Only", 15):
                if not only_known:
                    only_known = True
                    only = says_yes(start, value_end - start)
            elif is_field(at, colon - at, b"Nats-Trace-Origin-Account", 25):
                has_origin = True
        at = line_end + 2
    if request.destination_size == 0 \
            or is_field(request.destination, request.destination_size, b"trace disabled", 14):
        return TRACE_NONE
    if has_origin or not subject_valid(request.destination, request.destination_size, True):
        return TRACE_IMPOSSIBLE if only else TRACE_NONE
    return TRACE_ONLY if only else TRACE_TOO
