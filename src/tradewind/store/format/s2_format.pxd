"""The S2 format: sizes, chunk types, element kinds, and how its numbers are stored.

A stream is an identifier chunk and then chunks of type (1 byte), length (3 bytes LE) and body.
Type 00 is a CRC, the decoded length as uvarint, and elements; 01 is a CRC and the bytes themselves.
Elements are Snappy's literals and copies, and a copy with an 11-bit offset of zero repeats the
offset of the copy before it, with longer lengths.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "<endian.h>" nogil:
    uint64_t le64toh(uint64_t value)

cdef enum:
    S2_CHUNK_BYTES = 1 << 20            # what our encoder, and the official one, puts into a chunk
    S2_CHUNK_BYTES_MAX = 4 << 20        # what the format allows in one
    # A clumsy encoder may make a chunk larger than its content, but not by this much.
    S2_CHUNK_BODY_BYTES_MAX = S2_CHUNK_BYTES_MAX + (S2_CHUNK_BYTES_MAX >> 2)
    S2_HEADER_BYTES = 4
    S2_CHECKSUM_BYTES = 4
    S2_IDENTIFIER_BYTES = 10            # of the whole identifier chunk
    S2_WIDE_BYTES = 16                  # moved at once while there is room on both sides

cdef enum:
    CHUNK_PACKED = 0x00
    CHUNK_RAW = 0x01
    CHUNK_SKIP_FIRST = 0x80
    CHUNK_IDENTIFIER = 0xff

cdef enum:
    LITERAL = 0
    COPY_1 = 1
    COPY_2 = 2
    COPY_4 = 3


cdef inline uint32_t load3(const uint8_t* data) noexcept nogil:
    return data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16


cdef inline uint32_t load4(const uint8_t* data) noexcept nogil:
    return load3(data) | <uint32_t>data[3] << 24


cdef inline uint64_t load8(const uint8_t* data) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, data, 8)
    return le64toh(value)


cdef inline void store3(uint8_t* output, uint32_t value) noexcept nogil:
    output[0] = <uint8_t>value
    output[1] = <uint8_t>(value >> 8)
    output[2] = <uint8_t>(value >> 16)


cdef inline void store4(uint8_t* output, uint32_t value) noexcept nogil:
    store3(output, value)
    output[3] = <uint8_t>(value >> 24)


cdef inline size_t store_uvarint(uint8_t* output, uint64_t value) noexcept nogil:
    cdef size_t size = 0
    while value >= 0x80:
        output[size] = <uint8_t>(value | 0x80)
        value >>= 7
        size += 1
    output[size] = <uint8_t>value
    return size + 1


cdef inline size_t load_uvarint(const uint8_t* data, size_t size, uint64_t* value) noexcept nogil:
    # Returns how many bytes it took; 0 if it is cut or longer than 63 bits.
    cdef size_t index
    value[0] = 0
    for index in range(min(size, <size_t>9)):
        value[0] |= <uint64_t>(data[index] & 0x7f) << (7 * index)
        if data[index] < 0x80:
            return index + 1
    return 0
