"""State of an inbox; the code and the explanation are in inbox.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.turn cimport Participant, Turn
from tradewind.containers.buffer cimport Buffer
from tradewind.store.format.records cimport Record

# Precedes each waiting message; its subject, header block and payload follow, padded to 8 bytes.
ctypedef struct ArrivedHead:
    uint64_t seq
    int64_t timestamp
    uint32_t subject_size
    uint32_t header_size
    uint32_t payload_size
    uint32_t stride                     # from here to the next head


cdef class Inbox:
    cdef Turn turn
    cdef Participant owner              # woken when something has arrived
    cdef object on_arrival              # called before the owner is woken; or None
    cdef list statuses                  # (header block, reply, stream_seq, consumer_seq) each
    cdef Buffer arrived                 # owned
    cdef readonly uint64_t waiting      # messages that are not copied yet
    cdef readonly uint64_t received     # messages received
    cdef readonly uint64_t stream_seq   # of the last one received; 0: none
    cdef readonly uint64_t consumer_seq
    cdef readonly uint64_t first_consumer_seq   # of the first one; 0: none
    cdef readonly uint64_t first_seq            # of the first message in its stream
    cdef readonly int64_t first_timestamp       # and when it was stored there
    cdef readonly uint64_t pending      # how many the consumer had left after the last one
    cdef readonly int64_t heard_ns      # when something last arrived (monotonic); 0: never
    cdef readonly str fault             # why nothing more is accepted; empty: it is

    cdef int arrive(self, const char* subject, uint32_t subject_size, const char* reply,
                    uint32_t reply_size, const char* body, size_t header_size,
                    size_t total_size) except -1
    cdef int _wake(self) except -1
    cdef int _keep(self, ArrivedHead* head, const char* subject, const char* body) except -1
    cdef bint first(self, Record* record) noexcept
    cdef void drop_first(self) noexcept
