"""Publishes into streams, many at a time: which of them wait, and what the stream answered.

Owns the reply subjects and the matching of answers to messages; answers are decoded when they are
read. The payload is kept until then, so that it can be sent again. Deadlines, retries and the size
of the window belong to the owner (`owners.AckOwner`, which is `publishing.py`).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy

from tradewind.client.core.protocol cimport ReadyResult
from tradewind.containers.buffer cimport write_decimal

from asyncio import get_running_loop

from tradewind.api.responses import PubAck
from tradewind.client.streams.api_requests import check_answer, decode_answer

cdef enum:
    REPLY_BYTES_MAX = 512
    DIGIT_0 = 48
    DIGIT_9 = 57
    STATUS_BYTES_MIN = 12

cdef bytes ERROR_START = b'{"error"'
# A message that was sent again arrived while its first copy was still being stored.
cdef bytes IN_PROCESS = b'"err_code":10158'


cdef class PendingAck:
    """A message on its way into a stream. Awaiting it returns its PubAck, or raises why it failed.
    """

    @property
    def is_done(self):
        """Whether the outcome is known."""
        return self._answer is not None or self._error is not None

    @property
    def error(self):
        """Why it was not stored; None if it was, or if the outcome is not yet known."""
        return self._error

    def ack(self):
        """The PubAck, or None if the outcome is not yet known; raises if the publish failed."""
        if self._error is not None:
            raise self._error
        return None if self._answer is None else decode_answer(self._answer, PubAck)

    @property
    def answer(self):
        """The stream's answer as received; None if the publish failed or the outcome is not yet
        known.
        """
        return self._answer

    def known(self):
        """Await this to wait for the outcome, which is then in `answer` or `error`."""
        if self._answer is not None or self._error is not None:
            return ReadyResult(None)
        return self._new_future()

    def wait(self):
        """Wait for the PubAck; it blocks, for threads, which cannot await."""
        return self._publisher.owner._run_for_user(self._wait())

    async def _wait(self):
        return await self

    def __await__(self):
        self.is_claimed = True
        if self._answer is not None or self._error is not None:
            return ReadyResult(self.ack())
        return self._finish(self._new_future()).__await__()

    async def _finish(self, future):
        await future
        return self.ack()

    def __repr__(self):
        state = "failed" if self._error is not None else "stored" if self.is_done else "on its way"
        return f"PendingAck({self.subject!r}, {state})"

    cdef object _new_future(self):
        future = get_running_loop().create_future()
        if self._futures is None:
            self._futures = []
        self._futures.append(future)
        return future

    cdef int _wake(self) except -1:
        futures, self._futures = self._futures, None
        self._payload = None
        self._block = None
        if futures is not None:
            for future in futures:
                if not future.done():
                    future.set_result(None)
        return 0


cdef class AckInbox(MessageInbox):
    """The inbox for acknowledgements."""

    def __init__(self, owner not None, Publisher publisher not None, str base not None):
        MessageInbox.__init__(self, base + "*", "", pending_messages_max=0, pending_bytes_max=0,
                              messages_max=0, owner=owner)
        self._publisher = publisher
        self._pending = {}
        self._base = base.encode()
        if len(self._base) + 32 > REPLY_BYTES_MAX:
            raise ValueError("inbox_prefix is too long")

    @property
    def unacknowledged(self):
        """Number of messages waiting for their acknowledgement."""
        return len(self._pending)

    def waiting(self):
        """All waiting messages, oldest first."""
        return list(self._pending.values())

    def watch(self, bint is_watched):
        """Set whether to notify the owner of each acknowledgement."""
        self._is_watched = is_watched

    def send(self, str subject not None, bytes payload not None, bytes block, double deadline,
             bint has_id):
        """Publish a message; nothing is kept if it raises."""
        cdef PendingAck pending = PendingAck.__new__(PendingAck)
        self._tokens += 1
        pending.subject = subject
        pending.deadline = deadline
        pending.has_id = has_id
        pending.token = self._tokens
        pending._payload = payload
        pending._block = block
        pending._publisher = self._publisher
        # Before encoding: with users in other threads the answer may come at any time.
        self._pending[pending.token] = pending
        self.unacknowledged_bytes += PyBytes_GET_SIZE(payload)
        try:
            self._encode_again(pending)
        except BaseException:
            self._take_pending(pending.token)
            raise
        return pending

    def send_again(self, PendingAck pending not None):
        """Publish a message once more, if it still waits."""
        if pending.token in self._pending:
            self._encode_again(pending)

    def fail(self, PendingAck pending not None, error not None):
        """Fail a message; False if its outcome was already known."""
        if self._take_pending(pending.token) is None:
            return False
        pending._error = error
        pending._wake()
        return True

    cdef int _encode_again(self, PendingAck pending) except -1:
        cdef char reply[REPLY_BYTES_MAX]
        cdef Py_ssize_t subject_size, reply_size = PyBytes_GET_SIZE(self._base)
        cdef const char* text = PyUnicode_AsUTF8AndSize(pending.subject, &subject_size)
        self._publisher._check(text, subject_size)
        memcpy(reply, PyBytes_AS_STRING(self._base), reply_size)
        reply_size += write_decimal(reply + reply_size, pending.token)
        return self._publisher._publish(text, subject_size, reply, reply_size, pending._block,
                                        PyBytes_AS_STRING(pending._payload),
                                        PyBytes_GET_SIZE(pending._payload))

    cdef PendingAck _take_pending(self, uint64_t token):
        cdef PendingAck pending = self._pending.pop(token, None)
        if pending is not None:
            self.unacknowledged_bytes -= PyBytes_GET_SIZE(pending._payload)
        return pending

    cdef int _push(self, Msg message, size_t size) except -1:
        """Called when an answer has arrived."""
        cdef const char* text = PyBytes_AS_STRING(self._subject_bytes)
        cdef Py_ssize_t index
        cdef uint64_t token = 0
        cdef PendingAck pending
        for index in range(PyBytes_GET_SIZE(self._base), PyBytes_GET_SIZE(self._subject_bytes)):
            if text[index] < DIGIT_0 or text[index] > DIGIT_9:
                return 0
            token = token * 10 + <uint64_t>(text[index] - DIGIT_0)
        pending = self._pending.get(token)
        if pending is None:
            return 0
        if message._header is not None and PyBytes_GET_SIZE(message.data) == 0:
            self.owner._on_refused(pending, message)
            return 0
        if pending.attempts and IN_PROCESS in message.data:
            return 0
        self._take_pending(token)
        if message.data.startswith(ERROR_START):
            try:
                check_answer(message.data)
            except Exception as error:
                pending._error = error
                self.owner._on_failed(pending)
        if pending._error is None:
            pending._answer = message.data
        pending._wake()
        if self._is_watched:
            self.owner._on_acknowledged()
        return 0
