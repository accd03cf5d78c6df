"""Message traces: decide which messages are traced, and record what happens to them.

Owns the decision whether a header requests a trace (`Tracing`) and the document about one message
(`MessageTrace`). It never runs for a message without such a header, and never delivers anything but
the finished document, after the message has been processed.

The fields are read byte for byte as nats-server does; `trace_header` selects the messages.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.times import format_time
from tradewind.broker.contracts import label, printable
from tradewind.subjects import is_valid_literal

if TYPE_CHECKING:
    from tradewind.api.errors import ApiError
    from tradewind.broker.accounts import Account
    from tradewind.broker.broker import Broker
    from tradewind.broker.leaf_session import LeafSession
    from tradewind.broker.session import Session
    from tradewind.otel.spans import Span

DESTINATION: Final = b"Nats-Trace-Dest"
ONLY: Final = b"Nats-Trace-Only"
ORIGIN: Final = b"Nats-Trace-Origin-Account"
# The path of a message to a server: "1.2" is the second server reached from the first.
HOP: Final = b"Nats-Trace-Hop"
ACCEPT_ENCODING: Final = b"Accept-Encoding"
DISABLED: Final = b"trace disabled"
# Deliveries beyond this are made, but not listed: a trace is one message.
ENTRIES_MAX: Final = 10_000
SAMPLING_ALL: Final = 100

# nats-server's names for connections.
_CLIENT: Final = 0
_LEAF: Final = 4
# Servers with this version of their protocol, or a later one, create traces themselves.
_TRACING_PROTOCOL: Final = 3
_NOT_UNDERSTOOD: Final = (
    "Message delivered but remote does not support message tracing "
    "so no trace event generated from there"
)
_NOT_FORWARDED: Final = "Not delivered because remote does not support message tracing"
_FIRST_LINE: Final = b"NATS/1.0\r\n"
_COMPRESSION_LEVEL: Final = 1
# Requests that members of any account may send, under their name in the system account.
_OWN_SERVICE: Final = re.compile(rb"\$SYS\.REQ\.(?:(USER)\.(INFO)|(?:ACCOUNT|SERVER)\.PING\.(\w+))")


class BegunTrace(msgspec.Struct, frozen=True):
    """A message that is published, with a trace or without, and with this header."""

    trace: MessageTrace | None
    header: bytes


class TraceDecision(msgspec.Struct, frozen=True):
    """The effect of a header: the header to publish, the destination of the trace, if any, and
    whether the message is for the trace alone.
    """

    header: bytes
    destination: bytes = b""
    only: bool = False


class Tracing:
    """Creates the traces of one server. `server_info` returns the facts about the server in
    them.
    """

    def __init__(self, broker: Broker, server_info: Callable[[], Any]) -> None:
        self.broker = broker
        self.server_info = server_info

    def begin(
        self, session: Session, header: bytes, subject: bytes, size: int
    ) -> BegunTrace | None:
        """The message to publish, with a trace if there is to be one; None if it must not be
        processed.
        """
        fields = header_fields(header)
        decided = self._decide(session, header, dict(reversed(fields)))
        if decided is None:
            return None
        spans = self.broker.router.spans
        span = None
        if spans is not None and not decided.only:
            span = spans.published(header, _text(subject), size, session.account.name)
        if not decided.destination and span is None:
            return BegunTrace(None, decided.header)
        trace = MessageTrace(self, session, decided, fields, span)
        trace.begin(session, subject, size)
        return BegunTrace(trace, decided.header)

    def _decide(
        self, session: Session, header: bytes, first: dict[bytes, bytes]
    ) -> TraceDecision | None:
        """The effect of the first values of the fields; None if the message must not be
        processed.
        """
        destination = first.get(DESTINATION, b"")
        only = bool(destination) and _says_only(first)
        untraced = None if only else TraceDecision(header)
        if origin := first.get(ORIGIN):
            self.broker.log.error(
                f"{label(session)} - Message tracing disabled because of header "
                f'"{ORIGIN.decode()}" with value="{printable(origin)}"'
            )
            return None if only else TraceDecision(with_destination(header))
        if not destination:
            rule = session.account.trace_rule
            if rule is None:
                return untraced
            # For a message of another server, the server of its publisher has decided.
            if not is_leaf(session) and not self._is_sampled(rule.sampling):
                return TraceDecision(with_destination(header))
            destination = rule.destination.encode()
        if not is_valid_literal(destination.decode("utf-8", "surrogateescape")):
            self.broker.log.error(
                f'{label(session)} - Destination "{printable(destination)}" is not valid, '
                "won't be able to trace events"
            )
            return untraced
        if not session.may_send_to(destination):
            self.broker.publish_denied(session, destination, is_reply=False)
            return None
        return TraceDecision(header, destination, only)

    def too_large(self, session: Session, data: bytes) -> None:
        """Trace a message whose connection is closed because of its size, as far as the message has
        arrived.
        """
        line, end, rest = data.partition(b"\r\n")
        words = line.split()
        header = rest[: int(words[-2])]
        if not end or not (session.account.traces_parents or DESTINATION in header):
            return
        begun = self.begin(session, header, words[1], int(words[-1]))
        if begun is not None and begun.trace is not None:
            begun.trace.failed("maximum payload exceeded")
            begun.trace.send()

    def _is_sampled(self, sampling: int) -> bool:
        """Whether a sample is drawn, as nats-server does it: 1 % is closer to 2."""
        return sampling >= SAMPLING_ALL or self.broker.chance.randrange(100) <= sampling


class MessageTrace:
    """The events of one message, added in their order by the code that handles it.

    Without a destination only the span is recorded, and receivers of the message see nothing of it.
    """

    def __init__(
        self,
        tracing: Tracing,
        session: Session,
        decided: TraceDecision,
        fields: list[tuple[bytes, bytes]],
        span: Span | None,
    ) -> None:
        self.only = decided.only
        self.is_told = bool(decided.destination)
        self.span = span
        self._receivers = 0
        # The response of a stream that did not store the message.
        self.refusal: ApiError | None = None
        self.is_untold = False
        self._is_served = False
        self._tracing = tracing
        self._destination = decided.destination
        self._account: Account = session.account
        self._fields = fields
        # The number of servers it was sent to, and the path to here, by the previous server.
        self.hops = 0
        self.payload_max = tracing.broker.options.max_payload_bytes
        self._hop = b""
        if is_leaf(session):
            self._hop = next((value for name, value in fields if name == HOP), b"")
        self._size = 0
        self._entries: list[dict[str, Any]] = []

    def _add(self, what: str, **fields: Any) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": what, "ts": self._now(), **fields}
        self._entries.append(entry)
        return entry

    def _now(self) -> str:
        return format_time(self._tracing.broker.now_ns())

    # ---------------------------------------------------------------- recorded on the way

    def begin(self, session: Session, subject: bytes, size: int) -> None:
        """Record the connection that the message came from."""
        self._size = size
        name = {"name": session.name} if session.name else {}
        self._add(
            "in",
            kind=_LEAF if is_leaf(session) else _CLIENT,
            cid=session.cid,
            **name,
            acc=self._account.name,
            subj=_text(subject),
        )

    def failed(self, error: str) -> None:
        """Record that the message was refused before any delivery."""
        self._entries[0]["error"] = error

    def mapped(self, before: bytes, after: bytes) -> None:
        """Record that a mapping of the account was applied."""
        if before != after:
            self._add("sm", to=_text(after))

    def exported(self, account: str, subject: bytes) -> None:
        """Record that a member of another account receives the message through a stream import."""
        if len(self._entries) < ENTRIES_MAX:
            self._add("se", acc=account, to=_text(subject))

    def imported(self, account: str, before: bytes, after: bytes) -> None:
        """Record that the message continues in another account, which exports a service."""
        if len(self._entries) < ENTRIES_MAX:
            self._add("si", acc=account, **{"from": _text(before)}, to=_text(after))

    def destination_in(self, header: bytes) -> bytes:
        """The destination of traces by the header that the message has in the current account."""
        fields = header_fields(header)
        return next((value for name, value in fields if name == DESTINATION), self._destination)

    def served(self, subject: bytes) -> bool:
        """Record that services of the server received the message; False if only its trace does.

        In nats-server these services are imports of the system account, which do not let traces
        through.
        """
        system = self._tracing.broker.options.system_account
        own = _OWN_SERVICE.fullmatch(subject)
        if own is None and self._account.name == system:
            return True
        target = subject
        if own is not None:
            kind, name = own[1] or b"ACCOUNT", own[2] or own[3]
            target = b"$SYS.REQ.%s.%s.%s" % (kind, self._account.name.encode(), name)
        if not self._is_served:
            self._is_served = True
            self.imported(system, subject, target)
        return not self.only

    def delivered(self, session: Session, subject: bytes, queue: bytes, obstacle: str) -> None:
        """Record a delivery to a client, or the obstacle to it."""
        self._receivers += not obstacle
        if len(self._entries) >= ENTRIES_MAX:
            return
        entry = self._add("eg", kind=_CLIENT, cid=session.cid)
        if session.name:
            entry["name"] = session.name
        if session.account.name != self._account.name:
            entry["acc"] = session.account.name
        entry["sub"] = _text(subject)
        if queue:
            entry["queue"] = _text(queue)
        if obstacle:
            entry["error"] = obstacle

    def forwarded(self, session: LeafSession, header: bytes, obstacle: str) -> bytes | None:
        """Record that another server receives the message; returns the header for that server, or
        None if the server does not receive it.
        """
        self.hops += 1
        hop = (self._hop + b"." if self._hop else b"") + b"%d" % self.hops
        is_sent = not obstacle
        if is_sent and session.remote.protocol < _TRACING_PROTOCOL:
            obstacle = _NOT_FORWARDED if self.only else _NOT_UNDERSTOOD
            is_sent = not self.only
        self._receivers += is_sent
        if len(self._entries) < ENTRIES_MAX:
            name = {"name": session.name} if session.name else {}
            entry = self._add("eg", kind=_LEAF, cid=session.cid, **name, hop=_text(hop))
            if session.account.name != self._account.name:
                entry["acc"] = session.account.name
            if obstacle:
                entry["error"] = obstacle
        return with_field(header, HOP, hop) if is_sent else None

    def stored(self, stream: str) -> dict[str, Any]:
        """Record that a stream received the message; the result must be written into the returned
        entry.
        """
        return self._add("js", stream=stream)

    # ---------------------------------------------------------------- the end

    def send(self) -> None:
        """Publish the trace, in the account of the message's publisher."""
        self._end_span()
        if self.is_untold or not self.is_told:
            return
        header: dict[str, list[str]] = {}
        for name, value in self._fields:
            header.setdefault(_text(name), []).append(_text(value))
        document = {
            "server": self._tracing.server_info(),
            "request": {"header": header, "msgsize": self._size},
            **({"hops": self.hops} if self.hops else {}),
            "events": self._entries,
        }
        accepted = next((value for name, value in self._fields if name == ACCEPT_ENCODING), b"")
        block, body = _encoded(msgspec.json.encode(document), accepted.lower())
        self._account.publish(
            self._destination.decode("utf-8", "surrogateescape"), body, header=block
        )

    def kept(self, stream: str, seq: int) -> Callable[[Exception | None], None] | None:
        """Record that a stream has stored the message; returns the function to call once the
        message is durable.
        """
        spans = self._tracing.broker.router.spans
        if spans is None or self.span is None:
            return None
        return spans.stored(self.span, stream, seq)

    def _end_span(self) -> None:
        spans = self._tracing.broker.router.spans
        if spans is not None and self.span is not None:
            self.span.attributes["nats.receivers"] = self._receivers
            spans.end(self.span, str(self._entries[0].get("error", "")))


