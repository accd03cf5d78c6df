"""A replacement for `tradewind.server.threads.workers`: everything is complete when a call returns.

Owns the jobs that arrived while another one was being finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class InlineWorkers:
    """Calls jobs in the thread of the caller, one after the other.

    With `is_held` the jobs wait for the test, as if the disk were slow.
    """

    def __init__(self) -> None:
        self.is_held = False
        self._jobs: deque[tuple[Callable[[], object], Callable[[Exception | None], None]]] = deque()
        self._is_running = False

    @property
    def waiting_count(self) -> int:
        """The number of jobs that have not been called."""
        return len(self._jobs)

    def submit(self, work: Callable[[], object], done: Callable[[Exception | None], None]) -> None:
        """See `tradewind.jetstream.lanes.Workers`."""
        self._jobs.append((work, done))
        if not self.is_held and not self._is_running:
            self.run_all()

    def run_next(self) -> None:
        """Call the oldest job."""
        work, done = self._jobs.popleft()
        error: Exception | None = None
        try:
            work()
        except Exception as fault:
            error = fault
        done(error)

    def run_all(self) -> None:
        """Call jobs until none is left."""
        self._is_running = True
        try:
            while self._jobs:
                self.run_next()
        finally:
            self._is_running = False
