"""Numbers and events of a run, readable while it goes on.

Owns the counters; `consumer_run.py` changes them in the event loop. A reader in another thread sees
each number as it is, not all of them at the same moment.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

DURATIONS_MAX: Final = 1000


@dataclass(slots=True)
class RunStats:
    """The statistics of a run. received = succeeded + skipped + failed + undecodable + given_back +
    duplicates + held, except for messages of an order that are retried inside the process: each of
    their failures counts.
    """

    received: int = 0  # messages that have arrived
    succeeded: int = 0  # the handler returned
    skipped: int = 0  # the handler raised Skip
    failed: int = 0  # the handler raised, or took too long; retried or given up
    timed_out: int = 0  # of those, the ones that took too long
    retried: int = 0  # of those, the ones to be delivered again
    given_up: int = 0  # of those, the ones that are never delivered again
    undecodable: int = 0  # given up because of their payload; no handler was called
    given_back: int = 0  # returned to the consumer when the run stopped
    duplicates: int = 0  # delivered again while the first copy was still held
    in_flight: int = 0  # handlers that are running now
    held: int = 0  # messages that have arrived and are not settled, including those in flight
    handled_seconds: float = 0.0  # the sum of the times that handlers took
    handled_seconds_max: float = 0.0
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=DURATIONS_MAX), repr=False)

    def took(self, seconds: float) -> None:
        """Count the time of a handler."""
        self.handled_seconds += seconds
        self.handled_seconds_max = max(self.handled_seconds_max, seconds)
        self._recent.append(seconds)

    def duration(self, share: float = 0.5) -> float:
        """The seconds within which this share of the last 1,000 handlers ended; 0 before any."""
        recent = sorted(self._recent)
        return recent[min(int(len(recent) * share), len(recent) - 1)] if recent else 0.0


class RunEvent:
    """Base of what a run reports; `str` of it is one line."""


@dataclass(frozen=True, slots=True)
class MessageFailed(RunEvent):
    """A handler raised, or a payload could not be decoded. `delay` is how long the message waits
    for its next attempt: None if the consumer decides, or if `given_up`.
    """

    subject: str
    sequence: int
    attempt: int
    error: Exception
    given_up: bool
    delay: float | None

    def __str__(self) -> str:
        kind = type(self.error).__name__
        after = "given up" if self.given_up else "to be delivered again"
        if self.delay is not None and not self.given_up:
            after += f" in {self.delay:.3g} s"
        return (
            f"message {self.sequence} on {self.subject!r}, attempt {self.attempt}: "
            f"{kind}: {self.error}; {after}"
        )


@dataclass(frozen=True, slots=True)
class NotSettled(RunEvent):
    """An acknowledgement could not be sent: the message comes again after the ack wait."""

    subject: str
    sequence: int
    error: Exception

    def __str__(self) -> str:
        return f"message {self.sequence} on {self.subject!r} could not be settled: {self.error}"


@dataclass(frozen=True, slots=True)
class RunStopping(RunEvent):
    """The run pulls nothing more and waits for its handlers."""

    in_flight: int

    def __str__(self) -> str:
        return f"stopping: {self.in_flight} handlers are running"
