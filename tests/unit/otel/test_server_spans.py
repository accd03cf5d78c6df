"""Spans of a server and of a program that talks to it, as a collector sees them."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from otlp_collector import Collector

from tradewind import connect
from tradewind.client.connection import Connection
from tradewind.client.core.message import Msg
from tradewind.client.jetstream import JetStream
from tradewind.client.streams.consumers import Consumer
from tradewind.options import JetStreamOptions, OpenTelemetryOptions, ServerOptions
from tradewind.otel import SpanExporter, instrument
from tradewind.server.lifecycle.app import ServerApp
from tradewind.testing import MemoryLog

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def options(folder: Path, collector: Collector | None, **settings: Any) -> ServerOptions:
    telemetry = OpenTelemetryOptions(collector.url, **settings) if collector is not None else None
    return ServerOptions(
        host="127.0.0.1",
        port=-1,
        http_port=-1,
        jetstream=JetStreamOptions(enabled=True, store_dir=str(folder)),
        opentelemetry=telemetry,
    )


@pytest.fixture
async def server(tmp_path: Path, collector: Collector) -> AsyncIterator[ServerApp]:
    log = MemoryLog()
    async with ServerApp(options(tmp_path, collector), log) as made:  # type: ignore[arg-type]
        yield made


@pytest.fixture
async def connection(server: ServerApp) -> AsyncIterator[Connection]:
    async with await connect(server.url) as made:
        yield made


async def orders(connection: Connection, **config: Any) -> JetStream:
    streams = connection.jetstream_manager().streams
    await streams.add(name="ORDERS", subjects=["orders.>"], **config)
    return connection.jetstream()


async def consumer(js: JetStream) -> Consumer:
    await js.manager.consumers.add("ORDERS", durable_name="billing", ack_policy="explicit")
    return await js.consumers.get("ORDERS", "billing")


async def pulled(consumer: Consumer) -> Msg:
    message = await consumer.next(timeout=30)
    assert message is not None
    return message


def named(spans: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {span["name"]: span for span in spans}


async def collected(collector: Collector, count: int) -> dict[str, dict[str, Any]]:
    """The spans by name, as soon as there are so many."""
    found = await asyncio.to_thread(collector.wait_for, lambda spans: len(spans) >= count)
    assert len(found) == count, named(found).keys()
    return named(found)


async def test_the_way_of_a_message_is_one_trace(
    connection: Connection, collector: Collector
) -> None:
    js = await orders(connection)
    await js.publish("orders.new", b"two apples", headers=SAMPLED)
    billing = await consumer(js)
    (await pulled(billing)).nak()
    (await pulled(billing)).ack()
    await connection.flush()
    spans = await collected(collector, 6)
    publish, store = spans["publish orders.new"], spans["store ORDERS"]
    deliver, again = spans["deliver billing"], spans["redeliver billing"]
    assert {span["traceId"] for span in spans.values()} == {TRACE}
    assert publish["parentSpanId"] == deliver["parentSpanId"] == again["parentSpanId"] == PARENT
    assert store["parentSpanId"] == publish["spanId"]
    assert spans["nak billing"]["parentSpanId"] == deliver["spanId"]
    assert spans["ack billing"]["parentSpanId"] == again["spanId"]
    assert store["attributes"]["nats.stream.sequence"] == "1"
    assert again["attributes"]["nats.delivery.count"] == "2"
    assert publish["attributes"]["messaging.destination.name"] == "orders.new"
    for span in spans.values():
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert "status" not in span


async def test_core_messages_have_one_span_with_the_number_of_receivers(
    connection: Connection, collector: Collector
) -> None:
    first = await connection.subscribe("greet")
    await connection.subscribe("*")
    await connection.publish("greet", b"hello", headers=SAMPLED)
    message = await first.next(timeout=30)
    assert dict(message.headers) == SAMPLED, "nobody sees of spans"
    spans = await collected(collector, 1)
    assert spans["publish greet"]["attributes"]["nats.receivers"] == "2"


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_a_stored_message_is_what_was_published(
    connection: Connection, collector: Collector, storage: str
) -> None:
    js = await orders(connection, storage=storage)
    acknowledged = await js.publish("orders.a", b"x", headers={**SAMPLED, "A": "b"})
    assert acknowledged.seq == 1
    stored = await connection.jetstream_manager().streams.get_message("ORDERS", seq=1)
    assert dict(stored.headers) == {**SAMPLED, "A": "b"}
    await collected(collector, 2)


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"traceparent": f"00-{TRACE}-{PARENT}-00"},
        {"traceparent": "a-b-c-01"},
        {"traceparent": f"00-{'0' * 32}-{PARENT}-01"},
        {"Nats-Trace-Dest": "elsewhere"},
    ],
)
async def test_messages_that_are_not_sampled_have_no_spans(
    connection: Connection, collector: Collector, header: dict[str, str]
) -> None:
    js = await orders(connection)
    await js.publish("orders.a", b"x", headers=header or None)
    billing = await consumer(js)
    await (await pulled(billing)).ack_sync()
    await js.publish("orders.b", b"x", headers=SAMPLED)
    spans = await collected(collector, 2)
    assert spans.keys() == {"publish orders.b", "store ORDERS"}


async def test_the_sampling_of_the_server_decides_by_the_trace(
    tmp_path: Path, collector: Collector
) -> None:
    """The last half of the id counts: this one is beyond half of all traces."""
    settings = options(tmp_path, collector, sampling=50)
    within = {"traceparent": f"00-{TRACE[:16]}{'1' * 16}-{PARENT}-01"}
    beyond = {"traceparent": f"00-{TRACE[:16]}{'f' * 16}-{PARENT}-01"}
    async with (
        ServerApp(settings, MemoryLog()) as server,  # type: ignore[arg-type]
        await connect(server.url) as connection,
    ):
        await connection.publish("a", headers=beyond)
        await connection.publish("b", headers=within)
        assert (await collected(collector, 1)).keys() == {"publish b"}


async def test_a_refused_publish_says_why(tmp_path: Path, collector: Collector) -> None:
    async with (
        ServerApp(options(tmp_path, collector), MemoryLog()) as server,  # type: ignore[arg-type]
        await connect(server.url) as connection,
    ):
        await connection.publish("_GR_.a", headers=SAMPLED)
        spans = await collected(collector, 1)
        problem = 'Permissions Violation for Publish to "_GR_.a"'
        assert spans["publish _GR_.a"]["status"] == {"code": 2, "message": problem}


def scraped(server: ServerApp, outcome: str) -> int:
    with urllib.request.urlopen(f"{server.monitor_url}/metrics") as page:
        lines = page.read().decode().splitlines()
    start = f'tradewind_spans_total{{outcome="{outcome}"}} '
    return next(int(line.removeprefix(start)) for line in lines if line.startswith(start))


async def test_a_collector_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    """Messages flow, what is lost is counted, and the server ends in time."""
    collector = Collector()
    collector.open.clear()
    log = MemoryLog()
    settings = options(tmp_path, collector)
    async with (
        ServerApp(settings, log) as server,  # type: ignore[arg-type]
        await connect(server.url) as connection,
    ):
        js = await orders(connection)
        await js.publish("orders.a", headers=SAMPLED)
        await asyncio.to_thread(collector.wait_for, lambda spans: len(spans) > 0)
        for _ in range(9000):
            await connection.publish("x", headers=SAMPLED)
        assert (await js.publish("orders.a", headers=SAMPLED)).seq == 2
        assert await asyncio.to_thread(scraped, server, "dropped") > 800
        collector.status = 500
    collector.close()


async def test_without_the_block_there_are_no_spans(tmp_path: Path, collector: Collector) -> None:
    async with (
        ServerApp(options(tmp_path, None), MemoryLog()) as server,  # type: ignore[arg-type]
        await connect(server.url) as connection,
    ):
        js = await orders(connection)
        await js.publish("orders.a", headers=SAMPLED)
        assert server.broker.router.spans is None
        assert not any(one.traces_parents for one in server.broker.accounts.values())
    assert collector.requests == []


# ---------------------------------------------------------------------- programs


async def test_a_program_and_the_server_make_one_trace(
    connection: Connection, collector: Collector
) -> None:
    js = await orders(connection)
    exporter = SpanExporter(collector.url, service_name="shop")
    traced = instrument(connection, exporter)
    await traced.publish_to(js, "orders.new", b"two apples", headers={"A": "b"})
    billing = await consumer(js)
    message = await pulled(billing)
    with traced.processing(message) as span:
        assert span is not None
        await traced.publish("invoices.new", b"2")
        message.ack()
    await connection.flush()
    await asyncio.to_thread(exporter.stop)
    spans = await asyncio.to_thread(collector.wait_for, lambda spans: len(spans) >= 8)
    assert len({span["traceId"] for span in spans}) == 1
    ours = [one for one in spans if "nats.account" not in one["attributes"]]
    ours = [one for one in ours if "nats.stream" not in one["attributes"]]
    by_name = named(ours)
    root = by_name["publish orders.new"]
    assert "parentSpanId" not in root
    process = by_name["process orders.new"]
    assert process["parentSpanId"] == root["spanId"]
    assert process["attributes"]["nats.acknowledged"] is True
    assert by_name["publish invoices.new"]["parentSpanId"] == process["spanId"]
    assert message.headers["A"] == "b"


async def test_what_a_program_brings_along_is_the_parent(
    connection: Connection, collector: Collector
) -> None:
    exporter = SpanExporter(collector.url)
    traced = instrument(connection, exporter, parent=lambda: SAMPLED["traceparent"])
    subscription = await connection.subscribe("a")
    await traced.publish("a")
    message = await subscription.next(timeout=30)
    assert message.headers["traceparent"].startswith(f"00-{TRACE}-")
    await traced.publish("a", headers={"Traceparent": "own"})
    message = await subscription.next(timeout=30)
    assert message.headers.get_all("Traceparent") == ["own"]
    with pytest.raises(ZeroDivisionError), traced.processing(message):
        raise ZeroDivisionError("what a pity")
    await asyncio.to_thread(exporter.stop)
    spans = named(collector.spans())
    assert spans["process a"]["status"] == {"code": 2, "message": "what a pity"}
    assert spans["process a"]["parentSpanId"] == PARENT


async def test_a_program_that_samples_nothing_sends_no_headers(
    connection: Connection, collector: Collector
) -> None:
    exporter = SpanExporter(collector.url)
    traced = instrument(connection, exporter, sampling=0)
    subscription = await connection.subscribe("a")
    await traced.publish("a")
    assert dict((await subscription.next(timeout=30)).headers) == {}
    await asyncio.to_thread(exporter.stop)
    assert collector.spans() == []
    with pytest.raises(ValueError, match="sampling must be a percentage from 0 to 100, not 101"):
        instrument(connection, exporter, sampling=101)
