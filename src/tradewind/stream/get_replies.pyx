"""A stored message -> the reply to a direct get, published to the requester.

Owns the header that is added to a message on its way, and the bytes of the one reply that is being
sent. It never chooses a message. With `until_seq`, replies wait until that message is visible.

    NATS/1.0                              NATS/1.0 204 EOB
    Nats-Stream: ORDERS                   Nats-Num-Pending: 0
    Nats-Subject: orders.7                Nats-Last-Sequence: 9
    Nats-Sequence: 9
    Nats-Time-Stamp: 2026-01-31T12:00:00.5Z
    Nats-Num-Pending: 0
    Nats-Last-Sequence: 8
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.broker.state cimport Message
from tradewind.seconds cimport SECOND_NS
from tradewind.store.format.records cimport Record
from tradewind.stream.publish_replies cimport REPLY_READ, ReplyQueue
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve, write_decimal)

cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    struct tm:
        int tm_year
        int tm_mon
        int tm_mday
        int tm_hour
        int tm_min
        int tm_sec
    tm* gmtime_r(const time_t* seconds, tm* result)

cdef enum:
    # The fixed words, four numbers of 20 digits and a time, rounded up.
    FIELDS_BYTES_MAX = 256
    SECOND_BYTES = 19
    # A larger buffer is released when nothing is being sent.
    KEEP_BYTES = 4096

cdef bytes VERSION = b"NATS/1.0\r\n"
cdef bytes END_OF_BATCH = b"NATS/1.0 204 EOB\r\n"
cdef bytes SEQUENCE = b"\r\nNats-Sequence: "
cdef bytes TIME = b"\r\nNats-Time-Stamp: "
cdef bytes PENDING = b"Nats-Num-Pending: "
cdef bytes LAST_SEQUENCE = b"\r\nNats-Last-Sequence: "
cdef bytes UP_TO_SEQUENCE = b"Nats-UpTo-Sequence: "


cdef inline char* put(char* at, bytes text) noexcept:
    memcpy(at, <const char*>text, len(text))
    return at + len(text)


cdef inline char* put_two_digits(char* at, int value) noexcept nogil:
    at[0] = <char>(48 + value // 10)
    at[1] = <char>(48 + value % 10)
    return at + 2


cdef class GetReplies:
    """The replies of one stream, whose name is in every reply."""

    def __cinit__(self, Router router not None, Account account not None, bytes stream not None,
                  ReplyQueue held not None):
        buffer_init(&self.body)
        self.router = router
        self.account = account
        self.held = held
        self.stream_lines = b"Nats-Stream: " + stream + b"\r\nNats-Subject: "
        self.second = -1

    def __dealloc__(self):
        buffer_free(&self.body)

    # Each of these returns the number of receivers.

    cdef uint32_t send_bare(self, const char* reply, uint32_t reply_size,
                            const Record* record) except? 0xFFFFFFFF:
        """Send the payload alone; copied, because the stream that holds it may be among the
        receivers.
        """
        buffer_clear(&self.body)
        if buffer_reserve(&self.body, <size_t>record.payload_size + 1) != 0:
            raise MemoryError
        buffer_append(&self.body, record.payload, record.payload_size)
        return self._publish(reply, reply_size, self.body.data, 0, record.payload_size)

    cdef uint32_t send_message(self, const char* reply, uint32_t reply_size,
                               const Record* record) except? 0xFFFFFFFF:
        """Send a message with its origin."""
        self._begin(record)
        return self._finish(reply, reply_size, record)

    cdef uint32_t send_numbered(self, const char* reply, uint32_t reply_size, const Record* record,
                                uint64_t pending, uint64_t last_seq) except? 0xFFFFFFFF:
        """Send a message of a batch, with the number of those that follow and the sequence before
        it.
        """
        self._begin(record)
        self.body.end = self._write_position(
            self.body.data + self.body.end, pending, last_seq) - self.body.data
        return self._finish(reply, reply_size, record)

    cdef uint32_t send_end(self, const char* reply, uint32_t reply_size, uint64_t pending,
                           uint64_t last_seq, bint has_up_to, uint64_t up_to) except? 0xFFFFFFFF:
        """Send the end of a batch."""
        cdef char* at
        buffer_clear(&self.body)
        if buffer_reserve(&self.body, FIELDS_BYTES_MAX) != 0:
            raise MemoryError
        at = put(self.body.data, END_OF_BATCH)
        at = self._write_position(at, pending, last_seq)
        if has_up_to:
            at = put(at, UP_TO_SEQUENCE)
            at += write_decimal(at, up_to)
            at = put(at, b"\r\n")
        at = put(at, b"\r\n")
        self.body.end = at - self.body.data
        return self._publish(reply, reply_size, self.body.data, self.body.end, self.body.end)

    cdef uint32_t send_status(self, const char* reply, uint32_t reply_size,
                              bytes line) except? 0xFFFFFFFF:
        """Send a reply without a message."""
        cdef bytes header = b"NATS/1.0 " + line + b"\r\n\r\n"
        return self._publish(reply, reply_size, header, len(header), len(header))

    cdef size_t pending_at(self, const char* reply, uint32_t reply_size) noexcept:
        """The unread output of the fullest receiver of replies."""
        return self.router.pending_at(self.account, reply, reply_size)

    cdef int release(self) except -1:
        """Release memory beyond what ordinary replies need; called when nothing is being sent."""
        if self.body.capacity > KEEP_BYTES:
            buffer_free(&self.body)
        return 0

    cdef int _begin(self, const Record* record) except -1:
        """Begin with the message's own header without its end, then add its origin."""
        cdef size_t own = record.header_size
        cdef char* at
        buffer_clear(&self.body)
        if buffer_reserve(&self.body, own + len(VERSION) + len(self.stream_lines)
                          + record.subject_size + FIELDS_BYTES_MAX + record.payload_size) != 0:
            raise MemoryError
        at = self.body.data
        if own == 0:
            at = put(at, VERSION)
        elif own > 2:
            memcpy(at, record.header, own - 2)
            at += own - 2
        at = put(at, self.stream_lines)
        memcpy(at, record.subject, record.subject_size)
        at = put(at + record.subject_size, SEQUENCE)
        at += write_decimal(at, record.seq)
        at = self._write_time(put(at, TIME), record.timestamp)
        at[0] = 13
        at[1] = 10
        self.body.end = at + 2 - self.body.data
        return 0

    cdef char* _write_position(self, char* at, uint64_t pending, uint64_t last_seq) noexcept:
        at = put(at, PENDING)
        at += write_decimal(at, pending)
        at = put(at, LAST_SEQUENCE)
        at += write_decimal(at, last_seq)
        at[0] = 13
        at[1] = 10
        return at + 2

    cdef char* _write_time(self, char* at, int64_t time_ns) noexcept:
        """Write RFC 3339 in UTC with as many fractional digits as necessary; see `api.times`."""
        cdef int64_t second = time_ns // SECOND_NS
        cdef int64_t fraction = time_ns % SECOND_NS
        cdef int64_t divisor
        if fraction < 0:
            second -= 1
            fraction += SECOND_NS
        if second != self.second or self.second_text[0] == 0:
            write_second(&self.second_text[0], second)
            self.second = second
        memcpy(at, &self.second_text[0], SECOND_BYTES)
        at += SECOND_BYTES
        if fraction:
            at[0] = 46
            at += 1
            divisor = SECOND_NS // 10
            while fraction:
                at[0] = <char>(48 + fraction // divisor)
                at += 1
                fraction %= divisor
                divisor //= 10
        at[0] = 90
        return at + 1

    cdef uint32_t _finish(self, const char* reply, uint32_t reply_size,
                          const Record* record) except? 0xFFFFFFFF:
        """End the header, add the payload and send; there is room for both."""
        cdef char* at = self.body.data + self.body.end
        cdef size_t header_size = self.body.end + 2
        at[0] = 13
        at[1] = 10
        if record.payload_size:
            memcpy(at + 2, record.payload, record.payload_size)
        self.body.end = header_size + record.payload_size
        return self._publish(reply, reply_size, self.body.data, header_size, self.body.end)

    cdef uint32_t _publish(self, const char* reply, uint32_t reply_size, const char* body,
                           size_t header_size, size_t total_size) except? 0xFFFFFFFF:
        cdef Message message
        self.sent_msgs += 1
        self.sent_bytes += total_size
        if self.until_seq:
            self.held.add(REPLY_READ, self.until_seq, reply, reply_size, NULL, 0, body,
                          <uint32_t>header_size, <uint32_t>total_size)
            return 1
        message.origin = NULL
        message.subject = reply
        message.subject_size = reply_size
        message.reply = NULL
        message.reply_size = 0
        message.body = body
        message.header_size = header_size
        message.total_size = total_size
        return self.router.publish(self.account, &message)


cdef void write_second(char* at, int64_t second) noexcept nogil:
    """Write a time such as 2026-01-31T12:00:00; every time of 64 bits in nanoseconds has a year of
    four digits.
    """
    cdef time_t seconds = <time_t>second
    cdef tm parts
    cdef int year
    if gmtime_r(&seconds, &parts) == NULL:
        memcpy(at, b"0001-01-01T00:00:00", SECOND_BYTES)
        return
    year = parts.tm_year + 1900
    at = put_two_digits(put_two_digits(at, year // 100), year % 100)
    at[0] = 45
    at = put_two_digits(at + 1, parts.tm_mon + 1)
    at[0] = 45
    at = put_two_digits(at + 1, parts.tm_mday)
    at[0] = 84
    at = put_two_digits(at + 1, parts.tm_hour)
    at[0] = 58
    at = put_two_digits(at + 1, parts.tm_min)
    at[0] = 58
    put_two_digits(at + 1, parts.tm_sec)
