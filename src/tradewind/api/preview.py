"""Marks streams and consumers that were created with the API of a JetStream preview.

Owns the mark in their metadata. It survives restarts, because the acknowledgements of such streams
and consumers differ from today's: see docs/reference/PREVIEW.md. nats-server ignores the mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREVIEW_KEY: Final = "tradewind.preview"
PREVIEW_SETS: Final = "sets"  # message sets and observables, 2019
PREVIEW_STREAMS: Final = "streams"  # streams and consumers, early 2020
PREVIEW_OK: Final = b"+OK"


def preview_of(metadata: Mapping[str, str] | None) -> str:
    """The preview that created the stream or consumer; empty: none."""
    mark = metadata.get(PREVIEW_KEY, "") if metadata else ""
    return mark if mark in (PREVIEW_SETS, PREVIEW_STREAMS) else ""
