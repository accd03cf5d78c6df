"""Counters whose numbers fit a machine word: an increment that is nothing else, and its sum.

    the header  Nats-Incr: +5       the payload  {"val":"37"}

Owns no memory. Any other form, and longer numbers, are left to `stream.counters`, which knows all
forms and gives the errors.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from tradewind.containers.buffer cimport write_decimal

cdef enum:
    COUNT_DIGITS_MAX = 18       # the sum of two such numbers fits 64 bits
    COUNT_HEADER_MAX = 64       # a header with one number and nothing else is shorter
    COUNT_SUM_MAX = 32          # the bytes of a sum, rounded up
    INCREMENT_START = 20        # where the value begins: after "NATS/1.0\r\nNats-Incr:"


cdef inline bint read_integer(const char* at, const char* end, int64_t* number) noexcept nogil:
    """Parse an optional sign and a few digits, and nothing else."""
    cdef bint is_negative = at < end and at[0] == 45
    cdef int64_t value = 0
    if at < end and (at[0] == 45 or at[0] == 43):
        at += 1
    if at >= end or end - at > COUNT_DIGITS_MAX:
        return False
    while at < end:
        if at[0] < 48 or at[0] > 57:
            return False
        value = value * 10 + (at[0] - 48)
        at += 1
    number[0] = -value if is_negative else value
    return True


cdef inline bint read_increment(const char* header, size_t size, int64_t* number) noexcept nogil:
    """Whether a header block is an increment and nothing else."""
    cdef const char* at = header + INCREMENT_START
    cdef const char* end = header + size - 4
    if size > COUNT_HEADER_MAX or size < INCREMENT_START + 5 \
            or memcmp(header, b"NATS/1.0\r\nNats-Incr:", INCREMENT_START) != 0 \
            or memcmp(end, b"\r\n\r\n", 4) != 0:
        return False
    while at < end and at[0] == 32:
        at += 1
    return read_integer(at, end, number)


cdef inline bint read_sum(const char* payload, size_t size, int64_t* number) noexcept nogil:
    """Whether a payload is a sum in the form written here."""
    if size < 11 or memcmp(payload, b'{"val":"', 8) != 0 \
            or memcmp(payload + size - 2, b'"}', 2) != 0:
        return False
    return read_integer(payload + 8, payload + size - 2, number)


cdef inline uint32_t write_integer(char* target, int64_t number) noexcept nogil:
    """Write a number; returns the number of bytes, without a final zero."""
    if number >= 0:
        return <uint32_t>write_decimal(target, <uint64_t>number)
    target[0] = 45
    return <uint32_t>write_decimal(target + 1, <uint64_t>-number) + 1


cdef inline uint32_t write_sum(char* target, int64_t number) noexcept nogil:
    """Write a sum; returns the number of bytes, at most COUNT_SUM_MAX."""
    cdef uint32_t digits
    memcpy(target, b'{"val":"', 8)
    digits = write_integer(target + 8, number)
    memcpy(target + 8 + digits, b'"}', 2)
    return digits + 10


cdef inline uint32_t write_tail(char* target, int64_t number) noexcept nogil:
    """Write the part of an acknowledgement after its sequence; at most COUNT_SUM_MAX bytes."""
    cdef uint32_t digits
    memcpy(target, b',"val":"', 8)
    digits = write_integer(target + 8, number)
    target[8 + digits] = 34
    return digits + 9
