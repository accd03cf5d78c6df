"""The queue of a pull consumer, which requests more messages by itself.

Owns the count of messages requested and not yet received, the decision when to request again, and
the check that an ordered consumer leaves no gap. An ordered consumer may pack what arrives instead
of queueing objects (`packed.pyx`). Status messages of the server are handed to the owner
(`owners.PullOwner`), and so are the need for more messages, a gap, and the end of a batch.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t

from tradewind.client.core.protocol cimport ReadyResult
from tradewind.client.streams.packed cimport parse_delivery

cdef enum:
    DIGIT_0 = 48
    DIGIT_9 = 57
    STATUS_BYTES_MIN = 12


cdef inline bint is_status_block(const char* text, Py_ssize_t size) noexcept nogil:
    """Whether the server itself created the message: NATS/1.0 <digit>."""
    return size >= STATUS_BYTES_MIN and text[8] == 32 and DIGIT_0 <= text[9] <= DIGIT_9


cdef inline bint is_status(Msg message) noexcept:
    return message._header is not None and is_status_block(
        PyBytes_AS_STRING(message._header), PyBytes_GET_SIZE(message._header))


cdef class PullInbox(MessageInbox):
    """The queue of requested messages."""

    def __cinit__(self):
        self._refill_messages = -1

    def requested(self, int64_t messages, int64_t size):
        """Count what was requested."""
        self.wanted_messages += messages
        self.wanted_bytes += size

    def returned(self, int64_t messages, int64_t size):
        """Count what was requested and will not be sent by the server."""
        self.wanted_messages = max(self.wanted_messages - messages, 0)
        self.wanted_bytes = max(self.wanted_bytes - size, 0)

    def set_refill(self, int64_t messages, int64_t size):
        """Request more at these counts; -1 messages: never."""
        self._refill_messages = messages
        self._refill_bytes = size

    def set_batch(self):
        """End once everything wanted has arrived."""
        self._is_batch = True

    def expect_from_start(self):
        """The messages of a new consumer come next, and none of them may be missing."""
        self._expected = 1
        self._is_broken = False

    def move(self, str subject not None):
        """Wait for messages on another subject; the owner subscribes again."""
        self.subject = subject

    def observe(self):
        """Show each message to the owner before it is queued."""
        self._is_observed = True

    def divert(self, handler not None):
        """Pass everything that arrives from now on to this function instead of the queue."""
        self._handler = handler

    def wants_more(self):
        """Whether it is time to request more."""
        return not self._ended and self._is_low()

    @property
    def pending_messages(self):
        """Number of messages waiting to be read."""
        return self._count + (0 if self._packed is None else self._packed.count)

    def start_packing(self):
        """Pack the messages of an ordered consumer from now on; see `take_packed`."""
        if self._count or not self._expected:
            raise AssertionError("only an ordered consumer that has delivered nothing can pack")
        self._is_packing = True

    def take_packed(self):
        """Take all messages that have arrived, or None, and request more."""
        packed, self._packed = self._packed, None
        if packed is not None:
            self.pending_bytes = 0
        if not self._ended and self._is_low():
            self.owner._refill()
        return packed

    def discard(self):
        MessageInbox.discard(self)
        self._packed = None

    def take(self):
        """Take the next message of the queue; None if it is empty.

        A caller that takes a message is done with the previous one, so more are requested only now.
        """
        if not self._ended and self._is_low():
            self.owner._refill()
        return MessageInbox._pop(self) if self._count else None

    def __anext__(self):
        if self._count:
            if not self._ended and self._is_low():
                self.owner._refill()
            return ReadyResult(MessageInbox._pop(self))
        return self.owner._wait_next()

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
        """See `MessageInbox`. Status messages and messages without a reply subject take the
        ordinary path.
        """
        cdef DeliveryFacts delivery
        if not has_reply or is_status_block(body, header_size):
            return False
        self.arrivals += 1
        if not self._is_in_order(line.words[2], line.sizes[2], &delivery):
            return True
        self.received_messages += 1
        if self._packed is None:
            self._packed = PackedMessages()
        self._packed.add(&delivery, line.words[0], <uint32_t>line.sizes[0], body,
                         <uint32_t>header_size, <uint32_t>payload_size)
        self.pending_bytes += header_size + payload_size
        if self._waiters:
            self.wake_one()
        self._count_down(header_size + payload_size + line.sizes[0] + line.sizes[2])
        return True

    cdef int _push(self, Msg message, size_t size) except -1:
        cdef int is_slow
        cdef DeliveryFacts delivery
        self.arrivals += 1
        if is_status(message):
            self.owner._on_status(message)
            return 0
        if self._expected and (message._reply is None or not self._is_in_order(
                PyBytes_AS_STRING(message._reply), PyBytes_GET_SIZE(message._reply), &delivery)):
            return 0
        self.received_messages += 1
        if self._is_observed:
            self.owner._on_message(message)
        is_slow = MessageInbox._push(self, message, size)
        # Counted as the server does: subject, reply subject, headers and payload.
        size += PyBytes_GET_SIZE(self._subject_bytes)
        if message._reply is not None:
            size += PyBytes_GET_SIZE(message._reply)
        self._count_down(size)
        return is_slow

    cdef bint _is_in_order(self, const char* reply, Py_ssize_t size,
                           DeliveryFacts* delivery) except -1:
        if self._is_broken or not parse_delivery(reply, size, delivery):
            return False
        if delivery.consumer_sequence != self._expected:
            self._is_broken = True
            self.owner._on_gap()
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
            self.owner._on_served()
        return 0
