"""State of watches; the code and the explanation are in watches.pyx."""

from tradewind.containers.table cimport Table

ctypedef struct Link:
    Link* before
    Link* after             # NULL: in no ring
    void* watch             # the Watch that contains it; NULL for the ring's own link


cdef class Changes:
    cdef Link ring          # the watches that changed, oldest first

    cdef bint is_empty(self) noexcept nogil
    cdef void note(self, Link* link) noexcept nogil


cdef class Watch:
    cdef Link link
    cdef object sublist             # owns the table, so it must live as long
    cdef Table* table               # where the link is found by its key
    cdef Changes changes
    cdef readonly bytes key
    cdef readonly dict watchers     # watchers to call -> None

    cdef int enter(self, Table* table) except -1
