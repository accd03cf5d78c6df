"""State of the stream codecs; the C interface is in s2_decode.pxd and s2_encode.pxd."""

cdef class Compressor:
    cdef bytearray _held
    cdef bint _started


cdef class Decompressor:
    cdef readonly size_t size_limit
    cdef readonly size_t decoded_bytes
    cdef readonly bint pending
    cdef bytearray _held                # from the start of a chunk on
    cdef size_t _position               # of the first held byte in the stream
    cdef size_t _skip_left              # of a chunk that is not needed
    cdef size_t _skip_start             # where that chunk starts in the stream
    cdef bint _identified
    cdef object _error

    cdef bytes _next(self, size_t* used, size_t budget)
