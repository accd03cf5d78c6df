"""When a query is started again that failed for want of processor time, and not for what it does.

Owns the signs of that, the pauses, and the patience. Spark gives the Python process of a source ten
seconds to come up, which on a busy machine is not always enough. Nothing has been read by then. As
others may be busy for minutes, a query is tried for minutes, with longer and longer pauses: each
try makes the machine busier.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tradewind.pipelines.sessions.spark_errors import SLOW_SIGNS

PAUSES: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
PATIENCE_SECONDS: Final = 900.0
BUSY: Final = (
    "the machine is too busy to start Spark's Python process within ten seconds; fewer sinks, fewer"
    " programs or more cores help"
)


class SlowStart:
    """The restarts of one query since it last completed a batch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries = 0
        self._began = 0.0
        self._due: float | None = None
        self._batches = 0

    def is_hopeless(self, error: BaseException, batches: int) -> bool:
        """Whether a query that failed stays so; otherwise it is planned to start it again.

        `batches` is how many it has completed in this run, of all its tries.
        """
        if not any(sign in str(error) for sign in SLOW_SIGNS):
            return True
        now = self._clock()
        if batches > self._batches:
            self._batches = batches
            self._tries = 0
        if self._tries == 0 and self._due is None:
            self._began = now
        if self._due is None:
            if now - self._began >= PATIENCE_SECONDS:
                return True
            self._due = now + PAUSES[min(self._tries, len(PAUSES) - 1)]
        return False

    def take(self) -> bool:
        """Whether it is time to start the query; it counts as a try."""
        if self._due is None or self._clock() < self._due:
            return False
        self._due = None
        self._tries += 1
        return True

    def note(self, name: str) -> str:
        """The reason for waiting, and what would help; empty if nothing is."""
        if self._due is None:
            return ""
        seconds = max(self._due - self._clock(), 0)
        return f"{name}: {BUSY}. Try {self._tries + 1} follows in {seconds:.0f} s"

    def summary(self) -> str:
        """How long it was tried, after the reason of the failure; empty if it never was."""
        if not self._tries:
            return ""
        minutes = (self._clock() - self._began) / 60
        return f" (after {self._tries} tries in {minutes:.0f} minutes)"
