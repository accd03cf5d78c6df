"""Run group commits in threads, for the event loop.

Owns the timer of the syncer and its shutdown. It never decides what to sync, which is up to
`store.commits.syncer`; the threads (`threads`) receive descriptors and commits only, never a store.
So a disk that hangs only affects clients that wait for it, with one exception: the event loop
itself syncs the remaining data when it closes a stream, because its account loses JetStream, a
truncation is undone or the server ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tradewind.clock import Clock
from tradewind.server.threads.threads import FineTimer, Threads
from tradewind.store.commits.commit import SyncTarget
from tradewind.store.commits.syncer import INTERVAL_NS, Syncer


def _nothing() -> None:
    pass


class ThreadedSyncer(Syncer):
    """Runs its commits in `threads`.

    `after_batch` is called in the loop whenever commits have ended, after the callbacks of their
    stores; commits that are found ended at the same time share one call. The loop must be the
    running one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        threads: Threads,
        *,
        interval_ns: int = INTERVAL_NS,
        after_batch: Callable[[], None] = _nothing,
    ) -> None:
        super().__init__(threads.sync, interval_ns=interval_ns)
        threads.give_back_to(self, after_batch)
        self._threads = threads
        self._loop = loop
        self._now_ns = clock.monotonic_ns
        self._after_batch = after_batch
        self._timer = FineTimer()
        self.set_alarm = self._set_timer
        self._idle: asyncio.Event | None = None
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
        """Sync everything to disk; returns the stores for which that did not succeed in time."""
        self._idle = asyncio.Event()
        self._threads.give_back_to(self, self._batch_done)
        self.begin_drain(self._now_ns())
        if self.is_idle:
            self._idle.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        self._idle = None
        return self.unsafe_targets()

    def close(self) -> None:
        """Release the timer; the threads may be stopped before or after."""
        self._loop.remove_reader(self._timer.fileno())
        self._timer.close()
