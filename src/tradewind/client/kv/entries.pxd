"""Entries of key-value buckets."""

from libc.stdint cimport int64_t, uint64_t


cdef class Entry:
    cdef readonly str bucket
    cdef readonly str key
    cdef readonly bytes value
    cdef readonly uint64_t revision
    cdef readonly object operation
    cdef readonly uint64_t delta
    cdef readonly uint64_t size
    cdef int64_t _created_ns        # used if there is no text
    cdef bytes _created_text        # RFC 3339; None: the number applies
    cdef str _ttl_text              # the header of a value that expires; None: it does not
