"""One pass over the header of a message that may be part of an atomic batch.

Owns no memory: spans point into the header. It knows the fields that most batches have. Any other
field that begins with "Nats-", and any value that needs closer examination, is left to
`stream.header_fields` and `stream.batch_checks`, which know all fields and give the errors.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memchr, memcmp
from tradewind.stream.header_scan cimport TextSpan

cdef enum CommitKind:
    COMMIT_NONE = 0         # more messages follow
    COMMIT_LAST = 1         # this is the last one
    COMMIT_END = 2          # the previous one was the last
    COMMIT_WRONG = 3

cdef enum:
    PART_ID_MAX = 64
    PART_DIGITS_MAX = 18

ctypedef struct PartFields:
    TextSpan batch_id
    int64_t number          # of the message in its batch, from 1 on
    int commit              # CommitKind
    TextSpan message_id     # empty: none, as with the others
    TextSpan stream         # that it is meant for
    int64_t last_seq        # that the stream must have; -1: no requirement
    int64_t subject_seq     # ... that its subject must have
    TextSpan subject        # ... or this one instead of its own


cdef inline int64_t part_number(const TextSpan* value) noexcept nogil:
    """Parse a number of a few digits; -1 if it is not one."""
    cdef int64_t number = 0
    cdef uint32_t i
    if value.size == 0 or value.size > PART_DIGITS_MAX:
        return -1
    for i in range(value.size):
        if not 48 <= value.start[i] <= 57:
            return -1
        number = number * 10 + (value.start[i] - 48)
    return number


cdef inline bint is_named(const char* line, size_t size, const char* name, size_t name_size,
                          TextSpan* value) noexcept nogil:
    """Whether a line has this name, which includes its colon; `value` is set to the rest."""
    cdef const char* end = line + size
    if size < name_size or memcmp(line, name, name_size) != 0:
        return False
    line += name_size
    while line < end and line[0] == 32:
        line += 1
    value.start = line
    value.size = <uint32_t>(end - line)
    return True


cdef inline bint read_part_line(const char* line, size_t size, PartFields* part) noexcept nogil:
    """Record a line that begins with "Nats-"; False if it needs closer examination."""
    cdef TextSpan value
    if is_named(line, size, b"Nats-Batch-Id:", 14, &value):
        if part.batch_id.size or value.size == 0 or value.size > PART_ID_MAX:
            return False
        part.batch_id = value
    elif is_named(line, size, b"Nats-Batch-Sequence:", 20, &value):
        if part.number >= 0:
            return False
        part.number = part_number(&value)
        return part.number > 0
    elif is_named(line, size, b"Nats-Batch-Commit:", 18, &value):
        if part.commit != COMMIT_NONE:
            return False
        if value.size == 1 and value.start[0] == 49:
            part.commit = COMMIT_LAST
        elif value.size == 3 and memcmp(value.start, b"eob", 3) == 0:
            part.commit = COMMIT_END
        else:
            return False
    elif is_named(line, size, b"Nats-Msg-Id:", 12, &value):
        if part.message_id.size or value.size == 0:
            return False
        part.message_id = value
    elif is_named(line, size, b"Nats-Expected-Stream:", 21, &value):
        if part.stream.size or value.size == 0:
            return False
        part.stream = value
    elif is_named(line, size, b"Nats-Expected-Last-Sequence:", 28, &value):
        if part.last_seq >= 0:
            return False
        part.last_seq = part_number(&value)
        return part.last_seq >= 0
    elif is_named(line, size, b"Nats-Expected-Last-Subject-Sequence:", 36, &value):
        if part.subject_seq >= 0:
            return False
        part.subject_seq = part_number(&value)
        return part.subject_seq >= 0
    elif is_named(line, size, b"Nats-Expected-Last-Subject-Sequence-Subject:", 44, &value):
        if part.subject.size or value.size == 0 or memchr(value.start, 42, value.size) != NULL \
                or memchr(value.start, 62, value.size) != NULL:
            return False        # wildcards cover more than one subject
        part.subject = value
    else:
        return False
    return True


cdef inline bint scan_part(const char* header, size_t size, PartFields* part) noexcept nogil:
    """Whether a header block belongs to a batch message, with only the fields above."""
    cdef const char* at = header + 10
    cdef const char* end = header + size
    cdef const char* line_end
    part.batch_id.size = part.message_id.size = part.stream.size = part.subject.size = 0
    part.number = part.last_seq = part.subject_seq = -1
    part.commit = COMMIT_NONE
    if size < 12 or memcmp(header, b"NATS/1.0\r\n", 10) != 0:
        return False
    while at < end:
        line_end = <const char*>memchr(at, 13, end - at)
        while line_end != NULL and (line_end + 1 >= end or line_end[1] != 10):
            line_end = <const char*>memchr(line_end + 1, 13, end - line_end - 1)
        if line_end == NULL:
            return False
        if line_end - at >= 5 and memcmp(at, b"Nats-", 5) == 0 \
                and not read_part_line(at, line_end - at, part):
            return False
        at = line_end + 2
    return part.batch_id.size > 0 and part.number > 0 \
        and (part.subject.size == 0 or part.subject_seq >= 0)
