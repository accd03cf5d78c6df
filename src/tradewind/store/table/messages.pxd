"""The contract of a message store for compiled callers; the code is in messages.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from tradewind.store.table.block cimport Block
from tradewind.store.table.message_core cimport MessageCore
from tradewind.store.format.records cimport Record
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectFilter
from tradewind.containers.buffer cimport Buffer

# Subjects whose newest message is too new: the blocks are walked back for an older one of each.
ctypedef struct OlderOnes:
    uint8_t* wanted             # by subject id; NULL while there is none
    uint32_t ids
    uint32_t count
    uint32_t first_block        # none of them has a message in a block below this one


cdef class MessageStore(MessageCore):
    cdef uint64_t _purge_some(self, SubjectFilter chosen, uint64_t seq, uint64_t below,
                              uint64_t count) except? 0xFFFFFFFFFFFFFFFF
    cdef object _copy(self, const Record* record)
    cdef Block _block_before(self, uint32_t number)
    cdef uint64_t last_accepted(self, SubjectFilter chosen, uint64_t up_to) except? 0
    cdef uint64_t last_up_to(self, SubjectEntry* entry, uint64_t up_to) except? 0
    cdef int collect_last(self, SubjectFilter chosen, uint64_t up_to, size_t count_max,
                          Buffer* found) except -1
    cdef int _collect_one(self, SubjectEntry* entry, uint64_t up_to, Buffer* found,
                          OlderOnes* older) except -1
    cdef int _collect_older(self, OlderOnes* older, uint64_t up_to, size_t count_max,
                            Buffer* found) except -1
    cdef uint64_t count_from(self, SubjectFilter chosen, uint64_t seq) except? 0
    cdef uint64_t _count_block_from(self, Block block, SubjectFilter chosen,
                                    uint64_t seq) except? 0
    cdef uint64_t sequence_from(self, int64_t timestamp_ns) except? 0
