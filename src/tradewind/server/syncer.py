"""Group commit in threads, for the event loop.

Owns the way of a commit to the threads and back, and the timer of the syncer. What is synced when is
decided by `tradewind.store.syncer`; the threads (`sync_threads`) see descriptors and commits only,
never a store. The loop itself syncs nothing: a disk that does not answer holds up nobody who does
not wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from tradewind.clock import Clock
from tradewind.server.sync_threads import FineTimer, SyncThreads
from tradewind.store.syncer import INTERVAL_NS, Syncer, SyncTarget
from tradewind.store.syncer_core import SyncJob

# A disk with a queue syncs several files in the time of one. More threads gain little.
SYNC_THREADS = 4
STOP_SECONDS = 5.0


def _nothing() -> None:
    pass


class ThreadedSyncer(Syncer):
    """Runs commits in up to `threads` threads, which are started when they are first needed.

    `after_batch` is called in the loop whenever commits have ended, after the callbacks of their
    stores: all that are found at once share one call. The loop must be the running one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        *,
        threads: int = SYNC_THREADS,
        interval_ns: int = INTERVAL_NS,
        after_batch: Callable[[], None] = _nothing,
    ) -> None:
        self.threads = SyncThreads(threads, clock.monotonic_ns)
        super().__init__(self.threads.submit, interval_ns=interval_ns)
        self._loop = loop
        self._now_ns = clock.monotonic_ns
        self._after_batch = after_batch
        self._timer = FineTimer()
        self._timer_ns = 0
        self._idle: asyncio.Event | None = None
        self._done: deque[SyncJob] = deque()
        loop.add_reader(self.threads.fileno(), self._collect)
        loop.add_reader(self._timer.fileno(), self._on_timer)

    def _collect(self) -> None:
        """Threads are done with something."""
        now_ns = self._now_ns()
        self._done += self.threads.take()
        try:
            while self._done:
                self.completed(self._done.popleft(), now_ns)
        finally:
            if self._done:
                self._loop.call_soon(self._collect)
        self._after_batch()
        self._arm()

    # -------------------------------------------------------------- time

    def end_turn(self, now_ns: int) -> None:
        """Write and begin to sync what was marked."""
        if self._marked:
            self.begin_all(now_ns)
            self._arm()

    def tick(self, now_ns: int) -> None:
        """Do what is due."""
        super().tick(now_ns)
        self._arm()

    def _arm(self) -> None:
        """One timer for the next deadline."""
        if self._idle is not None and self.is_idle:
            self._idle.set()
        deadline_ns = self.next_deadline_ns()
        if deadline_ns is None or 0 < self._timer_ns <= deadline_ns:
            return
        self._timer_ns = deadline_ns
        self._timer.set(deadline_ns - self._now_ns())

    def _on_timer(self) -> None:
        self._timer.clear()
        self._timer_ns = 0
        self.tick(self._now_ns())
        self._after_batch()

    # -------------------------------------------------------------- the end

    async def drain(self, timeout_s: float) -> list[SyncTarget]:
        """Have everything on disk; gives the stores for which that did not succeed in time."""
        self._idle = asyncio.Event()
        self.begin_drain(self._now_ns())
        self._arm()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        self._idle = None
        return self.unsafe_targets()

    def stop(self) -> bool:
        """End the threads; false if one of them is stuck in a sync."""
        self._loop.remove_reader(self.threads.fileno())
        self._loop.remove_reader(self._timer.fileno())
        self._timer.close()
        return self.threads.stop(STOP_SECONDS)
