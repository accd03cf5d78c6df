"""Marks streams and consumers that were created with the API of a JetStream preview.

Owns the mark in their metadata. It survives restarts, because the acknowledgements of such streams
and consumers differ from today's: see docs/reference/PREVIEW.md. nats-server ignores the mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LEGACY_KEY: Final = "tradewind.preview"
LEGACY_SETS: Final = "sets"  # message sets and observables, 2019
LEGACY_STREAMS: Final = "streams"  # streams and consumers, early 2020
LEGACY_OK: Final = b"+OK"


def legacy_of(metadata: Mapping[str, str] | None) -> str:
    """The preview that created the stream or consumer; empty: none."""
    mark = metadata.get(LEGACY_KEY, "") if metadata else ""
    return mark if mark in (LEGACY_SETS, LEGACY_STREAMS) else ""
