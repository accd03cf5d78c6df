"""The newest messages; the code and the explanation are in newest.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from tradewind.containers.buffer cimport Buffer
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectFilter

# Subjects whose newest message is too new: the blocks are walked back for an older one of each.
ctypedef struct OlderOnes:
    uint8_t* wanted             # by subject id; NULL while there is none
    uint32_t ids
    uint32_t count
    uint32_t first_block        # none of them has a message in a block below this one

cdef uint64_t last_accepted(MessageStore store, SubjectFilter chosen, uint64_t up_to) except? 0
cdef uint64_t last_up_to(MessageStore store, SubjectEntry* entry, uint64_t up_to) except? 0
# Append the newest sequence of every subject that passes; only some if there are more than
# `count_max`.
cdef int collect_last(MessageStore store, SubjectFilter chosen, uint64_t up_to, size_t count_max,
                      Buffer* found) except -1
