"""Human-readable numbers, sizes, times and durations for pages and sentences.

Owns nothing: the texts are those of `tradewind.client.why`, so that both are the same.
"""

from __future__ import annotations

from tradewind.client.why.texts import (
    UNLIMITED,
    count,
    limit,
    many,
    moment,
    short,
    since,
    size,
    span,
    span_ns,
    time_text,
)

__all__ = [
    "UNLIMITED",
    "count",
    "limit",
    "many",
    "moment",
    "short",
    "since",
    "size",
    "span",
    "span_ns",
    "time_text",
]
