"""Requests that need the disk, one after the other, without holding up the event loop.

Owns the order of the requests of one account and their way between the loop and a worker. A task
is a generator: what it does between two `yield`s happens in the loop, and what it yields is called
in a worker thread; an error there comes out of the `yield`. So a task reads like a plain function,
and every task of a lane finds the account as the one before has left it. Lanes know nothing of each
other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Protocol, TypeVar

_Result = TypeVar("_Result")
# What a worker is to call; it touches nothing that the loop may change meanwhile.
Work = Callable[[], object]
Steps = Generator[Work, None, _Result]


class Workers(Protocol):
    """Whoever calls what takes time."""

    def submit(self, work: Work, done: Callable[[Exception | None], None]) -> None:
        """Have `work` called elsewhere, then `done` with its error in the loop."""


def let_others_go_first() -> None:
    """A step of a long task: the loop does what waits before the task goes on."""


class Lane:
    """The tasks of one account. `begin` is called in the loop before a task goes on."""

    def __init__(
        self,
        workers: Workers,
        begin: Callable[[], None],
        report_fault: Callable[[Exception], None],
    ) -> None:
        self._workers = workers
        self._begin = begin
        self._report_fault = report_fault
        self._waiting: deque[Steps[None]] = deque()
        self._current: Steps[None] | None = None

    @property
    def waiting_count(self) -> int:
        """Tasks that have not begun."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no task is under way or waits."""
        return self._current is None

    def add(self, task: Steps[None]) -> None:
        """Run this when all before it are done; at once if there are none."""
        self._waiting.append(task)
        if self._current is None:
            self._next_task()
            self._go_on(None)

    def drop_waiting(self) -> int:
        """Forget the tasks that have not begun; gives how many."""
        count = len(self._waiting)
        for task in self._waiting:
            task.close()
        self._waiting.clear()
        return count

    def _next_task(self) -> None:
        self._current = self._waiting.popleft() if self._waiting else None

    def _go_on(self, error: Exception | None) -> None:
        """A step has ended; do what follows up to the next one that is not for the loop."""
        self._begin()
        while self._current is not None:
            try:
                work = next(self._current) if error is None else self._current.throw(error)
            except StopIteration:
                self._next_task()
            except Exception as fault:
                self._report_fault(fault)
                self._next_task()
            else:
                self._workers.submit(work, self._go_on)
                return
            error = None
