"""The header of a message that is a plain schedule, checked and completed in one pass.

Owns what is certain to be accepted: a time or an interval in a common form, a target that the
stream takes, and no other field that concerns a stream. Everything else is left to
`schedule_checks`, which knows all forms and gives the errors.

    Nats-Schedule: @at 2026-12-24T18:00:00Z     or @every 1h30m
    Nats-Schedule-Target: orders.due.7
"""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memchr, memcmp
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve)
from tradewind.saturated cimport later
from tradewind.seconds cimport SECOND_NS
from tradewind.stream.header_scan cimport TextSpan
from tradewind.stream.part_scan cimport is_named
from tradewind.stream.schedule_scan cimport NO_TIME, time_of

cdef enum:
    # A stream with more subjects has its targets checked the long way.
    PATTERNS_MAX = 32
    TARGET_BYTES_MAX = 255
    EVERY_DIGITS_MAX = 6
    VERSION_BYTES = 10
    KEEP_BYTES = 65536

cdef bytes ROLLUP_LINE = b"Nats-Rollup: sub\r\n"


cdef int64_t interval_of(const char* text, size_t size) noexcept nogil:
    """The interval of `@every` in whole hours, minutes and seconds; NO_TIME for other forms."""
    cdef int64_t total = 0, number = 0
    cdef int digits = 0
    cdef size_t at
    if size < 8 or memcmp(text, b"@every ", 7) != 0:
        return NO_TIME
    for at in range(7, size):
        if 48 <= text[at] <= 57 and digits < EVERY_DIGITS_MAX:
            number = number * 10 + (text[at] - 48)
            digits += 1
            continue
        if digits == 0:
            return NO_TIME
        if text[at] == 104:
            total += number * 3600
        elif text[at] == 109:
            total += number * 60
        elif text[at] == 115:
            total += number
        else:
            return NO_TIME
        number = digits = 0
    return total * SECOND_NS if digits == 0 and 0 < total < 1_000_000_000 else NO_TIME


cdef bint is_plain_literal(const char* subject, uint32_t size) noexcept nogil:
    """Whether it is a subject of printable ASCII without empty tokens or wildcards."""
    cdef uint32_t index
    cdef char before = 46
    if size == 0 or size > TARGET_BYTES_MAX:
        return False
    for index in range(size):
        if not 33 <= subject[index] < 127 or subject[index] == 42 or subject[index] == 62 \
                or (subject[index] == 46 and before == 46):
            return False
        before = subject[index]
    return before != 46


cdef bint matches(const char* pattern, size_t pattern_size, const char* subject,
                  size_t size) noexcept nogil:
    """Whether a literal subject matches a pattern."""
    cdef const char* pattern_end = pattern + pattern_size
    cdef const char* end = subject + size
    cdef const char* token_end
    cdef const char* own_end
    while True:
        token_end = <const char*>memchr(pattern, 46, pattern_end - pattern)
        own_end = <const char*>memchr(subject, 46, end - subject)
        if token_end == NULL and pattern_end - pattern == 1 and pattern[0] == 62:
            return True
        if (token_end == NULL) != (own_end == NULL):
            return False
        if token_end == NULL:
            token_end = pattern_end
            own_end = end
        if not (token_end - pattern == 1 and pattern[0] == 42) and (
                token_end - pattern != own_end - subject
                or memcmp(pattern, subject, own_end - subject) != 0):
            return False
        if token_end == pattern_end:
            return True
        pattern = token_end + 1
        subject = own_end + 1


cdef class ScheduleIntake:
    """The quick way of one stream, with its subjects."""

    def __cinit__(self, *_):
        buffer_init(&self.header)

    def __init__(self, subjects not None):
        self._patterns = []
        if len(subjects) <= PATTERNS_MAX:
            self._patterns = [subject.encode("utf-8", "surrogateescape") for subject in subjects]

    def __dealloc__(self):
        buffer_free(&self.header)

    cdef bint read(self, const char* subject, uint32_t subject_size, const char* header,
                   uint32_t header_size, int64_t now_ns, int64_t* due_ns) except -1:
        """Whether a message is a plain schedule: then when it is due, and `header` is what is
        stored, by which it replaces the previous one of its subject.
        """
        cdef const char* at = header + VERSION_BYTES
        cdef const char* end = header + header_size
        cdef const char* line_end
        cdef TextSpan timing, target, value
        timing.size = target.size = 0
        if header_size < VERSION_BYTES + 2 or memcmp(header, b"NATS/1.0\r\n", VERSION_BYTES) != 0 \
                or memcmp(end - 2, b"\r\n", 2) != 0:
            return False
        end -= 2
        while at < end:
            line_end = <const char*>memchr(at, 13, end - at)
            if line_end == NULL or line_end + 1 >= end or line_end[1] != 10 or line_end == at:
                return False
            if line_end - at >= 5 and memcmp(at, b"Nats-", 5) == 0:
                if is_named(at, line_end - at, b"Nats-Schedule:", 14, &value):
                    if timing.size:
                        return False
                    timing = value
                elif is_named(at, line_end - at, b"Nats-Schedule-Target:", 21, &value):
                    if target.size:
                        return False
                    target = value
                else:
                    return False
            at = line_end + 2
        if timing.size == 0 or not is_plain_literal(target.start, target.size) \
                or (target.size == subject_size
                    and memcmp(target.start, subject, subject_size) == 0) \
                or not self._is_taken(target.start, target.size):
            return False
        due_ns[0] = time_of(timing.start, timing.size)
        if due_ns[0] == NO_TIME:
            due_ns[0] = interval_of(timing.start, timing.size)
            if due_ns[0] == NO_TIME or now_ns <= 0:
                return False
            due_ns[0] = later((now_ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS, due_ns[0])
        buffer_clear(&self.header)
        if self.header.capacity > KEEP_BYTES:
            buffer_free(&self.header)
            buffer_init(&self.header)
        if buffer_reserve(&self.header, header_size + len(ROLLUP_LINE)) != 0:
            raise MemoryError
        buffer_append(&self.header, header, header_size - 2)
        buffer_append(&self.header, <const char*>ROLLUP_LINE, len(ROLLUP_LINE))
        buffer_append(&self.header, b"\r\n", 2)
        return True

    cdef bint _is_taken(self, const char* subject, uint32_t size) noexcept:
        """Whether the stream takes a literal subject."""
        cdef bytes pattern
        for pattern in self._patterns:
            if matches(<const char*>pattern, len(pattern), subject, size):
                return True
        return False


def read_schedule(subjects not None, bytes subject not None, bytes header not None,
                  int64_t now_ns):
    """The stored header and the time of a plain schedule, None if it is not one; for tests."""
    cdef ScheduleIntake intake = ScheduleIntake(subjects)
    cdef int64_t due_ns = 0
    if not intake.read(subject, <uint32_t>len(subject), header, <uint32_t>len(header), now_ns,
                       &due_ns):
        return None
    return intake.header.data[intake.header.begin:intake.header.end], due_ns
