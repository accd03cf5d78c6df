"""The body of a request to get messages as C values.

Owns which fields of a direct get exclude each other. Bodies as clients write them are parsed here:
an object of known names in lower case, each once, plain numbers and plain ASCII strings. Anything
else is left to `api.requests`, which knows everything that Go accepts as JSON; `adopt` takes its
result. It never accesses a stream.

    {"seq":7}   {"last_by_subj":"orders.7"}   {"seq":1,"batch":100,"max_bytes":65536}
    {"multi_last":["orders.*"],"up_to_seq":9}   {"no_hdr":true}
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp
from tradewind.stream.header_scan cimport TextSpan

from tradewind.api.request_types import MsgGetRequest
from tradewind.api.times import parse_time
from tradewind.stream.stream_queries import to_bytes

cdef enum:
    # All numbers with this many digits fit into 64 bits without a sign.
    NUMBER_DIGITS_MAX = 19

cdef enum Field:
    FIELD_NONE = 0
    FIELD_SEQ = 1
    FIELD_BATCH = 2
    FIELD_MAX_BYTES = 4
    FIELD_UP_TO_SEQ = 8
    FIELD_LAST = 16
    FIELD_NEXT = 32
    FIELD_MULTI = 64
    FIELD_NO_HEADER = 128


cdef int64_t TIME_MAX = 0x7FFFFFFFFFFFFFFF
cdef int64_t TIME_MIN = -TIME_MAX - 1


cdef inline void skip_blanks(const char** at, const char* end) noexcept nogil:
    while at[0] < end and (at[0][0] == 32 or at[0][0] == 10 or at[0][0] == 13 or at[0][0] == 9):
        at[0] += 1


cdef inline bint take(const char** at, const char* end, char byte) noexcept nogil:
    """Skip blanks and one given byte; false if another byte is there."""
    skip_blanks(at, end)
    if at[0] >= end or at[0][0] != byte:
        return False
    at[0] += 1
    return True


cdef bint take_string(const char** at, const char* end, TextSpan* found) noexcept nogil:
    """Parse a string of printable ASCII without escapes."""
    cdef const char* start
    if not take(at, end, 34):
        return False
    start = at[0]
    while at[0] < end and 32 <= at[0][0] < 127 and at[0][0] != 34 and at[0][0] != 92:
        at[0] += 1
    if at[0] >= end or at[0][0] != 34:
        return False
    found.start = start
    found.size = <uint32_t>(at[0] - start)
    at[0] += 1
    return True


cdef bint take_number(const char** at, const char* end, uint64_t* value) noexcept nogil:
    """Parse digits without a sign, a fraction or leading zeros."""
    cdef const char* start
    skip_blanks(at, end)
    start = at[0]
    value[0] = 0
    while at[0] < end and 48 <= at[0][0] <= 57:
        if at[0] - start == NUMBER_DIGITS_MAX:
            return False
        value[0] = value[0] * 10 + <uint64_t>(at[0][0] - 48)
        at[0] += 1
    if at[0] == start or (start[0] == 48 and at[0] - start > 1):
        return False
    # A text that continues like a number is not a plain one.
    return at[0] < end and at[0][0] != 46 and (at[0][0] | 32) != 101


cdef bint take_bool(const char** at, const char* end, bint* value) noexcept nogil:
    skip_blanks(at, end)
    if end - at[0] >= 4 and memcmp(at[0], b"true", 4) == 0:
        at[0] += 4
        value[0] = True
        return True
    if end - at[0] >= 5 and memcmp(at[0], b"false", 5) == 0:
        at[0] += 5
        value[0] = False
        return True
    return False


cdef inline bint is_name(const TextSpan* name, const char* known, size_t size) noexcept nogil:
    return name.size == size and memcmp(name.start, known, size) == 0


cdef int field_of(const TextSpan* name) noexcept nogil:
    if is_name(name, b"seq", 3):
        return FIELD_SEQ
    if is_name(name, b"last_by_subj", 12):
        return FIELD_LAST
    if is_name(name, b"batch", 5):
        return FIELD_BATCH
    if is_name(name, b"next_by_subj", 12):
        return FIELD_NEXT
    if is_name(name, b"max_bytes", 9):
        return FIELD_MAX_BYTES
    if is_name(name, b"multi_last", 10):
        return FIELD_MULTI
    if is_name(name, b"up_to_seq", 9):
        return FIELD_UP_TO_SEQ
    if is_name(name, b"no_hdr", 6):
        return FIELD_NO_HEADER
    return FIELD_NONE


cdef class GetRequest:
    """The values of a request. Reused for every request; the spans are valid as long as the body
    is.
    """

    cdef int clear(self) except -1:
        """Reset to a request of zero values."""
        self.seq = self.up_to_seq = 0
        self.batch = self.max_bytes = 0
        self.start_ns = self.up_to_ns = 0
        self.has_start = self.has_up_to = self.no_header = False
        self.last_subject.size = self.next_subject.size = 0
        self.last_subjects = None
        return 0

    cdef bint parse(self, const char* body, size_t size) except -1:
        """Parse a plain body; false, with the values undefined, if it is not plain."""
        cdef const char* at = body
        cdef const char* end = body + size
        cdef TextSpan name
        cdef uint32_t seen = 0
        cdef int field
        self.clear()
        if not take(&at, end, 123):
            return False
        if take(&at, end, 125):
            skip_blanks(&at, end)
            return at == end
        while True:
            if not take_string(&at, end, &name) or not take(&at, end, 58):
                return False
            field = field_of(&name)
            if field == FIELD_NONE or seen & <uint32_t>field \
                    or not take_value(self, field, &at, end):
                return False
            seen |= <uint32_t>field
            if not take(&at, end, 44):
                break
        if not take(&at, end, 125):
            return False
        skip_blanks(&at, end)
        return at == end

    cdef int adopt(self, request) except -1:
        """Take the values of a `MsgGetRequest`."""
        self.clear()
        self.seq = request.seq
        self.up_to_seq = request.up_to_seq
        self.batch = request.batch
        self.max_bytes = request.max_bytes
        self.no_header = request.no_hdr
        if request.start_time is not None:
            self.has_start = True
            self.start_ns = bounded_time(request.start_time)
        if request.up_to_time is not None:
            self.has_up_to = True
            self.up_to_ns = bounded_time(request.up_to_time)
        self._last = to_bytes(request.last_by_subj)
        self.last_subject.start = self._last
        self.last_subject.size = <uint32_t>len(self._last)
        self._next = to_bytes(request.next_by_subj)
        self.next_subject.start = self._next
        self.next_subject.size = <uint32_t>len(self._next)
        if request.multi_last:
            self.last_subjects = [to_bytes(subject) for subject in request.multi_last]
        return 0

    cdef bint names_nothing(self) noexcept:
        """Whether the request does not say which message it wants."""
        return self.seq == 0 and self.last_subject.size == 0 and self.next_subject.size == 0 \
            and self.last_subjects is None and not self.has_start

    cdef bint has_conflict(self) noexcept:
        """Whether the request selects messages in two ways that exclude each other."""
        cdef bint by_last = self.last_subject.size > 0
        cdef bint many = self.last_subjects is not None
        if by_last and (self.seq or self.has_start or self.next_subject.size
                        or self.batch > 0 or many):
            return True
        return (self.has_start and self.seq) or (self.next_subject.size and many) \
            or (self.up_to_seq and self.has_up_to)

    cdef bint asks_for_more(self) noexcept:
        """Whether the request has more than allowed if the subject already names the message."""
        return not self.names_nothing() or self.batch or self.up_to_seq or self.has_up_to

    def values(self):
        """All values, as a dictionary by their JSON names; times in nanoseconds or None."""
        return {
            "seq": self.seq,
            "last_by_subj": self.last_subject.start[:self.last_subject.size]
            if self.last_subject.size else b"",
            "next_by_subj": self.next_subject.start[:self.next_subject.size]
            if self.next_subject.size else b"",
            "batch": self.batch,
            "max_bytes": self.max_bytes,
            "start_time": self.start_ns if self.has_start else None,
            "multi_last": self.last_subjects or [],
            "up_to_seq": self.up_to_seq,
            "up_to_time": self.up_to_ns if self.has_up_to else None,
            "no_hdr": bool(self.no_header),
        }


cdef bint take_value(GetRequest request, int field, const char** at, const char* end) except -1:
    cdef uint64_t number = 0
    cdef bint flag = False
    if field == FIELD_LAST:
        return take_string(at, end, &request.last_subject)
    if field == FIELD_NEXT:
        return take_string(at, end, &request.next_subject)
    if field == FIELD_MULTI:
        return take_subjects(request, at, end)
    if field == FIELD_NO_HEADER:
        if not take_bool(at, end, &flag):
            return False
        request.no_header = flag
        return True
    if not take_number(at, end, &number):
        return False
    if field == FIELD_SEQ:
        request.seq = number
    elif field == FIELD_UP_TO_SEQ:
        request.up_to_seq = number
    elif number > <uint64_t>TIME_MAX:
        return False
    elif field == FIELD_BATCH:
        request.batch = <int64_t>number
    else:
        request.max_bytes = <int64_t>number
    return True


cdef bint take_subjects(GetRequest request, const char** at, const char* end) except -1:
    """Parse a list of strings; an empty one counts as none."""
    cdef TextSpan subject
    cdef list found = []
    if not take(at, end, 91):
        return False
    if take(at, end, 93):
        return True
    while True:
        if not take_string(at, end, &subject):
            return False
        found.append(subject.start[:subject.size])
        if not take(at, end, 44):
            break
    if not take(at, end, 93):
        return False
    request.last_subjects = found
    return True


cdef int64_t bounded_time(text) except? -1:
    """Parse a time in nanoseconds, saturated at 64 bits."""
    return min(max(parse_time(text), TIME_MIN), TIME_MAX)


def plain_request(bytes body not None):
    """Parse a plain body that selects messages into the type of the API; None if it needs the
    decoder.
    """
    cdef GetRequest request = GetRequest()
    if not request.parse(body, len(body)) or request.names_nothing():
        return None
    return MsgGetRequest(
        seq=request.seq,
        last_by_subj=request.last_subject.start[:request.last_subject.size].decode("ascii")
        if request.last_subject.size else "",
        next_by_subj=request.next_subject.start[:request.next_subject.size].decode("ascii")
        if request.next_subject.size else "",
        batch=request.batch,
        max_bytes=request.max_bytes,
        multi_last=[subject.decode("ascii") for subject in request.last_subjects or ()],
        up_to_seq=request.up_to_seq,
        no_hdr=bool(request.no_header))


def read_plain(bytes body not None):
    """The values of a plain body, None if it is not plain; for tests."""
    cdef GetRequest request = GetRequest()
    return request.values() if request.parse(body, len(body)) else None


def read_decoded(request):
    """The same for a `MsgGetRequest`; for tests."""
    cdef GetRequest taken = GetRequest()
    taken.adopt(request)
    return taken.values()
