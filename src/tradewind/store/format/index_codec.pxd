"""Integers of varying size for compiled code; the rules are those of `varint`."""

from libc.stdint cimport uint8_t, uint64_t

cdef enum:
    UVARINT_BYTES_MAX = 10


cdef inline int write_uvarint(uint8_t* target, uint64_t value) noexcept nogil:
    """Write `value` at `target`, which has room for 10 bytes; returns the number of bytes used."""
    cdef int size = 0
    while value >= 0x80:
        target[size] = <uint8_t>(value & 0x7F) | 0x80
        value >>= 7
        size += 1
    target[size] = <uint8_t>value
    return size + 1


cdef inline int read_uvarint(
    const uint8_t* source, Py_ssize_t left, uint64_t* value
) noexcept nogil:
    """Read a number from `left` bytes; returns the number of bytes used, 0 if it is truncated or
    too large.
    """
    cdef uint64_t result = 0
    cdef int size = 0
    while size < left and size < UVARINT_BYTES_MAX:
        if source[size] < 0x80:
            if size == UVARINT_BYTES_MAX - 1 and source[size] > 1:
                return 0
            value[0] = result | (<uint64_t>source[size] << (7 * size))
            return size + 1
        result |= <uint64_t>(source[size] & 0x7F) << (7 * size)
        size += 1
    return 0
