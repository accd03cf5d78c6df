"""The replies that a stream sends once its messages are acknowledged, in the order of arrival.

Owns one growing buffer of replies. An acknowledgement is kept only as its subject, its sequence and
any additional content; its JSON is written when it is sent. It never publishes inside a delivery:
`release` is called at the end of a turn.

    {"stream":"ORDERS","seq":7}
    {"stream":"ORDERS","domain":"hub","seq":7,"duplicate": true}
    {"stream":"HITS","seq":7,"val":"42"}
    +OK                                         for a stream created by a preview of JetStream

A copy of a message (republish) that another stream stores carries the acknowledgement of the
message with it (`Rider`): that stream sends it once the copy is as durable as it promises, so the
receiver of the acknowledgement finds the copy. Streams that copy to each other pass it on
`HOPS_MAX` times.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy
from tradewind cimport invariants
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.broker.state cimport Message
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve, write_decimal)

cdef enum:
    ACK_TAIL_BYTES = 64         # sequence, `,"duplicate": true` and the brace
    KEEP_BYTES = 65536          # an empty queue larger than this releases its memory
    HOPS_MAX = 8

cdef bytes NOT_STORED = b"NATS/1.0 500 Message Not Stored\r\n\r\n"


cdef class Rider:
    """An acknowledgement that waits for a stream other than the one that wrote it."""


cdef class ReplyQueue:
    """The queue of one stream; `prefix` is the beginning of an acknowledgement, up to its
    sequence.
    """

    def __cinit__(self, bytes prefix not None):
        buffer_init(&self.entries)
        buffer_init(&self.body)
        self.prefix = prefix
        self.is_legacy = not prefix.startswith(b"{")

    def __dealloc__(self):
        buffer_free(&self.entries)
        buffer_free(&self.body)

    @property
    def memory_bytes(self):
        """The size of the waiting replies."""
        return self.entries.end - self.entries.begin

    cdef int add(self, uint32_t kind, uint64_t seq, const char* subject, uint32_t subject_size,
                 const char* reply, uint32_t reply_size, const char* body, uint32_t header_size,
                 uint32_t total_size) except -1:
        """Keep a reply until `seq` is acknowledged; everything is copied."""
        cdef ReplyHead head
        if buffer_reserve(&self.entries, sizeof(ReplyHead) + subject_size + reply_size
                          + total_size) != 0:
            raise MemoryError
        head.seq = seq
        head.subject_size = subject_size
        head.reply_size = reply_size
        head.header_size = header_size
        head.total_size = total_size
        head.kind = kind
        head.hops = 0
        buffer_append(&self.entries, <const char*>&head, sizeof(ReplyHead))
        buffer_append(&self.entries, subject, subject_size)
        buffer_append(&self.entries, reply, reply_size)
        buffer_append(&self.entries, body, total_size)
        self.count += 1
        return 0

    cdef int add_rider(self, uint64_t seq, Rider rider) except -1:
        """Keep the acknowledgement of a message whose copy was stored as `seq`."""
        cdef ReplyHead head
        cdef size_t start = self.entries.end - self.entries.begin
        self.add(REPLY_BODY, seq, rider.reply, <uint32_t>len(rider.reply), NULL, 0, rider.body, 0,
                 <uint32_t>len(rider.body))
        memcpy(&head, self.entries.data + self.entries.begin + start, sizeof(ReplyHead))
        head.hops = rider.hops
        memcpy(self.entries.data + self.entries.begin + start, &head, sizeof(ReplyHead))
        return 0

    cdef Rider _next_rider(self, uint64_t seq):
        """The rider that the copy of message `seq` carries: the first waiting reply, if it is for
        that message; otherwise None.
        """
        cdef ReplyHead head
        cdef Rider rider
        cdef char* at
        if self.count == 0:
            return None
        at = self.entries.data + self.entries.begin
        memcpy(&head, at, sizeof(ReplyHead))
        if head.seq != seq or head.kind == REPLY_COPY or head.kind == REPLY_TEXT \
                or head.hops >= HOPS_MAX \
                or (head.kind == REPLY_BODY and head.hops == 0):
            return None
        at += sizeof(ReplyHead)
        rider = Rider.__new__(Rider)
        rider.reply = at[:head.subject_size]
        if head.kind == REPLY_BODY:
            rider.body = at[head.subject_size:head.subject_size + head.total_size]
        else:
            self._write_ack(head.seq, head.kind == REPLY_DUPLICATE, at + head.subject_size,
                            head.total_size)
            rider.body = self.body.data[:self.body.end]
        rider.hops = head.hops + 1
        return rider

    cdef int _drop_first(self) except -1:
        cdef ReplyHead head
        memcpy(&head, self.entries.data + self.entries.begin, sizeof(ReplyHead))
        self.entries.begin += (sizeof(ReplyHead) + head.subject_size + head.reply_size
                               + head.total_size)
        self.count -= 1
        return 0

    cdef int _write_ack(self, uint64_t seq, bint duplicate, const char* tail,
                        size_t tail_size) except -1:
        cdef char* at
        buffer_clear(&self.body)
        if buffer_reserve(&self.body, len(self.prefix) + ACK_TAIL_BYTES + tail_size) != 0:
            raise MemoryError
        buffer_append(&self.body, self.prefix, len(self.prefix))
        if self.is_legacy:
            return 0
        at = self.body.data + self.body.end
        at += write_decimal(at, seq)
        if duplicate:
            memcpy(at, b',"duplicate": true', 18)
            at += 18
        memcpy(at, tail, tail_size)
        at += tail_size
        at[0] = 125
        self.body.end = at + 1 - self.body.data
        return 0

    cdef int _check(self) except -1:
        """Assert that the replies fill their buffer exactly, and that their number is right."""
        cdef ReplyHead head
        cdef uint64_t count = 0
        cdef size_t at = self.entries.begin
        assert invariants.is_sound(&self.entries)
        while at < self.entries.end:
            assert self.entries.end - at >= sizeof(ReplyHead), (at, self.entries.end)
            memcpy(&head, self.entries.data + at, sizeof(ReplyHead))
            assert head.kind <= REPLY_READ and head.header_size <= head.total_size
            assert head.hops <= HOPS_MAX, head.hops
            at += sizeof(ReplyHead) + head.subject_size + head.reply_size + head.total_size
            count += 1
        assert at == self.entries.end and count == self.count, (at, count, self.count)
        return 0

    cdef int release(self, Router router, Account account, uint64_t acknowledged,
                     bytes failure) except -1:
        """Send every reply up to the sequence `acknowledged`.

        With a `failure` the others are sent too, with it as their body, and copies are dropped.
        """
        cdef ReplyHead head
        cdef Message message
        cdef Rider rider
        cdef char* at
        message.origin = NULL
        if invariants.checked:
            self._check()
        while self.count:
            at = self.entries.data + self.entries.begin
            memcpy(&head, at, sizeof(ReplyHead))
            if head.seq > acknowledged and failure is None:
                return 0
            at += sizeof(ReplyHead)
            message.subject = at
            message.subject_size = head.subject_size
            message.reply = at + head.subject_size
            message.reply_size = head.reply_size
            message.header_size = head.header_size
            message.body = at + head.subject_size + head.reply_size
            message.total_size = head.total_size
            if head.seq > acknowledged and head.kind == REPLY_READ:
                message.header_size = message.total_size = len(NOT_STORED)
                message.body = NOT_STORED
            elif head.seq > acknowledged and head.kind != REPLY_BODY:
                message.header_size = 0
                message.body = failure
                message.total_size = len(failure)
            elif head.kind == REPLY_ACK or head.kind == REPLY_DUPLICATE:
                self._write_ack(head.seq, head.kind == REPLY_DUPLICATE, message.body,
                                head.total_size)
                message.body = self.body.data
                message.total_size = self.body.end
            # Taken out first, so that a failure while sending cannot send it twice.
            self._drop_first()
            if head.kind != REPLY_COPY:
                router.publish(account, &message)
            elif head.seq <= acknowledged:
                rider = self._next_rider(head.seq)
                router.turn.rider = rider
                router.publish(account, &message)
                if rider is not None and router.turn.rider is None:
                    self._drop_first()      # a stream has taken it
                router.turn.rider = None
        if self.entries.capacity > KEEP_BYTES:
            buffer_free(&self.entries)
        else:
            buffer_clear(&self.entries)
        return 0
