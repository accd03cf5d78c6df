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
    cdef public int64_t room_bytes      # one consumer may send this much in this turn
    # Rider, while a stream publishes a copy of a message: the acknowledgement to send once the copy
    # is durable, too. The code that stores the copy takes it. None: there is none.
    cdef object rider
    # The clock that lifetimes are measured by, see `steady_ns`.
    cdef int64_t offset_ns              # its lead over the monotonic clock
    cdef int64_t ahead_since_ns         # when the clock began to be ahead of it; 0: it is not
    cdef int64_t ahead_offset_ns        # ... with this offset
    cdef bint is_set                    # the offset is known
    # None, or called with the change of the clock; negative: back; 0: it is ahead.
    cdef public object clock_watch

    cpdef int64_t steady_ns(self) except? -1
    cpdef bint is_busy(self) noexcept
    cpdef int mark_dirty(self, Participant participant) except -1
    cpdef int wake(self, Participant participant) except -1
    cdef int put_back(self, list dirty, list woken) except -1
