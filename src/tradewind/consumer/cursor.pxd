"""State of a cursor; the code and the explanation are in cursor.pyx."""

from libc.stdint cimport uint32_t, uint64_t
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.store_listener cimport StoreListener
from tradewind.store.table.subject_index cimport SubjectFilter


cdef class Cursor(StoreListener):
    cdef MessageStore store
    cdef SubjectFilter chosen
    cdef public uint64_t work_left      # what looking for messages may still cost in this turn
    cdef readonly bint is_late          # ... was not enough: the last `peek` found nothing so far
    cdef readonly uint64_t next_seq     # nothing from here on has been delivered
    cdef uint64_t counted_to            # `counted` covers [next_seq, counted_to]
    cdef uint64_t counted               # live messages in that range that pass the filter
    # Single messages that come before next_seq: [skip_begin, skip_count), ascending. Removed ones
    # are marked; the first one never is.
    cdef uint64_t* skip
    cdef uint32_t skip_gone             # how many are marked
    cdef uint32_t skip_begin
    cdef uint32_t skip_count
    cdef uint64_t skipped_to            # just after the last of them delivered so far

    cdef int _take_skip(self, const uint64_t[::1] sequences) except -1
    cdef void _pass_gone(self) noexcept nogil
    cdef void _drop_skip(self) noexcept nogil
    cpdef uint64_t peek(self, uint64_t visible_seq) except? 0
    cpdef int advance(self, uint64_t seq) except -1
    cpdef uint64_t pending(self) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t _count_from(self, uint64_t seq) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t _count_below(self, uint64_t seq) except? 0xFFFFFFFFFFFFFFFF
    cpdef uint64_t limit(self) noexcept
