"""Time as an argument: the only place in the product that reads a clock, and the type that tests
replace.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

# Corrections of a clock up to this are normal; the same value as in `saturated.pxd`.
CLOCK_SLACK_NS: Final = 2_000_000_000


class Clock(Protocol):
    """The clock that the broker uses."""

    def monotonic_ns(self) -> int:
        """The monotonic time, for deadlines: never goes back."""

    def wall_ns(self) -> int:
        """The wall time, for timestamps: nanoseconds since 1970, UTC."""

    def thread_ns(self) -> int:
        """The processor time used by the calling thread, for budgets."""


class SystemClock:
    """The machine's own clock."""

    # The functions themselves: they are called several times in every turn.
    monotonic_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)
    thread_ns = staticmethod(time.thread_time_ns)


class ShiftedClock:
    """The machine's own clock, set ahead by tests: time passes as usual, and jumps when shifted."""

    def __init__(self) -> None:
        self._ahead_ns = 0

    def monotonic_ns(self) -> int:
        """The monotonic time, for deadlines: never goes back."""
        return time.monotonic_ns() + self._ahead_ns

    def wall_ns(self) -> int:
        """The wall time, for timestamps: nanoseconds since 1970, UTC."""
        return time.time_ns() + self._ahead_ns

    def thread_ns(self) -> int:
        """The processor time used by the calling thread, for budgets."""
        return time.thread_time_ns()

    def shift_ns(self, duration_ns: int) -> None:
        """Set the clock ahead, without firing timers; see `ServerThread.advance`."""
        if duration_ns < 0:
            raise ValueError(f"duration_ns must not be negative, not {duration_ns}")
        self._ahead_ns += duration_ns
