"""State of the acknowledgements; the code and the explanation are in pending.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from tradewind.consumer.ordered_keys cimport OrderedKeys

cdef enum AckRule:
    ACK_NONE = 0
    ACK_ALL = 1                     # also the policy flow_control
    ACK_EXPLICIT = 2

# What keeps an entry from being delivered again.
cdef enum Rest:
    RESTING = 1                     # handled elsewhere, see `rest`
    PARKED = 2                      # never delivered: it waits for its key

ctypedef struct PendingEntry:
    uint64_t seq                    # in the stream
    uint64_t consumer_seq           # of its first delivery; 0: unknown, or it is parked
    int64_t time_ns                 # of the last delivery; due this plus the wait
    int64_t due_ns                  # identifies its valid heap item; 0: none
    uint64_t ticket                 # identifies its valid queue item; 0: not queued
    uint8_t live                    # 0: acknowledged, its place is not reused yet
    uint8_t exact                   # its due time was set explicitly: kept to the nanosecond
    uint8_t resting                 # a Rest, or 0

ctypedef struct Due:
    int64_t due_ns
    uint64_t seq

ctypedef struct Queued:
    uint64_t seq
    uint64_t ticket


cdef class AckState:
    cdef readonly uint32_t rule             # AckRule
    cdef readonly int64_t ack_wait_ns       # 0: nothing is ever due
    cdef readonly tuple backoff_ns
    cdef int64_t* backoff
    cdef uint32_t backoff_count
    cdef readonly uint64_t max_deliver      # 0: no limit
    cdef readonly uint64_t delivered_consumer
    cdef readonly uint64_t delivered_stream
    cdef readonly uint64_t floor_consumer
    cdef readonly uint64_t floor_stream
    cdef readonly uint32_t count            # pending messages, parked ones included
    cdef readonly uint32_t parked_count     # ... of these, parked
    cdef readonly uint32_t queue_count      # ... of these, waiting for redelivery
    cdef readonly dict redelivered          # stream seq -> redeliveries
    # Entries [begin, end) by stream sequence, dead ones between them; begin is live or end.
    cdef PendingEntry* entries
    cdef uint32_t begin
    cdef uint32_t end
    cdef uint32_t capacity
    # Order per key; both are NULL without it.
    cdef OrderedKeys* keys
    cdef uint32_t* places                   # in `keys`, beside each entry; NONE: unknown
    cdef uint64_t unknown_from              # entries from here on may have unknown keys; 0: none
    cdef uint32_t floor_age                 # changes since `floor_consumer` was exact
    cdef Due* heap                          # a binary heap with outdated items in it
    cdef uint32_t heap_count
    cdef uint32_t heap_capacity
    cdef Queued* queue                      # [queue_begin, queue_end), outdated items in it
    cdef uint32_t queue_begin
    cdef uint32_t queue_end
    cdef uint32_t queue_capacity
    cdef uint64_t last_ticket
    cdef uint64_t* released                 # what the last `acknowledge` removed, besides its seq
    cdef uint32_t released_count
    cdef uint32_t released_capacity
    cdef readonly list exceeded             # (seq, deliveries) dropped for their deliveries
    cdef public bint keeps_exceeded         # ... or left pending, to be handled elsewhere
    cdef dict attempts                      # stream seq -> times of its deliveries; or None
    # The differences from the last state taken; see ack_codec.pyx.
    cdef uint64_t* changed                  # stream sequences, possibly repeated
    cdef uint32_t changed_count
    cdef uint32_t changed_capacity
    cdef readonly bint changed_all          # too much to note; then `changed` is empty

    cdef int check(self) except -1
    cdef void _note(self, uint64_t seq) noexcept nogil
    cdef void _note_all(self) noexcept nogil
    cdef int64_t _find(self, uint64_t seq) noexcept nogil
    cdef uint32_t _position(self, uint64_t seq) noexcept nogil
    cdef PendingEntry* _add(self, uint64_t seq, uint64_t key=*, bint parked=*) except NULL
    cdef int _make_room(self) except -1
    cdef void _kill(self, uint32_t index) noexcept nogil
    cdef void _move_floor(self, uint64_t consumer_seq, uint64_t seq) noexcept
    cpdef void settle_floor(self) noexcept
    cdef uint64_t _first_seq(self, bint parked) noexcept nogil
    cdef void _leave_key(self, uint32_t index) noexcept nogil
    cdef int park(self, uint64_t seq, uint64_t key, int64_t now_ns) except -1
    cpdef bint is_unsent(self, uint64_t seq) noexcept
    cdef uint64_t unknown_seq(self) noexcept nogil
    cdef int set_key(self, uint64_t seq, uint64_t key) except -1
    cdef int _rebuild_keys(self) except -1
    cdef int64_t _wait_ns(self, uint64_t seq) except -1
    cdef int _schedule(self, PendingEntry* entry, int64_t more_ns=*) except -1
    cdef void _sift_down(self, uint32_t index) noexcept nogil
    cdef int _rebuild_heap(self) except -1
    cdef int _enqueue(self, PendingEntry* entry) except -1
    cdef void _unqueue(self, PendingEntry* entry) noexcept nogil
    cdef int _drop_exceeded(self, uint32_t index) except -1
    cdef int _drop(self, uint32_t index) except -1
    cdef int _note_attempt(self, uint64_t seq, int64_t now_ns) except -1
    cdef bint _revive_keyed(self, uint64_t seq, int64_t now_ns) except -1
    cdef void _rest(self, PendingEntry* entry) noexcept nogil
    cpdef uint64_t deliver(self, uint64_t seq, int64_t now_ns, uint64_t key=*) except 0
    cpdef int acknowledge(self, uint64_t seq, uint64_t consumer_seq) except -1
    cdef int _acknowledge_all(self, uint64_t seq, uint64_t consumer_seq) except -1
    cpdef uint64_t next_redelivery(self) except? 0
    cpdef uint64_t deliveries(self, uint64_t seq) except 0
    cpdef int64_t next_due_ns(self) noexcept
    cdef bint is_pending(self, uint64_t seq) noexcept nogil
    cdef bint is_needed(self, uint64_t seq, uint64_t next_seq) except -1
