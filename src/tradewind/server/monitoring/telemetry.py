"""Spans of a running server: the exporter, its metrics and its shutdown.

Owns the exporter. Only servers with an `opentelemetry` block import this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tradewind._version import __version__
from tradewind.monitor.prometheus import Family, Sample
from tradewind.otel.exporter import SpanExporter
from tradewind.otel.recorder import SpanRecorder

if TYPE_CHECKING:
    from tradewind.broker.broker import Broker
    from tradewind.options import OpenTelemetryOptions
    from tradewind.server.monitoring.logs import Log


class Telemetry:
    """The spans of one server, from its start to `stop`."""

    def __init__(self, broker: Broker, options: OpenTelemetryOptions, log: Log) -> None:
        loop = asyncio.get_running_loop()

        def warn(text: str) -> None:
            # The thread of the exporter outlives the loop if the server ends first.
            if not loop.is_closed():
                loop.call_soon_threadsafe(log.warn, text)

        self._broker = broker
        self._exporter = SpanExporter(
            options.endpoint,
            service_name=options.service_name,
            resource={
                "service.version": __version__,
                "service.instance.id": broker.server_id,
                "server.name": broker.server_name,
            },
            headers={name: value.reveal() for name, value in options.headers.items()},
            timeout_seconds=options.timeout_ns / 1e9,
            on_trouble=warn,
        )
        broker.record_spans(SpanRecorder(self._exporter, broker.now_ns, options.sampling))
        log.notice(f"Sending spans to {options.endpoint}")

    def families(self) -> Iterator[Family]:
        """The metric families of the exporter, for /metrics."""
        figures = self._exporter.statistics
        samples = tuple(
            Sample(value, {"outcome": name})
            for name, value in (
                ("exported", figures.exported),
                ("dropped", figures.dropped),
                ("failed", figures.failed),
            )
        )
        yield Family("tradewind_spans_total", "counter", "Spans by outcome.", samples)

    async def stop(self) -> None:
        """Stop recording spans, and send those that are queued within a bounded time."""
        self._broker.record_spans(None)
        await asyncio.to_thread(self._exporter.stop)
