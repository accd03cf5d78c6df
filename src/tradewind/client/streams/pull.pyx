"""Messages of pull requests -> a queue that asks for more by itself.

Owns the count of what was requested and has not come, the moment to ask again, and the check that
an ordered consumer leaves no gap. Statuses of the server are handed to the owner (`_on_status`),
and so is the wish for more (`_refill`), a gap (`_on_gap`) and the end of a batch (`_on_served`).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from tradewind.client.core.protocol cimport Ready

cdef enum:
    DOT = 46
    DIGIT_0 = 48
    DIGIT_9 = 57
    TOKENS_MAX = 16
    # See message.pyx: the reply subject of version 1 has 9 tokens, that of version 2 at least 11.
    SHORT_TOKENS = 9
    LONG_TOKENS = 11
    STREAM_SEQUENCE_TOKEN = 5
    CONSUMER_SEQUENCE_TOKEN = 6
    STATUS_BYTES_MIN = 12


cdef inline bint parse_number(const char* text, const char* end, uint64_t* value) noexcept nogil:
    value[0] = 0
    if text == end:
        return False
    while text < end:
        if text[0] < DIGIT_0 or text[0] > DIGIT_9:
            return False
        value[0] = value[0] * 10 + <uint64_t>(text[0] - DIGIT_0)
        text += 1
    return True


cdef bint parse_sequences(const char* text, Py_ssize_t size, uint64_t* stream_sequence,
                          uint64_t* consumer_sequence) noexcept nogil:
    """The sequences in the reply subject of a delivered message; False if it is none."""
    cdef const char* starts[TOKENS_MAX]
    cdef Py_ssize_t index
    cdef int count = 1, first
    starts[0] = text
    for index in range(size):
        if text[index] == DOT:
            if count == TOKENS_MAX:
                break
            starts[count] = text + index + 1
            count += 1
    if count < SHORT_TOKENS:
        return False
    first = 2 if count >= LONG_TOKENS else 0
    return (parse_number(starts[first + STREAM_SEQUENCE_TOKEN],
                         starts[first + STREAM_SEQUENCE_TOKEN + 1] - 1, stream_sequence)
            and parse_number(starts[first + CONSUMER_SEQUENCE_TOKEN],
                             starts[first + CONSUMER_SEQUENCE_TOKEN + 1] - 1, consumer_sequence))


cdef inline bint is_status(Msg message) noexcept:
    """Whether the server made it: NATS/1.0 <digit>."""
    cdef const char* text
    if message._header is None or PyBytes_GET_SIZE(message._header) < STATUS_BYTES_MIN:
        return False
    text = PyBytes_AS_STRING(message._header)
    return text[8] == 32 and DIGIT_0 <= text[9] <= DIGIT_9


cdef class PullCore(SubscriptionCore):
    """The queue of messages that were asked for."""

    def __cinit__(self):
        self._refill_messages = -1

    def _request(self, int64_t messages, int64_t size):
        """So much more was asked for."""
        self.wanted_messages += messages
        self.wanted_bytes += size

    def _returned(self, int64_t messages, int64_t size):
        """The server will not send so much of what was asked for."""
        self.wanted_messages = max(self.wanted_messages - messages, 0)
        self.wanted_bytes = max(self.wanted_bytes - size, 0)

    def _set_refill(self, int64_t messages, int64_t size):
        """Ask for more at these counts; -1 messages: never."""
        self._refill_messages = messages
        self._refill_bytes = size

    def _set_batch(self):
        """End when all that is wanted has arrived."""
        self._is_batch = True

    def _expect_from_start(self):
        """The messages of a new consumer come next; none of them may be missing."""
        self._expected = 1
        self._is_broken = False

    def _move(self, str subject not None):
        """Wait for messages on another subject; the owner subscribes again."""
        self.subject = subject

    def _observe(self):
        """Show each message to `_on_message` before it is queued."""
        self._is_observed = True

    def _divert(self, handler not None):
        """Give everything that comes from now on to this function instead of the queue."""
        self._handler = handler

    def _wants_more(self):
        """Whether it is time to ask for more."""
        return not self._ended and self._is_low()

    def take(self):
        """The next message of the queue, or None if it is empty.

        Whoever asks for a message is done with the one before: only now more are asked for.
        """
        if not self._ended and self._is_low():
            self._refill()
        return SubscriptionCore._pop(self) if self._count else None

    def __anext__(self):
        if self._count:
            if not self._ended and self._is_low():
                self._refill()
            return Ready(SubscriptionCore._pop(self))
        return self._wait_next()

    cdef inline bint _is_low(self) noexcept:
        if self._refill_messages < 0:
            return False
        return (self.wanted_messages + <int64_t>self._count <= self._refill_messages
                or (self._refill_bytes
                    and self.wanted_bytes + <int64_t>self.pending_bytes <= self._refill_bytes))

    cdef int _push(self, Msg message, size_t size) except -1:
        cdef int is_slow
        self.arrivals += 1
        if is_status(message):
            self._on_status(message)
            return 0
        if self._expected and not self._is_in_order(message):
            return 0
        self.received_messages += 1
        if self._is_observed:
            self._on_message(message)
        is_slow = SubscriptionCore._push(self, message, size)
        self._count_down(message, size)
        return is_slow

    cdef bint _is_in_order(self, Msg message) except -1:
        cdef uint64_t stream_sequence, consumer_sequence
        if self._is_broken or message._reply is None:
            return False
        if not parse_sequences(PyBytes_AS_STRING(message._reply),
                               PyBytes_GET_SIZE(message._reply), &stream_sequence,
                               &consumer_sequence):
            return False
        if consumer_sequence != self._expected:
            self._is_broken = True
            self._on_gap()
            return False
        self._expected += 1
        self.last_sequence = stream_sequence
        return True

    cdef int _count_down(self, Msg message, size_t size) except -1:
        if self.wanted_messages > 0:
            self.wanted_messages -= 1
        if self._refill_bytes:
            # As the server counts: subject, reply subject, headers and payload.
            size += PyBytes_GET_SIZE(self._subject_bytes)
            if message._reply is not None:
                size += PyBytes_GET_SIZE(message._reply)
            self.wanted_bytes = max(self.wanted_bytes - <int64_t>size, 0)
        if self._is_batch and self.wanted_messages == 0:
            self._on_served()
        return 0
