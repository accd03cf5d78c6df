"""Requests for message tracing in a header: whether the message must leave the fast path.

Owns nothing; consulted once for every publish with a header. `broker.message_trace` decides what
happens to a message that asks for a trace, and reads the fields again. They are read exactly as
nats-server reads them: a name extends from the end of the previous line to the next colon, so a
line without a colon becomes part of the next name.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp

cdef extern from "string.h" nogil:
    void* memmem(const void* area, size_t area_size, const void* wanted, size_t wanted_size)


cdef inline bint is_parent_name(const char* name, size_t size) noexcept nogil:
    """Whether a name is `traceparent`, in upper or lower case."""
    cdef const char* wanted = b"traceparent"
    cdef uint32_t index
    if size != 11:
        return False
    for index in range(11):
        if (name[index] | 32) != wanted[index]:
            return False
    return True


cdef inline bint is_hex_digit(char digit) noexcept nogil:
    return 48 <= digit <= 57 or 97 <= (digit | 32) <= 102


cdef inline bint is_sampled(const char* value, size_t size) noexcept nogil:
    """Whether a traceparent asks for a trace: four parts, the last one two digits with the lowest
    bit set. nats-server reads them as a signed byte, so values from 80 on do not count.
    """
    cdef size_t index, dashes = 0
    cdef char high, low
    if size < 5 or value[size - 3] != 45:
        return False
    for index in range(size):
        if value[index] == 45:
            dashes += 1
    high, low = value[size - 2], value[size - 1]
    # The code of a digit is odd if the digit is odd; that of a letter if its value is even.
    return dashes == 3 and (high == 43 or 48 <= high <= 55) and is_hex_digit(low) \
        and (low & 1 == 1) == (low <= 57)


cdef inline bint has_sampled_parent(const char* header, size_t size) noexcept nogil:
    """Whether a message, possibly a stored one, carries a sampled traceparent."""
    cdef const char* at = header + 10
    cdef const char* end = header + size
    cdef const char* line_end
    cdef const char* start
    while at + 12 < end:
        line_end = <const char*>memchr(at, 13, end - at)
        if line_end == NULL:
            return False
        if line_end - at > 12 and at[11] == 58 and is_parent_name(at, 11):
            start = at + 12
            while start < line_end and (start[0] == 32 or start[0] == 9):
                start += 1
            if is_sampled(start, line_end - start):
                return True
        at = line_end + 2
    return False


cdef inline bint asks_for_trace(const char* header, size_t size, bint parents) noexcept nogil:
    """Whether a message may ask for a trace; with `parents`, a traceparent counts too.

    The first destination that is not empty applies.
    """
    cdef const char* at = header + 10
    cdef const char* end = header + size
    cdef const char* colon
    cdef const char* start
    cdef const char* line_end
    cdef const char* value_end
    cdef bint found = False
    if size < 10 or memcmp(header, b"NATS/1.0\r\n", 10) != 0 \
            or (not parents and memmem(at, end - at, b"Nats-Trace-Dest:", 16) == NULL):
        return False
    while at < end:
        colon = <const char*>memchr(at, 58, end - at)
        if colon == NULL:
            break
        start = colon + 1
        while start < end and (start[0] == 32 or start[0] == 9):
            start += 1
        line_end = <const char*>memmem(start, end - start, b"\r\n", 2)
        if line_end == NULL:
            break
        value_end = line_end
        while start < value_end and ((value_end - 1)[0] == 32 or (value_end - 1)[0] == 9):
            value_end -= 1
        if start < value_end:
            if colon - at == 15 and memcmp(at, b"Nats-Trace-Dest", 15) == 0:
                return value_end - start != 14 or memcmp(start, b"trace disabled", 14) != 0
            if parents and not found and is_parent_name(at, colon - at):
                found = is_sampled(start, value_end - start)
        at = line_end + 2
    return found
