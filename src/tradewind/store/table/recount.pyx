"""Recounts the messages of every subject, a block at a time.

Owns the totals while they are counted. The store may change between two blocks: it reports every
removal, and the last block, which takes the appends, is counted right before `finish`. Which blocks
there are, and when they are read, is decided elsewhere.
"""

from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset


cdef int renumber_subjects(SubjectIndex index, list blocks) except -1:
    """Close the gaps that dead subjects left among the ids."""
    cdef uint32_t* new_ids = <uint32_t*>malloc(index.entry_count * sizeof(uint32_t))
    cdef Block block
    if new_ids == NULL:
        return 0
    index.renumber(new_ids)
    for block in blocks:
        block.renumber(new_ids)
    free(new_ids)
    return 0


cdef class Recount:
    """The recount of one store; most of the time there is none."""

    def __dealloc__(self):
        free(self.totals)

    cdef bint is_under_way(self) noexcept nogil:
        return self.totals != NULL

    cdef int add(self, Block block, SubjectIndex index) except -1:
        """Count the next block; its index must be loaded."""
        cdef uint32_t ids = index.entry_count
        cdef SubjectEntry* totals
        if ids > self.id_count or self.totals == NULL:
            totals = <SubjectEntry*>realloc(self.totals, max(ids, 1) * sizeof(SubjectEntry))
            if totals == NULL:
                raise MemoryError
            memset(totals + self.id_count, 0, (ids - self.id_count) * sizeof(SubjectEntry))
            self.totals = totals
            self.id_count = ids
        block.count_subjects(self.totals, ids)
        self.below = block.number + 1
        return 0

    cdef void removed(self, Block block, uint64_t seq, uint32_t subject_id) noexcept nogil:
        """Note the removal of a message, which was counted if its block was."""
        cdef SubjectEntry* total
        if block.number >= self.below or subject_id >= self.id_count:
            return
        total = &self.totals[subject_id]
        total.total -= 1
        if total.first_seq == seq:
            total.first_seq = 0
        if total.last_seq == seq:
            total.last_seq = 0

    cdef void restart(self) noexcept nogil:
        """Discard the counts so far."""
        self.below = 0
        if self.totals != NULL:
            memset(self.totals, 0, self.id_count * sizeof(SubjectEntry))

    cdef void finish(self, SubjectIndex index) noexcept nogil:
        """Set the counted totals in the index, and forget subjects without messages; called when
        all blocks are counted.

        None of its entries may be in use.
        """
        cdef SubjectEntry* entry
        cdef SubjectEntry* total
        cdef uint32_t subject_id
        for subject_id in range(self.id_count):
            entry = index.entries[subject_id]
            if entry == NULL:
                continue
            total = &self.totals[subject_id]
            entry.total = total.total
            entry.first_seq = total.first_seq
            entry.last_seq = total.last_seq
            entry.first_block = total.first_block
            entry.last_block = total.last_block
            if entry.total == 0:
                index.forget(entry)
        self.cancel()

    cdef void cancel(self) noexcept nogil:
        """Cancel the recount."""
        free(self.totals)
        self.totals = NULL
        self.id_count = 0
        self.below = 0
