"""Encodes messages: everything that a connection sends goes through one buffer, the outbox.

Owns the outbox, its limits and the encoding of PUB and HPUB. It never touches a transport: once per
turn it notifies its owner (`connection_owners.WireOwner`) that there is output to take. A message
is encoded completely or not at all, so the outbox always holds whole operations.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy, memmove

from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve, buffer_size,
    write_decimal)
from tradewind.wire.parser cimport (
    OP_HPUB, OP_PUB, PARSE_DONE, Operation, ParserState, parse_operation, parser_init)

from tradewind.client.errors import (
    BadSubjectError, ConnectionClosedError, MaxPayloadError, PendingLimitError)
from tradewind.client.core.headers import encode_headers
from tradewind.client.core.payloads import bad_payload

cdef enum:
    # Above this size an awaited publish waits for the next turn of the loop, so that a program that
    # only publishes still lets its connection read.
    ROOM_BYTES = 262144
    LINE_MAX = 1 << 30
    KEEP_BYTES = 1 << 20


cdef class FinishedCall:
    """The result of an awaited call that needs no waiting."""

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration


cdef class OutboxRoom:
    """Awaiting it waits until the outbox has room; not awaiting it costs nothing."""

    cdef object _owner

    def __cinit__(self, owner):
        self._owner = owner

    def __await__(self):
        return self._owner.wait_for_room().__await__()


cdef object DONE = FinishedCall()


cdef class Publisher:
    """Encodes messages into the outbox of a connection."""

    def __cinit__(self, owner not None):
        self.owner = owner
        buffer_init(&self._outbox)
        self._state = STATE_RECONNECTING
        self._max_payload = 1048576
        self._pending_bytes_max = 8388608

    def __dealloc__(self):
        buffer_free(&self._outbox)

    # ------------------------------------------------------------------ for users

    def publish(self, str subject not None, payload=b"", *, str reply=None, headers=None):
        """Publish a message. It is on its way when this returns; await the result in loops, so
        that a full outbox slows the program down instead of raising PendingLimitError.

        >>> await connection.publish("orders.new", b"two apples", headers={"Trace": "7"})
        """
        cdef Py_ssize_t subject_size, reply_size = 0, text_size
        cdef const char* subject_text = PyUnicode_AsUTF8AndSize(subject, &subject_size)
        cdef const char* reply_text = NULL
        cdef const char* text
        cdef bytes block = None
        cdef Py_buffer view
        self._check(subject_text, subject_size)
        if reply is not None:
            reply_text = PyUnicode_AsUTF8AndSize(reply, &reply_size)
            self._check(reply_text, reply_size)
        if headers is not None:
            block = encode_headers(headers)
        if type(payload) is bytes:
            self._publish(subject_text, subject_size, reply_text, reply_size, block,
                          PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        elif isinstance(payload, str):
            text = PyUnicode_AsUTF8AndSize(payload, &text_size)
            self._publish(subject_text, subject_size, reply_text, reply_size, block, text,
                          text_size)
        else:
            if not PyObject_CheckBuffer(payload):
                raise bad_payload(payload)
            PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
            try:
                self._publish(subject_text, subject_size, reply_text, reply_size, block,
                              <const char*>view.buf, view.len)
            finally:
                PyBuffer_Release(&view)
        if buffer_size(&self._outbox) < ROOM_BYTES:
            return DONE
        return OutboxRoom(self.owner)

    @property
    def max_payload(self):
        """Largest size of a message with its headers that the server accepts, in bytes."""
        return self._max_payload

    @property
    def is_crowded(self):
        """Whether an awaited publish would wait."""
        return buffer_size(&self._outbox) >= ROOM_BYTES

    @property
    def pending_bytes(self):
        """Number of bytes waiting to be sent."""
        return buffer_size(&self._outbox)

    # ------------------------------------------------------------------ for the owner

    def set_owner(self, owner not None):
        """Call this owner from now on: messages that were received must not keep a closed
        connection alive.
        """
        self.owner = owner

    def set_state(self, int state):
        self._state = state

    def set_limits(self, size_t max_payload, size_t pending_bytes_max):
        self._max_payload = max_payload
        self._pending_bytes_max = pending_bytes_max

    def send_line(self, bytes line not None):
        """Append a whole operation without a payload to the outbox."""
        self._line(PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line))

    def take_output(self):
        """Take all bytes of the outbox, leaving it empty."""
        cdef size_t size = buffer_size(&self._outbox)
        cdef bytes data = PyBytes_FromStringAndSize(self._outbox.data + self._outbox.begin, size)
        self._flush_wanted = False
        if self._outbox.capacity > KEEP_BYTES:
            buffer_free(&self._outbox)
        else:
            buffer_clear(&self._outbox)
        return data

    def keep_messages(self):
        """The connection is lost: keep only the messages in the outbox, for the next connection."""
        cdef Operation operation
        cdef ParserState state
        cdef size_t begin = self._outbox.begin, end = self._outbox.end, kept = 0
        parser_init(&state, LINE_MAX, LINE_MAX)
        state.headers_allowed = True
        while begin < end:
            if parse_operation(&state, self._outbox.data + begin, end - begin,
                               &operation) != PARSE_DONE:
                raise AssertionError("the outbox holds whole operations")
            if operation.kind == OP_PUB or operation.kind == OP_HPUB:
                memmove(self._outbox.data + kept, self._outbox.data + begin, operation.consumed)
                kept += operation.consumed
            begin += operation.consumed
        self._outbox.begin = 0
        self._outbox.end = kept
        self._flush_wanted = False

    # ------------------------------------------------------------------ compiled callers

    cdef int _check(self, const char* subject, Py_ssize_t size) except -1:
        """Refuse a subject that could break the line, or that no subscription can match."""
        cdef Py_ssize_t index
        cdef unsigned char byte, before = 46
        for index in range(size):
            byte = <unsigned char>subject[index]
            if byte <= 32 or (byte == 46 and before == 46):
                break
            before = byte
        else:
            if size > 0 and before != 46:
                return 0
        raise BadSubjectError(
            f"subject {subject[:size].decode()!r}: needs tokens joined by single dots, no blanks")

    cdef int _publish(self, const char* subject, Py_ssize_t subject_size, const char* reply,
                      Py_ssize_t reply_size, bytes block, const char* payload,
                      Py_ssize_t payload_size) except -1:
        if block is None:
            return self._encode(subject, subject_size, reply, reply_size, NULL, 0, payload,
                                payload_size)
        return self._encode(subject, subject_size, reply, reply_size, PyBytes_AS_STRING(block),
                            PyBytes_GET_SIZE(block), payload, payload_size)

    cdef int _encode(self, const char* subject, Py_ssize_t subject_size, const char* reply,
                     Py_ssize_t reply_size, const char* header, Py_ssize_t header_size,
                     const char* payload, Py_ssize_t payload_size) except -1:
        """Append one PUB or HPUB; nothing is appended if it raises."""
        cdef size_t total = header_size + payload_size
        cdef size_t room = subject_size + reply_size + total + 64
        cdef char* start
        cdef char* at
        if self._state == STATE_CLOSED:
            raise ConnectionClosedError("the connection is closed: connect again to publish")
        if total > self._max_payload:
            raise MaxPayloadError(
                f"the message has {total} bytes with its headers, the server takes at most "
                f"{self._max_payload} (max_payload)")
        if buffer_size(&self._outbox) + room > self._pending_bytes_max:
            self._raise_full()
        if buffer_reserve(&self._outbox, room) != 0:
            raise MemoryError
        start = self._outbox.data + self._outbox.end
        at = start
        if header_size:
            memcpy(at, b"HPUB ", 5)
            at += 5
        else:
            memcpy(at, b"PUB ", 4)
            at += 4
        memcpy(at, subject, subject_size)
        at += subject_size
        at[0] = 32
        at += 1
        if reply_size:
            memcpy(at, reply, reply_size)
            at += reply_size
            at[0] = 32
            at += 1
        if header_size:
            at += write_decimal(at, header_size)
            at[0] = 32
            at += 1
        at += write_decimal(at, total)
        at[0] = 13
        at[1] = 10
        at += 2
        if header_size:
            memcpy(at, header, header_size)
            at += header_size
        if payload_size:
            memcpy(at, payload, payload_size)
            at += payload_size
        at[0] = 13
        at[1] = 10
        self._outbox.end += at + 2 - start
        self.out_messages += 1
        self.out_bytes += total
        if not self._flush_wanted:
            self._note_output()
        return 0

    cdef int _raise_full(self) except -1:
        cdef str why = ("while there is no connection" if self._state == STATE_RECONNECTING
                        else "await each publish, so that the program is slowed down instead")
        raise PendingLimitError(
            f"{buffer_size(&self._outbox)} bytes wait to be sent, the limit is "
            f"{self._pending_bytes_max} (pending_bytes_max): {why}")

    cdef int _line(self, const char* data, Py_ssize_t size) except -1:
        if buffer_size(&self._outbox) + size > self._pending_bytes_max:
            self._raise_full()
        if buffer_append(&self._outbox, data, size) != 0:
            raise MemoryError
        if not self._flush_wanted:
            self._note_output()
        return 0

    cdef int _note_output(self) except -1:
        if self._state == STATE_CONNECTED:
            self._flush_wanted = True
            self.owner._schedule_flush()
        return 0
