"""Spans of a program that publishes and consumes: a connection that propagates traces.

Owns the current span of each task and the headers that propagate it. Messages pass through the
connection as before; it never affects programs that do not use it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from tradewind.otel.spans import (
    KIND_CONSUMER,
    KIND_PRODUCER,
    TRACEPARENT,
    Span,
    SpanContext,
    parse_traceparent,
)

if TYPE_CHECKING:
    from tradewind.api.responses import PubAck
    from tradewind.client.connection import Connection
    from tradewind.client.core.headers import Headers
    from tradewind.client.core.message import Msg
    from tradewind.client.jetstream import JetStream
    from tradewind.otel.exporter import SpanExporter

_current: ContextVar[SpanContext | None] = ContextVar("tradewind_span", default=None)
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8


@runtime_checkable
class _MultiValueHeaders(Protocol):
    """Headers that may have several values of one name."""

    def get_all(self, name: str) -> list[str]: ...


class TracedConnection:
    """A connection whose publishes and consumed messages have spans. `connection` is the plain one.

    `sampling` is the percentage of new traces that are exported; a trace that comes with a message
    or from `parent` is exported if it is sampled. `parent()` returns the traceparent of the
    program's own tracing library, or an empty text.
    """

    def __init__(
        self,
        connection: Connection,
        exporter: SpanExporter,
        *,
        sampling: int = 100,
        parent: Callable[[], str] | None = None,
    ) -> None:
        self.connection = connection
        self.exporter = exporter
        self._sampling = sampling
        self._parent = parent

    async def publish(
        self,
        subject: str,
        payload: bytes | str = b"",
        *,
        reply: str | None = None,
        headers: Mapping[str, str | list[str]] | Headers | None = None,
    ) -> None:
        """Publish a message with its own span."""
        with self.span(f"publish {subject}", KIND_PRODUCER, _about("publish", subject)) as span:
            await self.connection.publish(
                subject, payload, reply=reply, headers=_joined(headers, span)
            )

    async def publish_to(
        self,
        js: JetStream,
        subject: str,
        payload: bytes | str = b"",
        *,
        headers: Mapping[str, str | list[str]] | Headers | None = None,
        **settings: Any,
    ) -> PubAck:
        """Publish into a stream; the span ends with the acknowledgement."""
        with self.span(f"publish {subject}", KIND_PRODUCER, _about("publish", subject)) as span:
            return await js.publish(subject, payload, headers=_joined(headers, span), **settings)

    @contextmanager
    def processing(self, message: Msg) -> Iterator[Span | None]:
        """A span for the handling of a message, below the span of its publisher.

        Messages published inside belong to it, too. The span records whether the message was
        acknowledged.
        """
        values = [message.headers[name] for name in message.headers if name.lower() == TRACEPARENT]
        parents = [found for value in values if (found := parse_traceparent(value)) is not None]
        about = _about("process", message.subject)
        token = _current.set(parents[0]) if parents else None
        try:
            with self.span(f"process {message.subject}", KIND_CONSUMER, about) as span:
                try:
                    yield span
                finally:
                    if span is not None and message.reply.startswith("$JS.ACK."):
                        span.attributes["nats.acknowledged"] = message.is_settled
        finally:
            if token is not None:
                _current.reset(token)

    @contextmanager
    def span(
        self, name: str, kind: int, attributes: dict[str, str | int | bool]
    ) -> Iterator[Span | None]:
        """A span of the program itself; None if its trace is not exported."""
        parent = _current.get()
        if parent is None and self._parent is not None:
            parent = parse_traceparent(self._parent())
        if parent is None:
            context = SpanContext(os.urandom(_TRACE_BYTES).hex(), os.urandom(_SPAN_BYTES).hex())
            if not context.is_within(self._sampling):
                yield None
                return
        else:
            context = SpanContext(parent.trace_id, os.urandom(_SPAN_BYTES).hex())
        span = Span(
            name, kind, context, parent.span_id if parent else "", time.time_ns(), 0, attributes
        )
        token = _current.set(context)
        try:
            yield span
        except BaseException as error:
            span.error = str(error) or type(error).__name__
            raise
        finally:
            _current.reset(token)
            span.end_ns = time.time_ns()
            self.exporter.add(span)


def instrument(
    connection: Connection,
    exporter: SpanExporter,
    *,
    sampling: int = 100,
    parent: Callable[[], str] | None = None,
) -> TracedConnection:
    """Create spans for messages that are published and processed over a connection.

    >>> traced = instrument(connection, SpanExporter("http://127.0.0.1:4318"))
    """
    if not 0 <= sampling <= 100:
        raise ValueError(f"sampling must be a percentage from 0 to 100, not {sampling}")
    return TracedConnection(connection, exporter, sampling=sampling, parent=parent)


def _about(operation: str, subject: str) -> dict[str, str | int | bool]:
    return {
        "messaging.system": "nats",
        "messaging.operation.name": operation,
        "messaging.destination.name": subject,
    }


def _joined(
    headers: Mapping[str, str | list[str]] | Headers | None, span: Span | None
) -> dict[str, str | list[str]] | None:
    """The headers of a message, with those of its span; a traceparent of its own stays."""
    if span is None and headers is None:
        return None
    made: dict[str, str | list[str]] = {}
    given: Mapping[str, str | list[str]] | Headers = headers or {}
    for name in given:
        made[name] = given.get_all(name) if isinstance(given, _MultiValueHeaders) else given[name]
    if span is not None and not any(name.lower() == TRACEPARENT for name in made):
        made[TRACEPARENT] = span.context.traceparent
    return made
