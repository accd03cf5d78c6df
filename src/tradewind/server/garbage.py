"""Settings of Python's garbage collector in a server process, and the collection of what it drops.

Owns the settings for the process of `tradewind-server`; a program with an embedded server keeps its
own. A full collection visits every object and blocks all clients: with 10,000 streams, for a third
of a second. So there are none. What a collection costs depends on what is new, never on what there
is:

- What exists after the start is excluded permanently.
- Only the two young generations are collected, which have a size. They find the cycles that
  requests leave, such as exceptions with their frames. What survives both is never visited again.
- Connections, logins, accounts, subscriptions and pages form no cycles when they end: reference
  counting frees them, however old they are (`tests/faults/test_cycles.py`).
- Streams and consumers do. Those that are deleted are handed to `Collector.let_go`, which moves
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

from tradewind.server.generations import make_young, parts_of

if TYPE_CHECKING:
    import asyncio

    from tradewind.broker.turn_watch import TurnWatch

# A collection of the youngest generation comes after this many new objects, one of the middle
# generation after this many of those, and one of the last never.
YOUNG_OBJECTS_MAX: Final = 5_000
YOUNG_COLLECTIONS_MAX: Final = 8
_NEVER: Final = 2**31 - 1
# Objects that one step moves back.
STEP_OBJECTS_MAX: Final = 20_000
# When what was dropped is looked at, and how much longer each further attempt waits.
FIRST_SECONDS: Final = 1.0
NEXT_FACTOR: Final = 4.0
ATTEMPTS_MAX: Final = 6
# Between two steps, others have their turns.
STEP_SECONDS: Final = 0.01


def collect_only_what_is_new() -> None:
    """Nothing that exists now is looked at again; `main` lets nothing be collected until here."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, YOUNG_COLLECTIONS_MAX, _NEVER)
    gc.enable()


def name_collections(watch: TurnWatch) -> Callable[[], None]:
    """Name collections in this thread where a turn is too long; returns how to stop it."""
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


class _Dropped:
    """An object that should be garbage. It is not kept alive, nor are its surroundings."""

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
        # One queue per attempt: in each of them, those that are due first come first.
        self._queues: list[deque[_Dropped]] = [deque() for _ in range(ATTEMPTS_MAX)]
        self._timer: asyncio.TimerHandle | None = None
        # Dropped objects that were not found to be gone.
        self.waiting_count = 0

    def let_go(self, root: object, *surroundings: object) -> None:
        """Free an object soon that is in cycles; `surroundings` are what it refers to and stays."""
        due = self._loop.time() + self._first_seconds
        self._queues[0].append(_Dropped(root, surroundings, due))
        self.waiting_count += 1
        if self._timer is None:
            self._timer = self._loop.call_later(self._first_seconds, self._step)

    def stop(self) -> None:
        """Forget what waits."""
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

    def _age_back(self) -> list[_Dropped]:
        """Move the parts of some that are due; their number is that of one step. One that is gone
        counts as a part, because there may be very many.
        """
        now = self._loop.time()
        tried: list[_Dropped] = []
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

    def _judge(self, dropped: _Dropped) -> None:
        """One that is still there is in use, by a request or a commit: it is tried again."""
        dropped.attempts += 1
        if dropped.root() is None or dropped.attempts >= ATTEMPTS_MAX:
            self.waiting_count -= 1
            return
        dropped.due = self._loop.time() + self._first_seconds * NEXT_FACTOR**dropped.attempts
        self._queues[dropped.attempts].append(dropped)
