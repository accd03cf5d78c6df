"""Publishes many rows at a time, without a Python object for each of them.

Owns the operations that wait for an acknowledgement, exactly as they were sent, so that they can be
sent again, and the matching of answers to them. All have message ids, so sending one twice does no
harm. Deadlines, retries and the bounds of the window belong to the owner (`owners.RowOwner`, which
is `row_window.py`). An answer that does not begin like every acknowledgement is examined by Python
code.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_size, write_decimal)

from tradewind.api.responses import PubAck
from tradewind.client.streams.api_requests import decode_answer

cdef enum:
    REPLY_BYTES_MAX = 512
    DIGIT_0 = 48
    DIGIT_9 = 57
    SPACE = 32
    DIGITS_MAX = 19
    ROWS_START = 1024
    ATTEMPTS_MAX = 255
    KEEP_BYTES = 1 << 22
    ACK_START_BYTES = 11

# A row that was sent again arrived while its first copy was still being stored.
cdef bytes IN_PROCESS = b'"err_code":10158'
cdef bytes ACK_START = b'{"stream":"'


cdef uint64_t token_of(const char* text, Py_ssize_t size) noexcept nogil:
    """The number in these digits; 0 if it is not one."""
    cdef uint64_t token = 0
    cdef Py_ssize_t index
    if size < 1 or size > DIGITS_MAX:
        return 0
    for index in range(size):
        if text[index] < DIGIT_0 or text[index] > DIGIT_9:
            return 0
        token = token * 10 + <uint64_t>(text[index] - DIGIT_0)
    return token


cdef class RowInbox(MessageInbox):
    """The inbox for acknowledgements. Tokens count from 1."""

    def __init__(self, owner not None, Publisher publisher not None, str base not None):
        MessageInbox.__init__(self, base + "*", "", pending_messages_max=0, pending_bytes_max=0,
                              messages_max=0, owner=owner)
        buffer_init(&self._kept)
        self._publisher = publisher
        self._base = base.encode()
        self._first = self._next = 1
        self._is_packing = True
        if len(self._base) + 32 > REPLY_BYTES_MAX:
            raise ValueError("inbox_prefix is too long")

    def __dealloc__(self):
        buffer_free(&self._kept)
        free(self._rows)

    @property
    def unacknowledged_bytes(self):
        """Number of bytes kept."""
        return buffer_size(&self._kept)

    def wake_when(self, uint64_t count):
        """Tell the owner once, as soon as no more than `count` rows wait."""
        self._wake_at = count
        self._wakes = True

    def waiting_from(self, uint64_t token):
        """The first row, from a token on, whose outcome is unknown; 0 if there is none."""
        token = max(token, self._first)
        while token < self._next:
            if self._waiting(token) != NULL:
                return token
            token += 1
        return 0

    def subject_of(self, uint64_t token):
        """The subject of a waiting row."""
        cdef KeptRow* row = self._waiting(token)
        cdef const char* text
        cdef const char* end
        if row == NULL:
            raise KeyError(token)
        text = self._kept.data + self._kept.begin + (row.place - self._kept_place)
        text = <const char*>memchr(text, SPACE, row.size) + 1
        end = <const char*>memchr(text, SPACE, row.size)
        return text[:end - text].decode("utf-8", "surrogateescape")

    def deadline_of(self, uint64_t token):
        """The deadline of a waiting row."""
        cdef KeptRow* row = self._waiting(token)
        if row == NULL:
            raise KeyError(token)
        return row.deadline

    def count_refusal(self, uint64_t token):
        """Count a "no responders" answer to a waiting row, and return how many it had so far."""
        cdef KeptRow* row = self._waiting(token)
        if row == NULL:
            raise KeyError(token)
        if row.attempts < ATTEMPTS_MAX:
            row.attempts += 1
        return row.attempts

    def send_again(self, uint64_t token):
        """Publish a row once more, if it still waits."""
        cdef KeptRow* row = self._waiting(token)
        if row != NULL:
            self._publisher._line(
                self._kept.data + self._kept.begin + (row.place - self._kept_place), row.size)

    def drop(self, uint64_t token):
        """Drop a row that has failed; False if its outcome was already known."""
        if self._waiting(token) == NULL:
            return False
        self._finish_row(token)
        return True

    # ------------------------------------------------------------------ compiled callers

    cdef int send(self, const char* subject, Py_ssize_t subject_size, const char* header,
                  Py_ssize_t header_size, const char* payload, Py_ssize_t payload_size,
                  double deadline) except -1:
        """Publish a row; nothing is kept if it raises."""
        cdef char reply[REPLY_BYTES_MAX]
        cdef Py_ssize_t reply_size = PyBytes_GET_SIZE(self._base)
        cdef size_t before = buffer_size(&self._publisher._outbox), size
        cdef KeptRow* row
        if self._next - self._first >= self._rows_capacity:
            self._grow_rows()
        memcpy(reply, PyBytes_AS_STRING(self._base), reply_size)
        reply_size += write_decimal(reply + reply_size, self._next)
        self._publisher._check(subject, subject_size)
        self._publisher._encode(subject, subject_size, reply, reply_size, header, header_size,
                                payload, payload_size)
        # The operation is the end of the outbox, which is not written before this turn of the loop
        # is over.
        size = buffer_size(&self._publisher._outbox) - before
        row = &self._rows[self._next & (self._rows_capacity - 1)]
        row.place = self._kept_place + buffer_size(&self._kept)
        row.deadline = deadline
        row.size = <uint32_t>size
        row.is_done = False
        row.attempts = 0
        if buffer_append(&self._kept, self._publisher._outbox.data
                         + self._publisher._outbox.end - size, size) != 0:
            raise MemoryError
        self._next += 1
        self.unacknowledged += 1
        return 0

    cdef KeptRow* _waiting(self, uint64_t token) noexcept:
        """The row of a token; NULL if there is none, or if its outcome is known."""
        cdef KeptRow* row
        if token < self._first or token >= self._next:
            return NULL
        row = &self._rows[token & (self._rows_capacity - 1)]
        return NULL if row.is_done else row

    cdef int _grow_rows(self) except -1:
        cdef uint64_t capacity = self._rows_capacity * 2 if self._rows_capacity else ROWS_START
        cdef uint64_t token
        cdef KeptRow* rows = <KeptRow*>malloc(capacity * sizeof(KeptRow))
        if rows == NULL:
            raise MemoryError
        for token in range(self._first, self._next):
            rows[token & (capacity - 1)] = self._rows[token & (self._rows_capacity - 1)]
        free(self._rows)
        self._rows = rows
        self._rows_capacity = capacity
        return 0

    cdef int _finish_row(self, uint64_t token) except -1:
        """Record that the outcome of a waiting row is known, and release what is no longer needed.
        """
        cdef KeptRow* row = &self._rows[token & (self._rows_capacity - 1)]
        row.is_done = True
        self.unacknowledged -= 1
        while self._first < self._next:
            row = &self._rows[self._first & (self._rows_capacity - 1)]
            if not row.is_done:
                break
            self._kept.begin += row.size
            self._kept_place += row.size
            self._first += 1
        if self._first == self._next:
            if self._kept.capacity > KEEP_BYTES:
                buffer_free(&self._kept)
            else:
                buffer_clear(&self._kept)
        if self._wakes and self.unacknowledged <= self._wake_at:
            self._wakes = False
            self.owner._on_low()
        return 0

    cdef bint _pack(self, const Line* line, bint has_reply, const char* body, size_t header_size,
                    size_t payload_size) except -1:
        """See `MessageInbox`: an acknowledgement, unless it has to be examined."""
        cdef Py_ssize_t start = PyBytes_GET_SIZE(self._base)
        cdef uint64_t token = token_of(line.words[0] + start, line.sizes[0] - start)
        if self._waiting(token) == NULL:
            return True
        if header_size or payload_size < ACK_START_BYTES \
                or memcmp(body, PyBytes_AS_STRING(ACK_START), ACK_START_BYTES) != 0:
            return False
        self._finish_row(token)
        return True

    cdef int _push(self, Msg message, size_t size) except -1:
        """Called for any other answer."""
        cdef Py_ssize_t start = PyBytes_GET_SIZE(self._base)
        cdef uint64_t token = token_of(PyBytes_AS_STRING(self._subject_bytes) + start,
                                       PyBytes_GET_SIZE(self._subject_bytes) - start)
        if message._header is not None and PyBytes_GET_SIZE(message.data) == 0:
            self.owner._on_refused(token, message)
            return 0
        if IN_PROCESS in message.data:
            return 0
        try:
            decode_answer(message.data, PubAck)
        except Exception as error:
            self.owner._on_failed(token, error)
        else:
            self._finish_row(token)
        return 0
