"""S2 decoding for compiled callers; the explanation is in s2_decode.pyx."""

from libc.stdint cimport uint8_t, uint32_t

cdef enum S2Fault:
    S2_OK = 0
    S2_NO_IDENTIFIER
    S2_BAD_IDENTIFIER
    S2_RESERVED_CHUNK
    S2_CHUNK_SIZE
    S2_CHUNK_CUT
    S2_BAD_LENGTH
    S2_ELEMENT_CUT
    S2_COPY_BEFORE_START
    S2_COPY_WITHOUT_OFFSET
    S2_OUTPUT_OVERRUN
    S2_OUTPUT_SHORT
    S2_CHECKSUM
    S2_SIZE_LIMIT

ctypedef struct S2Failure:
    int fault
    size_t offset                       # in the encoded data

ctypedef struct Chunk:
    int kind
    uint32_t checksum
    size_t body                         # where the elements or the bytes start
    size_t body_size
    size_t decoded_size
    size_t end                          # where the next chunk starts


cdef uint32_t crc32c(const uint8_t* data, size_t size) noexcept nogil
cdef uint32_t crc32c_tables(const uint8_t* data, size_t size) noexcept nogil
cdef uint32_t masked_crc(const uint8_t* data, size_t size) noexcept nogil
cdef int read_chunk(
    const uint8_t* data, size_t size, size_t position, bint identified, Chunk* chunk,
    S2Failure* failure) noexcept nogil
cdef int decode_chunk(
    const uint8_t* data, const Chunk* chunk, uint8_t* output, size_t* produced,
    S2Failure* failure) noexcept nogil
cdef int s2_measure(
    const uint8_t* data, size_t size, size_t size_limit, size_t* decoded_size,
    S2Failure* failure) noexcept nogil
cdef int s2_decode(
    const uint8_t* data, size_t size, uint8_t* output, size_t output_size,
    S2Failure* failure) noexcept nogil
cdef size_t s2_salvage(
    const uint8_t* data, size_t size, uint8_t* output, size_t output_size,
    S2Failure* failure) noexcept nogil
