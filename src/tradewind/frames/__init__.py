"""Streams, buckets, backups and store folders as data frames, without a JVM, and frames as
messages.

`stream`, `bucket`, `objects` and `backup` describe what to read; the `FrameSource` that they return
is read as Arrow, pandas, polars or a DuckDB relation. `follow` gives batches of a stream as they
come, and `write` publishes a frame, each row exactly once.

The extra `frames` installs Arrow and DuckDB; only the modules that need them import them.
"""

from __future__ import annotations

from tradewind.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tradewind.frames.following import follow
    from tradewind.frames.frame_source import FrameSource, backup, bucket, objects, stream
    from tradewind.frames.frame_writing import write

_LAZY = {
    "FrameSource": "tradewind.frames.frame_source",
    "backup": "tradewind.frames.frame_source",
    "bucket": "tradewind.frames.frame_source",
    "follow": "tradewind.frames.following",
    "objects": "tradewind.frames.frame_source",
    "stream": "tradewind.frames.frame_source",
    "write": "tradewind.frames.frame_writing",
}

__all__ = [
    "FrameSource",
    "backup",
    "bucket",
    "follow",
    "objects",
    "stream",
    "write",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)
