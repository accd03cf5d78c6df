"""A received message: subject, payload, headers, and the ways to answer or acknowledge it.

Owns its own bytes, so it stays valid as long as it is kept. Headers and metadata are parsed when
they are first read. Answers are encoded into the outbox of the connection immediately.

The reply subject of a message that a consumer delivered describes it:

    $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
    $JS.ACK.<domain>.<account>.<stream>.<consumer>. ... .<pending>[.<token>]      domain _: none
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from tradewind.seconds cimport SECOND_NS

import datetime

from tradewind.api.nak_policy import REASON_FIELD, is_reason
from tradewind.client.core.duration_input import duration_ns
from tradewind.client.errors import (
    AlreadyAcknowledgedError, BadHeaderError, NoReplyError, NotJetStreamError)
from tradewind.client.core.headers import Headers, decode_headers, encode_headers

cdef enum:
    SHORT_TOKENS = 9
    LONG_TOKENS = 11


@cython.final
cdef class Metadata:
    """The position of a message in its stream and consumer.

    `delivered_count` is 1 the first time; `pending_count` is the number of messages that the
    consumer still has to deliver after this one.

    >>> message.metadata
    Metadata(stream='ORDERS', consumer='packer', stream_sequence=17, consumer_sequence=1,
    delivered_count=1, pending_count=3)
    >>> if message.metadata.delivered_count > 1:
    ...     print("delivered before, stored at", message.metadata.timestamp)
    """

    @property
    def timestamp(self):
        """When the message was stored, in UTC (to the microsecond; `timestamp_ns` is exact)."""
        seconds, rest = divmod(self.timestamp_ns, SECOND_NS)
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC) + datetime.timedelta(
            microseconds=rest // 1000)

    def __repr__(self):
        return (f"Metadata(stream={self.stream!r}, consumer={self.consumer!r}, "
                f"stream_sequence={self.stream_sequence}, "
                f"consumer_sequence={self.consumer_sequence}, "
                f"delivered_count={self.delivered_count}, pending_count={self.pending_count})")


cdef Metadata decode_metadata(bytes reply):
    """The metadata in a reply subject; None if it is not that of a consumer."""
    cdef list tokens
    cdef int first
    cdef Metadata result
    if reply is None or not reply.startswith(b"$JS.ACK."):
        return None
    tokens = reply.decode().split(".")
    if len(tokens) == SHORT_TOKENS:
        first = 2
    elif len(tokens) >= LONG_TOKENS:
        first = 4
    else:
        return None
    result = Metadata.__new__(Metadata)
    result.domain = "" if first == 2 or tokens[2] == "_" else tokens[2]
    result.stream = tokens[first]
    result.consumer = tokens[first + 1]
    try:
        result.delivered_count = int(tokens[first + 2])
        result.stream_sequence = int(tokens[first + 3])
        result.consumer_sequence = int(tokens[first + 4])
        result.timestamp_ns = int(tokens[first + 5])
        result.pending_count = int(tokens[first + 6])
    except (ValueError, OverflowError):
        return None
    return result


@cython.final
@cython.freelist(4096)
@cython.no_gc
cdef class Msg:
    """A message as it was received; only the library creates them."""

    def __init__(self):
        raise TypeError("messages are made by the library: publish() takes a subject and a payload")

    @property
    def reply(self):
        """The subject for an answer; empty if none is expected."""
        return "" if self._reply is None else self._reply.decode(errors="surrogateescape")

    @property
    def headers(self):
        """The headers, empty if there are none."""
        if self._headers is None:
            self._headers = Headers() if self._header is None else decode_headers(self._header)
        return self._headers

    @property
    def header_block(self):
        """The headers as received, empty if there are none."""
        return b"" if self._header is None else self._header

    @property
    def status(self):
        """The status code of a message that a server created itself (503, 100, ...); 0: none."""
        if self._header is None or PyBytes_GET_SIZE(self._header) < 12:
            return 0
        cdef const char* text = PyBytes_AS_STRING(self._header) + 8
        cdef int index, code = 0
        if text[0] != 32:
            return 0
        for index in range(1, 4):
            if text[index] < 48 or text[index] > 57:
                return 0
            code = code * 10 + (text[index] - 48)
        return code

    @property
    def description(self):
        """The text after the status code."""
        if not self.status:
            return ""
        return self._header.partition(b"\r\n")[0][12:].strip().decode(errors="surrogateescape")

    @property
    def metadata(self):
        """The position of the message in its stream and consumer, see Metadata.

        NotJetStreamError if the message was not delivered by a consumer of a stream.
        """
        if self._metadata is None:
            self._metadata = self._parse_metadata()
        return self._metadata

    @property
    def is_settled(self):
        """Whether it was acknowledged (ack, nak or term)."""
        return self._settled

    def respond(self, payload=b"", *, headers=None):
        """Publish an answer to the sender of a request; awaitable like `Connection.publish`."""
        if self._reply is None:
            raise NoReplyError(
                f"the message on {self.subject!r} has no reply subject: its sender wants no answer")
        return self._publisher.publish(self.reply, payload, headers=headers)

    def ack(self):
        """Acknowledge that the message has been processed; sent with the next bytes, not awaited.
        """
        self._answer(b"+ACK", 4, True)

    def nak(self, delay=None, *, reason=""):
        """Request redelivery after `delay`: seconds, a timedelta or a text such as "30s".

        Without `delay` it is redelivered immediately, unless the consumer has a policy, which may
        depend on `reason`: the name of a class of errors.
        """
        cdef bytes text = b"-NAK"
        cdef bytes block
        if delay is not None:
            text = b'-NAK {"delay": %d}' % duration_ns("delay", delay)
        if not reason:
            self._answer(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), True)
            return
        if not is_reason(reason):
            raise BadHeaderError(
                f"the reason {reason[:64]!r}: 1 to 32 letters, digits, '-' or '_' are needed")
        check_open(self)
        block = encode_headers({REASON_FIELD: reason})
        self._publisher._publish(PyBytes_AS_STRING(self._reply), PyBytes_GET_SIZE(self._reply),
                                 NULL, 0, block, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        self._settled = True

    def working(self):
        """Request more time: the wait for the acknowledgement starts again."""
        self._answer(b"+WPI", 4, False)

    def term(self, str reason=""):
        """Never deliver the message again, although it was not processed."""
        cdef bytes text = f"+TERM {reason}".encode() if reason else b"+TERM"
        self._answer(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), True)

    def ack_sync(self, *, timeout=None):
        """Acknowledge and wait until the server has confirmed it; to be awaited.

        A message of a blocking connection blocks instead.
        """
        return self._publisher.owner._run_for_user(self._ack_sync(timeout))

    async def _ack_sync(self, timeout):
        check_open(self)
        await self._publisher.owner.request(self.reply, b"+ACK", timeout=timeout)
        self._settled = True

    def __repr__(self):
        return f"Msg({self.subject!r}, {len(self.data)} bytes)"

    cdef int _answer(self, const char* payload, Py_ssize_t size, bint final) except -1:
        check_open(self)
        self._publisher._encode(PyBytes_AS_STRING(self._reply), PyBytes_GET_SIZE(self._reply),
                                NULL, 0, NULL, 0, payload, size)
        self._settled = final
        return 0

    cdef Metadata _parse_metadata(self):
        cdef Metadata result = decode_metadata(self._reply)
        if result is None:
            raise NotJetStreamError(
                f"the message on {self.subject!r} was not delivered by a consumer of a stream")
        return result


cdef str _ALREADY = "the message was acknowledged before: ack, nak or term it only once"
cdef str _NO_ACK = "the message has no reply subject, so nobody waits for an acknowledgement"


cdef int check_open(Msg message) except -1:
    """Raise unless its acknowledgement is still awaited."""
    if message._settled:
        raise AlreadyAcknowledgedError(_ALREADY)
    if message._reply is None:
        raise NoReplyError(_NO_ACK)
    return 0


cdef Msg make_message(Publisher publisher, str subject, bytes reply, bytes header, bytes data):
    """A message with these parts; reply and header may be None."""
    cdef Msg message = Msg.__new__(Msg)
    message.subject = subject
    message.data = data
    message._reply = reply
    message._header = header
    message._publisher = publisher
    return message
