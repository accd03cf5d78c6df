"""Group commit in worker threads, for the event loop.

Owns the threads and the way of a commit to them and back. What is synced when is decided by
`tradewind.store.syncer`; the threads see commits only, never a store.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from tradewind.clock import Clock
from tradewind.store.syncer import INTERVAL_NS, Syncer, SyncJob, SyncTarget

# A disk with a queue syncs several files in the time of one. More threads gain little.
SYNC_THREADS = 4
STOP_SECONDS = 5.0
# The loop may wait for a sync if it usually takes less than this.
WAIT_NS_MAX = 1_000_000
# Now and then it tries one, to see whether the disk has become faster.
PROBE_COUNT = 32


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
        super().__init__(self._hand_over, interval_ns=interval_ns)
        self._loop = loop
        self._clock = clock
        self._threads_max = threads
        self._after_batch = after_batch
        self._threads: list[threading.Thread] = []
        self._waiting: SimpleQueue[SyncJob | None] = SimpleQueue()
        self._done: deque[SyncJob] = deque()
        self._is_woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._idle: asyncio.Event | None = None
        self._alone_ns = 0
        self._alone_count = 0

    # -------------------------------------------------------------- to the threads and back

    def _hand_over(self, job: SyncJob) -> None:
        # `running` counts this job already.
        if len(self._threads) < min(self._threads_max, self.statistics.running):
            name = f"sync-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._waiting.put(job)

    def _work(self) -> None:
        """A thread. Daemonic: a disk that never answers must not keep the process alive."""
        while (job := self._waiting.get()) is not None:
            job.run(self._clock.monotonic_ns)
            self._done.append(job)
            # The loop lowers the flag before it looks: a job that is in by then is seen.
            if not self._is_woken:
                self._is_woken = True
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._is_woken = False
        if not self._done:
            return
        now_ns = self._clock.monotonic_ns()
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
            super().end_turn(now_ns)
            self._arm()

    def sync_alone(self, target: SyncTarget, now_ns: int) -> bool:
        """Sync a store in the loop: with a disk that answers at once that is shorter than the way
        to a thread and back.
        """
        self._alone_count += 1
        if self._alone_ns >= WAIT_NS_MAX and self._alone_count % PROBE_COUNT:
            return False
        if not super().sync_alone(target, now_ns):
            return False
        # What a sync takes of late; a single slow one does not tell much.
        took_ns = min(self._clock.monotonic_ns() - now_ns, 2 * WAIT_NS_MAX)
        self._alone_ns += (took_ns - self._alone_ns) // 8
        if self._timer is None:
            self._arm()
        return True

    def tick(self, now_ns: int) -> None:
        """Do what is due."""
        super().tick(now_ns)
        self._arm()

    def _arm(self) -> None:
        """One timer for the next deadline."""
        if self._idle is not None and self.is_idle:
            self._idle.set()
        deadline_ns = self.next_deadline_ns()
        if deadline_ns is None or (self._timer is not None and self._timer_ns <= deadline_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_ns = max(0, deadline_ns - self._clock.monotonic_ns())
        self._timer_ns = deadline_ns
        self._timer = self._loop.call_later(delay_ns / 1e9, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.tick(self._clock.monotonic_ns())
        self._after_batch()

    # -------------------------------------------------------------- the end

    async def drain(self, timeout_s: float) -> list[SyncTarget]:
        """Have everything on disk; gives the stores for which that did not succeed in time."""
        self._idle = asyncio.Event()
        self.begin_drain(self._clock.monotonic_ns())
        self._arm()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        self._idle = None
        return self.unsafe_targets()

    def stop(self) -> bool:
        """End the threads; false if one of them is stuck in a sync."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(STOP_SECONDS)
        return not any(thread.is_alive() for thread in self._threads)
