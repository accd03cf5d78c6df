"""Writes a frame, for a test that kills this program in the middle: URL, stream, rows."""

from __future__ import annotations

import sys

import pyarrow as pa

import tradewind.sync
from tradewind import frames


def frame_of(rows: int) -> pa.Table:
    """The same frame every time, some of whose rows are equal."""
    return pa.table(
        {
            "n": pa.array([number // 2 for number in range(rows)], pa.int64()),
            "pad": ["x" * 200] * rows,
        }
    )


def main() -> None:
    """Write."""
    url, stream, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with tradewind.sync.connect(url) as connection:
        frames.write(connection.jetstream(), frame_of(rows), subject=f"{stream.lower()}.a")


if __name__ == "__main__":
    main()
