"""One order from the shop to the invoice as one trace, with spans of the programs and the server.

    python examples/tracing.py

Starts a server inside the program and a collector of OpenTelemetry that prints what it gets. With a
collector of your own, name it instead: python examples/tracing.py http://127.0.0.1:4318
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import json
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import tradewind
from tradewind.options import OpenTelemetryOptions
from tradewind.otel import SpanExporter, instrument

SPANS: list[dict[str, Any]] = []


class Collector(BaseHTTPRequestHandler):
    """Keeps the spans that it gets."""

    def do_POST(self) -> None:
        """OTLP over HTTP, in JSON."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in body["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                SPANS.extend(scope["spans"])
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """It says nothing of requests."""


def show(parent: str = "", indent: str = "") -> None:
    """Print the spans below one, in the order in which they began."""
    below = [span for span in SPANS if span.get("parentSpanId", "") == parent]
    for span in sorted(below, key=lambda one: int(one["startTimeUnixNano"])):
        print(f"{indent}{span['name']}")
        show(span["spanId"], indent + "  ")


async def trade(url: str, endpoint: str) -> None:
    """A shop publishes an order; billing takes it and publishes an invoice."""
    exporter = SpanExporter(endpoint, service_name="shop")
    async with tradewind.connect(url) as connection:
        traced = instrument(connection, exporter)
        js = connection.jetstream()
        await js.manager.streams.add(name="ORDERS", subjects=["orders.>"])
        await js.manager.consumers.add("ORDERS", durable_name="billing", ack_policy="explicit")
        await traced.publish_to(js, "orders.new", b"two apples")
        billing = await js.consumers.get("ORDERS", "billing")
        message = await billing.next(timeout=5)
        assert message is not None
        with traced.processing(message):
            await traced.publish("invoices.new", b"2")
            await message.ack_sync()
    await asyncio.to_thread(exporter.stop)


async def main() -> None:
    """Run all of it."""
    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    port = collector.server_address[1]
    endpoint = sys.argv[1] if len(sys.argv) > 1 else f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        spans = OpenTelemetryOptions(endpoint)
        async with tradewind.Server(jetstream=folder, opentelemetry=spans) as server:
            await trade(server.url, endpoint)
    collector.shutdown()
    show()


if __name__ == "__main__":
    asyncio.run(main())
