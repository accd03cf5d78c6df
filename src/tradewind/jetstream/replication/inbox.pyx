"""Messages that a consumer of an origin delivers, in one piece of memory, until they are copied.

Owns the bytes between their arrival and their copy, and the check that none is missing: the
sequences of a consumer have no gaps. It does not know how they arrive, by a hook of this server or
through a connection to another one, and creates no object per message. Status messages of the other
server (heartbeats, flow control) are kept with their place among them.

Flow control bounds what waits here. A server that ignores it, or leaves something out, is no longer
listened to; the owner starts over.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from tradewind.broker.state cimport TAKES_SHOWN, Message
from tradewind.consumer.replies cimport ACK_TOKENS, ACK_TOKENS_LONG, read_number
from tradewind.containers.buffer cimport (
    buffer_clear, buffer_free, buffer_init, buffer_reserve, buffer_size)

cdef enum:
    # Twice the largest window that servers use.
    BYTES_MAX = 67108864
    # An empty inbox larger than this releases its memory.
    KEEP_BYTES = 1048576
    STATUS_BYTES_MIN = 12
    # Two or three arrive per second; they are taken in every turn.
    STATUSES_MAX = 1000

WAITING_BYTES_MAX = BYTES_MAX

ctypedef struct ParsedReply:
    uint64_t deliveries
    uint64_t stream_seq
    uint64_t consumer_seq
    int64_t timestamp
    uint64_t pending


cdef bint read_delivery(const char* subject, uint32_t size, ParsedReply* parsed) noexcept nogil:
    """Parse the reply subject of a message, see `consumer.replies`; false if it is not one."""
    cdef const char* at = subject
    cdef const char* end = subject + size
    cdef uint32_t tokens = 1, passed
    cdef uint64_t time = 0
    cdef bint is_negative
    if size < 8 or memcmp(subject, b"$JS.ACK.", 8) != 0:
        return False
    while at < end:
        tokens += at[0] == 46
        at += 1
    if tokens != ACK_TOKENS and tokens < ACK_TOKENS_LONG:
        return False
    passed = 6 if tokens >= ACK_TOKENS_LONG else 4
    at = subject
    while passed:
        passed -= at[0] == 46
        at += 1
    at = read_number(at, end, &parsed.deliveries)
    if at == NULL or at == end:
        return False
    at = read_number(at + 1, end, &parsed.stream_seq)
    if at == NULL or at == end:
        return False
    at = read_number(at + 1, end, &parsed.consumer_seq)
    if at == NULL or at == end:
        return False
    at += 1
    is_negative = at < end and at[0] == 45
    at = read_number(at + is_negative, end, &time)
    if at == NULL or at == end or time >> 63:
        return False
    parsed.timestamp = -<int64_t>time if is_negative else <int64_t>time
    if parsed.stream_seq == 0 or parsed.stream_seq >> 62 or parsed.consumer_seq == 0:
        return False
    return read_number(at + 1, end, &parsed.pending) != NULL


cdef int take_delivered(void* target, Message* message) except -1:
    """The hook of a deliver subject on this server: pass the message to the inbox."""
    (<Inbox>target).arrive(
        message.subject, message.subject_size, message.reply, message.reply_size, message.body,
        message.header_size, message.total_size)
    return 1


cdef class Inbox:
    """The messages that one consumer delivers to `owner`, from its creation to its end."""

    def __cinit__(self, *_, **__):
        buffer_init(&self.arrived)

    def __init__(self, Turn turn not None, Participant owner not None, on_arrival=None):
        self.turn = turn
        self.owner = owner
        self.on_arrival = on_arrival
        self.statuses = []
        self.fault = ""

    def __dealloc__(self):
        buffer_free(&self.arrived)

    def listen(self, Account account not None, bytes subject not None):
        """Take everything that arrives on a subject of this server, also through imports of its
        account; returns the token to stop it.
        """
        cdef size_t token = account.attach(subject, take_delivered, self, b"", TAKES_SHOWN)
        account.reach_out(token)
        return token

    def take(self, bytes subject not None, bytes reply not None, bytes header not None,
             bytes payload not None):
        """`arrive` for Python callers."""
        cdef bytes body = header + payload
        self.arrive(subject, <uint32_t>len(subject), reply, <uint32_t>len(reply), body,
                    len(header), len(body))

    cdef int arrive(self, const char* subject, uint32_t subject_size, const char* reply,
                    uint32_t reply_size, const char* body, size_t header_size,
                    size_t total_size) except -1:
        """Handle a message or a status."""
        cdef ParsedReply delivery
        cdef ArrivedHead head
        if header_size >= STATUS_BYTES_MIN and body[8] == 32:
            if len(self.statuses) < STATUSES_MAX:
                self.statuses.append((body[:header_size], reply[:reply_size], self.stream_seq,
                                      self.consumer_seq))
            return self._wake()
        # Anyone may publish on a deliver subject; only a consumer sets such replies.
        if self.fault or not read_delivery(reply, reply_size, &delivery):
            return 0
        self._wake()
        if self.consumer_seq and delivery.consumer_seq != self.consumer_seq + 1:
            if delivery.consumer_seq > self.consumer_seq:
                self.fault = f"message {self.consumer_seq + 1} of its consumer did not come"
            return 0
        head.seq = delivery.stream_seq
        head.timestamp = delivery.timestamp
        head.subject_size = subject_size
        head.header_size = <uint32_t>header_size
        head.payload_size = <uint32_t>(total_size - header_size)
        self._keep(&head, subject, body)
        if self.fault:
            return 0
        if self.first_consumer_seq == 0:
            self.first_consumer_seq = delivery.consumer_seq
            self.first_seq = delivery.stream_seq
            self.first_timestamp = delivery.timestamp
        self.stream_seq = delivery.stream_seq
        self.consumer_seq = delivery.consumer_seq
        self.pending = delivery.pending
        self.received += 1
        return 0

    cdef int _wake(self) except -1:
        """Wake the owner at the end of this turn."""
        if not self.owner.is_woken:
            if self.on_arrival is not None:
                self.on_arrival()
            self.turn.wake(self.owner)
        self.heard_ns = self.turn.monotonic_ns
        return 0

    cdef int _keep(self, ArrivedHead* head, const char* subject, const char* body) except -1:
        cdef size_t body_size = <size_t>head.header_size + head.payload_size
        cdef size_t stride = (sizeof(ArrivedHead) + head.subject_size + body_size + 7) & ~<size_t>7
        cdef char* at
        if self.waiting and buffer_size(&self.arrived) + stride > BYTES_MAX:
            self.fault = "it sends more than flow control allows"
            return 0
        if buffer_reserve(&self.arrived, stride) != 0:
            raise MemoryError
        head.stride = <uint32_t>stride
        at = self.arrived.data + self.arrived.end
        memcpy(at, head, sizeof(ArrivedHead))
        at += sizeof(ArrivedHead)
        memcpy(at, subject, head.subject_size)
        memcpy(at + head.subject_size, body, body_size)
        self.arrived.end += stride
        self.waiting += 1
        return 0

    # -------------------------------------------------------------- for who copies

    def take_statuses(self):
        """Take the status messages since the last call."""
        taken, self.statuses = self.statuses, []
        return taken

    cdef bint first(self, Record* record) noexcept:
        """The oldest waiting message, valid until more arrives; false if there is none."""
        cdef ArrivedHead head
        cdef const char* at
        if self.waiting == 0:
            return False
        at = self.arrived.data + self.arrived.begin
        memcpy(&head, at, sizeof(ArrivedHead))
        at += sizeof(ArrivedHead)
        record.seq = head.seq
        record.timestamp = head.timestamp
        record.erased = record.tombstone = False
        record.size = head.stride
        record.start = at
        record.subject = at
        record.subject_size = head.subject_size
        record.header = at + head.subject_size
        record.header_size = head.header_size
        record.payload = record.header + head.header_size
        record.payload_size = head.payload_size
        return True

    cdef void drop_first(self) noexcept:
        """Drop the oldest message, which was copied or need not be."""
        self.arrived.begin += (<ArrivedHead*>(self.arrived.data + self.arrived.begin)).stride
        self.waiting -= 1
        if self.waiting == 0:
            buffer_clear(&self.arrived)
            if self.arrived.capacity > KEEP_BYTES:
                buffer_free(&self.arrived)
