"""Bytes of a server -> messages in the queues of their subscriptions.

Owns the input of a connection, the table of its subscriptions and their queues; decides nothing
about connections: INFO, -ERR, PING and PONG are handed to the owner (`_on_control`). A queue has
bounds, and what does not fit is dropped and counted; a queue whose filling is bounded by requests
(pull consumers) has none. Wrong bytes raise ProtocolError, and the owner ends the connection.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy

from tradewind.client.message cimport make_message
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


cdef class Ready:
    """An awaitable that already has its value."""

    def __cinit__(self, value):
        self._value = value

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        # Faster than raising an instance: the interpreter takes the value without making one.
        PyErr_SetObject(<object>PyExc_StopIteration, self._value)
        raise_current()


cdef inline int raise_current() except -1:
    """Let the error that is set go up."""
    return -1


cdef class SubscriptionCore:
    """The queue of a subscription. `Subscription` is the class that users see."""

    def __init__(self, str subject not None, str queue not None, *, size_t pending_messages_max,
                 size_t pending_bytes_max, uint64_t messages_max, handler=None):
        self.subject = subject
        self.queue = queue
        self.pending_messages_max = pending_messages_max
        self.pending_bytes_max = pending_bytes_max
        self.messages_max = messages_max
        self._handler = handler
        self._waiters = deque()

    def __dealloc__(self):
        while self._count:
            Py_DECREF(<object>self._ring[self._head])
            self._head = (self._head + 1) & (self._capacity - 1)
            self._count -= 1
        PyMem_Free(self._ring)

    @property
    def pending_messages(self):
        """How many messages wait to be read."""
        return self._count

    @property
    def is_ended(self):
        """Whether no more messages will come; those in the queue can still be read."""
        return self._ended

    def take(self):
        """The next message of the queue, or None if it is empty."""
        return self._pop() if self._count else None

    def __aiter__(self):
        return self

    def __anext__(self):
        if self._count:
            return Ready(self._pop())
        return self._wait_next()

    def _end(self):
        """No more messages will come: wake everyone who waits."""
        self._ended = True
        self._wake_all()

    def _add_waiter(self, waiter not None):
        self._waiters.append(waiter)

    def _remove_waiter(self, waiter not None):
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def _wake_all(self):
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _wake_one(self):
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _discard(self):
        """Forget what is in the queue."""
        while self._count:
            self._pop()

    def _on_emptied(self, future not None):
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
        """Queue a message; 1 if it was the first that had to be dropped, else 0."""
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
            self._wake_one()
        return 0

    cdef bint _pack(self, const Line* line, bint has_reply, const char* body, size_t header_size,
                    size_t payload_size) except -1:
        """Keep a message without making an object of it; False if it is to take the usual way."""
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
    """At most nine decimal digits; -1 for anything else."""
    cdef Py_ssize_t value = 0, index
    if size == 0 or size > DIGITS_MAX:
        return -1
    for index in range(size):
        if text[index] < 48 or text[index] > 57:
            return -1
        value = value * 10 + (text[index] - 48)
    return value


cdef inline bint split_line(const char* text, const char* end, Line* line) noexcept nogil:
    """Words between blanks; False if there are too many."""
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


cdef class ClientCore(Publisher):
    """Parses what the server sends. A Connection is one."""

    def __cinit__(self):
        buffer_init(&self._input)
        self._subscriptions = {}

    def __dealloc__(self):
        buffer_free(&self._input)

    # ------------------------------------------------------------------ input

    def _read_area(self):
        """Memory for the next bytes of the server; valid until `_received`."""
        cdef size_t size = buffer_size(&self._input)
        cdef size_t wanted = READ_BYTES_MIN
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

    def _received(self, size_t size):
        """The server sent `size` bytes into the read area: run all that is complete."""
        self._input.end += size
        self._run()
        # A read that filled the area: more is waiting, so read more at once the next time.
        if self._input.end == self._input.capacity and self._input.capacity < READ_BYTES_MAX:
            if buffer_size(&self._input) == 0:
                buffer_clear(&self._input)
            buffer_reserve(&self._input, self._input.capacity)

    def _feed(self, bytes data not None):
        """The server sent these bytes."""
        if buffer_append(&self._input, data, len(data)) != 0:
            raise MemoryError
        self._run()
        if buffer_size(&self._input) == 0:
            buffer_clear(&self._input)

    def _reset_input(self):
        """A new connection: nothing of the old one is continued."""
        buffer_clear(&self._input)
        self._scanned = 0
        self._need = 0

    cdef int _run(self) except -1:
        cdef Py_ssize_t used
        while self._input.begin < self._input.end:
            used = self._operation(self._input.data + self._input.begin,
                                   buffer_size(&self._input))
            if used == 0:
                break
            # The owner may have started over while it handled a control line.
            if <size_t>used > buffer_size(&self._input):
                break
            self._input.begin += used
        return 0

    cdef Py_ssize_t _operation(self, const char* data, size_t size) except -2:
        """Run the operation at data[0]; its size, or 0 if it is not complete."""
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
        cdef SubscriptionCore subscription
        cdef int verb_size = 4 if has_header else 3
        cdef int fixed = 4 if has_header else 3     # words without the reply
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
                self._on_handler_error(error)
        elif subscription._push(message, total):
            self._on_slow_consumer(subscription)
        if subscription.messages_max and (
                subscription.delivered_count >= subscription.messages_max):
            self._forget(subscription)
            subscription._end()
        return end + 2

    cdef int _control(self, const char* data, size_t line_size) except -1:
        """A line without a payload: what it says is for the owner."""
        cdef bytes text = data[:line_size].strip()
        cdef bytes verb = text[:4].upper()
        if not text or verb[:3] == b"+OK":
            return 0
        if verb == b"PING":
            self._on_control(CONTROL_PING, b"")
        elif verb == b"PONG":
            self._on_control(CONTROL_PONG, b"")
        elif verb == b"INFO":
            self._on_control(CONTROL_INFO, text[4:].strip())
        elif verb == b"-ERR":
            self._on_control(CONTROL_ERROR, text[4:].strip().strip(b"'"))
        else:
            raise ProtocolError(f"the server sent an unknown operation: {text[:64]!r}")
        return 0

    # ------------------------------------------------------------------ subscriptions

    def _register(self, SubscriptionCore subscription not None):
        """Give the subscription a sid; its messages are queued from now on."""
        self._sids += 1
        subscription.sid = self._sids
        self._subscriptions[subscription.sid] = subscription
        self._last = None
        return subscription.sid

    def _forget(self, SubscriptionCore subscription not None):
        """Its messages are dropped from now on; False if that was so already."""
        self._last = None
        return self._subscriptions.pop(subscription.sid, None) is not None

    def _registered(self):
        """All subscriptions, oldest first."""
        return list(self._subscriptions.values())
