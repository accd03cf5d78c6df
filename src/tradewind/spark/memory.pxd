"""Memory that is used again; the code and the explanation are in memory.pyx."""


cdef class Piece:
    cdef char* data                     # owned; NULL if capacity is 0
    cdef Py_ssize_t size                # what counts of it
    cdef Py_ssize_t capacity


cdef class Memory:
    cdef list _pieces                   # all that may be given out again, in use or not

    cpdef Piece take(self, Py_ssize_t size)
