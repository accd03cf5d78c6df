"""State of a log for compiled callers; the code and the explanation are in ack_log_file.py."""

import cython

from libc.stdint cimport uint64_t
from tradewind.store.files.open_files cimport BlockFile


cdef class AckLogFile:
    cdef readonly uint64_t number
    cdef readonly str path
    cdef readonly dict users                # name of a consumer -> number of its o.dat
    cdef readonly uint64_t size             # where the records end
    cdef public bint is_named
    cdef uint64_t _extended                 # where the zeros after them end
    cdef BlockFile _file                    # None: nothing is written to it
    cdef bint _is_pinned

    @cython.locals(file=BlockFile, record=bytes, end=uint64_t)
    cpdef Py_ssize_t append(self, bytes prefix, bytes changes) except -1

    @cython.locals(step=uint64_t, extended=uint64_t)
    cdef int _extend(self, uint64_t end) except -1
