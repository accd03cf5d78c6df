"""Publishes that wait for their acknowledgement."""

from libc.stdint cimport uint64_t

from tradewind.client.core.message cimport Msg
from tradewind.client.core.protocol cimport MessageInbox
from tradewind.client.core.publisher cimport Publisher

cdef class PendingAck:
    cdef readonly str subject
    cdef readonly double deadline       # in the loop's time
    cdef readonly bint has_id           # may be sent again, because the stream stores it once
    cdef public int attempts            # how often it was answered by "no responders"
    cdef public bint is_claimed         # a caller waits for it, so a failure is reported there
    cdef readonly uint64_t token
    cdef bytes _payload
    cdef bytes _block                   # headers; None: none
    cdef bytes _answer                  # of the stream; None until it arrives
    cdef object _error
    cdef list _futures                  # of waiting callers; None if there are none yet
    cdef Publisher _publisher

    cdef object _new_future(self)
    cdef int _wake(self) except -1


cdef class AckInbox(MessageInbox):
    cdef Publisher _publisher
    cdef dict _pending                  # token -> PendingAck, oldest first
    cdef uint64_t _tokens               # the highest token assigned so far
    cdef bytes _base                    # the reply subject without its token
    cdef readonly size_t unacknowledged_bytes
    cdef bint _is_watched               # whether to notify the owner of each acknowledgement

    cdef int _encode_again(self, PendingAck pending) except -1
    cdef PendingAck _take_pending(self, uint64_t token)
