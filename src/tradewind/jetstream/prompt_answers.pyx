"""Answers the most frequent requests at once: single messages, information, lists of names.

Owns the short way of a request that only reads, needs no worker and waits for nothing: no task, no
decoded body, no object per member of the answer. Everything unusual is left to `dispatch`, which
then does all of it: an error, a header, a body with options, an auditor, damage. So the answers
here are those of the handlers, byte by byte; a test compares them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.seconds cimport SECOND_NS
from tradewind.store.table.message_store cimport MessageStore
from tradewind.stream.get_replies cimport write_second
from tradewind.stream.get_request cimport GetRequest
from tradewind.stream.ingest cimport Ingest

from binascii import b2a_base64

from tradewind.api.base import encode
from tradewind.api.endpoints import parse_subject
from tradewind.api.responses import (
    ConsumerInfoResponse,
    ConsumerNamesResponse,
    MsgGetResponse,
    StreamInfoResponse,
    StreamNamesResponse,
    type_of,
)
from tradewind.api.stream_types import ClusterInfo
from tradewind.jetstream.advisory_publisher import AUDIT_SUBJECT
from tradewind.jetstream.infos import answered_config
from tradewind.store.contract import NotFoundError
from tradewind.stream.get_request import plain_request
from tradewind.stream.stream_queries import find_message

cdef enum:
    # So many subjects of requests are remembered, with at most so many characters.
    SUBJECTS_MAX = 1024
    SUBJECT_LENGTH_MAX = 256
    # Names in the first page of a list.
    NAMES_PAGE = 1024
    # A longer configuration is encoded anew for each answer.
    CONFIG_BYTES_MAX = 8192
    # 2026-01-31T12:00:00
    SECOND_BYTES = 19

cdef enum Kind:
    KIND_OTHER
    KIND_MESSAGE
    KIND_STREAM
    KIND_STREAM_NAMES
    KIND_CONSUMER
    KIND_CONSUMER_NAMES

cdef dict KINDS = {
    "stream_msg_get": KIND_MESSAGE,
    "stream_info": KIND_STREAM,
    "stream_names": KIND_STREAM_NAMES,
    "consumer_info": KIND_CONSUMER,
    "consumer_names": KIND_CONSUMER_NAMES,
}
cdef bytes ZERO_TIME = b"0001-01-01T00:00:00Z"
# What clients send for "no options".
cdef tuple PLAIN_BODIES = (b"", b"{}")


cdef bytes head_of(kind):
    return b'{"type":"%b",' % type_of(kind).encode()


cdef bytes MESSAGE_HEAD = head_of(MsgGetResponse) + b'"message":{"subject":"'
cdef bytes STREAM_HEAD = head_of(StreamInfoResponse) + b'"total":0,"offset":0,"limit":0,"config":'
cdef bytes CONSUMER_HEAD = head_of(ConsumerInfoResponse)


cdef bytes time_text(int64_t time_ns):
    """A time as `api.times.format_time` writes it."""
    cdef char text[SECOND_BYTES + 12]
    cdef int64_t second = time_ns // SECOND_NS
    cdef int64_t fraction = time_ns - second * SECOND_NS
    cdef int size = SECOND_BYTES, digits = 9, index
    if fraction < 0:
        second -= 1
        fraction += SECOND_NS
    write_second(text, second)
    if fraction:
        while fraction % 10 == 0:
            fraction //= 10
            digits -= 1
        text[size] = 46
        for index in range(digits, 0, -1):
            text[size + index] = <char>(48 + fraction % 10)
            fraction //= 10
        size += digits + 1
    text[size] = 90
    return text[:size + 1]


cdef bint is_plain(bytes text) noexcept:
    """Whether a text is written in JSON as it is, also by Go."""
    cdef const char* at = PyBytes_AS_STRING(text)
    cdef Py_ssize_t index
    for index in range(PyBytes_GET_SIZE(text)):
        if not 32 <= at[index] < 127 or at[index] in (34, 92, 60, 62, 38):
            return False
    return True


def write_time(int64_t time_ns):
    """A time as the answers write it, for tests."""
    return time_text(time_ns)


cdef class PromptAnswers:
    """The short way of one server's requests; `engine` is its owner."""

    cdef object _engine
    cdef Router _router
    cdef dict _accounts
    cdef object _api
    cdef object _turn
    cdef dict _calls            # by subject: the kind of request, and the names in the subject
    cdef GetRequest _request
    cdef bytes _stream_tail     # what follows the state of a stream
    cdef bytes _cluster         # ... of a consumer

    def __init__(self, engine not None):
        self._engine = engine
        self._router = engine.router
        self._accounts = engine.accounts
        self._api = engine.api
        self._turn = engine.turn
        self._calls = {}
        self._request = GetRequest()
        domain = encode(engine.domain) if engine.domain else b""
        cluster = encode(ClusterInfo(leader=engine.broker.server_name))
        self._stream_tail = (b',"domain":' + domain if domain else b"") + b',"cluster":' + cluster
        self._cluster = cluster

    def answer(self, message not None):
        """Answer a request if that is possible here; else nothing has been done."""
        cdef bytes body = None
        cdef int kind
        cdef Account account
        if message.header or not message.reply:
            return False
        found = self._calls.get(message.subject)
        if found is None:
            found = self._learn(message.subject)
        kind = found[0]
        if kind == KIND_OTHER:
            return False
        account = message.account
        tenant = self._accounts.get(account.name)
        if tenant is None or not tenant.lane.is_idle:
            return False
        try:
            if kind == KIND_MESSAGE:
                body = self._message(tenant.streams.get(found[1]), message.payload)
            elif message.payload not in PLAIN_BODIES or account.has_interest(AUDIT_SUBJECT):
                return False
            elif kind == KIND_STREAM:
                body = self._stream(tenant.streams.get(found[1]))
            elif kind == KIND_CONSUMER:
                body = self._consumer(tenant.streams.get(found[1]), found[2])
            elif kind == KIND_STREAM_NAMES:
                body = stream_names(tenant)
            else:
                body = consumer_names(tenant.streams.get(found[1]))
        except Exception:
            return False  # it happens again on the long way, which deals with it
        if body is None:
            return False
        if kind != KIND_MESSAGE:
            tenant.api.total += 1
            self._api.total += 1
        self._router.publish_internal(
            account, message.reply.encode("utf-8", "surrogateescape"), body)
        return True

    cdef tuple _learn(self, str subject):
        """Parse the subject of a request, and remember the result."""
        cdef tuple found = (KIND_OTHER, "", "")
        call = parse_subject(subject)
        if call is not None and call.endpoint.name in KINDS:
            found = (KINDS[call.endpoint.name], call.stream, call.consumer)
        if len(subject) <= SUBJECT_LENGTH_MAX:
            if len(self._calls) >= SUBJECTS_MAX:
                self._calls.clear()
            self._calls[subject] = found
        return found

    cdef bytes _message(self, hosted, bytes payload):
        """The answer with one message; None if it is not visible, or not asked for plainly."""
        cdef GetRequest request = self._request
        cdef Ingest ingest
        cdef MessageStore store
        cdef bytes header, data
        cdef uint64_t visible
        if hosted is None or not request.parse(payload, len(payload)) or request.names_nothing() \
                or request.batch or request.max_bytes or request.has_conflict() \
                or request.last_subjects is not None or request.up_to_seq:
            return None
        ingest = hosted.stream.ingest
        store = ingest.store
        visible = ingest.visible()
        try:
            if request.last_subject.size or request.next_subject.size:
                found = find_message(store, plain_request(payload), visible)
            elif request.seq > visible:
                return None
            else:
                found = store.get(request.seq)
        except NotFoundError:
            return None
        if not is_plain(found.subject):
            return None
        header = b"" if request.no_header else found.header
        data = found.payload
        return b"".join((
            MESSAGE_HEAD, found.subject, b'","seq":%d' % found.seq,
            b',"hdrs":"' + b2a_base64(header, newline=False) + b'"' if header else b"",
            b',"data":"' if data else b"",
            b2a_base64(data, newline=False) if data else b"",
            b'","time":"' if data else b',"time":"',
            time_text(found.timestamp_ns), b'"}}'))

    cdef bytes _stream(self, hosted):
        """The information about a stream; None if it has parts that are rare."""
        cdef MessageStore store
        cdef uint64_t deleted = 0
        cdef int64_t first_ns
        if hosted is None or len(hosted.companions):
            return None
        store = hosted.stream.store
        if store.lost is not None:
            return None
        if store.msgs:
            deleted = store.last_seq - store.first_seq + 1 - store.msgs
        first_ns = store.first_timestamp()
        return b"".join((
            stream_head(hosted),
            b'{"messages":%d,"bytes":%d,"first_seq":%d,"first_ts":"' % (
                store.msgs, store.bytes, store.first_seq),
            time_text(first_ns) if first_ns else ZERO_TIME,
            b'","last_seq":%d,"last_ts":"' % store.last_seq,
            time_text(store.last_timestamp) if store.last_timestamp else ZERO_TIME,
            b'","num_subjects":%d' % store.index.live_count if store.index.live_count else b'"',
            b',"num_deleted":%d' % deleted if deleted else b"",
            b',"consumer_count":%d}' % hosted.shown_count,
            self._stream_tail, b',"ts":"', time_text(self._turn.now_ns), b'"}'))

    cdef bytes _consumer(self, hosted, str name):
        """The information about a consumer; None if it has parts that are rare."""
        if hosted is None:
            return None
        consumer = hosted.consumers.get(name)
        if consumer is None:
            return None
        config, delivery, acks = consumer.config, consumer.delivery, consumer.acks
        if config.priority_groups or delivery.paused:
            return None
        consumer.sweep_requests()
        acks.settle_floor()
        return b"".join((
            consumer_head(hosted, consumer),
            b',"delivered":{"consumer_seq":%d,"stream_seq":%d' % (
                acks.delivered_consumer, acks.delivered_stream),
            last_active(delivery.last_delivered_ns),
            b'},"ack_floor":{"consumer_seq":%d,"stream_seq":%d' % (
                acks.floor_consumer, acks.floor_stream),
            last_active(delivery.last_acked_ns),
            b'},"num_ack_pending":%d,"num_redelivered":%d,"num_waiting":%d,"num_pending":%d,' % (
                acks.awaited_count,
                0 if config.max_deliver == 1 else len(acks.redelivered),
                consumer.pulls.count if consumer.pulls is not None else 0,
                consumer.cursor.pending() + acks.parked_count),
            b'"push_bound":true,"ts":"' if delivery.is_bound else b'"ts":"',
            time_text(consumer.turn.now_ns), b'"}'))


