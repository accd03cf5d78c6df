"""When each part of the engine next has something to do.

Owns one deadline per owner. It never calls an owner. A deadline that moves later is not tracked:
the owner is called at the old one, finds nothing to do and reports its new one. A deadline that
moves with every message therefore costs nothing. The earliest is read in every turn. If a near
deadline was set after a far one, the entry of the far one is left in the heap; before such entries
become too many they are removed, so the heap is at most slightly larger than twice the number of
owners.
"""

from heapq import heapify, heappop, heappush
from typing import Protocol

from libc.stdint cimport int64_t


cdef enum:
    # Below this number of outdated entries a clean-up is not worthwhile.
    USELESS_MIN = 64


class Timed(Protocol):
    """An object with deadlines: `next_deadline_ns` and `tick`."""


cdef class Timers:
    """Deadlines by the monotonic clock; owners are compared by identity."""

    cdef list heap          # entries whose time differs from that in `due` are skipped
    cdef dict due           # id of the owner -> its deadline
    cdef int64_t added

    def __cinit__(self):
        self.heap = []
        self.due = {}

    def set(self, owner not None, due_ns):
        """Set the deadline of an owner; 0: it has none."""
        key = id(owner)
        if due_ns > 0 and due_ns < self.due.get(key, due_ns + 1):
            self.due[key] = due_ns
            self.added += 1
            heappush(self.heap, (due_ns, self.added, owner))
            if len(self.heap) > 2 * len(self.due) + USELESS_MIN:
                self._throw_out()

    def _throw_out(self):
        """Remove outdated entries, keeping one for each owner that has a deadline."""
        kept = {}
        for entry in self.heap:
            key = id(entry[2])
            if self.due.get(key) == entry[0]:
                kept[key] = entry
        self.heap = list(kept.values())
        heapify(self.heap)

    def __len__(self):
        """Number of entries held."""
        return len(self.heap)

    def forget(self, owner not None):
        """Remove an owner."""
        self.due.pop(id(owner), None)
        # An entry still in the heap keeps the owner alive, so its id is not reused.

    def next_ns(self):
        """The earliest deadline."""
        cdef tuple first
        while self.heap:
            first = self.heap[0]
            if self.due.get(id(first[2])) == first[0]:
                return first[0]
            heappop(self.heap)
        return None

    def take_due(self, now_ns, count_max=None):
        """Take the owners whose deadline has passed, earliest first; they have no deadline
        afterwards.
        """
        due = []
        while count_max is None or len(due) < count_max:
            next_ns = self.next_ns()
            if next_ns is None or next_ns > now_ns:
                return due
            owner = heappop(self.heap)[2]
            del self.due[id(owner)]
            due.append(owner)
        return due
