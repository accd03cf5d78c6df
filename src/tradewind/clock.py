"""Time, passed in: the only place of the product that reads a clock, and the type that tests
replace.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the broker needs to know of time."""

    def monotonic_ns(self) -> int:
        """For deadlines: never goes back."""

    def wall_ns(self) -> int:
        """For stamps: nanoseconds since 1970, UTC."""


class SystemClock:
    """The machine's own clock."""

    def monotonic_ns(self) -> int:
        """For deadlines: never goes back."""
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        """For stamps: nanoseconds since 1970, UTC."""
        return time.time_ns()
