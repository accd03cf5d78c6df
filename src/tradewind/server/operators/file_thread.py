"""One thread that reads and writes account files, in the order of the requests.

Owns the thread. The calls it runs access files only; their results are processed in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from tradewind.faults import Faults


class FileThread:
    """Runs work in its thread; `turn_needed` is called after each piece of work, which may have
    sent something.
    """

    def __init__(self, faults: Faults, turn_needed: Callable[[], None]) -> None:
        self._faults = faults
        self._turn_needed = turn_needed
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[], object], done: Callable[[Exception | None], None]) -> None:
        """Call `work` in the thread, then `done` with its error in the loop."""
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, "tradewind-accounts")
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(partial(self._ended, done))

    def _ended(
        self, done: Callable[[Exception | None], None], future: asyncio.Future[object]
    ) -> None:
        if future.cancelled():
            return
        error = future.exception()
        try:
            done(error if isinstance(error, Exception) else None)
        except Exception as fault:
            self._faults.contain("service", fault)
        self._turn_needed()

    def stop(self) -> None:
        """Finish the work that has begun, and begin no more."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
