"""Starts queries again that failed, as the file of a pipeline says.

Owns the pauses between attempts and when failures no longer count: as soon as a batch has been
processed since. A batch that fails each time therefore ends the pipeline after all attempts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tradewind.pipelines.notation.intervals import parse_interval_ms
from tradewind.pipelines.sessions.spark_errors import short_reason

if TYPE_CHECKING:
    from tradewind.pipelines.definition.model import RestartPolicy
    from tradewind.pipelines.state.status import QueryStatus


class RestartableQuery(Protocol):
    """A query that can be started again."""

    query: Any
    status: QueryStatus

    @property
    def start(self) -> Callable[[], Any]:
        """Starts it, from its checkpoint."""


@dataclass
class _Pause:
    """A query that waits for its next start; `batches` is how far it had come."""

    failed: object
    attempt: int
    batches: int
    due: float
    reason: str


class Restarts:
    """The failed queries of one run; without a policy none is started again."""

    def __init__(
        self, policy: RestartPolicy | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._pauses: dict[str, _Pause] = {}

    def takes(self, running: RestartableQuery, error: BaseException) -> bool:
        """Whether a failed query is started again, now or after a pause; False if it is lost."""
        if self._policy is None:
            return False
        name, now = running.status.name, self._clock()
        pause = self._pauses.get(name)
        if pause is None or pause.failed is not running.query:
            is_fresh = pause is None or running.status.batches > pause.batches
            attempt = 1 if is_fresh or pause is None else pause.attempt + 1
            if not self._wait(running, attempt, short_reason(error)):
                return False
        elif now >= pause.due:
            running.status.restarts += 1
            try:
                running.query = running.start()
            except Exception as problem:  # of Spark, and of Java below it
                return self._wait(running, pause.attempt + 1, short_reason(problem))
            pause.reason = ""
        return True

    def _wait(self, running: RestartableQuery, attempt: int, reason: str) -> bool:
        assert self._policy is not None
        if attempt > self._policy.attempts:
            return False
        delay = parse_interval_ms(self._policy.delay) / 1000
        longest = parse_interval_ms(self._policy.max_delay) / 1000
        # Beyond 2^30 the pause is the longest one anyhow.
        due = self._clock() + min(delay * 2 ** min(attempt - 1, 30), longest)
        batches = running.status.batches
        self._pauses[running.status.name] = _Pause(running.query, attempt, batches, due, reason)
        return True

    def notes(self) -> list[str]:
        """The queries that wait, one line each."""
        now = self._clock()
        return [
            f"{name} failed and starts again in {max(pause.due - now, 0):.0f} s (attempt"
            f" {pause.attempt} of {self._policy.attempts}): {pause.reason}"
            for name, pause in self._pauses.items()
            if pause.reason and self._policy is not None
        ]
