"""Records the spans of a server for messages with a sampled traceparent.

Owns the kinds of spans and their contents, and remembers deliveries until they are acknowledged.
The broker, streams and consumers report to it through `Router.spans`; if that is None, there are no
spans.

    publish      a client published the message; its parent is the span that the message names
    store        from there until it is as durable as the stream promises
    deliver      a consumer sent it; the parent is that of the message
    redeliver    the same for every later delivery
    ack          from that until the answer of the client: ack, nak, term, next
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from tradewind.otel.spans import (
    KIND_CONSUMER,
    KIND_INTERNAL,
    KIND_PRODUCER,
    KIND_SERVER,
    Span,
    SpanContext,
    parse_traceparent,
)

# The limit for deliveries whose response is awaited; one more drops the oldest.
DELIVERIES_MAX: Final = 65_536
_ID_BYTES: Final = 8
_ANSWERS: Final = {b"": "ack", b"+ACK": "ack", b"+OK": "ack"}
_ANSWERS_LONG: Final = {
    b"-NAK": "nak",
    b"+TERM": "term",
    b"+NXT": "next",
}
_PROGRESS: Final = b"+WPI"


class SpanSink(Protocol):
    """The destination of spans."""

    def add(self, span: Span) -> None: ...  # noqa: D102


class ConsumerView(Protocol):
    """The properties of a consumer in its spans."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def stream_name(self) -> str: ...  # noqa: D102


class SpanRecorder:
    """The recorder of a server; `sampling` is the percentage of traces it takes part in."""

    def __init__(self, sink: SpanSink, now_ns: Callable[[], int], sampling: int = 100) -> None:
        self._sink = sink
        self._now_ns = now_ns
        self._sampling = sampling
        self._sent: OrderedDict[tuple[str, str, int], tuple[SpanContext, int]] = OrderedDict()

    def context_of(self, header: bytes) -> SpanContext | None:
        """The trace in a header, if it is sampled."""
        for line in header.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"traceparent":
                found = parse_traceparent(value.strip(b" \t").decode("ascii", "replace"))
                if found is not None:
                    return found if found.is_within(self._sampling) else None
        return None

    def _begin(self, name: str, kind: int, parent: SpanContext, start_ns: int = 0) -> Span:
        context = SpanContext(parent.trace_id, os.urandom(_ID_BYTES).hex())
        span = Span(name, kind, context, parent.span_id, start_ns or self._now_ns())
        span.attributes["messaging.system"] = "nats"
        return span

    def end(self, span: Span, error: str = "") -> None:
        """End a span."""
        span.end_ns = max(self._now_ns(), span.start_ns)
        span.error = error
        self._sink.add(span)

    # ---------------------------------------------------------------- events

    def published(self, header: bytes, subject: str, size: int, account: str) -> Span | None:
        """Called when a client publishes a message; returns the span, to be passed to `end`
        afterwards.
        """
        parent = self.context_of(header)
        if parent is None:
            return None
        span = self._begin(f"publish {subject}", KIND_SERVER, parent)
        span.attributes |= {
            "messaging.operation.name": "publish",
            "messaging.destination.name": subject,
            "messaging.message.envelope.size": size,
            "nats.account": account,
        }
        return span

    def stored(self, published: Span, stream: str, seq: int) -> Callable[[Exception | None], None]:
        """Called when a stream has accepted the message; the returned function must be called once
        the message is durable, or with the error.
        """
        span = self._begin(f"store {stream}", KIND_INTERNAL, published.context)
        span.attributes |= {
            "messaging.operation.name": "store",
            "nats.stream": stream,
            "nats.stream.sequence": seq,
        }
        return lambda error: self.end(span, "" if error is None else str(error))

    def delivered(
        self, consumer: ConsumerView, seq: int, deliveries: int, header: bytes, subject: bytes
    ) -> None:
        """Called when a consumer has sent a message whose header has a sampled traceparent."""
        parent = self.context_of(header)
        if parent is None:
            return
        operation = "deliver" if deliveries <= 1 else "redeliver"
        span = self._begin(f"{operation} {consumer.name}", KIND_PRODUCER, parent)
        span.attributes |= {
            "messaging.operation.name": operation,
            "messaging.destination.name": subject.decode("utf-8", "replace"),
            "nats.delivery.count": deliveries,
            **_about(consumer, seq),
        }
        self.end(span)
        key = (consumer.stream_name, consumer.name, seq)
        self._sent.pop(key, None)
        self._sent[key] = (span.context, span.end_ns)
        if len(self._sent) > DELIVERIES_MAX:
            self._sent.popitem(last=False)

    def answered(self, consumer: ConsumerView, seq: int, payload: bytes) -> None:
        """Called when a client has responded to a delivery, possibly one without spans."""
        if not self._sent or payload.startswith(_PROGRESS):
            return
        sent = self._sent.pop((consumer.stream_name, consumer.name, seq), None)
        if sent is None:
            return
        parent, since_ns = sent
        words = payload[:5].split()
        answer = _ANSWERS.get(payload) or _ANSWERS_LONG.get(words[0] if words else b"", "ack")
        span = self._begin(f"{answer} {consumer.name}", KIND_CONSUMER, parent, since_ns)
        span.attributes |= {"messaging.operation.name": answer, **_about(consumer, seq)}
        self.end(span)


def _about(consumer: ConsumerView, seq: int) -> dict[str, str | int | bool]:
    return {
        "messaging.consumer.group.name": consumer.name,
        "nats.stream": consumer.stream_name,
        "nats.stream.sequence": seq,
    }
