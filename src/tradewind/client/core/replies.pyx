"""Replies to requests: one wildcard subscription for all of them, distinguished by their last
token.

Owns the inbox of a connection, the requests waiting for replies, and their deadlines. A handler
runs inside the parser, so it only stores or wakes. All deadlines share one timer of the loop.

Requests with the same timeout expire in the order in which they were made, so they form a linked
list, a lane: adding or removing one costs the same however many there are.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy

from tradewind.client.core.publisher cimport Publisher
from tradewind.containers.buffer cimport write_decimal

from tradewind.client.errors import OperationTimeoutError
from tradewind.client.core.nuid import Nuid

cdef enum:
    REPLY_BYTES_MAX = 512
    DIGIT_0 = 48
    DIGIT_9 = 57

nuid = Nuid()


cdef class PendingRequest:
    """A request that waits for its answers; created by `Replies`, which keeps it until `forget`."""

    @property
    def reply(self):
        """The subject of the answers."""
        return f"{self._replies._base.decode()}{self._token}"

    cdef int _hand_over(self, reply) except -1:
        """Give an answer or an error to the waiting caller."""
        if self._handler is not None:
            self._handler(reply)
        elif self.future.done():
            return 0
        elif isinstance(reply, Exception):
            self.future.set_exception(reply)
            self.future.exception()     # the waiting caller may be cancelled before it reads this
        else:
            self.future.set_result(reply)
        return 0


cdef class ReplyLane:
    """The requests of one timeout, oldest first."""

    cdef int _append(self, PendingRequest question) except -1:
        question._lane = self
        question._earlier = self._last
        if self._last is None:
            self._first = question
        else:
            self._last._later = question
        self._last = question
        return 0

    cdef int _unlink(self, PendingRequest question) except -1:
        if question._earlier is None:
            self._first = question._later
        else:
            question._earlier._later = question._later
        if question._later is None:
            self._last = question._earlier
        else:
            question._later._earlier = question._earlier
        question._lane = None
        question._earlier = None
        question._later = None
        return 0


cdef class Replies(MessageInbox):
    """The inbox of a connection; its length is the number of waiting requests."""

    def __init__(self, connection not None, str prefix not None):
        base = f"{prefix}.{nuid.next()}."
        MessageInbox.__init__(self, base + "*", "", pending_messages_max=0, pending_bytes_max=0,
                              messages_max=0)
        self._connection = connection
        self._waiting = {}
        self._lanes = {}
        self._base = base.encode()
        if len(self._base) + 32 > REPLY_BYTES_MAX:
            raise ValueError("inbox_prefix is too long")

    def __len__(self):
        return len(self._waiting)

    def add(self, str subject not None, handler not None):
        """Create the reply subject of a request to `subject` that is yet to be published.

        The handler is called in the parser with each reply, or with the error if the server refuses
        the request or the connection closes; it must not raise or wait. Call `forget` when no more
        replies are wanted.
        """
        cdef PendingRequest question = self._new_question(subject)
        question._handler = handler
        return question

    def ask(self, str subject not None, payload, headers, double seconds):
        """Publish a request; its `future` gets the first reply, or the error after `seconds`.

        The reply ends the request; call `forget` if it is no longer wanted before that.
        """
        cdef char reply[REPLY_BYTES_MAX]
        cdef Py_ssize_t subject_size, reply_size = PyBytes_GET_SIZE(self._base)
        cdef const char* text
        cdef Publisher publisher = self._connection._wire
        cdef PendingRequest question = self._new_question(subject)
        try:
            question.future = self._connection._loop.create_future()
            self._start_clock(question, seconds)
            if headers is None and type(payload) is bytes:
                text = PyUnicode_AsUTF8AndSize(subject, &subject_size)
                publisher._check(text, subject_size)
                memcpy(reply, PyBytes_AS_STRING(self._base), reply_size)
                reply_size += write_decimal(reply + reply_size, question._token)
                publisher._publish(text, subject_size, reply, reply_size, None,
                                   PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
            else:
                self._connection.publish(subject, payload, reply=question.reply, headers=headers)
        except BaseException:
            self._take(question)
            raise
        return question

    def forget(self, PendingRequest question not None):
        """Accept no more replies to a request; a second call does nothing."""
        self._take(question)

    def fail(self, error not None, str subject=None):
        """Fail all waiting requests, or those that went to `subject`."""
        cdef PendingRequest question
        for question in list(self._waiting.values()):
            if subject is None or question.subject == subject:
                question._hand_over(error)

    def close(self, error not None):
        """The connection is closed: fail all requests and stop the timer."""
        self.fail(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ------------------------------------------------------------------ inside

    @property
    def _timeouts_in_use(self):
        """Number of lanes; for tests."""
        return len(self._lanes)

    cdef PendingRequest _new_question(self, str subject):
        cdef PendingRequest question = PendingRequest.__new__(PendingRequest)
        if self.sid == 0:
            self._connection._subscribe(self)
        self._tokens += 1
        question.subject = subject
        question._replies = self
        question._token = self._tokens
        self._waiting[question._token] = question
        return question

    cdef int _start_clock(self, PendingRequest question, double seconds) except -1:
        cdef ReplyLane lane = self._last_lane
        question._deadline = self._connection._loop.time() + seconds
        if lane is None or lane._seconds != seconds:
            lane = self._lanes.get(seconds)
            if lane is None:
                lane = ReplyLane.__new__(ReplyLane)
                lane._seconds = seconds
                self._lanes[seconds] = lane
            if self._last_lane is not None and self._last_lane._first is None:
                del self._lanes[self._last_lane._seconds]
            self._last_lane = lane
        lane._append(question)
        if self._timer is None or question._deadline < self._timer_deadline:
            self._set_timer(question._deadline)
        return 0

    cdef int _set_timer(self, double deadline) except -1:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_deadline = deadline
        self._timer = self._connection._loop.call_at(deadline, self._expire)
        return 0

    cdef bint _take(self, PendingRequest question) except -1:
        """Remove a request; False if it was removed before."""
        cdef ReplyLane lane = question._lane
        if self._waiting.pop(question._token, None) is None:
            return False
        if lane is not None:
            lane._unlink(question)
            # The timer and the lane of the last request stay, because the next one will need them.
            if lane._first is None and lane is not self._last_lane:
                del self._lanes[lane._seconds]
        return True

    cdef int _push(self, Msg message, size_t size) except -1:
        """Called when a reply has arrived."""
        cdef const char* text = PyBytes_AS_STRING(self._subject_bytes)
        cdef Py_ssize_t index
        cdef uint64_t token = 0
        cdef PendingRequest question
        for index in range(PyBytes_GET_SIZE(self._base), PyBytes_GET_SIZE(self._subject_bytes)):
            if text[index] < DIGIT_0 or text[index] > DIGIT_9:
                return 0
            token = token * 10 + <uint64_t>(text[index] - DIGIT_0)
        question = self._waiting.get(token)
        if question is not None:
            if question._handler is None:
                self._take(question)
            question._hand_over(message)
        return 0

    def _expire(self):
        cdef double now = self._connection._loop.time(), earliest = 0
        cdef ReplyLane lane
        cdef PendingRequest question
        self._timer = None
        for lane in list(self._lanes.values()):
            while lane._first is not None and lane._first._deadline <= now:
                question = lane._first
                self._take(question)
                question._hand_over(OperationTimeoutError(
                    f"request to {question.subject!r}: no answer within {lane._seconds:g} s"))
            if lane._first is not None and (earliest == 0 or lane._first._deadline < earliest):
                earliest = lane._first._deadline
        if earliest:
            self._set_timer(earliest)
