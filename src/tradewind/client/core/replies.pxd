"""Requests that wait for their answers."""

from libc.stdint cimport uint64_t

from tradewind.client.message cimport Msg
from tradewind.client.core.protocol cimport SubscriptionCore

cdef class Question:
    cdef readonly str subject           # where the request went
    cdef readonly object future         # of the first answer; None if a handler gets the answers
    cdef object _handler
    cdef uint64_t _token
    cdef Replies _replies
    # The lane of its timeout, in the order of the deadlines; None: it has no deadline, or is done.
    cdef ReplyLane _lane
    cdef Question _earlier
    cdef Question _later
    cdef double _deadline               # in the loop's time

    cdef int _hand_over(self, reply) except -1


cdef class ReplyLane:
    cdef double _seconds
    cdef Question _first
    cdef Question _last

    cdef int _append(self, Question question) except -1
    cdef int _unlink(self, Question question) except -1


cdef class Replies(SubscriptionCore):
    cdef object _connection
    cdef dict _waiting                  # token to Question, oldest first
    cdef dict _lanes                    # timeout in seconds to ReplyLane; only those in use
    cdef ReplyLane _last_lane                # the lane of the last request, found without a dict
    cdef object _timer
    cdef double _timer_deadline
    cdef uint64_t _tokens               # the highest token given so far
    cdef bytes _base                    # the reply subject without its token

    cdef Question _new_question(self, str subject)
    cdef int _start_clock(self, Question question, double seconds) except -1
    cdef int _set_timer(self, double deadline) except -1
    cdef bint _take(self, Question question) except -1
