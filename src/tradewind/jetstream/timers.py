"""When which part of the engine has something to do by itself.

Owns one deadline per owner. It calls nobody. A deadline that moves away is not followed: the owner
is called at the old one, finds nothing to do and says its new one. So a deadline that moves with
every message costs nothing, and the heap stays small.
"""

from __future__ import annotations

import heapq
from typing import Generic, Protocol, TypeVar

_Owner = TypeVar("_Owner")


class Timed(Protocol):
    """Somebody who does something by the clock."""

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do (monotonic); 0: never."""

    def tick(self) -> None:
        """Its time has come."""


class Timers(Generic[_Owner]):
    """Deadlines by the monotonic clock; owners are compared by identity."""

    def __init__(self) -> None:
        # Entries whose time is not that of `_due` any more are passed over.
        self._heap: list[tuple[int, int, _Owner]] = []
        self._due: dict[int, int] = {}
        self._count = 0

    def set(self, owner: _Owner, due_ns: int) -> None:
        """It is due at this time at the latest; 0: it does not know of any."""
        key = id(owner)
        if due_ns > 0 and due_ns < self._due.get(key, due_ns + 1):
            self._due[key] = due_ns
            self._count += 1
            heapq.heappush(self._heap, (due_ns, self._count, owner))

    def forget(self, owner: _Owner) -> None:
        """It is gone."""
        self._due.pop(id(owner), None)
        # An entry that is still in the heap keeps the owner alive, so its id is not used again.

    def next_ns(self) -> int | None:
        """The earliest deadline."""
        heap = self._heap
        while heap and self._due.get(id(heap[0][2])) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now_ns: int) -> list[_Owner]:
        """The owners whose time has come; each has no deadline from now on."""
        due: list[_Owner] = []
        while (next_ns := self.next_ns()) is not None and next_ns <= now_ns:
            owner = heapq.heappop(self._heap)[2]
            del self._due[id(owner)]
            due.append(owner)
        return due
