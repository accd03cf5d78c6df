"""Keep a number of processes running: restarts, signals and their end.

Owns which processes run, when one is started again, and how all of them stop. The module knows
nothing of messages: a process is a function that is called in a fork and returns an exit code. All
signals of interest are blocked and taken in one place, so none is lost between two looks.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 30.0
# A process that ran for this long starts again at the first delay.
STEADY_SECONDS: Final = 60.0
# The time after the grace period, in which a process returns its messages.
END_SECONDS: Final = 10.0
PROCESSES_MAX: Final = 1000
EXIT_HOPELESS: Final = 2
_SIGNALS: Final = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class ProcessPlace:
    """One of the processes: `pid` is 0 while none runs, `due` is when the next one starts."""

    number: int
    pid: int = 0
    started: float = 0.0
    due: float = 0.0
    failures: int = 0


class Supervisor:
    """Runs `work(number, lifeline)` in `count` processes.

    `lifeline` is a descriptor that reaches its end when the supervisor has ended. `work` must end
    within `grace` seconds after SIGTERM, and at once after a second one. A process that returns
    EXIT_HOPELESS ends all processes: another one would fail in the same way.
    """

    def __init__(
        self,
        work: Callable[[int, int], int],
        count: int,
        grace: float,
        log: Callable[[str], None],
    ) -> None:
        self._work = work
        self._places = [ProcessPlace(number) for number in range(1, count + 1)]
        self._grace = grace
        self._log = log
        self._stops = 0
        self._kill_at: float | None = None
        self._exit_code = 0
        self._lifeline, self._lifeline_end = os.pipe()

    def run(self) -> int:
        """Run until a signal ends it; 0 if all processes ended well."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            while self._is_needed():
                self._start_due()
                self._wait()
                self._reap()
                self._kill_late()
        finally:
            for place in self._places:
                if place.pid:
                    os.kill(place.pid, signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(self._lifeline)
            os.close(self._lifeline_end)
        return self._exit_code

    def _is_needed(self) -> bool:
        return not self._stops or any(place.pid for place in self._places)

    # ------------------------------------------------------------------ starting

    def _start_due(self) -> None:
        for place in self._places:
            if not self._stops and not place.pid and place.due <= time.monotonic():
                self._start(place)

    def _start(self, place: ProcessPlace) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        place.started = time.monotonic()
        try:
            place.pid = os.fork()
        except OSError as error:
            self._wait_longer(place, f"process {place.number} cannot be started: {error.strerror}")
            return
        if place.pid:
            self._log(f"process {place.number} started, pid {place.pid}")
            return
        code = 1
        try:
            # Ctrl-C of a terminal reaches only the supervisor, which passes it on once.
            os.setpgid(0, 0)
            os.close(self._lifeline_end)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            code = self._work(place.number, self._lifeline)
        except BaseException:
            traceback.print_exc()
        finally:
            # Threads of handlers that do not end must not keep the process running.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    # ------------------------------------------------------------------ waiting

    def _wait(self) -> None:
        """Wait until a process ends, a signal arrives, or something is due."""
        moments = [place.due for place in self._places if not place.pid and not self._stops]
        if self._kill_at is not None:
            moments.append(self._kill_at)
        seconds = min(moments, default=time.monotonic() + 3600) - time.monotonic()
        taken = signal.sigtimedwait(_SIGNALS, max(seconds, 0))
        if taken is not None and taken.si_signo != signal.SIGCHLD:
            self._stop(f"signal {signal.Signals(taken.si_signo).name}")

    def _reap(self) -> None:
        for place in self._places:
            if place.pid:
                pid, status = os.waitpid(place.pid, os.WNOHANG)
                if pid:
                    self._ended(place, os.waitstatus_to_exitcode(status))

    def _ended(self, place: ProcessPlace, code: int) -> None:
        pid, place.pid = place.pid, 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        if self._stops:
            self._log(f"process {place.number}, pid {pid}, {how}")
            self._exit_code = self._exit_code or (1 if code else 0)
            return
        if code == EXIT_HOPELESS:
            self._exit_code = EXIT_HOPELESS
            self._stop(f"process {place.number} {how} and would again")
            return
        self._wait_longer(place, f"process {place.number}, pid {pid}, {how}")

    def _wait_longer(self, place: ProcessPlace, why: str) -> None:
        is_steady = time.monotonic() - place.started >= STEADY_SECONDS
        place.failures = 1 if is_steady else place.failures + 1
        delay = backoff_seconds(place.failures)
        place.due = time.monotonic() + delay
        self._log(f"{why}; the next one starts in {delay:g} s")

    # ------------------------------------------------------------------ stopping

    def _stop(self, why: str) -> None:
        """Let all processes finish; the second time they end at once."""
        self._stops += 1
        running = [place for place in self._places if place.pid]
        seconds = END_SECONDS + (self._grace if self._stops == 1 else 0)
        self._kill_at = time.monotonic() + seconds
        if self._stops == 1:
            self._log(f"stopping {len(running)} processes: {why}")
        else:
            self._log(f"ending {len(running)} processes now: {why}")
        for place in running:
            os.kill(place.pid, signal.SIGTERM)

    def _kill_late(self) -> None:
        if self._kill_at is None or time.monotonic() < self._kill_at:
            return
        for place in self._places:
            if place.pid:
                self._log(f"process {place.number}, pid {place.pid}, did not end: killing it")
                os.kill(place.pid, signal.SIGKILL)
        self._kill_at = time.monotonic() + END_SECONDS


def backoff_seconds(failures: int) -> float:
    """The delay before a process starts again after `failures` short runs in a row."""
    return min(BACKOFF_SECONDS * 2.0 ** min(failures - 1, 30), BACKOFF_SECONDS_MAX)
