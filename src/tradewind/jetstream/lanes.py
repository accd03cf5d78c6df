"""Runs requests that need the disk in order, without blocking the event loop.

Owns the order of the requests of one account, and their switching between the loop and a worker. A
task is a generator: its code runs in the loop, and each call that it yields runs in a worker
thread; an error there is raised by the `yield`. A task therefore reads like a plain function, and
each task of a lane sees the account as the previous one left it. Lanes never know each other.

A task may yield a `JointStep` instead, a change on disk. If the next tasks are of the same kind,
they start too, and all their changes are made together. Such a task must therefore declare
immediately what it is about to change, and a task that concerns the same thing yields
`OTHERS_FIRST`. Tasks continue in their order, and may yield further steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from enum import Enum
from typing import Final, Protocol, TypeVar

import msgspec

from tradewind.broker.turn_watch import TurnWatch
from tradewind.errors import StoreError
from tradewind.faults import INTERNAL_ERROR
from tradewind.store.files.joint_step import TOGETHER_MAX, JointStep, make_together


class Wait(Enum):
    """Conditions that a task may wait for without any work."""

    OTHERS_FIRST = "the changes under way"


_Result = TypeVar("_Result")
# A call for a worker, which touches nothing that the loop may change meanwhile.
Work = Callable[[], object]
Steps = Generator[Work | JointStep | Wait, None, _Result]
# After this time the tasks that have not begun let the loop do something else first.
TURN_NS_MAX: Final = 10_000_000
# A configuration with more subjects, sources or other parts than this is checked by a worker.
INLINE_PARTS_MAX: Final = 256
# ... or if it has to be compared with more than this; for a consumer, its filters times all others.
INLINE_COMPARISONS_MAX: Final = 16_384


class Workers(Protocol):
    """Runs slow work outside the event loop."""

    def submit(self, work: Work, done: Callable[[Exception | None], None]) -> None:
        """Run `work` in another thread, then call `done` with its error in the loop."""


class Task(msgspec.Struct, frozen=True):
    """A task of a lane; `label` and `detail` name it for the watch over slow turns."""

    steps: Steps[None]
    # Tasks of the same kind, which is not empty, may change files together.
    kind: str
    label: str
    detail: str


def let_others_go_first() -> None:
    """A step of a long task: other work of the loop runs before the task continues."""


def computed(work: Callable[[], _Result], *, is_large: bool) -> Steps[_Result]:
    """Return the result of `work`, which runs in a worker if it `is_large`.

    It may read what only tasks of the lane change, because none of them runs meanwhile.
    """
    if not is_large:
        return work()
    results: list[_Result] = []
    yield lambda: results.append(work())
    return results[0]


class Lane:
    """The tasks of one account. `begin` is called in the loop before a task continues."""

    def __init__(
        self,
        workers: Workers,
        begin: Callable[[], None],
        report_fault: Callable[[Exception], None],
        watch: TurnWatch,
    ) -> None:
        self._workers = workers
        self._begin = begin
        self._report_fault = report_fault
        self._watch = watch
        self._waiting: deque[Task] = deque()
        self._current: Task | None = None
        # Tasks with a change, or that wait for those: they continue in this order when all is made.
        self._joined: list[tuple[Task, JointStep | Wait]] = []
        self._resuming: deque[tuple[Task, Exception | None]] = deque()
        self._making: Iterator[list[Callable[[], None]]] = iter(())
        self._unfinished = 0
        self._fault: Exception | None = None

    @property
    def waiting_count(self) -> int:
        """The number of tasks that have not begun."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no task is running or waiting."""
        return self._current is None

    @property
    def has_joined(self) -> bool:
        """Whether tasks before the current one have begun and wait for their changes."""
        return bool(self._joined)

    def add(
        self, steps: Steps[None], kind: str = "", label: str = "task", detail: str = ""
    ) -> None:
        """Add a task, which runs after all earlier ones; at once if there are none.

        The other arguments are those of `Task`.
        """
        self._waiting.append(Task(steps, kind, label, detail))
        if self._current is None:
            self._run_steps(self._next_task())

    def drop_waiting(self) -> int:
        """Drop the tasks that have not begun; returns their number."""
        count = len(self._waiting)
        for task in self._waiting:
            task.steps.close()
        self._waiting.clear()
        return count

    def _next_task(self) -> Exception | None:
        """Choose the task that continues next; returns the error to raise in it."""
        if self._resuming:
            self._current, error = self._resuming.popleft()
            return error
        self._current = self._waiting.popleft() if self._waiting else None
        return None

    def _run_steps(self, error: Exception | None) -> None:
        """Continue the current task after a step, and begin others, until one needs a worker."""
        self._begin()
        until_ns = self._watch.begin() + TURN_NS_MAX
        while (task := self._current) is not None:
            try:
                step = next(task.steps) if error is None else task.steps.throw(error)
            except StopIteration:
                step = None
            except Exception as fault:
                self._report_fault(fault)
                step = None
            now_ns = self._watch.lap(task.label, task.detail)
            if isinstance(step, JointStep | Wait):
                self._joined.append((task, step))
            elif step is not None:
                try:
                    self._workers.submit(step, self._run_steps)
                except Exception as fault:
                    error = fault
                    continue
                return
            if self._joined and not self._can_join(task.kind, step):
                self._make()
                return
            error = self._next_task()
            if now_ns > until_ns and self._current is not None and error is None:
                try:
                    self._workers.submit(let_others_go_first, self._run_steps)
                except Exception as problem:
                    self._report_fault(problem)
                    continue
                return

    def _can_join(self, kind: str, last: Work | JointStep | Wait | None) -> bool:
        """Whether the next task may change files together with those that have begun."""
        if isinstance(last, Wait) or len(self._joined) >= TOGETHER_MAX:
            return False
        if self._resuming:
            return True  # they were together before
        return bool(self._waiting) and self._waiting[0].kind == kind != ""

    # ---------------------------------------------------------------- changes made together

    def _make(self) -> None:
        self._making = make_together([one for _, one in self._joined if isinstance(one, JointStep)])
        self._make_more()

    def _make_more(self) -> None:
        """Run the next step of the changes; after the last one their tasks continue."""
        try:
            calls = next(self._making, None)
        except Exception as problem:
            self._unfinished = 1
            self._part_made(problem)
            return
        if calls is not None:
            self._unfinished = len(calls)
            for call in calls:
                try:
                    self._workers.submit(call, self._part_made)
                except Exception as problem:
                    self._part_made(problem)
            return
        fault, self._fault = self._fault, None
        resuming: list[tuple[Task, Exception | None]] = []
        for task, step in self._joined:
            error = (fault or step.error) if isinstance(step, JointStep) else None
            resuming.append((task, error))
        self._resuming.extendleft(reversed(resuming))
        self._joined.clear()
        self._run_steps(self._next_task())

    def _part_made(self, fault: Exception | None) -> None:
        self._unfinished -= 1
        if fault is not None:
            self._report_fault(fault)
            self._fault = StoreError(INTERNAL_ERROR)
            self._making = iter(())
        if self._unfinished == 0:
            self._make_more()
