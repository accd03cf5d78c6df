"""OpenTelemetry spans of the server and of programs, for any collector.

Owns spans, their export and the instrumentation of connections. A server or connection never
imports this package unless it is configured to.
"""

from tradewind.otel.exporter import ExporterStatistics, SpanExporter
from tradewind.otel.instrumentation import TracedConnection, instrument
from tradewind.otel.spans import Span, SpanContext, parse_traceparent

__all__ = [
    "ExporterStatistics",
    "Span",
    "SpanContext",
    "SpanExporter",
    "TracedConnection",
    "instrument",
    "parse_traceparent",
]
