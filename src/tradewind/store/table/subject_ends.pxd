"""First and last messages of subjects; the code and the explanation are in subject_ends.pyx."""

from libc.stdint cimport uint32_t, uint64_t
from tradewind.store.table.block cimport Block
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectIndex

# The last, or first, live sequence of a subject in a loaded block, 0 if none; those of other
# subjects that are met on the way are remembered. The block is the last, or first, that may hold
# messages of the subject.
cdef uint64_t note_last(SubjectIndex index, Block block, uint32_t subject_id) noexcept
cdef uint64_t note_first(SubjectIndex index, Block block, uint32_t subject_id) noexcept
# The same for every subject whose last message is not known, all later blocks being empty of them.
cdef uint32_t note_lasts(SubjectIndex index, Block block) noexcept
# Subjects whose last message is not known, among so many from a place on.
cdef uint32_t unknown_lasts(SubjectIndex index, uint32_t place, uint64_t count) noexcept
# The last or first live message of a subject in all blocks; 0 if all that it had is lost.
cdef uint64_t find_end(MessageStore store, SubjectEntry* entry, bint is_last) except? 0
