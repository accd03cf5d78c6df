"""Parses bytes from a server into messages, and queues them for their subscriptions.

Owns the input of a connection, the table of its subscriptions and their queues. It decides nothing
about connections: INFO, -ERR, PING and PONG are handed to the owner (`owners.WireOwner`). A queue
is bounded, and messages that do not fit are dropped and counted; a queue that is bounded by its
requests (pull consumers) has no limit of its own. Wrong bytes raise ProtocolError, and the owner
closes the connection.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy

from tradewind.client.core.message cimport make_message
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve, buffer_size)

from collections import deque

from tradewind.errors import ProtocolError

cdef extern from "Python.h":
    int PyBUF_WRITE
    void PyErr_SetObject(object kind, object value)
    PyObject* PyExc_StopIteration

cdef enum:
    LF = 10
    CR = 13
    SPACE = 32
    TAB = 9
    DIGITS_MAX = 9
    READ_BYTES_MIN = 65536
    READ_BYTES_MAX = 524288
    # INFO lists all servers of a cluster; nothing else is longer than a few KiB.
    LINE_BYTES_MAX = 1048576
    MESSAGE_BYTES_MAX = 268435456
    RING_START = 64

CONTROL_INFO = "INFO"
CONTROL_ERROR = "-ERR"
CONTROL_PING = "PING"
CONTROL_PONG = "PONG"


cdef class ReadyResult:
    """An awaitable that already has its result."""

    def __cinit__(self, value):
        self._value = value

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        # Faster than raising an instance: the interpreter takes the value without creating one.
        PyErr_SetObject(<object>PyExc_StopIteration, self._value)
        raise_current()


cdef inline int raise_current() except -1:
    """Propagate the exception that is already set."""
    return -1


cdef class MessageInbox:
    """The queue of a subscription; users see it as `Subscription`."""

    def __init__(self, str subject not None, str queue not None, *, size_t pending_messages_max,
                 size_t pending_bytes_max, uint64_t messages_max, handler=None,
                 owner=None):
        self.subject = subject
        self.queue = queue
        self.pending_messages_max = pending_messages_max
        self.pending_bytes_max = pending_bytes_max
        self.messages_max = messages_max
        self._handler = handler
        self.owner = owner
        self._waiters = deque()

    def __dealloc__(self):
        while self._count:
            Py_DECREF(<object>self._ring[self._head])
            self._head = (self._head + 1) & (self._capacity - 1)
            self._count -= 1
        PyMem_Free(self._ring)

    @property
    def pending_messages(self):
        """Number of messages waiting to be read."""
        return self._count

    @property
    def is_ended(self):
        """Whether no more messages will come; those in the queue can still be read."""
        return self._ended

    def take(self):
        """Take the next message of the queue; None if it is empty."""
        return self._pop() if self._count else None

    def __aiter__(self):
        return self

    def __anext__(self):
        if self._count:
            return ReadyResult(self._pop())
        return self.owner._wait_next()

    def end(self):
        """No more messages will come: wake all waiting readers."""
        self._ended = True
        self.wake_all()

    def add_waiter(self, waiter not None):
        self._waiters.append(waiter)

    def remove_waiter(self, waiter not None):
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def wake_all(self):
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def wake_one(self):
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def discard(self):
        """Drop all queued messages."""
        while self._count:
            self._pop()

    def when_empty(self, future not None):
        """Complete the future when the queue is empty."""
        self._emptied = future
        if self._count == 0:
            self._tell_emptied()

    cdef int _tell_emptied(self) except -1:
        future, self._emptied = self._emptied, None
        if not future.done():
            future.set_result(None)
        return 0

    cdef int _push(self, Msg message, size_t size) except -1:
        """Queue a message; 1 if it is the first that had to be dropped, otherwise 0."""
        if ((self.pending_messages_max and self._count >= self.pending_messages_max)
                or (self.pending_bytes_max and self.pending_bytes + size > self.pending_bytes_max
                    and self._count)):
            self.dropped_count += 1
            if self._slow:
                return 0
            self._slow = True
            return 1
        if self._count == self._capacity:
            self._grow()
        Py_INCREF(message)
        self._ring[(self._head + self._count) & (self._capacity - 1)] = <PyObject*>message
        self._count += 1
        self.pending_bytes += size
        if self._waiters:
            self.wake_one()
        return 0

    cdef bint _pack(self, const Line* line, bint has_reply, const char* body, size_t header_size,
                    size_t payload_size) except -1:
        """Keep a message without creating an object for it; False if it has to take the ordinary
        path.
        """
        return False

    cdef int _grow(self) except -1:
        cdef size_t capacity = self._capacity * 2 if self._capacity else RING_START
        cdef size_t first = self._capacity - self._head
        cdef PyObject** ring = <PyObject**>PyMem_Malloc(capacity * sizeof(PyObject*))
        if ring == NULL:
            raise MemoryError
        if self._count:
            if first > self._count:
                first = self._count
            memcpy(ring, self._ring + self._head, first * sizeof(PyObject*))
            memcpy(ring + first, self._ring, (self._count - first) * sizeof(PyObject*))
        PyMem_Free(self._ring)
        self._ring = ring
        self._capacity = capacity
        self._head = 0
        return 0

    cdef Msg _pop(self):
        cdef Msg message = <Msg>self._ring[self._head]
        Py_DECREF(message)          # the ring's reference; `message` holds its own
        self._head = (self._head + 1) & (self._capacity - 1)
        self._count -= 1
        self.pending_bytes -= PyBytes_GET_SIZE(message.data) + (
            0 if message._header is None else PyBytes_GET_SIZE(message._header))
        if self._slow and self._count <= self.pending_messages_max // 2:
            self._slow = False
        if self._count == 0 and self._emptied is not None:
            self._tell_emptied()
        return message

    cdef str _decode_subject(self, const char* text, Py_ssize_t size):
        if (self._subject_bytes is None or PyBytes_GET_SIZE(self._subject_bytes) != size
                or memcmp(PyBytes_AS_STRING(self._subject_bytes), text, size) != 0):
            self._subject_text = PyUnicode_DecodeUTF8(text, size, "surrogateescape")
            self._subject_bytes = PyBytes_FromStringAndSize(text, size)
        return self._subject_text


cdef inline Py_ssize_t parse_size(const char* text, Py_ssize_t size) noexcept nogil:
    """Parse at most nine decimal digits; -1 for anything else."""
    cdef Py_ssize_t value = 0, index
    if size == 0 or size > DIGITS_MAX:
        return -1
    for index in range(size):
        if text[index] < 48 or text[index] > 57:
            return -1
        value = value * 10 + (text[index] - 48)
    return value


cdef inline bint split_line(const char* text, const char* end, Line* line) noexcept nogil:
    """Split into words at blanks; False if there are too many."""
    cdef const char* start
    line.count = 0
    while True:
        while text < end and (text[0] == SPACE or text[0] == TAB or text[0] == CR):
            text += 1
        if text == end:
            return True
        if line.count == 5:
            return False
        start = text
        while text < end and text[0] != SPACE and text[0] != TAB and text[0] != CR:
            text += 1
        line.words[line.count] = start
        line.sizes[line.count] = text - start
        line.count += 1


cdef class ClientWire(Publisher):
    """Both directions of a connection: parses what the server sends, encodes what it receives."""

    def __cinit__(self, _owner):
        buffer_init(&self._input)
        self._subscriptions = {}

    def __dealloc__(self):
        buffer_free(&self._input)

    # ------------------------------------------------------------------ input

    def read_area(self):
        """Memory for the next bytes from the server; valid until `received`."""
        cdef size_t size = buffer_size(&self._input)
        cdef size_t wanted = READ_BYTES_MIN
        self._check_idle()
        if size == 0:
            buffer_clear(&self._input)
            if self._input.capacity > 2 * READ_BYTES_MAX:
                buffer_free(&self._input)
        if self._need > size and self._need - size > wanted:
            wanted = self._need - size
        if buffer_reserve(&self._input, wanted) != 0:
            raise MemoryError
        return PyMemoryView_FromMemory(self._input.data + self._input.end,
                                       self._input.capacity - self._input.end, PyBUF_WRITE)

    def received(self, size_t size):
        """The server sent `size` bytes into the read area: run every complete operation."""
        self._check_idle()
        self._input.end += size
        self._run()
        # A read that filled the area means that more is waiting, so the next read is larger.
        if self._input.end == self._input.capacity and self._input.capacity < READ_BYTES_MAX:
            if buffer_size(&self._input) == 0:
                buffer_clear(&self._input)
            buffer_reserve(&self._input, self._input.capacity)

    def feed(self, bytes data not None):
        """Run bytes from the server."""
        self._check_idle()
        if buffer_append(&self._input, data, len(data)) != 0:
            raise MemoryError
        self._run()
        if buffer_size(&self._input) == 0:
            buffer_clear(&self._input)

    def reset_input(self):
        """Start a new connection: nothing of the old one is continued."""
        buffer_clear(&self._input)
        self._scanned = 0
        self._need = 0

    cdef int _check_idle(self) except -1:
        """Refuse to touch input that is being run, from a handler of one of its messages: its bytes
        would move or run twice.
        """
        if self._is_running:
            raise RuntimeError("the input of a connection was entered again while it is being run")
        return 0

    cdef int _run(self) except -1:
        cdef Py_ssize_t used
        self._is_running = True
        try:
            while self._input.begin < self._input.end:
                used = self._operation(self._input.data + self._input.begin,
                                       buffer_size(&self._input))
                if used == 0:
                    break
                # The owner may have reset the input while it handled a control line.
                if <size_t>used > buffer_size(&self._input):
                    break
                self._input.begin += used
        finally:
            self._is_running = False
        return 0

    cdef Py_ssize_t _operation(self, const char* data, size_t size) except -2:
        """Run the operation at data[0] and return its size, or 0 if it is incomplete."""
        cdef const char* newline
        cdef size_t line_size
        if self._need > size:
            return 0
        newline = <const char*>memchr(data + self._scanned, LF, size - self._scanned)
        if newline == NULL:
            self._scanned = size
            if size > LINE_BYTES_MAX:
                raise ProtocolError(f"the server sent a line of more than {LINE_BYTES_MAX} bytes")
            return 0
        line_size = newline - data + 1
        if size >= 4 and (data[0] | 32) == 109 and (data[1] | 32) == 115 and (data[2] | 32) == 103:
            return self._message(data, size, line_size, False)
        if (size >= 5 and (data[0] | 32) == 104 and (data[1] | 32) == 109
                and (data[2] | 32) == 115 and (data[3] | 32) == 103):
            return self._message(data, size, line_size, True)
        self._scanned = 0
        self._control(data, line_size)
        return line_size

    cdef Py_ssize_t _message(self, const char* data, size_t size, size_t line_size,
                             bint has_header) except -2:
        """MSG and HMSG: queue the message that begins at data[0]."""
        cdef Line line
        cdef MessageInbox subscription
        cdef int verb_size = 4 if has_header else 3
        cdef int fixed = 4 if has_header else 3     # words, not counting the reply
        cdef Py_ssize_t total, header = 0, sid
        cdef size_t end
        cdef bytes reply = None, block = None
        cdef Msg message
        if (not split_line(data + verb_size, data + line_size - 1, &line)
                or (line.count != fixed and line.count != fixed + 1)):
            raise ProtocolError(f"the server sent a wrong line: {data[:line_size]!r}")
        total = parse_size(line.words[line.count - 1], line.sizes[line.count - 1])
        sid = parse_size(line.words[1], line.sizes[1])
        if has_header:
            header = parse_size(line.words[line.count - 2], line.sizes[line.count - 2])
        if total < 0 or header < 0 or header > total or total > MESSAGE_BYTES_MAX or sid < 0:
            raise ProtocolError(f"the server sent a wrong line: {data[:line_size]!r}")
        end = line_size + total
        if size < end + 2:
            self._scanned = line_size - 1
            self._need = end + 2
            return 0
        if data[end] != CR or data[end + 1] != LF:
            raise ProtocolError(f"no CRLF behind the payload of {data[:line_size]!r}")
        self._scanned = 0
        self._need = 0
        self.in_messages += 1
        self.in_bytes += total
        if sid != self._last_sid or self._last is None:
            self._last = self._subscriptions.get(sid)
            self._last_sid = sid
        subscription = self._last
        if subscription is None:        # unsubscribed while the message was on its way
            return end + 2
        if subscription._is_packing and subscription._handler is None and subscription._pack(
                &line, line.count > fixed, data + line_size, header, total - header):
            subscription.delivered_count += 1
            return end + 2
        if line.count > fixed:
            reply = PyBytes_FromStringAndSize(line.words[2], line.sizes[2])
        if header:
            block = PyBytes_FromStringAndSize(data + line_size, header)
        message = make_message(
            self, subscription._decode_subject(line.words[0], line.sizes[0]), reply, block,
            PyBytes_FromStringAndSize(data + line_size + header, total - header))
        subscription.delivered_count += 1
        if subscription._handler is not None:
            try:
                subscription._handler(message)
            except Exception as error:
                self.owner._on_handler_error(error)
        elif subscription._push(message, total):
            self.owner._on_slow_consumer(subscription)
        if subscription.messages_max and (
                subscription.delivered_count >= subscription.messages_max):
            self.forget(subscription)
            subscription.end()
        return end + 2

    cdef int _control(self, const char* data, size_t line_size) except -1:
        """Hand a line without a payload to the owner."""
        cdef bytes text = data[:line_size].strip()
        cdef bytes verb = text[:4].upper()
        if not text or verb[:3] == b"+OK":
            return 0
        if verb == b"PING":
            self.owner._on_control(CONTROL_PING, b"")
        elif verb == b"PONG":
            self.owner._on_control(CONTROL_PONG, b"")
        elif verb == b"INFO":
            self.owner._on_control(CONTROL_INFO, text[4:].strip())
        elif verb == b"-ERR":
            self.owner._on_control(CONTROL_ERROR, text[4:].strip().strip(b"'"))
        else:
            raise ProtocolError(f"the server sent an unknown operation: {text[:64]!r}")
        return 0

    # ------------------------------------------------------------------ subscriptions

    def register(self, MessageInbox subscription not None):
        """Assign a sid to the subscription; its messages are queued from now on."""
        self._sids += 1
        subscription.sid = self._sids
        self._subscriptions[subscription.sid] = subscription
        self._last = None
        return subscription.sid

    def forget(self, MessageInbox subscription not None):
        """Drop its messages from now on; False if it was not registered."""
        self._last = None
        return self._subscriptions.pop(subscription.sid, None) is not None

    def registered(self):
        """All subscriptions, oldest first."""
        return list(self._subscriptions.values())
