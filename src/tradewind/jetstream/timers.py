"""When each part of the engine next has something to do.

Owns one deadline per owner. It never calls an owner. A deadline that moves later is not tracked:
the owner is called at the old one, finds nothing to do and reports its new one. A deadline that
moves with every message therefore costs nothing. The earliest is read in every turn. If a near
deadline was set after a far one, the entry of the far one is left in the heap; before such entries
become too many they are removed, so the heap is at most slightly larger than twice the number of
owners.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, Protocol

# Below this number of outdated entries a clean-up is not worthwhile.
USELESS_MIN: Final = 64


class TimerOwner(Protocol):
    """An object with deadlines by the monotonic clock."""

    @property
    def next_deadline_ns(self) -> int:
        """When there is something to do; 0: never."""
        ...

    def tick(self) -> None:
        """Called when the deadline has passed."""


class Timers:
    """Deadlines by the monotonic clock; owners are compared by identity."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TimerOwner]] = []
        self._due: dict[int, int] = {}
        self._added = 0

    def set(self, owner: TimerOwner, due_ns: int) -> None:
        """Set the deadline of an owner; 0: it has none."""
        key = id(owner)
        if due_ns > 0 and due_ns < self._due.get(key, due_ns + 1):
            self._due[key] = due_ns
            self._added += 1
            heappush(self._heap, (due_ns, self._added, owner))
            if len(self._heap) > 2 * len(self._due) + USELESS_MIN:
                self._throw_out()

    def _throw_out(self) -> None:
        """Remove outdated entries, keeping one for each owner that has a deadline."""
        kept = {}
        for entry in self._heap:
            key = id(entry[2])
            if self._due.get(key) == entry[0]:
                kept[key] = entry
        self._heap = list(kept.values())
        heapify(self._heap)

    def __len__(self) -> int:
        """Number of entries held."""
        return len(self._heap)

    def forget(self, owner: TimerOwner) -> None:
        """Remove an owner."""
        self._due.pop(id(owner), None)
        # An entry still in the heap keeps the owner alive, so its id is not reused.

    def next_ns(self) -> int | None:
        """The earliest deadline."""
        while self._heap:
            first = self._heap[0]
            if self._due.get(id(first[2])) == first[0]:
                return first[0]
            heappop(self._heap)
        return None

    def take_due(self, now_ns: int, count_max: int | None = None) -> list[TimerOwner]:
        """Take the owners whose deadline has passed, earliest first; they have no deadline
        afterwards.
        """
        due: list[TimerOwner] = []
        while count_max is None or len(due) < count_max:
            next_ns = self.next_ns()
            if next_ns is None or next_ns > now_ns:
                return due
            owner = heappop(self._heap)[2]
            del self._due[id(owner)]
            due.append(owner)
        return due
