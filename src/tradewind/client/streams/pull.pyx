"""Messages of pull requests -> a queue that asks for more by itself.

Owns the count of what was requested and has not come, the moment to ask again, and the check that
an ordered consumer leaves no gap. An ordered consumer may pack what arrives, in place of queueing
objects (`packed.pyx`). Statuses of the server are handed to the owner (`_on_status`),
and so is the wish for more (`_refill`), a gap (`_on_gap`) and the end of a batch (`_on_served`).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t

from tradewind.client.core.protocol cimport Ready
from tradewind.client.streams.packed cimport parse_delivery

cdef enum:
    DIGIT_0 = 48
    DIGIT_9 = 57
    STATUS_BYTES_MIN = 12


cdef inline bint is_status_block(const char* text, Py_ssize_t size) noexcept nogil:
    """Whether the server made the message: NATS/1.0 <digit>."""
    return size >= STATUS_BYTES_MIN and text[8] == 32 and DIGIT_0 <= text[9] <= DIGIT_9


cdef inline bint is_status(Msg message) noexcept:
    return message._header is not None and is_status_block(
        PyBytes_AS_STRING(message._header), PyBytes_GET_SIZE(message._header))


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

    @property
    def pending_messages(self):
        """How many messages wait to be read."""
        return self._count + (0 if self._packed is None else self._packed.count)

    def _start_packing(self):
        """Keep the messages of an ordered consumer in one piece from now on; see `take_packed`."""
        if self._count or not self._expected:
            raise AssertionError("only an ordered consumer that has delivered nothing can pack")
        self._is_packing = True

    def take_packed(self):
        """All messages that have arrived, None if there are none; then more are asked for."""
        packed, self._packed = self._packed, None
        if packed is not None:
            self.pending_bytes = 0
        if not self._ended and self._is_low():
            self._refill()
        return packed

    def _discard(self):
        SubscriptionCore._discard(self)
        self._packed = None

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
        cdef int64_t here = <int64_t>self._count
        if self._packed is not None:
            here += <int64_t>self._packed.count
        return (self.wanted_messages + here <= self._refill_messages
                or (self._refill_bytes
                    and self.wanted_bytes + <int64_t>self.pending_bytes <= self._refill_bytes))

    cdef bint _pack(self, const Line* line, bint has_reply, const char* body, size_t header_size,
                    size_t payload_size) except -1:
        """See `SubscriptionCore`. Statuses and what has no reply subject take the usual way."""
        cdef Delivery delivery
        if not has_reply or is_status_block(body, header_size):
            return False
        self.arrivals += 1
        if not self._is_in_order(line.words[2], line.sizes[2], &delivery):
            return True
        self.received_messages += 1
        if self._packed is None:
            self._packed = Packed()
        self._packed.add(&delivery, line.words[0], <uint32_t>line.sizes[0], body,
                         <uint32_t>header_size, <uint32_t>payload_size)
        self.pending_bytes += header_size + payload_size
        if self._waiters:
            self._wake_one()
        self._count_down(header_size + payload_size + line.sizes[0] + line.sizes[2])
        return True

    cdef int _push(self, Msg message, size_t size) except -1:
        cdef int is_slow
        cdef Delivery delivery
        self.arrivals += 1
        if is_status(message):
            self._on_status(message)
            return 0
        if self._expected and (message._reply is None or not self._is_in_order(
                PyBytes_AS_STRING(message._reply), PyBytes_GET_SIZE(message._reply), &delivery)):
            return 0
        self.received_messages += 1
        if self._is_observed:
            self._on_message(message)
        is_slow = SubscriptionCore._push(self, message, size)
        # As the server counts: subject, reply subject, headers and payload.
        size += PyBytes_GET_SIZE(self._subject_bytes)
        if message._reply is not None:
            size += PyBytes_GET_SIZE(message._reply)
        self._count_down(size)
        return is_slow

    cdef bint _is_in_order(self, const char* reply, Py_ssize_t size,
                           Delivery* delivery) except -1:
        if self._is_broken or not parse_delivery(reply, size, delivery):
            return False
        if delivery.consumer_sequence != self._expected:
            self._is_broken = True
            self._on_gap()
            return False
        self._expected += 1
        self.last_sequence = delivery.stream_sequence
        return True

    cdef int _count_down(self, size_t size) except -1:
        if self.wanted_messages > 0:
            self.wanted_messages -= 1
        if self._refill_bytes:
            self.wanted_bytes = max(self.wanted_bytes - <int64_t>size, 0)
        if self._is_batch and self.wanted_messages == 0:
            self._on_served()
        return 0
