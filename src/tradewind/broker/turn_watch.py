"""Measures turns that blocked all other work, and finds the kind of work that did.

Owns the budget of a turn, the counts of turns above it by kind of work, and their lines in the log:
one per kind and minute, however many there are. It interrupts nothing.

A turn is everything that the event loop does between the end of one turn and the end of the next,
reading from sockets included. It is measured by the processor time of the thread, so neither an
idle loop nor a busy machine looks like a long turn. Reading that time is a system call, so it is
read only if some time has passed since the last reading, as it always has in a turn above the
budget. Every turn therefore costs two readings of a plain clock, and the result is at most
`REFRESH_NS` too high.

Within a turn, work whose cost depends on a request is divided into steps: `begin`, and `lap` with
its kind when the step is done. Kinds form a fixed set (endpoints, pages, the parts of a turn) and
never come from a client, because each has a metric. Time outside all steps counts as `input`, the
sockets and the code that runs for them, or as `commit` if a commit has ended in that turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tradewind.broker.contracts import printable

if TYPE_CHECKING:
    from tradewind.broker.contracts import BrokerLog
    from tradewind.clock import Clock

# No client should wait longer than this for work requested by another.
BUDGET_NS: Final = 50_000_000
# The processor time is read again after this interval.
REFRESH_NS: Final = 2_000_000
# Minimum interval between two lines of one kind in the log.
QUIET_NS: Final = 60_000_000_000
# Maximum length of a subject or name in a line of the log.
DETAIL_MAX: Final = 256

INPUT: Final = "input"
COMMIT: Final = "commit"
END: Final = "end of turn"

refresh_ns = REFRESH_NS


class KindOfTurn:
    """Turns above the budget whose largest part was of one kind."""

    def __init__(self) -> None:
        self.count = 0
        self.longest_ns = 0
        self.unreported = 0
        self._quiet_until_ns = 0

    def note(self, used_ns: int) -> None:
        """Count one more turn of this kind."""
        self.count += 1
        self.longest_ns = max(self.longest_ns, used_ns)

    def unreported_text(self, now_ns: int) -> str | None:
        """The end of a line in the log, or None if there was one a short time ago."""
        if now_ns < self._quiet_until_ns:
            self.unreported += 1
            return None
        more = self.unreported
        self.unreported = 0
        self._quiet_until_ns = now_ns + QUIET_NS
        return f"; {more} more such turns since the last line" if more else ""


class StepSum:
    """The steps of one kind in one turn."""

    def __init__(self) -> None:
        self.count = 0
        self.sum_ns = 0
        self.longest_ns = 0
        self.detail: object = None


class TurnWatch:
    """The watch of one broker."""

    def __init__(self, clock: Clock, log: BrokerLog, budget_ns: int = BUDGET_NS) -> None:
        self.budget_ns = budget_ns
        self.on_excess: Callable[[str], None] | None = None
        self.saw_commits = False
        self.longest_ns = 0
        self.kinds: dict[str, KindOfTurn] = {}
        self._log = log
        self._monotonic_ns = clock.monotonic_ns
        self._thread_ns = clock.thread_ns
        self._steps: dict[str, StepSum] = {}
        self.start()

    def start(self) -> None:
        """Begin a turn now; the time before it is ignored, because no client has waited for it."""
        self._turn_ns = self.step_ns = self._read_ns = self._monotonic_ns()
        self._used_ns = self._thread_ns()
        self._steps.clear()

    def begin(self) -> int:
        """Begin a step and return the time; the time before it is input, unless a step covers
        it.
        """
        self.step_ns = self._monotonic_ns()
        return self.step_ns

    def lap(self, kind: str, detail: object) -> int:
        """End the step, begin the next one and return the time.

        `detail` identifies the work; it is anything with a str().
        """
        now_ns = self._monotonic_ns()
        step_ns = now_ns - self.step_ns
        step = self._steps.get(kind)
        self.step_ns = now_ns
        if step is None:
            step = self._steps[kind] = StepSum()
        step.count += 1
        step.sum_ns += step_ns
        if step_ns >= step.longest_ns:
            step.longest_ns = step_ns
            step.detail = detail
        return now_ns

    def end_turn(self) -> None:
        """End the turn; work since the last step counts as the end of the turn."""
        now_ns = self._monotonic_ns()
        if now_ns - self._read_ns >= refresh_ns:
            used_ns = self._used_ns
            self._used_ns = self._thread_ns()
            used_ns = min(self._used_ns - used_ns, now_ns - self._turn_ns)
            self._read_ns = now_ns
            if used_ns > self.longest_ns:
                self.longest_ns = used_ns
            if used_ns > self.budget_ns:
                end_ns = now_ns - self.step_ns
                self._exceeded(used_ns, end_ns, now_ns)
        if self._steps:
            self._steps.clear()
        self.saw_commits = False
        self._turn_ns = self.step_ns = now_ns

    def _exceeded(self, used_ns: int, end_ns: int, now_ns: int) -> None:
        """Called at the end of a turn above the budget: count it, and report its largest part."""
        kind = END
        largest_ns = end_ns
        rest_ns = used_ns - end_ns
        for name, step in self._steps.items():
            rest_ns -= step.sum_ns
            if step.sum_ns > largest_ns:
                largest_ns = step.sum_ns
                kind = name
        if rest_ns > largest_ns:
            largest_ns = rest_ns
            kind = COMMIT if self.saw_commits else INPUT
        known = self.kinds.get(kind)
        if known is None:
            known = self.kinds[kind] = KindOfTurn()
        known.note(used_ns)
        text = (
            f"The event loop was busy for {used_ns / 1e6:.0f} ms"
            f" (budget {self.budget_ns / 1e6:.0f} ms), mostly with {kind}"
        )
        longest = self._steps.get(kind)
        if longest is not None:
            times = f", {longest.count} times" if longest.count > 1 else ""
            detail = printable(str(longest.detail).encode("utf-8", "surrogateescape"))
            text += f"{times} ({largest_ns / 1e6:.0f} ms): {detail[:DETAIL_MAX]}"
        end = known.unreported_text(now_ns)
        if end is not None:
            self._log.warn(text + end)
        if self.on_excess is not None:
            self.on_excess(text)
