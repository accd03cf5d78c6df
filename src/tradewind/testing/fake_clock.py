"""A clock that moves only when told to."""

from __future__ import annotations

from tradewind.durations import SECOND_NS


class FakeClock:
    """Stands in for `tradewind.clock.SystemClock`. Both times move together, except in a jump;
    processor time moves only with `work_ns`.
    """

    def __init__(self, wall_ns: int = 1_700_000_000 * SECOND_NS) -> None:
        self._wall_ns = wall_ns
        # Not zero, so that "never happened" (0) and "at the start" stay different.
        self._monotonic_ns = SECOND_NS
        self._thread_ns = 0

    def monotonic_ns(self) -> int:
        """For deadlines: never goes back."""
        return self._monotonic_ns

    def wall_ns(self) -> int:
        """For stamps: nanoseconds since 1970, UTC."""
        return self._wall_ns

    def thread_ns(self) -> int:
        """For budgets: the processor time that the calling thread has used."""
        return self._thread_ns

    def work_ns(self, duration_ns: int) -> None:
        """Let time pass in which the thread has been busy."""
        self.advance_ns(duration_ns)
        self._thread_ns += duration_ns

    def advance_ns(self, duration_ns: int) -> None:
        """Let time pass; nothing is called by it, see `InProcessServer.advance`."""
        if duration_ns < 0:
            raise ValueError(f"time does not go back, but {duration_ns} ns was asked for")
        self._wall_ns += duration_ns
        self._monotonic_ns += duration_ns

    def jump_ns(self, distance_ns: int) -> None:
        """Set the wall clock ahead, or back if it is negative; no time passes."""
        self._wall_ns += distance_ns
