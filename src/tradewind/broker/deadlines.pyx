"""Deadlines of connections: a heap, keyed by connection.

Owns only the order. A deadline is never cancelled: the code it wakes checks whether it still
applies, so closing a connection costs nothing here. One entry per connection and kind keeps the
heap small. The earliest deadline is read in every turn.
"""

from heapq import heappop, heappush


cdef class Deadlines:
    """(deadline, cid, kind) entries, earliest first."""

    def __cinit__(self):
        self.heap = []

    def __len__(self):
        return len(self.heap)

    def add(self, deadline_ns, cid, kind):
        """Add the deadline of `kind` for connection `cid`."""
        heappush(self.heap, (deadline_ns, cid, kind))

    def next_ns(self):
        """The earliest deadline, or None."""
        return self.first_ns()

    cdef object first_ns(self):
        """Call `next_ns`, from compiled code."""
        return (<tuple>self.heap[0])[0] if self.heap else None

    def take_due(self, now_ns, Py_ssize_t count_max):
        """Remove at most `count_max` entries that are due, and return them as (cid, kind), in
        order.
        """
        due = []
        while self.heap and self.heap[0][0] <= now_ns and len(due) < count_max:
            _, cid, kind = heappop(self.heap)
            due.append((cid, kind))
        return due
