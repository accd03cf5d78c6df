"""Time as an argument: the only place of the product that reads a clock, and the type that tests
replace.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

# By so much clocks are corrected all the time; the same as in `saturated.pxd`.
CLOCK_SLACK_NS: Final = 2_000_000_000


class Clock(Protocol):
    """What the broker needs to know of time."""

    def monotonic_ns(self) -> int:
        """For deadlines: never goes back."""

    def wall_ns(self) -> int:
        """For stamps: nanoseconds since 1970, UTC."""

    def thread_ns(self) -> int:
        """For budgets: the processor time that the calling thread has used."""


class SystemClock:
    """The machine's own clock."""

    # The functions themselves: they are called several times in every turn.
    monotonic_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)
    thread_ns = staticmethod(time.thread_time_ns)


class ShiftedClock:
    """The machine's own clock, set ahead by tests: time passes as usual, and jumps when told to."""

    def __init__(self) -> None:
        self._ahead_ns = 0

    def monotonic_ns(self) -> int:
        """For deadlines: never goes back."""
        return time.monotonic_ns() + self._ahead_ns

    def wall_ns(self) -> int:
        """For stamps: nanoseconds since 1970, UTC."""
        return time.time_ns() + self._ahead_ns

    def thread_ns(self) -> int:
        """For budgets: the processor time that the calling thread has used."""
        return time.thread_time_ns()

    def shift_ns(self, duration_ns: int) -> None:
        """Set it ahead; nothing is called by it, see `ServerThread.advance`."""
        if duration_ns < 0:
            raise ValueError(f"time does not go back, but {duration_ns} ns was asked for")
        self._ahead_ns += duration_ns
