"""What has to happen when: a heap of deadlines keyed by connection.

Owns only the order. A deadline is never cancelled: whoever is called checks whether it still
applies, which makes closing a connection free of charge. One entry per connection and kind keeps
the heap small.
"""

from __future__ import annotations

import heapq


class Deadlines:
    """(deadline, cid, kind) entries, earliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, str]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, deadline_ns: int, cid: int, kind: str) -> None:
        """Remember that `kind` is due for connection `cid`."""
        heapq.heappush(self._heap, (deadline_ns, cid, kind))

    def next_ns(self) -> int | None:
        """The earliest deadline, or None."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ns: int) -> list[tuple[int, str]]:
        """Take out everything due now, as (cid, kind), in order."""
        due: list[tuple[int, str]] = []
        while self._heap and self._heap[0][0] <= now_ns:
            _, cid, kind = heapq.heappop(self._heap)
            due.append((cid, kind))
        return due
