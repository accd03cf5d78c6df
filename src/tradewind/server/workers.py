"""Threads for what would hold up the event loop: files of configurations, removal of old ones.

Owns the threads and the way of a job to them and back. What a job does is the business of
`tradewind.jetstream`; it is given nothing that belongs to the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from tradewind.faults import Faults

# Requests of different accounts, and parts of what several requests of one create together.
WORKER_THREADS = 4

Job = tuple[Callable[[], object], Callable[[Exception | None], None]]


class LoopWorkers:
    """Runs jobs in threads. `after` is called in the loop when one has ended, after its `done`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, after: Callable[[], None], faults: Faults
    ) -> None:
        self._loop = loop
        self._faults = faults
        self._after = after
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, work: Callable[[], object], done: Callable[[Exception | None], None]) -> None:
        """Have `work` called in a thread, then `done` with its error in the loop."""
        if len(self._threads) < min(WORKER_THREADS, self._running + 1):
            name = f"worker-{len(self._threads)}"
            # Daemonic: a disk that never answers must not keep the process alive.
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # No memory or no more processes. Those that there are do it, later.
                if not self._threads:
                    raise
            else:
                self._threads.append(thread)
        self._running += 1
        self._idle.clear()
        self._jobs.put((work, done))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            error: Exception | None = None
            try:
                work()
            except Exception as fault:  # whoever wanted it is told
                error = fault
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._finish, done, error)

    def _finish(self, done: Callable[[Exception | None], None], error: Exception | None) -> None:
        self._running -= 1
        try:
            done(error)
        except Exception as fault:
            self._faults.contain("worker", fault)
        if self._running == 0:
            self._idle.set()
        self._after()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until no job is under way and end the threads; false if that took too long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        for _ in self._threads:
            self._jobs.put(None)
        return self._running == 0