def header_fields(header: bytes) -> list[tuple[bytes, bytes]]:
    """The names and values of a header block, in order, without those that have no value."""
    fields = []
    at = len(_FIRST_LINE)
    while (colon := header.find(b":", at)) >= 0:
        start = colon + 1
        while header[start : start + 1] in (b" ", b"\t"):
            start += 1
        end = header.find(b"\r\n", start)
        if end < 0:
            break
        value = header[start:end].rstrip(b" \t")
        if colon > at and value:
            fields.append((header[at:colon], value))
        at = end + 2
    return fields


def is_leaf(session: Session) -> bool:
    """Whether a connection is to another server."""
    return session.kind == "Leafnode"


def _says_only(first: dict[bytes, bytes]) -> bool:
    return first.get(ONLY, b"").lower() in (b"1", b"true", b"on")


def with_destination(header: bytes, destination: bytes = DISABLED) -> bytes:
    """The header block with this destination; the default destination prevents any trace."""
    return with_field(header, DESTINATION, destination)


def with_field(header: bytes, name: bytes, value: bytes) -> bytes:
    """The header block with this field at its end, replacing all others of that name."""
    start = name + b":"
    lines = header.removesuffix(b"\r\n").removesuffix(b"\r\n").split(b"\r\n")
    kept = [line for line in lines if not line.startswith(start)]
    return b"\r\n".join([*kept, start + b" " + value, b"", b""])


def _text(value: bytes) -> str:
    """The text that Go writes into JSON for bytes: each byte that is not UTF-8 becomes a mark of
    its own.
    """
    text = value.decode("utf-8", "surrogateescape")
    if text.isascii():
        return text
    return "".join("\ufffd" if "\udc80" <= one <= "\udcff" else one for one in text)


def _encoded(body: bytes, accepted: bytes) -> tuple[bytes, bytes]:
    """The header and the body of a trace, compressed if the requester accepts that."""
    if b"snappy" in accepted or b"s2" in accepted:
        from tradewind.store.format.s2 import frame_snappy

        return _FIRST_LINE + b"Content-Encoding: snappy\r\n\r\n", frame_snappy(body)
    if b"gzip" in accepted:
        body = gzip.compress(body, _COMPRESSION_LEVEL, mtime=0)
        return _FIRST_LINE + b"Content-Encoding: gzip\r\n\r\n", body
    return (_FIRST_LINE + b"Content-Encoding: identity\r\n\r\n" if accepted else b""), body
