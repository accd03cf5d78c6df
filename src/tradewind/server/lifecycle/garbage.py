"""Settings of Python's garbage collector in a server process, and the collection of what it drops.

Owns the settings for the process of `tradewind-server`; a program with an embedded server keeps its
own. A full collection visits every object and blocks all clients: with 10,000 streams, for a third
of a second. So there are none. The cost of a collection depends on the number of new objects, never
on the number of all objects:

- What exists after the start is excluded permanently.
- Only the two young generations are collected, which have a size. They find the cycles that
  requests leave, such as exceptions with their frames. Objects that survive both are never visited
  again.
- Connections, logins, accounts, subscriptions and pages form no cycles when they end: reference
  counting frees them, however old they are (`tests/faults/test_cycles.py`).
- Streams and consumers do. Deleted ones are handed to `Collector.let_go`, which moves
  their parts back to the youngest generation, a bounded number at a time, and collects that. One
  that is still in use somewhere is tried again later.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tradewind.server.lifecycle.generations import make_young, parts_of

if TYPE_CHECKING:
    import asyncio

    from tradewind.broker.turn_watch import TurnWatch

# A collection of the youngest generation comes after this many new objects, one of the middle
# generation after this many of those, and one of the last generation never.
YOUNG_OBJECTS_MAX: Final = 5_000
YOUNG_COLLECTIONS_MAX: Final = 8
_NEVER: Final = 2**31 - 1
# The number of objects that one step moves back.
STEP_OBJECTS_MAX: Final = 20_000
# The delay before dropped objects are checked, and the factor for each further attempt.
FIRST_SECONDS: Final = 1.0
NEXT_FACTOR: Final = 4.0
ATTEMPTS_MAX: Final = 6
# The pause between two steps, in which others have their turns.
STEP_SECONDS: Final = 0.01


def collect_only_what_is_new() -> None:
    """Exclude everything that exists now from collections; `main` has disabled these until here."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, YOUNG_COLLECTIONS_MAX, _NEVER)
    gc.enable()


def name_collections(watch: TurnWatch) -> Callable[[], None]:
    """Name collections in this thread as the cause of long turns; returns the function that stops
    it.
    """
    owner = threading.get_ident()

    def collected(phase: str, facts: dict[str, int]) -> None:
        if threading.get_ident() != owner:
            return
        if phase == "start":
            watch.begin()
        else:
            watch.lap("garbage collection", f"{facts['collected']} objects were freed")

    gc.callbacks.append(collected)
    return lambda: gc.callbacks.remove(collected)


class _DroppedObject:
    """A dropped object, which should be garbage. Neither it nor its surroundings are kept alive."""

    __slots__ = ("attempts", "due", "root", "surroundings")

    def __init__(self, root: object, surroundings: tuple[object, ...], due: float) -> None:
        self.root = weakref.ref(root)
        self.surroundings = [weakref.ref(each) for each in surroundings]
        self.due = due
        self.attempts = 0


class Collector:
    """Collects the cycles of dropped objects, in steps of the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        watch: TurnWatch,
        first_seconds: float = FIRST_SECONDS,
    ) -> None:
        self._loop = loop
        self._watch = watch
        self._first_seconds = first_seconds
        # One queue per attempt; in each, the objects that are due first come first.
        self._queues: list[deque[_DroppedObject]] = [deque() for _ in range(ATTEMPTS_MAX)]
        self._timer: asyncio.TimerHandle | None = None
        # Dropped objects that were still in use at the last attempt.
        self.waiting_count = 0

    def let_go(self, root: object, *surroundings: object) -> None:
        """Free an object soon that is part of cycles; `surroundings` are the objects it refers to
        that stay.
        """
        due = self._loop.time() + self._first_seconds
        self._queues[0].append(_DroppedObject(root, surroundings, due))
        self.waiting_count += 1
        if self._timer is None:
            self._timer = self._loop.call_later(self._first_seconds, self._step)

    def stop(self) -> None:
        """Cancel the timer and drop the waiting objects."""
        if self._timer is not None:
            self._timer.cancel()
        self._queues = [deque() for _ in range(ATTEMPTS_MAX)]

    def _step(self) -> None:
        self._watch.begin()
        self._timer = None
        tried = self._age_back()
        if tried:
            gc.collect(0)
            for dropped in tried:
                self._judge(dropped)
        due = [queue[0].due for queue in self._queues if queue]
        if due:
            wait = max(min(due) - self._loop.time(), STEP_SECONDS)
            self._timer = self._loop.call_later(wait, self._step)
        self._watch.lap("garbage collection", f"{len(tried)} dropped objects")
        self._watch.end_turn()

    def _age_back(self) -> list[_DroppedObject]:
        """Move the parts of some due objects; the number of parts is that of one step. An object
        that has already been freed counts as a part, because there may be very many.
        """
        now = self._loop.time()
        tried: list[_DroppedObject] = []
        moved = 0
        for queue in self._queues:
            while queue and queue[0].due <= now and moved < STEP_OBJECTS_MAX:
                dropped = queue.popleft()
                tried.append(dropped)
                moved += 1
                root = dropped.root()
                if root is None:
                    continue
                found = (ref() for ref in dropped.surroundings)
                surroundings = [each for each in found if each is not None]
                parts = parts_of([root], surroundings, STEP_OBJECTS_MAX)
                make_young(parts)
                moved += len(parts)
        return tried

    def _judge(self, dropped: _DroppedObject) -> None:
        """Schedule another attempt for an object that still exists, unless there were enough of
        them: it is in use, by a request or a commit.
        """
        dropped.attempts += 1
        if dropped.root() is None or dropped.attempts >= ATTEMPTS_MAX:
            self.waiting_count -= 1
            return
        dropped.due = self._loop.time() + self._first_seconds * NEXT_FACTOR**dropped.attempts
        self._queues[dropped.attempts].append(dropped)
