"""The receiving half of a connection: the parser, and the queue of each subscription."""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from tradewind.client.core.message cimport Msg
from tradewind.client.core.publisher cimport Publisher
from tradewind.containers.buffer cimport Buffer

cdef struct Line:
    const char* words[5]        # the words after the verb, pointing into the input
    Py_ssize_t sizes[5]
    int count


cdef class ReadyResult:
    cdef object _value


cdef class MessageInbox:
    cdef readonly object owner                  # the reader, see connection_owners.py; or None
    cdef readonly int64_t sid
    cdef readonly str subject
    cdef readonly str queue
    # The queue: a ring of owned references. count <= capacity; capacity is a power of two or 0.
    cdef PyObject** _ring
    cdef size_t _head
    cdef size_t _count
    cdef size_t _capacity
    cdef readonly size_t pending_bytes          # payloads and headers in the ring
    cdef readonly size_t pending_messages_max   # 0: no limit
    cdef readonly size_t pending_bytes_max      # 0: no limit
    cdef readonly uint64_t delivered_count      # received, dropped ones included
    cdef readonly uint64_t dropped_count
    cdef readonly uint64_t messages_max         # unsubscribed after this many; 0: never
    cdef bint _slow                             # messages were dropped since it was last half empty
    cdef bint _ended                            # no more messages will come
    cdef object _emptied                        # a future, completed when the queue is empty
    cdef object _handler                        # called instead of queueing; must not raise
    cdef object _waiters                        # a deque of futures waiting for a message
    cdef bint _is_packing                       # messages go to `_pack` before objects are created
    # The last subject received: most messages of a subscription have the same one.
    cdef bytes _subject_bytes
    cdef str _subject_text

    cdef int _tell_emptied(self) except -1
    cdef int _push(self, Msg message, size_t size) except -1
    cdef bint _pack(self, const Line* line, bint has_reply, const char* body, size_t header_size,
                    size_t payload_size) except -1
    cdef int _grow(self) except -1
    cdef Msg _pop(self)
    cdef str _decode_subject(self, const char* text, Py_ssize_t size)


cdef class ClientWire(Publisher):
    cdef Buffer _input
    cdef size_t _scanned                # bytes of the unfinished line known to hold no LF
    cdef size_t _need                   # total size that an unfinished message needs
    cdef bint _is_running               # input is being run: it cannot be entered again
    cdef dict _subscriptions            # sid -> MessageInbox
    cdef int64_t _last_sid              # of the last message, whose inbox is found without a dict
    cdef MessageInbox _last
    cdef int64_t _sids                  # the highest sid assigned so far
    cdef readonly uint64_t in_messages
    cdef readonly uint64_t in_bytes

    cdef int _check_idle(self) except -1
    cdef int _run(self) except -1
    cdef Py_ssize_t _operation(self, const char* data, size_t size) except -2
    cdef Py_ssize_t _message(self, const char* data, size_t size, size_t line_size,
                             bint has_header) except -2
    cdef int _control(self, const char* data, size_t line_size) except -1
