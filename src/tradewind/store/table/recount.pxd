"""State of a count of messages by subject; the code and the explanation are in recount.pyx."""

from libc.stdint cimport uint32_t, uint64_t
from tradewind.store.table.block cimport Block
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectIndex

cdef int renumber_subjects(SubjectIndex index, list blocks) except -1

cdef class Recount:
    cdef SubjectEntry* totals       # by subject id, ours; NULL: nothing is counted
    cdef uint32_t id_count          # how many there is room for
    cdef readonly uint32_t below    # blocks below this number are counted

    cdef bint is_under_way(self) noexcept nogil
    cdef int add(self, Block block, SubjectIndex index) except -1
    cdef void removed(self, Block block, uint64_t seq, uint32_t subject_id) noexcept nogil
    cdef void restart(self) noexcept nogil
    cdef void finish(self, SubjectIndex index) noexcept nogil
    cdef void cancel(self) noexcept nogil
