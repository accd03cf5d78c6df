"""Which headers name a trace, and how spans are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.otel.spans import KIND_SERVER, Span, SpanContext, parse_traceparent

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    "text",
    [
        f"00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-03",
        f"00-{TRACE}-{PARENT}-ff",
        f"cc-{TRACE}-{PARENT}-01",
        f"cc-{TRACE}-{PARENT}-01-what-the-future-will-be-like",
    ],
)
def test_a_sampled_traceparent(text: str) -> None:
    assert parse_traceparent(text) == SpanContext(TRACE, PARENT)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a-b-c-01",
        f"00-{TRACE}-{PARENT}-00",
        f"00-{TRACE}-{PARENT}-02",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-01\n",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}0-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-0g",
    ],
)
def test_no_traceparent(text: str) -> None:
    assert parse_traceparent(text) is None


@given(st.text(max_size=80))
def test_any_text_is_read_or_not(text: str) -> None:
    found = parse_traceparent(text)
    assert found is None or parse_traceparent(found.traceparent) == found


@given(st.integers(1, 2**128 - 1), st.integers(0, 100), st.integers(0, 100))
def test_a_trace_is_within_all_larger_samples(number: int, some: int, more: int) -> None:
    context = SpanContext(f"{number:032x}", PARENT)
    assert context.is_within(100)
    assert not context.is_within(0)
    if some <= more and context.is_within(some):
        assert context.is_within(more)


def test_a_span_in_json() -> None:
    span = Span("publish a", KIND_SERVER, SpanContext(TRACE, "1" * 16), PARENT, 5, 7)
    span.attributes.update(number=1, is_good=True, name="x")
    span.error = "bad"
    assert span.document() == {
        "traceId": TRACE,
        "spanId": "1" * 16,
        "parentSpanId": PARENT,
        "name": "publish a",
        "kind": 2,
        "startTimeUnixNano": "5",
        "endTimeUnixNano": "7",
        "attributes": [
            {"key": "number", "value": {"intValue": "1"}},
            {"key": "is_good", "value": {"boolValue": True}},
            {"key": "name", "value": {"stringValue": "x"}},
        ],
        "status": {"code": 2, "message": "bad"},
    }
