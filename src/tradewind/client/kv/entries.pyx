"""Entries of key-value buckets, built from messages, and the sequence in an acknowledgement.

Owns what runs once per get, put and watched change. Rare cases (deletion markers) are read by
`kv_types.py` from the whole headers. A time is parsed when it is first read.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcmp

from tradewind.client.core.message cimport Metadata, Msg

import datetime

from tradewind.api.times import format_time, parse_time
from tradewind.client.errors import BadAnswerError, BadKeyError
from tradewind.client.kv.kv_types import MESSAGE_SIZE, Operation, operation_of, ttl_ns_of
from tradewind.durations import SECOND_NS

cdef enum:
    DIGITS_MAX = 19

cdef object PUT = Operation.PUT
cdef bytes SUBJECT = b"\r\nNats-Subject: "
cdef bytes SEQUENCE = b"\r\nNats-Sequence: "
cdef bytes TIME = b"\r\nNats-Time-Stamp: "
cdef bytes TTL = b"\r\nNats-TTL: "
cdef bytes OPERATION = b"KV-Operation"
cdef bytes REASON = b"Nats-Marker-Reason"
cdef bytes SEQ_MEMBER = b'"seq":'
cdef char[256] KEY_CHARACTERS
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


cdef void prepare():
    cdef int index
    for index in range(256):
        KEY_CHARACTERS[index] = 0
    for index in b"-/_=0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ":
        KEY_CHARACTERS[index] = 1


prepare()


@cython.final
@cython.freelist(256)
cdef class Entry:
    """A value of a key, or the marker that it was deleted.

    `revision` counts all changes of the bucket. `delta` is the number of newer entries that the
    same watch or history still has. With `meta_only` there is no `value`, and `size` is its size.
    `ttl` is how long it lives from `created` on, if it expires by itself.
    """

    def __init__(self, str bucket not None, str key not None, bytes value not None,
                 uint64_t revision, created_ns, operation=PUT, uint64_t delta=0, size=None,
                 str ttl_text=None):
        self.bucket = bucket
        self.key = key
        self.value = value
        self.revision = revision
        self.operation = operation
        self.delta = delta
        self.size = len(value) if size is None else size
        self._created_ns = created_ns
        self._ttl_text = ttl_text

    @property
    def created_ns(self):
        """When it was stored, in nanoseconds since 1970."""
        if self._created_text is not None:
            self._created_ns = parse_time(self._created_text.decode())
            self._created_text = None
        return self._created_ns

    @property
    def created(self):
        """When it was stored, in UTC (to the microsecond; `created_ns` is exact)."""
        return _EPOCH + datetime.timedelta(microseconds=self.created_ns // 1000)

    @property
    def is_deleted(self):
        """Whether it is a deletion marker instead of a value."""
        return self.operation is not PUT

    @property
    def ttl_ns(self):
        """The nanoseconds after which it expires; None if it does not."""
        return None if self._ttl_text is None else ttl_ns_of(self._ttl_text)

    @property
    def ttl(self):
        """The seconds after which it expires, counted from `created`; None if it does not."""
        ttl_ns = self.ttl_ns
        return None if ttl_ns is None else ttl_ns / SECOND_NS

    def __eq__(self, other):
        cdef Entry entry
        if not isinstance(other, Entry):
            return NotImplemented
        entry = <Entry>other
        return (self.revision == entry.revision and self.bucket == entry.bucket
                and self.key == entry.key and self.value == entry.value
                and self.operation is entry.operation and self.size == entry.size
                and self.delta == entry.delta and self.created_ns == entry.created_ns)

    def __hash__(self):
        return hash((self.bucket, self.key, self.revision))

    def __repr__(self):
        return (f"Entry({self.bucket!r}, {self.key!r}, {self.operation}, {self.size} bytes, "
                f"revision={self.revision}, created={format_time(self.created_ns)})")


def check_key(str key not None):
    """Raise BadKeyError if it is not a valid key."""
    cdef Py_ssize_t index, size
    cdef const unsigned char* at = <const unsigned char*>PyUnicode_AsUTF8AndSize(key, &size)
    cdef unsigned char before = 46
    for index in range(size):
        if not KEY_CHARACTERS[at[index]] and (at[index] != 46 or before == 46):
            break
        before = at[index]
    else:
        if before != 46:
            return
    raise BadKeyError(f"key {key!r}: letters, digits and -/_= in parts joined by single dots")


def entry_from_direct(str bucket not None, str key not None, Py_ssize_t prefix_size,
                      Msg message not None):
    """The entry in the answer to a direct get; None if it belongs to another key."""
    cdef bytes block = message._header
    cdef const char* text
    cdef const char* wanted
    cdef Py_ssize_t size, wanted_size
    cdef Entry entry = Entry.__new__(Entry)
    if block is None:
        raise BadAnswerError("direct get: the answer has no headers")
    # These follow the stored headers, so the last one of a name is the server's own.
    text = last_field(block, SUBJECT, &size)
    wanted = PyUnicode_AsUTF8AndSize(key, &wanted_size)
    if (text != NULL and (size - prefix_size != wanted_size
                          or memcmp(text + prefix_size, wanted, wanted_size) != 0)):
        return None
    if text != NULL:
        text = last_field(block, TIME, &size)
    if text != NULL:
        entry._created_text = PyBytes_FromStringAndSize(text, size)
        text = last_field(block, SEQUENCE, &size)
    if text == NULL or not read_digits(text, size, &entry.revision):
        raise BadAnswerError("direct get: the answer lacks a header")
    entry.bucket = bucket
    entry.key = key
    entry.value = message.data
    entry.size = PyBytes_GET_SIZE(message.data)
    entry.operation = PUT
    if TTL in block:
        text = last_field(block, TTL, &size)
        if text != NULL:
            entry._ttl_text = PyBytes_FromStringAndSize(text, size).decode("latin-1")
    if OPERATION in block or REASON in block:
        entry.operation = operation_of(message.headers)
    return entry


def entry_from_delivery(str bucket not None, Py_ssize_t prefix_size, Msg message not None):
    """The entry in a message delivered by a consumer."""
    cdef Metadata metadata = message.metadata
    cdef Entry entry = Entry.__new__(Entry)
    entry.bucket = bucket
    entry.key = message.subject[prefix_size:]
    entry.value = message.data
    entry.size = PyBytes_GET_SIZE(message.data)
    entry.revision = metadata.stream_sequence
    entry.operation = PUT
    entry.delta = metadata.pending_count
    entry._created_ns = metadata.timestamp_ns
    if message._header is not None:
        headers = message.headers
        entry.operation = operation_of(headers)
        entry._ttl_text = headers.get("Nats-TTL")
        if not entry.size and MESSAGE_SIZE in headers:
            entry.size = int(headers[MESSAGE_SIZE])
    return entry


def ack_sequence(bytes answer not None):
    """The sequence in the answer to a publish; -1 if it is not a plain acknowledgement.

    {"stream":"KV_b", "seq":17} is one; an error, a duplicate or anything unusual is not.
    """
    cdef Py_ssize_t index, size = PyBytes_GET_SIZE(answer)
    cdef const char* text = PyBytes_AS_STRING(answer)
    cdef uint64_t number = 0
    index = answer.rfind(SEQ_MEMBER)
    if index < 0 or size > 256 or not answer.startswith(b'{"stream":"'):
        return -1
    index += 6
    while index < size and text[index] == 32:
        index += 1
    if index >= size or text[index] < 49 or text[index] > 57:
        return -1
    while index < size and 48 <= text[index] <= 57:
        number = number * 10 + <uint64_t>(text[index] - 48)
        index += 1
    return number if index == size - 1 and text[index] == 125 else -1


cdef bint read_digits(const char* text, Py_ssize_t size, uint64_t* number) noexcept:
    """Parse a decimal number; False for anything else."""
    cdef Py_ssize_t index
    if size == 0 or size > DIGITS_MAX:
        return False
    number[0] = 0
    for index in range(size):
        if text[index] < 48 or text[index] > 57:
            return False
        number[0] = number[0] * 10 + <uint64_t>(text[index] - 48)
    return True


cdef const char* last_field(bytes block, bytes name, Py_ssize_t* value_size) except? NULL:
    """The value of the last header of a name; NULL if there is none."""
    cdef const char* text = PyBytes_AS_STRING(block)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(block), length = PyBytes_GET_SIZE(name)
    cdef Py_ssize_t start = size - length
    cdef const char* end
    while start >= 0:
        if text[start] == 13 and memcmp(text + start, PyBytes_AS_STRING(name), length) == 0:
            start += length
            end = <const char*>memchr(text + start, 13, size - start)
            if end == NULL:
                return NULL
            value_size[0] = end - text - start
            return text + start
        start -= 1
    return NULL
