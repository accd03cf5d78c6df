"""Group commit without threads: commits run when the test runs them.

Owns the pending jobs. To simulate a power failure, a test simply never runs them.
"""

from __future__ import annotations

from tradewind.clock import Clock
from tradewind.store.commits.syncer import INTERVAL_NS, Syncer, SyncJob


class SteppedSyncer(Syncer):
    """A replacement for `tradewind.server.threads.sync_threads.ThreadedSyncer`.

    `waiting` are the commits that no worker has begun, `synced` those that are done without the
    owner's knowledge; they can be taken in any order.
    """

    def __init__(self, clock: Clock, *, interval_ns: int = INTERVAL_NS) -> None:
        super().__init__(self._hand_over, interval_ns=interval_ns)
        self._clock = clock
        self.waiting: list[SyncJob] = []
        self.synced: list[SyncJob] = []

    def _hand_over(self, job: SyncJob) -> None:
        self.waiting.append(job)

    def run_next(self, index: int = 0) -> None:
        """Do the worker's part of one commit."""
        job = self.waiting.pop(index)
        job.run(self._clock.monotonic_ns)
        self.synced.append(job)

    def complete_next(self, index: int = 0) -> None:
        """Report a finished commit to its owner."""
        self.complete(self.synced.pop(index), self._clock.monotonic_ns())

    def run_all(self) -> None:
        """Run and report commits until none is left."""
        while self.waiting or self.synced:
            while self.waiting:
                self.run_next()
            while self.synced:
                self.complete_next()
