"""Copies messages through a consumer of the origin, which is reached over a link.

Owns the steps from an available link to the first message, the supervision of the consumer, and the
responses to flow control. The origin is identified first: a mirror never mixes two streams, and a
source starts over with a new one. Errors are shown in the stream info and retried after a growing,
randomised delay. It never blocks: every request has a deadline.

Flow control is answered when all earlier messages are as durable as the stream guarantees. A
consumer that is acknowledged by flow control (of a work queue, or one created by a user) therefore
releases a message only when its copy is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tradewind.api import errors
from tradewind.api.errors import ApiError
from tradewind.durations import SECOND_NS
from tradewind.jetstream.replication.inbox import Inbox
from tradewind.jetstream.replication.origin_links import UNHEARD
from tradewind.jetstream.replication.origins import (
    IDENTITY_FIELD,
    SEQUENCE_MAX,
    OriginPosition,
    OriginView,
    begun_of,
    create_request,
    document_of,
    fields_of_block,
    time_of,
    unavailable,
    view_of,
)
from tradewind.store.format.layout import short_hash

if TYPE_CHECKING:
    from tradewind.jetstream.replication.origin_links import OriginLink
    from tradewind.jetstream.replication.replica import Replica

ANSWER_NS_MAX: Final = 5_000_000_000
# Heartbeats come every second.
SILENCE_NS_MAX: Final = 10_000_000_000
# Between two attempts: doubled with each, and spread by up to half.
RETRY_NS_MIN: Final = 1_000_000_000
RETRY_NS_MAX: Final = 30_000_000_000
RETRY_DOUBLINGS_MAX: Final = 5
# Heartbeats in a row, as in nats-server.
STALLS_MAX: Final = 3
# An origin that does not say who it is: as expected, another one, and one that has fewer messages.
UNSEEN_ATTEMPTS: Final = 3
# The identity of no stream.
ANOTHER: Final = "?"
API_LEVEL_MIRROR: Final = 4
API_LEVEL_SOURCE: Final = 5


class OriginRequest(NamedTuple):
    """A request that a set-up step sends; the step continues with the answer."""

    request: str
    body: bytes = b""
    header: bytes = b""
    may_fail: bool = False  # without a receiver, the answer is NO_REPLY


class OriginReply(NamedTuple):
    """The raw answer to a request."""

    header: bytes
    body: bytes


NO_REPLY: Final = OriginReply(b"", b"")


class FlowRequest(NamedTuple):
    """A flow control request, answered when the copy of the origin's message `stream_seq` is
    durable.
    """

    subject: str
    stream_seq: int
    consumer_seq: int


Steps = Generator[OriginRequest, OriginReply, None]


class Feed:
    """Feeds `replica` through `link`, from `begin` to `end`."""

    def __init__(self, replica: Replica, link: OriginLink) -> None:
        self._replica = replica
        self._link = link
        self._engine = replica.hosted.engine
        self._unwatch: Callable[[], None] = _nothing
        self._unlisten: Callable[[], None] = _nothing
        self._inbox: Inbox | None = None
        self._steps: Steps | None = None
        self._round = 0  # distinguishes answers to earlier requests
        self._failures = 0
        self._begun: OriginPosition | None = None
        self._waiting: FlowRequest | None = None
        self._probe_seq = 0  # the first message must be the one that the mirror has there; 0: any
        self._stalls = 0  # heartbeats in a row that say that answers to flow control are missing
        self._stalled_at = 0  # messages that had come with the last of them
        self.deadline_ns = 0  # when `tick` has something to do; 0: never
        self._heard_ns = 0

    @property
    def is_running(self) -> bool:
        """Whether a consumer of the origin delivers messages."""
        return self._begun is not None

    @property
    def is_stalled(self) -> bool:
        """Whether answers to flow control do not reach the consumer."""
        return self._stalls >= STALLS_MAX

    @property
    def heard_ns(self) -> int:
        """When anything last arrived (monotonic); 0: never."""
        return max(self._heard_ns, self._inbox.heard_ns if self._inbox is not None else 0)

    @property
    def lag(self) -> int:
        """The known number of messages of the origin that are not copied yet."""
        if self._begun is None or self._inbox is None:
            return 0
        if not self._inbox.received:
            return self._begun.pending
        return self._inbox.pending + self._inbox.waiting

    # ---------------------------------------------------------------- life

    def begin(self) -> None:
        """Begin to copy as soon as the link allows."""
        self._unwatch = self._link.watch(self._link_changed)
        if self._link.problem:
            self._lost(self._link.problem)
        elif self._engine.is_started:
            self._start()
        else:
            # While streams are opened there would be no answer.
            self.deadline_ns = max(self._engine.turn.monotonic_ns, 1)

    def end(self, *, for_good: bool) -> None:
        """Stop copying. With `for_good` the consumer that was created for it is deleted."""
        source = self._replica.source
        name = self._begun.name if self._begun is not None else self._consumer_name()
        is_made = self._inbox is not None and source.consumer is None
        self._stop()
        self.deadline_ns = 0
        if for_good and is_made and not self._link.problem:
            self._link.ask(f"CONSUMER.DELETE.{source.name}.{name}", b"", b"", _ignore)
        self._unwatch()

    def _link_changed(self) -> None:
        if self._link.problem:
            self._lost(self._link.problem)
        else:
            self._failures = 0
            self._start()
        self._replica.hosted.companions.set_timer(self._replica)

    def _lost(self, text: str) -> None:
        """Wait until the link changes; the link itself logs its loss."""
        self._stop()
        self.deadline_ns = 0
        self._replica.problem = unavailable(text)

    def _stop(self) -> None:
        """Abandon the set-up or the consumer in progress."""
        self._heard_ns = self.heard_ns
        self._round += 1
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        self._unlisten()
        self._unlisten = _nothing
        self._replica.feed_stopped()
        self._inbox = self._begun = self._waiting = None
        self._stalls = self._probe_seq = 0

    def _fail(self, problem: ApiError) -> None:
        """Stop after an error, and try again later."""
        self._stop()
        self._replica.say(problem)
        doubled = RETRY_NS_MIN << min(self._failures, RETRY_DOUBLINGS_MAX)
        self._failures += 1
        wait_ns = int(min(doubled, RETRY_NS_MAX) * self._engine.broker.chance.uniform(0.5, 1.0))
        self.deadline_ns = self._engine.turn.monotonic_ns + wait_ns

    def tick(self) -> None:
        """Do the work that is due."""
        now_ns = self._engine.turn.monotonic_ns
        if not 0 < self.deadline_ns <= now_ns:
            return
        if self._steps is not None:
            self._fail(unavailable(f"{self._place} does not answer"))
        elif not self.is_running:
            self._start()
        elif now_ns - self.heard_ns >= SILENCE_NS_MAX:
            seconds = (now_ns - self.heard_ns) // SECOND_NS
            self._fail(unavailable(f"nothing has arrived from {self._place} for {seconds} seconds"))
        else:
            self.deadline_ns = self.heard_ns + SILENCE_NS_MAX

    def _nobody(self, request: str) -> str:
        """The error text for a request that has reached no server."""
        account = self._replica.hosted.tenant.name
        known = ", ".join(self._engine.remotes.prefixes(account)) or "none"
        return (
            f"external.api '{self._link.name}' leads nowhere: no import and no leaf connection of"
            f" account '{account}' takes {request}, and no remote in jetstream.remotes has this"
            f" prefix (known: {known})"
        )

    @property
    def _place(self) -> str:
        return f"remote '{self._link.name}'" if self._link.name else "this server"

    # ---------------------------------------------------------------- steps

    def _start(self) -> None:
        self._stop()
        self._steps = self._set_up()
        self._advance(None)

    def _advance(self, reply: OriginReply | None) -> None:
        steps = self._steps
        assert steps is not None
        try:
            ask = steps.send(reply) if reply is not None else next(steps)
        except StopIteration:
            self._steps = None
            return
        except ApiError as problem:
            self._steps = None
            self._fail(problem)
            return
        self._round += 1
        self.deadline_ns = self._engine.turn.monotonic_ns + ANSWER_NS_MAX
        expected = self._round

        def answered(header: bytes, body: bytes, problem: str) -> None:
            if expected != self._round or self._steps is None:
                return
            if problem == UNHEARD and ask.may_fail:
                self._advance(NO_REPLY)
            elif problem == UNHEARD and self._link.name:
                self._fail(unavailable(self._nobody(ask.request)))
            elif problem:
                self._fail(unavailable(f"{self._place}, {ask.request}: {problem}"))
            else:
                self._advance(OriginReply(header, body))
            self._replica.hosted.companions.set_timer(self._replica)

        self._link.ask(ask.request, ask.header, ask.body, answered)

    def _set_up(self) -> Steps:
        """Identify the origin, find the position, then create a consumer from there on."""
        replica, source = self._replica, self._replica.source
        view = yield from self._look_at_origin()
        next_seq = replica.meet(view)
        if source.consumer is not None:
            begun = yield from self._reset_given()
        elif view.is_known:
            begun, _ = yield from self._create(view.identity, next_seq)
        else:
            begun, next_seq = yield from self._create_unseen(view, next_seq)
        inbox = self._inbox
        assert inbox is not None
        if inbox.first_consumer_seq > begun.consumer_seq + 1:
            raise unavailable("the first messages of its consumer did not arrive")
        self._begun = begun
        self._failures = 0
        now_ns = self._heard_ns = self._engine.turn.monotonic_ns
        self.deadline_ns = now_ns + SILENCE_NS_MAX
        replica.feed_started(inbox, next_seq, begun.stream_seq + 1)

    def _look_at_origin(self) -> Generator[OriginRequest, OriginReply, OriginView]:
        """Request the identity of the origin. Another account need not export that: a consumer
        suffices.
        """
        replica, source = self._replica, self._replica.source
        may_fail = source.consumer is None
        reply = yield OriginRequest(f"STREAM.INFO.{source.name}", may_fail=may_fail)
        if reply is NO_REPLY:
            return replica.expected()
        view = view_of(document_of(reply.body))
        self._check_cycle(view)
        seq = replica.compared_seq(view)
        if not seq:
            return view
        body = msgspec.json.encode({"seq": seq})
        request = OriginRequest(f"STREAM.MSG.GET.{source.name}", body, may_fail=True)
        return _compared(view, (yield request))

    def _create_unseen(
        self, view: OriginView, next_seq: int
    ) -> Generator[OriginRequest, OriginReply, tuple[OriginPosition, int]]:
        """Create a consumer of an origin whose information cannot be read.

        For a mirror it begins with the last message that was copied, which is compared when it
        arrives. Returns also where copying continues.
        """
        replica = self._replica
        self._probe_seq = replica.compared_seq(view)
        if self._probe_seq:
            begun, _ = yield from self._create("", self._probe_seq)
            return begun, next_seq
        for _ in range(UNSEEN_ATTEMPTS):
            try:
                begun, identity = yield from self._create(view.identity, next_seq)
            except ApiError as problem:
                if not problem.is_kind(errors.CONSUMER_STREAM_IDENTITY_MISMATCH):
                    raise
                next_seq = replica.meet(msgspec.structs.replace(view, identity=ANOTHER))
                view = msgspec.structs.replace(view, identity="")
                continue
            last_seq = begun.stream_seq if next_seq else view.last_seq
            view = msgspec.structs.replace(view, identity=identity, last_seq=last_seq)
            wanted_seq, next_seq = next_seq, replica.meet(view)
            if next_seq == wanted_seq or next_seq == begun.stream_seq + 1:
                return begun, next_seq
            view = msgspec.structs.replace(view, last_seq=SEQUENCE_MAX)
        raise unavailable(f"stream '{replica.source.name}' was created again just now")

    def _check_cycle(self, view: OriginView) -> None:
        """ApiError if the stream would copy itself, by whatever route."""
        hosted = self._replica.hosted
        there = (self._link.server_id, self._replica.source.name, view.created_ns)
        if there == (self._engine.broker.server_id, hosted.name, hosted.stream.created_ns):
            raise errors.STREAM_INVALID_CONFIG(
                err=f"detected cycle: {self._place} leads to this stream itself"
            )

    def _listen(self, subject: str) -> None:
        self._unlisten()
        inbox = Inbox(self._engine.turn, self._replica, self._link.on_arrival)
        self._inbox = inbox
        self._unlisten = self._link.listen(subject, inbox)

    def _create(
        self, identity: str, next_seq: int
    ) -> Generator[OriginRequest, OriginReply, tuple[OriginPosition, str]]:
        """Create the feed's own consumer; servers that do not support sourcing get a plainer
        request. Returns the identity of the stream as well; an empty `identity` accepts any stream.
        """
        source, names = self._replica.source, self._engine.names
        prefix = source.external.deliver if source.external is not None else ""
        kind = "M" if self._replica.copier.keeps_place else "S"
        subject = f"{prefix or '$JS'}.{kind}.{names.consumer()}"
        self._listen(subject)
        name = self._consumer_name()
        for is_plain in (False, True):
            request, body = create_request(
                source,
                f"{name}_{names.consumer()}" if is_plain else name,
                subject,
                next_seq,
                self._metadata(),
                is_plain=is_plain,
            )
            header = b"" if is_plain else self._create_header(identity)
            reply = yield OriginRequest(request, body, header)
            try:
                begun = begun_of(document_of(reply.body))
            except ApiError as problem:
                if is_plain or problem.err_code not in _OLD_SERVERS:
                    raise
                continue
            given = fields_of_block(reply.header).get(IDENTITY_FIELD, identity)
            if identity not in ("", given):
                raise unavailable(f"stream '{source.name}' was created again just now")
            return begun, given
        raise AssertionError

    def _create_header(self, identity: str) -> bytes:
        if self._replica.copier.keeps_place:
            return b"NATS/1.0\r\nNats-Required-Api-Level: %d\r\n\r\n" % API_LEVEL_MIRROR
        return b"NATS/1.0\r\nNats-Required-Api-Level: %d\r\n%s: %s\r\n\r\n" % (
            API_LEVEL_SOURCE,
            IDENTITY_FIELD.encode(),
            identity.encode(),
        )

    def _consumer_name(self) -> str:
        """A name that stays the same after each start and that no other stream of any server uses:
        a consumer of a work queue outlives both ends, and must not be shared.
        """
        replica, hosted = self._replica, self._replica.hosted
        text = f"{hosted.name} {hosted.tenant.name} {self._engine.domain} "
        text += f"{hosted.stream.created_ns} {replica.key}"
        return f"JS_{'MIRROR' if replica.copier.keeps_place else 'SRC'}_{short_hash(text)}"

    def _metadata(self) -> dict[str, str]:
        kind = "mirror" if self._replica.copier.keeps_place else "src"
        hosted = self._replica.hosted
        metadata = {f"_nats.{kind}.stream": hosted.name, f"_nats.{kind}.acc": hosted.tenant.name}
        if self._engine.domain:
            metadata[f"_nats.{kind}.domain"] = self._engine.domain
        return metadata

    def _reset_given(self) -> Generator[OriginRequest, OriginReply, OriginPosition]:
        """Reset a consumer that a user has created for this source. Its information is requested
        first, to report what is wrong with it: a reset of a missing consumer is not answered.
        """
        source = self._replica.source
        assert source.consumer is not None
        given = source.consumer
        place = f"{source.name}.{given.name}"
        begun = begun_of(document_of((yield OriginRequest(f"CONSUMER.INFO.{place}")).body))
        if not begun.is_flow_acked:
            if self._replica.copier.keeps_place:
                raise errors.MIRROR_CONSUMER_REQUIRES_ACK_FLOW_CONTROL()
            raise errors.SOURCE_CONSUMER_REQUIRES_ACK_FLOW_CONTROL()
        if begun.deliver_subject != given.deliver_subject:
            raise unavailable(
                f"consumer '{given.name}' delivers to '{begun.deliver_subject}',"
                f" not to '{given.deliver_subject}'"
            )
        begun = begun_of(document_of((yield OriginRequest(f"CONSUMER.RESET.{place}")).body))
        self._listen(given.deliver_subject)
        return begun

    # ---------------------------------------------------------------- what comes

    @property
    def is_probing(self) -> bool:
        """Whether the first message is still to be compared with the copied one."""
        return self._probe_seq > 0

    def is_right(self) -> bool:
        """Compare the first message, unless that is done; false if the origin is not the stream
        that was mirrored. Without a message of that sequence, nothing is known.
        """
        inbox, seq = self._inbox, self._probe_seq
        if not seq or inbox is None or not inbox.received:
            return True
        self._probe_seq = 0
        if inbox.first_seq != seq:
            return True
        try:
            self._replica.meet(OriginView("", 0, seq, inbox.first_timestamp, is_known=False))
        except ApiError as problem:
            self._fail(problem)
            self._replica.hosted.companions.set_timer(self._replica)
            return False
        return True

    def look(self) -> None:
        """Called when something has arrived, or more copies have become durable."""
        inbox = self._inbox
        if inbox is None or not self.is_running:
            return
        for header, reply, stream_seq, consumer_seq in inbox.take_statuses():
            self._hear(header, reply.decode("utf-8", "surrogateescape"), stream_seq, consumer_seq)
            if self._inbox is not inbox:
                return
        if inbox.fault:
            self._fail(unavailable(inbox.fault))
            return
        waiting = self._waiting
        if waiting is not None and self._replica.copier.confirmed_seq >= waiting.stream_seq:
            self._waiting = None
            header = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n" % (
                waiting.consumer_seq,
                waiting.stream_seq,
            )
            self._link.publish(waiting.subject, header)

    def _hear(self, header: bytes, reply: str, stream_seq: int, consumer_seq: int) -> None:
        """Handle a status: a heartbeat, a flow control request, or the end of the consumer."""
        status = header[9:12]
        if status != b"100":
            text = header.partition(b"\r\n")[0][9:].decode("utf-8", "replace")
            self._fail(unavailable(f"{self._place} has ended the consumer: {text}"))
            return
        fields = fields_of_block(header)
        last = fields.get("Nats-Last-Consumer", "0")
        if last.isascii() and last.isdigit() and int(last) > consumer_seq:
            self._fail(unavailable(f"message {consumer_seq + 1} of its consumer did not arrive"))
            return
        stalled = fields.get("Nats-Consumer-Stalled", "")
        self._note_stall(is_stalled=bool(stalled) and not reply)
        subject = reply or stalled
        if subject:
            # Only the newest subject is listened to; what is safe by now is worth an answer.
            before = self._waiting
            if before is not None:
                stream_seq, consumer_seq = before.stream_seq, before.consumer_seq
            self._waiting = FlowRequest(subject, stream_seq, consumer_seq)

    def _note_stall(self, *, is_stalled: bool) -> None:
        """Count how often the consumer waits for an answer that it was given before: a consumer
        that keeps waiting is not reached by answers.
        """
        assert self._inbox is not None
        received, before = self._inbox.received, self._stalled_at
        self._stalled_at = received
        if not is_stalled or self._waiting is not None or received != before:
            self._stalls = 0
        if not is_stalled or self._waiting is not None:
            return
        self._stalls += 1
        if self.is_stalled:
            self._replica.say(errors.SOURCE_CONSUMER_FLOW_CONTROL_STALLED())


# The answer of servers without sourcing to a request that asks for it.
_OLD_SERVERS: Final = (errors.REQUIRED_API_LEVEL.err_code, errors.INVALID_JSON.err_code)


def _compared(view: OriginView, reply: OriginReply) -> OriginView:
    """The view with the time of the compared message, unless it is missing or unreadable."""
    if reply is NO_REPLY:
        return view
    try:
        mirrored_ns = time_of(document_of(reply.body))
    except ApiError as problem:
        if not problem.is_kind(errors.NO_MESSAGE_FOUND):
            raise
        mirrored_ns = 0
    return msgspec.structs.replace(view, mirrored_ns=mirrored_ns)


def _nothing() -> None:
    pass


def _ignore(_header: bytes, _body: bytes, _problem: str) -> None:
    pass
