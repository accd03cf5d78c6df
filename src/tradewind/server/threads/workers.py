"""Run calls that would block the event loop in threads: configuration files, removal of old files.

Owns the number of running calls, and their end. The threads are those of `threads`. It never
decides what a call does, which is up to `tradewind.jetstream`, and never passes it objects that
belong to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tradewind.server.threads.threads import Threads


class LoopWorkers:
    """The `Workers` of the engine in a server."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, work: Callable[[], object], done: Callable[[Exception | None], None]) -> None:
        """Call `work` in a thread, then `done` with its error in the loop."""

        def finish(error: Exception | None) -> None:
            self._running -= 1
            if self._running == 0:
                self._idle.set()
            done(error)

        self._threads.call(work, finish)
        self._running += 1
        self._idle.clear()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until no call is in progress; False if that took too long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        return self._running == 0
