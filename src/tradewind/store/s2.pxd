"""The S2 codec for compiled callers; what it is and its rules are said in s2.pyx."""

from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    S2_TABLE_ENTRIES = 1 << 15
    S2_CHUNK_BYTES = 1 << 20            # what the encoder puts into one chunk
    S2_CHUNK_BYTES_MAX = 4 << 20        # what the format allows in one chunk

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


cdef uint32_t crc32c(const uint8_t* data, size_t size) noexcept nogil
cdef int s2_measure(
    const uint8_t* data, size_t size, size_t size_limit, size_t* decoded_size,
    S2Failure* failure) noexcept nogil
cdef int s2_decode(
    const uint8_t* data, size_t size, uint8_t* output, size_t output_size,
    S2Failure* failure) noexcept nogil
cdef size_t s2_salvage(
    const uint8_t* data, size_t size, uint8_t* output, size_t output_size,
    S2Failure* failure) noexcept nogil
cdef size_t s2_encoded_bound(size_t size) noexcept nogil
cdef size_t s2_encode(
    const uint8_t* data, size_t size, uint8_t* output, uint32_t* table) noexcept nogil


cdef class Compressor:
    cdef bytearray _held
    cdef bint _started


cdef class Decompressor:
    cdef readonly size_t size_limit
    cdef readonly size_t decoded_bytes
    cdef readonly bint pending
    cdef bytearray _held                # from the start of a chunk on
    cdef size_t _position               # of the first held byte in the stream
    cdef size_t _skip_left              # of a chunk that nobody needs
    cdef bint _identified
    cdef object _error

    cdef bytes _next(self, size_t* used, size_t budget)