cdef bytes last_active(int64_t time_ns):
    return b',"last_active":"' + time_text(time_ns) + b'"' if time_ns else b""


cdef bytes stream_head(hosted):
    """The beginning of the information about a stream, encoded again when it is reconfigured."""
    cdef bytes head
    config = hosted.stream.config
    known = hosted.info_head
    if known is not None and known[0] is config:
        return known[1]
    head = b"".join((
        STREAM_HEAD, encode(answered_config(config)),
        b',"created":"', time_text(hosted.stream.created_ns), b'","state":'))
    hosted.info_head = (config, head) if len(head) <= CONFIG_BYTES_MAX else None
    return head


cdef bytes consumer_head(hosted, consumer):
    """The same for a consumer."""
    cdef bytes head
    config = consumer.config
    known = hosted.consumer_heads.get(consumer.name)
    if known is not None and known[0] is config:
        return known[1]
    head = b"".join((
        CONSUMER_HEAD, b'"stream_name":', encode(consumer.stream_name),
        b',"name":', encode(consumer.name),
        b',"created":"', time_text(consumer.created_ns),
        b'","config":', encode(answered_config(config))))
    if len(head) <= CONFIG_BYTES_MAX:
        hosted.consumer_heads[consumer.name] = (config, head)
    return head


cdef bytes stream_names(tenant):
    """The first page of the names of all streams, encoded again when one comes or goes."""
    cdef bytes page = tenant.names_page
    if page is None:
        names = sorted(tenant.streams)
        page = tenant.names_page = encode(StreamNamesResponse(
            total=len(names), limit=NAMES_PAGE, streams=names[:NAMES_PAGE] or None))
    return page


cdef bytes consumer_names(hosted):
    """The same for the names of the consumers of a stream."""
    cdef bytes page
    if hosted is None:
        return None
    page = hosted.names_page
    if page is None:
        names = hosted.shown_names()
        page = hosted.names_page = encode(ConsumerNamesResponse(
            total=len(names), limit=NAMES_PAGE, consumers=names[:NAMES_PAGE]))
    return page
