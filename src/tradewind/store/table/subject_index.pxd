"""State of the subject index; the code and the explanation are in subject_index.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from tradewind.containers.buffer cimport Buffer
from tradewind.containers.table cimport Table
from tradewind.store.table.pattern_set cimport PatternSet
from tradewind.store.table.subject_entry cimport SubjectEntry
from tradewind.store.table.subject_order cimport SubjectOrder

cdef enum:
    SUBJECT_NONE = 0xFFFFFFFF       # the id of no subject


cdef class SubjectIndex:
    cdef Table names                # name -> SubjectEntry*
    cdef SubjectEntry** entries     # by id; NULL where dead
    cdef uint32_t entry_count       # ids handed out so far
    cdef uint32_t entry_capacity
    cdef SubjectEntry** remains     # of an index that was reset, not freed yet
    cdef uint32_t remain_count
    cdef SubjectOrder order         # by name; empty until a filter that matches few needs it
    cdef readonly uint32_t live_count
    cdef readonly uint32_t epoch        # ids are renumbered when it changes
    cdef readonly size_t memory_bytes

    cdef SubjectEntry* find(self, const char* name, uint32_t size) noexcept nogil
    cdef SubjectEntry* find_or_add(self, const char* name, uint32_t size) noexcept nogil
    cdef bint put_in_order(self, uint64_t work_max) except -1
    cdef bint free_some(self, uint32_t count) noexcept nogil
    cdef void forget(self, SubjectEntry* entry) noexcept nogil
    cdef bint needs_renumbering(self) noexcept nogil
    cdef int renumber(self, uint32_t* new_ids) noexcept nogil


cdef class SubjectFilter:
    cdef readonly tuple patterns        # bytes; empty: everything
    cdef readonly bint everything
    cdef bytes literal                  # the one literal pattern, or None
    cdef bint is_literal
    cdef uint32_t literal_id            # of its subject when it was prepared; SUBJECT_NONE: none
    cdef const char** pattern_pointers  # into the bytes of `patterns`
    cdef uint32_t* pattern_sizes
    cdef uint32_t pattern_count
    cdef PatternSet many                # None: they are few, and asked one by one
    cdef uint32_t judged                # subjects below this id have been checked by `judge`
    cdef uint64_t work                  # what checking subjects has cost so far
    cdef SubjectIndex index
    cdef uint8_t* verdicts              # by subject id: 0 not asked yet, 1 no, 2 yes
    cdef uint32_t verdict_capacity
    cdef uint32_t epoch
    cdef list heads                     # what matching subjects begin with; None: not known yet

    cdef bint _matches(self, const char* subject, uint32_t size) noexcept nogil
    cdef bint build(self, uint64_t work_max) except -1
    cpdef bint judge(self, uint64_t work_max) except -1
    cdef int prepare(self) except -1
    cdef bint accepts(self, uint32_t subject_id) noexcept nogil
    cdef bint all_literal(self) except -1
    cdef int _find_heads(self) except -1
    cdef bint narrows(self) except -1
    cpdef bint arrange(self, uint64_t work_max) except -1
    cdef bint passing(self, Buffer* ids) except -1
