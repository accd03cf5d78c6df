"""Parses the reply subject of a message that belongs to a fast batch.

Owns the grammar, which is read from the right, and the few numbers of an open batch that change
with every message. The behaviour of a batch is in `fast_batches`.

    <prefix>.<id>.<flow>.<ok|fail>.<number>.<operation>.$FI

Operations: 0 starts, 1 appends, 2 commits with a last message, 3 without one, 4 asks for news.
"""

from libc.string cimport memcmp

cdef enum:
    FLOW_DEFAULT = 10
    FLOW_MAX = 65535


cdef bint is_fast_reply(const char* reply, uint32_t size) noexcept nogil:
    return size >= 4 and memcmp(reply + size - 4, b".$FI", 4) == 0


cdef inline uint32_t token_before(const char* reply, uint32_t end) noexcept nogil:
    """The start of the token that ends before `end`."""
    while end and reply[end - 1] != 46:
        end -= 1
    return end


cdef inline int64_t number_of(const char* text, uint32_t size) noexcept nogil:
    """Parse a number of at most 18 digits; -1 if it is not one."""
    cdef int64_t value = 0
    cdef uint32_t i
    if size == 0 or size > 18:
        return -1
    for i in range(size):
        if not 48 <= text[i] <= 57:
            return -1
        value = value * 10 + (text[i] - 48)
    return value


cdef int parse_reply(const char* reply, uint32_t size, FastReply* found) noexcept nogil:
    cdef uint32_t ends[5]       # of id, flow, gap, number and operation
    cdef uint32_t starts[5]
    cdef uint32_t end = size - 4
    cdef int i
    cdef int64_t number, flow
    for i in range(4, -1, -1):
        ends[i] = end
        starts[i] = token_before(reply, end)
        if starts[i] < 2 or starts[i] == end:
            return -1           # nothing is left for a prefix, or the token is empty
        end = starts[i] - 1
    found.id = reply + starts[0]
    found.id_size = ends[0] - starts[0]
    flow = number_of(reply + starts[1], ends[1] - starts[1])
    found.flow = FLOW_DEFAULT if flow <= 0 else <uint64_t>min(flow, FLOW_MAX)
    if ends[2] - starts[2] == 2 and memcmp(reply + starts[2], b"ok", 2) == 0:
        found.takes_gaps = True
    elif ends[2] - starts[2] == 4 and memcmp(reply + starts[2], b"fail", 4) == 0:
        found.takes_gaps = False
    else:
        return -1
    number = number_of(reply + starts[3], ends[3] - starts[3])
    if number <= 0 or ends[4] - starts[4] != 1 or not 48 <= reply[starts[4]] <= 52:
        return -1
    found.number = <uint64_t>number
    found.operation = reply[starts[4]] - 48
    if found.operation == FAST_START:
        return 0 if number == 1 else -1
    if found.operation in (FAST_APPEND, FAST_END):
        return 0 if number > 1 else -1
    return 0


cdef class OpenFastBatch:
    """An open fast batch."""

    def __init__(self, bytes name not None, uint64_t flow, bint takes_gaps, uint64_t step,
                 int64_t used_ns):
        self.id = name
        self.flow = flow
        self.takes_gaps = takes_gaps
        self.step = step
        self.used_ns = used_ns


def read_reply(bytes reply not None):
    """Parse a reply subject: id, flow, whether gaps are accepted, number and operation; None if it
    is malformed.
    """
    cdef FastReply found
    if not is_fast_reply(reply, <uint32_t>len(reply)) \
            or parse_reply(reply, <uint32_t>len(reply), &found) != 0:
        return None
    return (found.id[:found.id_size], found.flow, bool(found.takes_gaps), found.number,
            found.operation)
