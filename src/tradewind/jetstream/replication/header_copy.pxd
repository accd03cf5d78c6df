"""Copies the header block of a message on its way into another stream.

Owns which fields are left out, and which need closer examination. Names are compared as nats-server
does: byte for byte, at the beginning of a line, followed directly by the colon. It owns no memory.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp
from tradewind.containers.buffer cimport Buffer, buffer_append
from tradewind.stream.header_scan cimport TextSpan

cdef enum HeaderNote:
    NOTE_NOTHING = 0
    NOTE_DROPPED = 1            # a field is to be left out
    NOTE_TTL = 2
    NOTE_ROLLUP = 4
    NOTE_INCREMENT = 8
    NOTE_MALFORMED = 16         # it is not a header block


cdef inline bint begins(const char* at, size_t size, const char* prefix, size_t prefix_size) \
        noexcept nogil:
    return size >= prefix_size and memcmp(at, prefix, prefix_size) == 0


cdef inline const char* line_end_of(const char* at, const char* end) noexcept nogil:
    """Find the end of the line; NULL if there is none."""
    cdef const char* found = <const char*>memchr(at, 13, end - at)
    while found != NULL and (found + 1 >= end or found[1] != 10):
        found = <const char*>memchr(found + 1, 13, end - found - 1)
    return found


cdef inline bint is_dropped(const char* at, size_t size, bint is_sourced) noexcept nogil:
    """Whether a field is about the publish into the origin, or about an earlier origin."""
    if begins(at, size, b"Nats-Expected-", 14) or begins(at, size, b"Nats-Batch-", 11):
        return True
    return is_sourced and begins(at, size, b"Nats-Stream-Source:", 19)


cdef inline int look_at_header(const char* header, size_t size, bint is_sourced,
                               TextSpan* message_id) noexcept nogil:
    """Classify a header block, as HeaderNote; also finds the message id, if it is not empty."""
    cdef const char* at = header + 10
    cdef const char* end = header + size
    cdef const char* line_end
    cdef size_t length
    cdef int notes = NOTE_NOTHING
    message_id.size = 0
    if size < 12 or memcmp(header, b"NATS/1.0\r\n", 10) != 0:
        return NOTE_MALFORMED
    while at < end:
        line_end = line_end_of(at, end)
        if line_end == NULL:
            return NOTE_MALFORMED
        length = line_end - at
        if begins(at, length, b"Nats-", 5):
            if is_dropped(at, length, is_sourced):
                notes |= NOTE_DROPPED
            elif begins(at, length, b"Nats-TTL:", 9):
                notes |= NOTE_TTL
            elif begins(at, length, b"Nats-Rollup:", 12):
                notes |= NOTE_ROLLUP
            elif begins(at, length, b"Nats-Incr:", 10):
                notes |= NOTE_INCREMENT
            elif begins(at, length, b"Nats-Msg-Id:", 12) and message_id.size == 0:
                at += 12
                while at < line_end and at[0] == 32:
                    at += 1
                message_id.start = at
                message_id.size = <uint32_t>(line_end - at)
        at = line_end + 2
    return notes


cdef inline int copy_fields(const char* header, size_t size, bint is_sourced, Buffer* target) \
        noexcept nogil:
    """Append all fields that stay, without the beginning and end of a block; returns 0, or -1
    without memory.

    `look_at_header` must have accepted the block.
    """
    cdef const char* at = header + 10
    cdef const char* end = header + size
    cdef const char* line_end
    while at < end:
        line_end = line_end_of(at, end)
        if line_end == at:
            return 0
        if not is_dropped(at, line_end - at, is_sourced) \
                and buffer_append(target, at, line_end + 2 - at) != 0:
            return -1
        at = line_end + 2
    return 0
