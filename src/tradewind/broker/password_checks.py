"""Queue password checks that wait for a thread.

Owns the connections whose password takes long to check, from CONNECT to the decision. It never runs
a check and never reads a clock: an idle thread asks for the next check and returns the result.

Every connection has a place in a queue in which addresses take turns, so that one address cannot
displace another. One thread works on that queue. A correct password must not wait after a flood of
wrong ones from its own address, but the time of a refusal must not reveal which users exist. The
other threads therefore check configured users early, out of turn, newest first; there too,
addresses take turns, and so do the users of an address. If the password is correct, the connection
is admitted immediately. If not, no response is sent: the connection keeps its place and is checked
again when its turn comes, like an unknown user. A refusal is therefore sent one check after the
connection's turn, whether or not the user exists, and a flood of unknown users occupies only one
thread.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

import msgspec

from tradewind.broker.identity import Consultation, DeferredCheck, Identity, Rejection
from tradewind.broker.room import source_of

Waiting = TypeVar("Waiting")


class FairQueue(Generic[Waiting]):
    """A queue in which lanes take turns, and so do the lanes within them; the oldest item is first,
    or the newest.

    `path` names the lanes, the outer one first; `key` is unique.
    """

    def __init__(self, *, newest_first: bool = False) -> None:
        self._newest_first = newest_first
        self._items: OrderedDict[int, Waiting] = OrderedDict()
        self._lanes: OrderedDict[str, FairQueue[Waiting]] = OrderedDict()
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def push(self, path: tuple[str, ...], key: int, item: Waiting) -> None:
        """Add an item to the end of its lane."""
        self.count += 1
        if not path:
            self._items[key] = item
            return
        lane = self._lanes.get(path[0])
        if lane is None:
            lane = self._lanes[path[0]] = FairQueue(newest_first=self._newest_first)
        lane.push(path[1:], key, item)

    def pop(self) -> Waiting:
        """Remove the next item and return it; KeyError if the queue is empty."""
        self.count -= 1
        if self._items:
            return self._items.popitem(last=self._newest_first)[1]
        name = next(reversed(self._lanes) if self._newest_first else iter(self._lanes))
        lane = self._lanes[name]
        item = lane.pop()
        if lane:
            self._lanes.move_to_end(name, last=not self._newest_first)
        else:
            del self._lanes[name]
        return item

    def remove(self, path: tuple[str, ...], key: int) -> bool:
        """Remove an item; False if it was not in the queue."""
        if not path:
            found = self._items.pop(key, None) is not None
        else:
            lane = self._lanes.get(path[0])
            found = lane is not None and lane.remove(path[1:], key)
            if lane is not None and not lane:
                del self._lanes[path[0]]
        self.count -= found
        return found


class Waiter(msgspec.Struct, eq=False, frozen=True):
    """One connection that waits for a decision."""

    cid: int
    address: str
    deferred: DeferredCheck


class Check(msgspec.Struct, eq=False, frozen=True):
    """A check for a thread to run."""

    waiter: Waiter
    is_early: bool

    def decide(self) -> Identity | Rejection | Consultation:
        """Check the password; runs in a thread."""
        return self.waiter.deferred.decide()


class CheckQueue:
    """All connections whose passwords are waiting to be checked."""

    def __init__(self) -> None:
        self._waiters: dict[int, Waiter] = {}
        self.places: FairQueue[Waiter] = FairQueue()  # waiters in the order of their places
        # From the other end: where all passwords are right, none is checked twice.
        self._early: FairQueue[Waiter] = FairQueue(newest_first=True)
        self._in_place: Check | None = None  # the one that is running

    def add(self, cid: int, ip: str, deferred: DeferredCheck) -> None:
        """Add a connection that waits from now on, with this password instead of an earlier one."""
        self.remove(cid)
        waiter = self._waiters[cid] = Waiter(cid, source_of(ip), deferred)
        self.places.push((waiter.address,), cid, waiter)
        if deferred.user is not None:
            self._early.push((waiter.address, deferred.user), cid, waiter)

    def remove(self, cid: int) -> None:
        """Called when the connection has ended; the result of a running check is dropped."""
        waiter = self._waiters.pop(cid, None)
        if waiter is not None:
            self.places.remove((waiter.address,), cid)
            self._leave_early(waiter)

    def _leave_early(self, waiter: Waiter) -> None:
        if waiter.deferred.user is not None:
            self._early.remove((waiter.address, waiter.deferred.user), waiter.cid)

    def take(self) -> Check | None:
        """The check to run next, whose result must be passed to `finished`; None if there is
        none.
        """
        if self._in_place is None and self.places:
            # Even if an early check is running: this one has to end when that of any name would.
            waiter = self.places.pop()
            self._leave_early(waiter)
            self._in_place = Check(waiter, is_early=False)
            return self._in_place
        return Check(self._early.pop(), is_early=True) if self._early else None

    def finished(self, check: Check, decision: Identity | Rejection | Consultation) -> int | None:
        """Called when a thread has a result; returns the connection to be notified, if it is
        time.
        """
        if self._in_place is check:
            self._in_place = None
        waiter = check.waiter
        if self._waiters.get(waiter.cid) is not waiter:
            return None
        if check.is_early and not isinstance(decision, Identity):
            return None
        self.remove(waiter.cid)
        return waiter.cid
