"""Direct get: stored messages as plain replies, one or many, without the API in between.

Owns the requests on `$JS.API.DIRECT.GET.<stream>` of one stream and the batches that are under way.
A batch is sent in steps: the next one waits for the next turn, or a little longer if the requester
has not read the last one yet. So nobody else waits for it, and it never fills a slow requester's
buffer.

    NATS/1.0                              NATS/1.0 204 EOB
    Nats-Stream: ORDERS                   Nats-Num-Pending: 0
    Nats-Subject: orders.7                Nats-Last-Sequence: 9
    Nats-Sequence: 9
    Nats-Time-Stamp: 2026-01-31T12:00:00.5Z
    Nats-Num-Pending: 0
    Nats-Last-Sequence: 8
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tradewind.api.errors import ApiError
from tradewind.api.request_types import MsgGetRequest
from tradewind.api.requests import decode_lenient
from tradewind.api.responses import API_LEVEL
from tradewind.api.times import format_time
from tradewind.errors import StoreError
from tradewind.store.contract import NotFoundError, StoredMessage
from tradewind.store.filestore import FileStore
from tradewind.stream import reading
from tradewind.stream.headers import add_fields, find_field

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account, InternalMessage
    from tradewind.broker.router import Router
    from tradewind.store.messages import MessageStore

REQUIRED_API_LEVEL: Final = b"Nats-Required-Api-Level"
RESULTS_MAX: Final = 1024
BATCHES_MAX: Final = 1000
STEP_MSGS_MAX: Final = 500
STEP_BYTES_MAX: Final = 256 * 1024
PENDING_BYTES_MAX: Final = 1024 * 1024
RETRY_NS: Final = 5_000_000

NOT_FOUND: Final = b"404 Message Not Found"
NO_RESULTS: Final = b"404 No Results"
EMPTY_REQUEST: Final = b"408 Empty Request"
MALFORMED_REQUEST: Final = b"408 Malformed Request"
BAD_REQUEST: Final = b"408 Bad Request"
REQUIRED_LEVEL: Final = b"412 Required Api Level"
TOO_MANY_RESULTS: Final = b"413 Too Many Results"
TOO_MANY_REQUESTS: Final = b"429 Too Many Requests"

# Header block and payload.
Reply = tuple[bytes, bytes]


@dataclass(slots=True)
class _Batch:
    reply: bytes
    replies: Iterator[Reply]


def status(line: bytes, fields: bytes = b"") -> Reply:
    """A reply without a message."""
    return b"NATS/1.0 " + line + b"\r\n" + fields + b"\r\n", b""


class DirectGet:
    """Answers for one stream. `visible` gives the last sequence that may be seen.

    `on_deadline` is called when `next_deadline_ns` was set.
    """

    def __init__(
        self,
        name: str,
        store: MessageStore,
        account: Account,
        router: Router,
        visible: Callable[[], int],
        bytes_max: int,
        on_deadline: Callable[[], None],
    ) -> None:
        self._on_deadline = on_deadline
        self._name = name.encode()
        self._store = store
        self._account = account
        self._router = router
        self._visible = visible
        self._bytes_max = bytes_max
        self._tokens: list[int] = []
        self._batches: deque[_Batch] = deque()
        self._is_deferred = False
        self.next_deadline_ns = 0

    # ---------------------------------------------------------------- requests

    def activate(self, prefixes: tuple[str, ...]) -> None:
        """Listen, once for each prefix of the API."""
        if self._tokens:
            return
        name = self._name.decode()
        for prefix in prefixes:
            subject = f"{prefix}.DIRECT.GET.{name}"
            for pattern in (subject, f"{subject}.>"):
                self._tokens.append(self._account.subscribe(pattern, self._requested, "_sys_"))

    def deactivate(self) -> None:
        """Listen no more, and forget what is under way."""
        for token in self._tokens:
            self._account.unsubscribe(token)
        self._tokens.clear()
        self._batches.clear()
        self.next_deadline_ns = 0

    def _requested(self, message: InternalMessage) -> None:
        if not message.reply:
            return
        reply = message.reply.encode("utf-8", "surrogateescape")
        level = find_field(message.header, REQUIRED_API_LEVEL)
        if level and not (level.isdigit() and int(level[:9]) <= API_LEVEL):
            self._send(reply, status(REQUIRED_LEVEL))
            return
        tokens = message.subject.split(f".DIRECT.GET.{self._name.decode()}.", 1)
        if len(tokens) == 2:
            self._answer(reply, self._last_by_subject(tokens[1], message.payload))
        else:
            self._answer(reply, self.replies(message.payload))

    def _answer(self, reply: bytes, replies: Iterator[Reply]) -> None:
        """Send the first step at once, the rest later."""
        if len(self._batches) >= BATCHES_MAX:
            self._send(reply, status(TOO_MANY_REQUESTS))
            return
        batch = _Batch(reply, replies)
        if self._step(batch):
            self._batches.append(batch)
            self._go_on_later()

    # ---------------------------------------------------------------- steps

    def _send(self, reply: bytes, content: Reply) -> int:
        header, payload = content
        return self._router.publish_internal(self._account, reply, payload, b"", header)

    def _step(self, batch: _Batch) -> bool:
        """Send a part; whether there is more to send."""
        sent_bytes = 0
        for sent_msgs, content in enumerate(batch.replies, 1):
            if not self._send(batch.reply, content):
                return False
            sent_bytes += len(content[0]) + len(content[1])
            if sent_msgs >= STEP_MSGS_MAX or sent_bytes >= STEP_BYTES_MAX:
                return True
            if self._router.largest_pending > PENDING_BYTES_MAX:
                return True
        return False

    def _go_on_later(self) -> None:
        """In the next turn; but a requester that must read first gets some time for it."""
        if self._router.largest_pending > PENDING_BYTES_MAX:
            self.next_deadline_ns = self._router.turn.monotonic_ns + RETRY_NS
            self._on_deadline()
        elif not self._is_deferred:
            self._is_deferred = True
            self._router.turn.defer(self._go_on, b"", b"", b"", b"")

    def _go_on(self, _subject: bytes, _reply: bytes, _header: bytes, _payload: bytes) -> None:
        self._is_deferred = False
        self.tick()

    def tick(self) -> None:
        """Go on with the batch that has waited longest."""
        self.next_deadline_ns = 0
        if not self._batches:
            return
        batch = self._batches.popleft()
        if self._step(batch):
            self._batches.append(batch)
        if self._batches:
            self._go_on_later()

    # ---------------------------------------------------------------- answers

    def replies(self, body: bytes) -> Iterator[Reply]:
        """Everything that a request gets, in order."""
        if not body:
            yield status(EMPTY_REQUEST)
            return
        try:
            request = decode_lenient(MsgGetRequest, body)
        except ApiError:
            yield status(MALFORMED_REQUEST)
            return
        try:
            yield from self._answers(request)
        except NotFoundError:
            yield status(NOT_FOUND)
        except StoreError as error:
            yield status(b"500 " + str(error).encode())

    def _answers(self, request: MsgGetRequest) -> Iterator[Reply]:
        if (
            not request.seq
            and not request.last_by_subj
            and not request.next_by_subj
            and not request.multi_last
            and request.start_time is None
        ):
            yield status(EMPTY_REQUEST)
        elif reading.has_conflict(request) or _has_batch_conflict(request):
            yield status(BAD_REQUEST)
        elif request.multi_last:
            yield from self._last_of_many(request)
        elif request.batch:
            yield from self._batch(request)
        else:
            message = reading.find_message(self._store, request, self._visible())
            yield self._single(message, no_header=request.no_hdr)

    def _last_by_subject(self, subject: str, body: bytes) -> Iterator[Reply]:
        """The form with the subject in the request's own subject."""
        no_header = False
        if body:
            try:
                request = decode_lenient(MsgGetRequest, body)
            except ApiError:
                yield status(MALFORMED_REQUEST)
                return
            if request != MsgGetRequest(no_hdr=request.no_hdr):
                yield status(BAD_REQUEST)
                return
            no_header = request.no_hdr
        try:
            message = reading.last_message(self._store, reading.to_bytes(subject), self._visible())
        except NotFoundError:
            yield status(NOT_FOUND)
            return
        except StoreError as error:
            yield status(b"500 " + str(error).encode())
            return
        yield self._single(message, no_header=no_header)

    def _single(self, message: StoredMessage, *, no_header: bool) -> Reply:
        if no_header:
            return b"", message.payload
        return add_fields(message.header, self._fields(message)), message.payload

    def _fields(self, message: StoredMessage) -> bytes:
        return (
            b"Nats-Stream: %s\r\nNats-Subject: %s\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %s\r\n"
            % (
                self._name,
                message.subject,
                message.seq,
                format_time(message.timestamp_ns).encode(),
            )
        )

    def _batch(self, request: MsgGetRequest) -> Iterator[Reply]:
        store, visible = self._store, self._visible()
        chosen = reading.filter_of(store, request.next_by_subj)
        seq = request.seq
        if request.start_time is not None:
            seq = store.sequence_at(reading.time_of(request.start_time))
        pending = store.count_matching(chosen, seq)
        if visible < store.last_seq:
            pending -= store.count_matching(chosen, max(seq, visible + 1))
        bytes_max = request.max_bytes or self._bytes_max
        last_seq = sent_bytes = 0
        for _ in range(request.batch):
            try:
                message = reading.next_message(store, chosen, seq, visible)
            except NotFoundError:
                if not last_seq:
                    raise
                break
            seq = message.seq + 1
            if request.no_hdr:
                # The official server does not count these.
                yield b"", message.payload
            else:
                pending = max(pending - 1, 0)
                yield self._numbered(message, pending, last_seq)
            last_seq = message.seq
            sent_bytes += _size(message)
            if sent_bytes >= bytes_max:
                break
        yield status(b"204 EOB", _position(pending, last_seq))

    def _numbered(self, message: StoredMessage, pending: int, last_seq: int) -> Reply:
        fields = self._fields(message) + _position(pending, last_seq)
        return add_fields(message.header, fields), message.payload

    def _last_of_many(self, request: MsgGetRequest) -> Iterator[Reply]:
        store, visible = self._store, self._visible()
        up_to = request.up_to_seq or visible
        if request.up_to_time is not None:
            up_to = min(store.sequence_at(reading.time_of(request.up_to_time)) - 1, visible)
        # As in the official server, only streams in memory take a sequence that is still to come.
        has_reached = up_to <= visible or not isinstance(store, FileStore)
        if not store.msgs or up_to < store.first_seq or not has_reached:
            yield status(NO_RESULTS)
            return
        patterns = [reading.to_bytes(subject) for subject in request.multi_last]
        patterns = [pattern for pattern in patterns if reading.can_match(pattern)]
        found = store.last_sequences(patterns, min(up_to, visible)) if patterns else []
        if len(found) > RESULTS_MAX:
            yield status(TOO_MANY_RESULTS)
            return
        if not found:
            yield status(NO_RESULTS)
            return
        wanted = [seq for seq in found if seq >= request.seq]
        bytes_max = request.max_bytes or self._bytes_max
        pending = len(wanted)
        last_seq = sent_bytes = 0
        for seq in wanted[: request.batch] if request.batch > 0 else wanted:
            try:
                message = store.get(seq)
            except NotFoundError:
                continue  # removed since the batch began
            pending = max(pending - 1, 0)
            yield self._numbered(message, pending, last_seq)
            last_seq = seq
            sent_bytes += _size(message)
            if sent_bytes >= bytes_max:
                break
        yield status(
            b"204 EOB", _position(pending, last_seq) + b"Nats-UpTo-Sequence: %d\r\n" % up_to
        )


def _has_batch_conflict(request: MsgGetRequest) -> bool:
    return bool(
        (request.last_by_subj and (request.batch > 0 or request.multi_last))
        or (request.next_by_subj and request.multi_last)
        or (request.up_to_seq and request.up_to_time is not None)
    )


def _position(pending: int, last_seq: int) -> bytes:
    return b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (pending, last_seq)


def _size(message: StoredMessage) -> int:
    return len(message.subject) + len(message.header) + len(message.payload)
