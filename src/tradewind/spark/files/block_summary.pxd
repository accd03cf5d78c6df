"""State of the walks over whole blocks; the code and the explanation are in block_summary.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from tradewind.store.format.records cimport Record
from tradewind.store.format.sequence_set cimport SequenceSet
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectIndex


cdef class BlockSummary:
    # Of all messages in the block, whether or not they are still wanted; 0: none.
    cdef readonly uint64_t first_seq
    cdef readonly uint64_t last_seq
    cdef readonly int64_t first_time_ns
    cdef readonly int64_t last_time_ns
    cdef readonly uint64_t messages
    cdef readonly uint64_t bytes
    cdef readonly uint64_t spoken_seq       # the highest sequence named by any record
    cdef readonly uint64_t floor            # everything below is removed; 0: unknown
    cdef readonly bint is_ours              # it begins with one of our marks
    cdef readonly uint64_t good_bytes       # the block consists of records up to here
    cdef readonly SequenceSet tombstones

ctypedef struct Kept:
    uint64_t seq
    uint32_t size
    uint32_t subject                        # its id
    uint32_t later                          # index + 1 of the next one of its subject; 0: none
    bint is_dead

ctypedef struct SubjectQueue:
    uint32_t oldest                         # index + 1; 0: none
    uint32_t newest
    uint64_t live


cdef class LimitReplay:
    cdef int64_t msgs_max                   # 0: no limit, for all three
    cdef int64_t bytes_max
    cdef int64_t subject_msgs_max
    cdef bint follows_tombstones
    cdef readonly uint64_t floor
    cdef readonly SequenceSet removed
    cdef SubjectIndex index
    cdef Kept* kept                         # owned; in the order of their sequences
    cdef uint32_t kept_count
    cdef uint32_t kept_capacity
    cdef SubjectQueue* queues               # owned; by subject id
    cdef uint32_t queue_capacity
    cdef uint32_t oldest                    # index of the first one that may be live
    cdef uint64_t last_seq                  # of all records fed
    cdef readonly bint has_gaps             # something else than the limits has removed messages
    cdef readonly uint64_t live
    cdef readonly uint64_t live_bytes

    cdef bint _counted(self, const Record* record) noexcept
    cdef int _append(self, const Record* record) except -1
    cdef int _remove(self, uint32_t place) except -1
    cdef int _remove_seq(self, uint64_t seq) except -1
