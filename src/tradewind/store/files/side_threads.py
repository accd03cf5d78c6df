"""Runs calls that wait for the disk side by side, in threads that are kept for the next ones.

Owns the threads: one is started if none is idle, and ends when it has had nothing to do for a
while. They never hold up the end of the process. A call may itself run others side by side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from tradewind.platform_calls import after_fork_in_child

IDLE_SECONDS: Final = 10.0

_Job = tuple[Callable[[], None], "SimpleQueue[None]"]


class SideThreads:
    """The threads of one process; a fork of it begins without any."""

    def __init__(self) -> None:
        self._start_over()
        after_fork_in_child(self._start_over)

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        # Threads that wait for a job, less the jobs that are on their way to one.
        self._idle = 0

    def run(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run calls that never raise: the first in this thread, and each other beside it if the
        system has a thread for it, else in this one too.
        """
        done: SimpleQueue[None] = SimpleQueue()
        started, own = 0, [calls[0]]
        for call in calls[1:]:
            if self._pass_on((call, done)):
                started += 1
            else:
                own.append(call)
        for call in own:
            call()
        for _ in range(started):
            done.get()

    def _pass_on(self, job: _Job) -> bool:
        with self._lock:
            is_new = self._idle == 0
            self._idle -= not is_new
        if is_new:
            thread = threading.Thread(target=self._work, args=(self._jobs,), daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
        self._jobs.put(job)
        return True

    def _work(self, jobs: SimpleQueue[_Job]) -> None:
        while True:
            try:
                call, done = jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._idle > 0 and jobs is self._jobs:
                        self._idle -= 1
                        return
                continue  # a job is on its way
            call()
            with self._lock:
                self._idle += 1
            done.put(None)
