"""Which streams and consumers were made in the language of a preview of JetStream.

Owns the mark in their metadata. It outlives a restart, because what such a stream answers to a
publish, and what an acknowledgement of such a consumer looks like, differs from today: see
docs/PREVIEW.md. nats-server passes over the mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREVIEW_KEY: Final = "tradewind.preview"
PREVIEW_SETS: Final = "sets"  # message sets and observables, 2019
PREVIEW_STREAMS: Final = "streams"  # streams and consumers, early 2020
PREVIEW_OK: Final = b"+OK"


def preview_of(metadata: Mapping[str, str] | None) -> str:
    """The preview that made it; empty: none."""
    mark = metadata.get(PREVIEW_KEY, "") if metadata else ""
    return mark if mark in (PREVIEW_SETS, PREVIEW_STREAMS) else ""
