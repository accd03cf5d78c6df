"""Spans, and the header that propagates them: W3C Trace Context.

Owns the span type and the JSON of OTLP. It never reads a clock and never generates ids.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

TRACEPARENT: Final = "traceparent"
SAMPLED: Final = 1
# The span kinds of OTLP.
KIND_INTERNAL: Final = 1
KIND_SERVER: Final = 2
KIND_PRODUCER: Final = 4
KIND_CONSUMER: Final = 5
STATUS_ERROR: Final = 2

_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SPAN_LIMIT: Final = 1 << 64

Attribute = str | int | bool


class SpanContext(msgspec.Struct, frozen=True):
    """The identity of a span: its trace and its own id, both in hexadecimal digits."""

    trace_id: str
    span_id: str

    @property
    def traceparent(self) -> str:
        """The value of the header; a span with a context is sampled."""
        return f"00-{self.trace_id}-{self.span_id}-01"

    def is_within(self, sampling: int) -> bool:
        """Whether its trace is among the given percentage, by its id: either all parts of a trace
        are chosen, or none.
        """
        return int(self.trace_id[16:], 16) * 100 < sampling * _SPAN_LIMIT


class Span(msgspec.Struct):
    """A piece of work that has begun; `end_ns` is 0 until it ends."""

    name: str
    kind: int
    context: SpanContext
    parent_id: str
    start_ns: int
    end_ns: int = 0
    attributes: dict[str, Attribute] = msgspec.field(default_factory=dict)
    error: str = ""

    def document(self) -> dict[str, Any]:
        """The span in the JSON form of OTLP."""
        made: dict[str, Any] = {
            "traceId": self.context.trace_id,
            "spanId": self.context.span_id,
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": str(self.start_ns),
            "endTimeUnixNano": str(self.end_ns),
            "attributes": attribute_list(self.attributes),
        }
        if self.parent_id:
            made["parentSpanId"] = self.parent_id
        if self.error:
            made["status"] = {"code": STATUS_ERROR, "message": self.error}
        return made


def attribute_list(attributes: dict[str, Attribute]) -> list[dict[str, Any]]:
    """Attributes in the JSON form of OTLP, in which whole numbers are strings."""
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Attribute) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def parse_traceparent(value: str) -> SpanContext | None:
    """The context in a header; None if there is none, or if it is not sampled."""
    match = _PARENT.fullmatch(value)
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    if not int(match[4], 16) & SAMPLED or not int(match[2], 16) or not int(match[3], 16):
        return None
    return SpanContext(match[2], match[3])
