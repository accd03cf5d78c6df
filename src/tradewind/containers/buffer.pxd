"""A growing byte buffer in C, and decimal numbers: the two things that every encoder here needs.

Owns one heap block per Buffer; the code that declares a Buffer frees it with `buffer_free`. It
never shrinks by itself and never raises: a failed allocation is reported as -1 and leaves the
buffer unchanged.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef extern from *:
    """
    static const char DIGIT_PAIRS[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
        "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    """
    const char DIGIT_PAIRS[]        # "00" to "99": two digits for one division

ctypedef struct Buffer:
    char* data          # NULL while capacity is 0
    size_t begin        # first byte not yet taken; begin <= end <= capacity
    size_t end
    size_t capacity


cdef inline void buffer_init(Buffer* buffer) noexcept nogil:
    buffer.data = NULL
    buffer.begin = 0
    buffer.end = 0
    buffer.capacity = 0


cdef inline void buffer_free(Buffer* buffer) noexcept nogil:
    free(buffer.data)
    buffer_init(buffer)


cdef inline size_t buffer_size(const Buffer* buffer) noexcept nogil:
    return buffer.end - buffer.begin


cdef inline int buffer_reserve(Buffer* buffer, size_t extra) noexcept nogil:
    """Reserve `extra` bytes after `end`; 0, or -1 without memory."""
    cdef size_t size = buffer.end - buffer.begin
    cdef size_t capacity
    cdef char* data
    if extra <= buffer.capacity - buffer.end:
        return 0
    # Moved only if at least as many bytes were taken as are left, so each byte taken pays for one
    # moved.
    if buffer.begin >= size and buffer.begin > 0:
        if size > 0:
            memcpy(buffer.data, buffer.data + buffer.begin, size)
        buffer.begin = 0
        buffer.end = size
        if extra <= buffer.capacity - size:
            return 0
    if extra > (<size_t>1 << 62):
        return -1
    capacity = buffer.capacity if buffer.capacity >= 256 else 256
    while capacity - buffer.end < extra:
        capacity *= 2
    data = <char*>realloc(buffer.data, capacity)
    if data == NULL:
        return -1
    buffer.data = data
    buffer.capacity = capacity
    return 0


cdef inline int buffer_append(Buffer* buffer, const char* data, size_t size) noexcept nogil:
    """Copy `size` bytes to the end; 0, or -1 without memory."""
    if size == 0:
        return 0
    if buffer_reserve(buffer, size) != 0:
        return -1
    memcpy(buffer.data + buffer.end, data, size)
    buffer.end += size
    return 0


cdef inline void buffer_clear(Buffer* buffer) noexcept nogil:
    buffer.begin = 0
    buffer.end = 0


cdef inline int write_decimal(char* target, uint64_t value) noexcept nogil:
    """Write `value` in decimal at `target` (up to 20 bytes) and return the number of digits."""
    cdef char digits[20]
    cdef int position = 20
    while value >= 100:
        position -= 2
        memcpy(&digits[position], &DIGIT_PAIRS[value % 100 * 2], 2)
        value //= 100
    if value >= 10:
        position -= 2
        memcpy(&digits[position], &DIGIT_PAIRS[value * 2], 2)
    else:
        position -= 1
        digits[position] = <char>(48 + value)
    memcpy(target, &digits[position], 20 - position)
    return 20 - position
