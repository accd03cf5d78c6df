"""State of a subject translator; the code is in translator.pyx."""

from libc.stdint cimport int32_t, uint32_t
from tradewind.containers.buffer cimport Buffer

ctypedef struct Part:
    const char* text        # NULL: insert a token of the subject
    uint32_t size
    uint32_t token          # the index of that token, from 0


cdef class Translator:
    cdef readonly object template   # SubjectTemplate; owns the bytes that the parts point into
    cdef Part* parts
    cdef uint32_t count
    cdef int32_t rest_from          # -1: nothing follows the parts

    cdef int apply(self, const char* subject, uint32_t size, Buffer* result) noexcept nogil
