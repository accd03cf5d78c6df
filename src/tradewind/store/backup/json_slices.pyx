"""Cuts a large JSON object into members, so that each can be decoded by itself.

Owns finding where members end, without the interpreter lock: a decoder holds it until it is done,
and all other threads wait as long. Only strings and brackets are looked at; whether a member is
JSON is for its decoder to say. Nothing is kept between two calls.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from tradewind.store.backup.archive import ArchiveError

cdef enum:
    TAB = 9
    LINE_FEED = 10
    RETURN = 13
    BLANK = 32
    QUOTE = 34
    COMMA = 44
    COLON = 58
    BRACKET = 91
    BACKSLASH = 92
    BRACKET_END = 93
    BRACE = 123
    BRACE_END = 125

cdef size_t NOWHERE = <size_t>-1


cdef inline size_t past_blanks(const char* data, size_t size, size_t at) noexcept nogil:
    while at < size and (data[at] == BLANK or TAB <= data[at] <= LINE_FEED or data[at] == RETURN):
        at += 1
    return at


cdef inline size_t past_string(const char* data, size_t size, size_t at) noexcept nogil:
    # The position after the string at `at`; NOWHERE if there is none, or it has no end.
    if at >= size or data[at] != QUOTE:
        return NOWHERE
    at += 1
    while at < size and data[at] != QUOTE:
        at += 2 if data[at] == BACKSLASH else 1
    return at + 1 if at < size else NOWHERE


cdef size_t past_value(const char* data, size_t size, size_t at) noexcept nogil:
    # The comma or bracket after the value that begins at `at`; NOWHERE if there is none.
    cdef size_t depth = 0
    while at < size:
        if data[at] == QUOTE:
            at = past_string(data, size, at)
            if at == NOWHERE:
                return NOWHERE
            continue
        if data[at] == BRACE or data[at] == BRACKET:
            depth += 1
        elif data[at] == BRACE_END or data[at] == BRACKET_END:
            if depth == 0:
                return at
            depth -= 1
        elif data[at] == COMMA and depth == 0:
            return at
        at += 1
    return NOWHERE


cdef size_t past_member(const char* data, size_t size, size_t at, size_t* value) noexcept nogil:
    # As `past_value`, for a key and its value; `value` is where that begins.
    cdef size_t end = past_string(data, size, at)
    if end == NOWHERE:
        return NOWHERE
    end = past_blanks(data, size, end)
    if end >= size or data[end] != COLON:
        return NOWHERE
    value[0] = past_blanks(data, size, end + 1)
    return past_value(data, size, value[0])


cdef object no_object(what):
    return ArchiveError(f"{what}: it is not a JSON object")


def first_member(bytes data not None, size_t at, str what not None):
    """Find the first member of the object at `at`, or its end; ArchiveError if there is no
    object.
    """
    cdef const char* start = PyBytes_AS_STRING(data)
    cdef size_t size = PyBytes_GET_SIZE(data)
    at = past_blanks(start, size, at)
    if at >= size or start[at] != BRACE:
        raise no_object(what)
    return past_blanks(start, size, at + 1)


def next_members(bytes data not None, size_t at, size_t bytes_max, str what not None):
    """Find the members from `at` on, at least one and then up to `bytes_max` bytes of them.

    Returns where the value of the first begins, where the last ends, and where to continue: 0 if
    the object has ended.
    """
    cdef const char* start = PyBytes_AS_STRING(data)
    cdef size_t size = PyBytes_GET_SIZE(data), first = 0, value = 0, end = at, next_at = at, found
    with nogil:
        while True:
            found = past_member(start, size, next_at, &value)
            if found == NOWHERE:
                break
            if first == 0:
                first = value
            elif found - at > bytes_max:
                break
            end = found
            if start[found] != COMMA:
                next_at = 0
                break
            next_at = past_blanks(start, size, found + 1)
    if found == NOWHERE or next_at == 0 and start[end] != BRACE_END:
        raise no_object(what)
    return first, end, next_at


def is_end(bytes data not None, size_t at, size_t end):
    """Whether nothing but blanks is between the brace at `at` and `end`."""
    cdef const char* start = PyBytes_AS_STRING(data)
    cdef size_t size = PyBytes_GET_SIZE(data)
    return at < size and start[at] == BRACE_END and past_blanks(start, size, at + 1) >= end
