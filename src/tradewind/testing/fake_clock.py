"""A clock that moves only when the test moves it."""

from __future__ import annotations

from tradewind.durations import SECOND_NS


class FakeClock:
    """A replacement for `tradewind.clock.SystemClock`. Both times move together, except in a jump;
    processor time moves only with `work_ns`.
    """

    def __init__(self, wall_ns: int = 1_700_000_000 * SECOND_NS) -> None:
        self._wall_ns = wall_ns
        # Not zero, so that "never happened" (0) and "at the start" stay different.
        self._monotonic_ns = SECOND_NS
        self._thread_ns = 0

    def monotonic_ns(self) -> int:
        """The monotonic time, for deadlines: never goes back."""
        return self._monotonic_ns

    def wall_ns(self) -> int:
        """The wall time, for timestamps: nanoseconds since 1970, UTC."""
        return self._wall_ns

    def thread_ns(self) -> int:
        """The processor time used by the calling thread, for budgets."""
        return self._thread_ns

    def work_ns(self, duration_ns: int) -> None:
        """Let time pass in which the thread has been busy."""
        self.advance_ns(duration_ns)
        self._thread_ns += duration_ns

    def advance_ns(self, duration_ns: int) -> None:
        """Let time pass without firing timers, see `InProcessServer.advance`."""
        if duration_ns < 0:
            raise ValueError(f"duration_ns must not be negative, not {duration_ns}")
        self._wall_ns += duration_ns
        self._monotonic_ns += duration_ns

    def jump_ns(self, distance_ns: int) -> None:
        """Set the wall clock ahead, or back if the distance is negative; no time passes."""
        self._wall_ns += distance_ns
