"""State of open atomic batches; the code and the explanation are in staging.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.containers.buffer cimport Buffer
from tradewind.containers.table cimport Table
from tradewind.store.table.message_store cimport MessageStore
from tradewind.stream.message_ids cimport MessageIds
from tradewind.stream.part_scan cimport PartFields

# A message in the buffer of its batch: subject, header and payload follow.
ctypedef struct PartHead:
    uint32_t subject_size
    uint32_t header_size
    uint32_t total_size         # header and payload
    uint32_t id_size            # of the message's id, 0: it has none ...
    uint32_t id_start           # ... which begins at this offset in the header
    uint32_t asked_size         # the subject whose last sequence it requires, located as the id
    uint32_t asked_start
    uint32_t unused
    int64_t last_seq            # required sequence; -1: none
    int64_t subject_seq


cdef inline size_t part_bytes(const PartHead* head) noexcept nogil:
    """The size of a message in the buffer of its batch; the next one begins at a multiple of 8."""
    return (sizeof(PartHead) + head.subject_size + head.total_size + 7) & ~<size_t>7


cdef class BatchLimits:
    cdef public uint64_t msgs_max
    cdef public uint64_t per_stream_max
    cdef public uint64_t total_max
    cdef public int64_t rest_ns
    cdef public uint64_t open_count
    cdef public uint64_t bytes              # of all open batches of the server
    cdef public uint64_t bytes_max
    # The same for fast batches, which hold no messages.
    cdef public uint64_t fast_per_stream_max
    cdef public uint64_t fast_total_max
    cdef public uint64_t fast_open_count


cdef class OpenBatch:
    cdef readonly bytes id
    cdef Buffer parts                       # in their order
    cdef size_t last_part                   # where the last one is
    cdef readonly uint64_t count
    cdef readonly uint64_t bytes            # in memory
    cdef readonly uint64_t record_bytes     # ... in a block
    cdef readonly bint is_simple            # no part has more fields than `part_scan` knows
    cdef bint has_ids
    cdef bint has_demands                   # some part requires a sequence
    cdef int64_t rests_until_ns             # monotonic

    cdef int add(self, const char* subject, uint32_t subject_size, const char* body,
                 uint32_t header_size, uint32_t total_size, PartFields* fields) except -1
    cdef int end_with_last(self) except -1
    cdef bint holds(self, MessageStore store, MessageIds ids, int64_t now_ns) except -1
    cdef bint _meets_demands(self, MessageStore store, PartHead* head, const char* subject,
                             Table* subjects, bint is_first) except -1


cdef class Staging:
    cdef BatchLimits limits
    cdef object abandoned
    cdef bytes stream                       # its name
    cdef dict open                          # id -> OpenBatch
    cdef Table table                        # the same, searched without creating an object
    cdef uint64_t bytes                     # of all of them
    cdef int64_t look_ns                    # when one may have rested for too long; 0: never

    cdef OpenBatch next_part(self, PartFields* fields, uint64_t size)
    cdef bint _has_room(self, uint64_t size) noexcept
    cdef int take(self, OpenBatch batch, PartFields* fields, const char* subject,
                  uint32_t subject_size, const char* body, uint32_t header_size,
                  uint32_t total_size, int64_t now_ns) except -1
    cdef int close(self, OpenBatch batch) except -1
