"""Reusable memory; the code and the explanation are in memory.pyx."""


cdef class Piece:
    cdef char* data                     # owned; NULL if capacity is 0
    cdef Py_ssize_t size                # the part in use
    cdef Py_ssize_t capacity


cdef class Memory:
    cdef list _pieces                   # all reusable pieces, in use or not

    cpdef Piece take(self, Py_ssize_t size)
