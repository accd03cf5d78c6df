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

from libc.stdint cimport int64_t
from tradewind.clock_reading cimport reading

from tradewind.broker.contracts import printable

# No client should wait longer than this for work requested by another.
BUDGET_NS = 50_000_000
# The processor time is read again after this interval.
REFRESH_NS = 2_000_000
# Minimum interval between two lines of one kind in the log.
QUIET_NS = 60_000_000_000
# Maximum length of a subject or name in a line of the log.
DETAIL_MAX = 256

cdef int64_t refresh_ns = REFRESH_NS
cdef int64_t quiet_ns = QUIET_NS
cdef str INPUT = "input"
cdef str COMMIT = "commit"
cdef str END = "end of turn"


cdef class KindOfTurn:
    """Turns above the budget whose largest part was of one kind."""

    cdef readonly int64_t count
    cdef readonly int64_t longest_ns
    cdef readonly int64_t unreported    # since its last line in the log
    cdef int64_t quiet_until_ns


cdef class StepSum:
    """The steps of one kind in one turn."""

    cdef int64_t count
    cdef int64_t sum_ns
    cdef int64_t longest_ns
    cdef object detail                  # of the longest step


cdef class TurnWatch:
    """The watch of one broker. `clock` is a `Clock`, `log` a `BrokerLog`."""

    def __init__(self, clock not None, log not None, int64_t budget_ns=BUDGET_NS):
        self.budget_ns = budget_ns
        self.log = log
        self.monotonic_ns = clock.monotonic_ns
        self.thread_ns = clock.thread_ns
        self.kinds = {}
        self.steps = {}
        self.start()

    def start(self):
        """Begin a turn now; the time before it is ignored, because no client has waited for it."""
        self.turn_ns = self.step_ns = self.read_ns = reading(self.monotonic_ns)
        self.used_ns = self.thread_ns()
        self.steps.clear()

    cpdef int64_t begin(self) except -1:
        """Begin a step and return the time; the time before it is input, unless a step covers it.
        """
        self.step_ns = reading(self.monotonic_ns)
        return self.step_ns

    cpdef int64_t lap(self, kind, detail) except -1:
        """End the step, begin the next one and return the time.

        `detail` identifies the work; it is anything with a str().
        """
        cdef int64_t now_ns = reading(self.monotonic_ns)
        cdef int64_t step_ns = now_ns - self.step_ns
        cdef StepSum steps = self.steps.get(kind)
        self.step_ns = now_ns
        if steps is None:
            steps = self.steps[kind] = StepSum()
        steps.count += 1
        steps.sum_ns += step_ns
        if step_ns >= steps.longest_ns:
            steps.longest_ns = step_ns
            steps.detail = detail
        return now_ns

    cpdef int end_turn(self) except -1:
        """End the turn; work since the last step counts as the end of the turn."""
        cdef int64_t now_ns = reading(self.monotonic_ns)
        cdef int64_t used_ns, end_ns
        if now_ns - self.read_ns >= refresh_ns:
            used_ns = self.used_ns
            self.used_ns = self.thread_ns()
            used_ns = min(self.used_ns - used_ns, now_ns - self.turn_ns)
            self.read_ns = now_ns
            if used_ns > self.longest_ns:
                self.longest_ns = used_ns
            if used_ns > self.budget_ns:
                end_ns = now_ns - self.step_ns
                self._exceeded(used_ns, end_ns, now_ns)
        if self.steps:
            self.steps.clear()
        self.saw_commits = False
        self.turn_ns = self.step_ns = now_ns
        return 0

    def _exceeded(self, int64_t used_ns, int64_t end_ns, int64_t now_ns):
        cdef StepSum steps
        cdef KindOfTurn known
        cdef int64_t largest_ns = end_ns
        cdef int64_t rest_ns = used_ns - end_ns
        cdef str kind = END
        cdef str text
        for name, steps in self.steps.items():
            rest_ns -= steps.sum_ns
            if steps.sum_ns > largest_ns:
                largest_ns = steps.sum_ns
                kind = name
        if rest_ns > largest_ns:
            largest_ns = rest_ns
            kind = COMMIT if self.saw_commits else INPUT
        known = self.kinds.get(kind)
        if known is None:
            known = self.kinds[kind] = KindOfTurn()
        known.count += 1
        known.longest_ns = max(known.longest_ns, used_ns)
        text = (f"The event loop was busy for {used_ns / 1e6:.0f} ms"
                f" (budget {self.budget_ns / 1e6:.0f} ms), mostly with {kind}")
        steps = self.steps.get(kind)
        if steps is not None:
            times = f", {steps.count} times" if steps.count > 1 else ""
            detail = printable(str(steps.detail).encode("utf-8", "surrogateescape"))
            text += f"{times} ({largest_ns / 1e6:.0f} ms): {detail[:DETAIL_MAX]}"
        if now_ns >= known.quiet_until_ns:
            more = f"; {known.unreported} more such turns since the last line" \
                if known.unreported else ""
            known.quiet_until_ns = now_ns + quiet_ns
            known.unreported = 0
            self.log.warn(text + more)
        else:
            known.unreported += 1
        if self.on_excess is not None:
            self.on_excess(text)
