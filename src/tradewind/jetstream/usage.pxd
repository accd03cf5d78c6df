"""State of a sum of bytes; the code and the explanation are in usage.pyx."""

from libc.stdint cimport int64_t

cdef class Usage:
    cdef public int64_t memory
    cdef public int64_t storage
    cdef public int64_t reserved_memory
    cdef public int64_t reserved_storage
