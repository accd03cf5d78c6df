"""Spans reach a collector, and one that is slow, absent or unwilling costs spans only."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from otlp_collector import WAIT_SECONDS, Collector

from tradewind.errors import TradewindError
from tradewind.otel import exporter as module
from tradewind.otel.exporter import SpanExporter
from tradewind.otel.spans import KIND_INTERNAL, Span, SpanContext


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def span(number: int = 1) -> Span:
    context = SpanContext(f"{number:032x}", f"{number:016x}")
    return Span(f"span {number}", KIND_INTERNAL, context, "", 1, 2)


def test_spans_are_sent_with_what_is_known_of_the_process(collector: Collector) -> None:
    headers = {"Authorization": "key"}
    exporter = SpanExporter(collector.url, service_name="shop", headers=headers)
    exporter.add(span())
    exporter.stop(WAIT_SECONDS)
    ((path, sent, document),) = collector.requests
    assert (path, sent["content-type"], sent["authorization"]) == (
        "/v1/traces",
        "application/json",
        "key",
    )
    (resource,) = document["resourceSpans"]
    name = {"key": "service.name", "value": {"stringValue": "shop"}}
    assert name in resource["resource"]["attributes"]
    assert [one["name"] for one in collector.spans()] == ["span 1"]
    assert exporter.statistics == module.ExporterStatistics(exported=1)


def test_the_path_of_the_endpoint_counts(collector: Collector) -> None:
    exporter = SpanExporter(collector.url + "/own/path")
    exporter.add(span())
    exporter.stop(WAIT_SECONDS)
    assert collector.requests[0][0] == "/own/path"


def test_many_spans_go_in_batches(collector: Collector) -> None:
    exporter = SpanExporter(collector.url)
    for number in range(1, 2001):
        exporter.add(span(number))
    exporter.stop(WAIT_SECONDS)
    assert len(collector.spans()) == 2000
    assert exporter.statistics.exported == 2000
    assert len(collector.requests) < 100


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_a_collector_that_refuses_costs_spans(collector: Collector, status: int) -> None:
    collector.status = status
    said: list[str] = []
    exporter = SpanExporter(collector.url, on_trouble=said.append)
    for number in range(1, 2 * module.BATCH_MAX):
        exporter.add(span(number))
    exporter.stop(WAIT_SECONDS)
    assert exporter.statistics.failed == 2 * module.BATCH_MAX - 1
    assert len(said) == 1, "it is said once, not for each batch"
    assert f"status {status}" in said[0]


def test_a_collector_that_is_not_there_costs_spans() -> None:
    with socket.socket() as taken:  # nobody listens here, and nobody else can either
        taken.bind(("127.0.0.1", 0))
        exporter = SpanExporter(f"http://127.0.0.1:{taken.getsockname()[1]}")
        exporter.add(span())
        exporter.stop(WAIT_SECONDS)
    assert exporter.statistics == module.ExporterStatistics(failed=1)


def test_a_collector_that_is_slow_holds_up_nobody(collector: Collector) -> None:
    collector.open.clear()
    exporter = SpanExporter(collector.url)
    exporter.add(span())
    collector.wait_for(lambda spans: len(spans) == 1)
    for number in range(module.QUEUE_MAX + 10):
        exporter.add(span(number + 2))
    assert exporter.statistics.dropped == 10
    exporter.stop(0.01)
    assert exporter.statistics.dropped == module.QUEUE_MAX + 10
    exporter.add(span())
    assert exporter.statistics.dropped == module.QUEUE_MAX + 11
    collector.open.set()
    exporter.stop(WAIT_SECONDS)
    assert exporter.statistics.exported == 1


def test_a_collector_that_speaks_something_else_costs_spans() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            peer, _ = server.accept()
            peer.recv(65536)
            peer.sendall(b"SSH-2.0-nonsense\r\n")
            peer.close()

        thread = threading.Thread(target=talk)
        thread.start()
        exporter = SpanExporter(f"http://127.0.0.1:{server.getsockname()[1]}")
        exporter.add(span())
        exporter.stop(WAIT_SECONDS)
        thread.join()
    assert exporter.statistics == module.ExporterStatistics(failed=1)


@pytest.mark.parametrize(
    "endpoint", ["", "127.0.0.1:4318", "ftp://a", "http://", "http://a:x", "http://a:99999", "a b"]
)
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(
        TradewindError, match=r"endpoint must be a URL such as http://127\.0\.0\.1:4318, not "
    ):
        SpanExporter(endpoint)
