"""The queue of a subscription that pull requests fill."""

from libc.stdint cimport int64_t, uint64_t

from tradewind.client.core.protocol cimport Line, MessageInbox
from tradewind.client.core.message cimport Msg
from tradewind.client.streams.packed cimport DeliveryFacts, PackedMessages

cdef class PullInbox(MessageInbox):
    # Requested from the server and not yet received; never below 0.
    cdef readonly int64_t wanted_messages
    cdef readonly int64_t wanted_bytes
    # More are requested once wanted and queued ones together are at or below these; -1: never.
    cdef int64_t _refill_messages
    cdef int64_t _refill_bytes          # 0: bytes are not counted
    cdef bint _is_observed              # the owner sees each message that arrives
    cdef bint _is_batch                 # it ends once everything wanted has arrived
    cdef readonly uint64_t received_messages
    cdef readonly uint64_t arrivals     # messages and statuses of the server
    # For an ordered consumer: the consumer sequence of the next message; 0: not checked.
    cdef uint64_t _expected
    cdef bint _is_broken                # a message was missing, so what arrives is dropped
    cdef readonly uint64_t last_sequence    # stream sequence of the last message in order
    cdef PackedMessages _packed                 # received and not yet taken; None: nothing

    cdef bint _is_low(self) noexcept
    cdef bint _is_in_order(self, const char* reply, Py_ssize_t size,
                           DeliveryFacts* delivery) except -1
    cdef int _count_down(self, size_t size) except -1
