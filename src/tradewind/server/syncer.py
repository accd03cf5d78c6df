"""Group commit in threads, for the event loop.

Owns the way of a commit to the threads and back, and the timer of the syncer. What is synced when
is decided by `tradewind.store.syncer`; the threads (`sync_threads`) see descriptors and commits
only, never a store. The loop itself syncs nothing: a disk that does not answer holds up nobody who
does not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tradewind.clock import Clock
from tradewind.server.sync_threads import FineTimer, SyncThreads
from tradewind.store.syncer import INTERVAL_NS, Syncer, SyncTarget

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
        self.set_alarm = self._set_timer
        self._idle: asyncio.Event | None = None
        loop.add_reader(self.threads.fileno(), self.threads.collect, self, self._batch_done)
        loop.add_reader(self._timer.fileno(), self._on_timer)

    def _set_timer(self, time_ns: int) -> None:
        self._timer.set(time_ns - self._now_ns())

    def _on_timer(self) -> None:
        self._timer.clear()
        self.alarm_ns = 0
        try:
            self.tick(self._now_ns())
        except Exception as error:
            self.faults.contain("syncer", error)
            self.arm()
        self._batch_done()

    def _batch_done(self) -> None:
        if self._idle is not None and self.is_idle:
            self._idle.set()
        self._after_batch()

    # -------------------------------------------------------------- the end

    async def drain(self, timeout_s: float) -> list[SyncTarget]:
        """Have everything on disk; gives the stores for which that did not succeed in time."""
        self._idle = asyncio.Event()
        self.begin_drain(self._now_ns())
        if self.is_idle:
            self._idle.set()
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
