"""Work that comes round for each table of a runner, in threads beside the queries.

Owns when a table gets its round, and how many rounds are under way at once. A round may be ended
with its process at any moment, so its thread never holds the process up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tradewind.pipelines.table_runs.table_job import TableJob


def _nothing(_job: TableJob) -> object:
    return None


class TableRounds:
    """The rounds of one runner; `poll` is called again and again, and never raises.

    `work` is what a round does; it raises nothing. A table is due `seconds` after its last round,
    and at once when `version` gives something else than at that time.
    """

    def __init__(
        self,
        work: Callable[[TableJob], None],
        seconds: float,
        *,
        at_once: int = 1,
        version: Callable[[TableJob], object] = _nothing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work = work
        self._seconds = seconds
        self._at_once = at_once
        self._version = version
        self._clock = clock
        self._due: dict[str, float] = {}
        self._versions: dict[str, object] = {}
        self._threads: dict[str, threading.Thread] = {}

    def poll(self, jobs: Mapping[str, TableJob]) -> None:
        """Begin the rounds that are due, as far as not too many are under way."""
        now = self._clock()
        self._due = {name: self._due.get(name, now + self._seconds) for name in jobs}
        self._versions = {
            name: self._versions.get(name, self._version(job)) for name, job in jobs.items()
        }
        self._threads = {name: one for name, one in self._threads.items() if one.is_alive()}
        due = [name for name, job in jobs.items() if job.is_running and self._is_due(job, now)]
        for name in sorted(due, key=self._due.__getitem__):
            if len(self._threads) < self._at_once and name not in self._threads:
                self._begin(name, jobs[name], now)

    def wait(self, seconds: float) -> None:
        """Wait for the rounds that are under way, each for so long."""
        for thread in self._threads.values():
            thread.join(seconds)

    def _is_due(self, job: TableJob, now: float) -> bool:
        name = job.stream
        return now >= self._due[name] or self._version(job) != self._versions[name]

    def _begin(self, name: str, job: TableJob, now: float) -> None:
        self._due[name] = now + self._seconds
        self._versions[name] = self._version(job)
        thread = threading.Thread(
            target=self._work, args=(job,), name=f"round of {name}", daemon=True
        )
        self._threads[name] = thread
        thread.start()
