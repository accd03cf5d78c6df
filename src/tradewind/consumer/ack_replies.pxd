"""State of the answers to acknowledgements; the explanation is in ack_replies.pyx."""

from libc.stdint cimport uint32_t, uint64_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.consumer.taker cimport Taker
from tradewind.containers.buffer cimport Buffer


cdef class AckReplies:
    cdef Taker _owner                   # the consumer: a DeliveryOwner
    cdef Router _router
    cdef Account _account
    # Reply subjects: those that may be answered, then those whose ack is not kept yet.
    cdef Buffer _outgoing
    cdef size_t _unkept_bytes           # at the end of `_outgoing`
    cdef readonly uint64_t end          # total bytes ever appended to it
    cdef bint _asks_to_keep             # the owner's `keep_acks` is going to be called
    cdef public bint keeps_acks         # an ack is answered once it is kept
    cdef bint is_closed

    cdef int add(self, const char* reply, uint32_t size, bint is_late) except -1
    cdef int send(self) except -1
