"""S2 encoding for compiled callers; see s2_encode.pyx."""

from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    S2_TABLE_BITS = 14
    S2_TABLE_ENTRIES = 1 << S2_TABLE_BITS


cdef size_t s2_encoded_bound(size_t size) noexcept nogil
cdef size_t s2_encode(
    const uint8_t* data, size_t size, uint8_t* output, uint32_t* table) noexcept nogil
