"""One pass over a header block: whether the message needs the slow path, and its id.

Owns no memory: a span points into the header. Names are compared as nats-server does: byte for
byte, at the beginning of a line, with the colon right after.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp

cdef enum HeaderKind:
    HEADER_PLAIN = 0        # nothing in it concerns a stream, except perhaps the id
    HEADER_SPECIAL = 1      # something that needs closer examination, or not a proper block

ctypedef struct TextSpan:
    const char* start
    uint32_t size


cdef inline int scan_header(const char* header, size_t size, TextSpan* message_id) noexcept nogil:
    """Return the kind of a header block; sets `message_id`, unless it is missing or empty."""
    cdef const char* at = header + 10
    cdef const char* end = header + size
    cdef const char* line_end
    message_id.size = 0
    if size < 12 or memcmp(header, b"NATS/1.0\r\n", 10) != 0:
        return HEADER_SPECIAL
    while at < end:
        line_end = <const char*>memchr(at, 13, end - at)
        while line_end != NULL and (line_end + 1 >= end or line_end[1] != 10):
            line_end = <const char*>memchr(line_end + 1, 13, end - line_end - 1)
        if line_end == NULL:
            return HEADER_SPECIAL
        if line_end - at > 5 and memcmp(at, b"Nats-", 5) == 0:
            if line_end - at < 12 or memcmp(at + 5, b"Msg-Id:", 7) != 0 or message_id.size:
                return HEADER_SPECIAL
            at += 12
            while at < line_end and at[0] == 32:
                at += 1
            message_id.start = at
            message_id.size = <uint32_t>(line_end - at)
            if message_id.size == 0:
                return HEADER_SPECIAL
        at = line_end + 2
    return HEADER_PLAIN
