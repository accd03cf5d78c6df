"""State of a turn; the code and the explanation are in turn.pyx."""

from libc.stdint cimport int64_t

cdef class Participant:
    cdef bint is_dirty                  # listed in `dirty` of the turn
    cdef bint is_woken                  # ... in `woken`

cdef class Turn:
    cdef public int64_t now_ns          # wall clock
    cdef public int64_t monotonic_ns
    cdef public object monotonic_clock  # None, or returns `monotonic_ns` when bytes arrive
    cdef list dirty
    cdef list woken
    cdef list deferred
    # Rider, while a stream publishes a copy of a message: the acknowledgement to send once the
    # copy is safe too. Whoever stores the copy takes it. None: there is none.
    cdef object rider

    cpdef bint is_busy(self) noexcept
    cpdef int mark_dirty(self, Participant participant) except -1
    cpdef int wake(self, Participant participant) except -1
    cdef int put_back(self, list dirty, list woken) except -1
