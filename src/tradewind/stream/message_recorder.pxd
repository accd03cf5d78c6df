"""State of a recorder; the code and the explanation are in message_recorder.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.broker.turn cimport Participant, Turn
from tradewind.containers.buffer cimport Buffer
from tradewind.store.table.message_store cimport MessageStore
from tradewind.stream.header_scan cimport TextSpan
from tradewind.stream.message_ids cimport MessageIds


cdef class MessageRecorder(Participant):
    cdef readonly MessageStore store
    cdef readonly MessageIds ids
    cdef public object stream               # the Stream that this is a part of: an IngestOwner
    cdef readonly Turn turn
    cdef public int64_t credit_bytes        # the fast path may store so much without asking
    cdef readonly uint64_t appended_bytes   # ever stored, as the store counts them
    cdef int64_t follows_from_ns            # a clock that goes back is followed from then on
    cdef Buffer _last_id                    # of the message stored last; empty: it had none

    cdef uint64_t _append(self, const char* subject, uint32_t subject_size, const char* header,
                          uint32_t header_size, const char* payload, uint32_t payload_size,
                          TextSpan* id, int64_t ttl_ns) except 0
    cdef int place(self, uint64_t seq, int64_t timestamp, const char* subject,
                   uint32_t subject_size, const char* body, uint32_t header_size,
                   uint32_t total_size, int64_t ttl_ns) except -1
    cpdef int64_t next_stamp(self) noexcept
    cdef int64_t _stamp(self) except? -1
    cdef bint _may_follow(self) noexcept
    cdef int _note_lifetime(self, uint64_t seq, int64_t timestamp, int64_t ttl_ns) except -1
    cdef int _note_stored(self, uint64_t seq, uint64_t size, TextSpan* id) except -1
    cdef int _remember_last(self, TextSpan* id) except -1
