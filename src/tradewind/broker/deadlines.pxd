"""State of the deadlines of connections; the code is in deadlines.pyx."""

cdef class Deadlines:
    cdef list heap

    cdef object first_ns(self)
