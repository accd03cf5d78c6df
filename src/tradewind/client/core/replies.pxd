"""Requests that wait for their answers."""

from libc.stdint cimport uint64_t

from tradewind.client.core.message cimport Msg
from tradewind.client.core.protocol cimport MessageInbox

cdef class PendingRequest:
    cdef readonly str subject           # where the request went
    cdef readonly object future         # of the first answer; None if a handler takes the answers
    cdef object _handler
    cdef uint64_t _token
    cdef Replies _replies
    # The lane of its timeout, in the order of the deadlines; None without a deadline, or once done.
    cdef ReplyLane _lane
    cdef PendingRequest _earlier
    cdef PendingRequest _later
    cdef double _deadline               # in the loop's time

    cdef int _hand_over(self, reply) except -1


cdef class ReplyLane:
    cdef double _seconds
    cdef PendingRequest _first
    cdef PendingRequest _last

    cdef int _append(self, PendingRequest question) except -1
    cdef int _unlink(self, PendingRequest question) except -1


cdef class Replies(MessageInbox):
    cdef object _connection
    cdef dict _waiting                  # token -> Question, oldest first
    cdef dict _lanes                    # timeout in seconds -> ReplyLane; only those in use
    cdef ReplyLane _last_lane                # of the last request, found without a dict
    cdef object _timer
    cdef double _timer_deadline
    cdef uint64_t _tokens               # the highest token assigned so far
    cdef bytes _base                    # the reply subject without its token

    cdef PendingRequest _new_question(self, str subject)
    cdef int _start_clock(self, PendingRequest question, double seconds) except -1
    cdef int _set_timer(self, double deadline) except -1
    cdef bint _take(self, PendingRequest question) except -1
