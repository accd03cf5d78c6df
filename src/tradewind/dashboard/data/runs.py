"""Processes that the dashboard starts to run and check pipelines.

Owns these processes from start to end. Each leads its own process group, so that its Java and
Python workers can be ended with it, and nothing else. They end with the dashboard. Their output is
stored within limits. It never decides who may start one, which is up to `web`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tradewind.pipelines.errors import PipelineError

CHILDREN_MAX: Final = 8
OUTPUT_BYTES_MAX: Final = 64 << 10
CHECK_SECONDS_MAX: Final = 180.0
# A runner finishes its batch first, and then Java has to end.
STOP_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.05
PROGRAM: Final = (sys.executable, "-m", "tradewind.cli")


@dataclass(frozen=True)
class LaunchCommand:
    """The way to start programs: the words before their own, and their environment.

    Logins are passed only in the environment, where other users cannot read them.
    """

    words: Sequence[str] = PROGRAM
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


class Child:
    """One program. Its process id stays reserved until it has been waited for."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._output = bytearray()
        self.started_at = time.time()
        self.is_stopping = False
        self.reason = ""  # why the dashboard ended it
        name = f"output of {process.pid}"
        threading.Thread(target=self._read, name=name, daemon=True).start()

    @property
    def pid(self) -> int:
        """The id of its process and process group."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code; None while the program runs."""
        return self._process.poll()

    @property
    def output(self) -> str:
        """The last part of its output."""
        return bytes(self._output).decode(errors="replace")

    def _read(self) -> None:
        """Read until the output is closed by all its holders, which may be after the end of the
        program.
        """
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            while data := os.read(stream.fileno(), 1 << 16):
                self._output = (self._output + data)[-OUTPUT_BYTES_MAX:]

    def ask_to_stop(self) -> None:
        """Ask the program to stop; its Java process must not receive the signal."""
        self.is_stopping = True
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """Kill the whole process group."""
        if self.code is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def wait(self, seconds: float) -> bool:
        """Wait at most this long; returns whether the program has ended."""
        deadline = time.monotonic() + seconds
        while self.code is None and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        return self.code is not None

    async def close(self) -> None:
        """End the program: ask it to stop, and kill it if it does not."""
        if self.code is None:
            self.ask_to_stop()
            if not await self.wait(STOP_SECONDS):
                self.kill()
                await self.wait(STOP_SECONDS)


class Runs:
    """The programs of one dashboard, by the file of their pipeline."""

    def __init__(self, launching: LaunchCommand | None = None) -> None:
        self._launching = launching or LaunchCommand()
        self._runs: dict[Path, Child] = {}
        self._checks: dict[Path, Child] = {}
        self._watches: set[asyncio.Task[None]] = set()

    def run_of(self, path: Path) -> Child | None:
        """The last run of a pipeline that was started here."""
        return self._runs.get(path)

    def check_of(self, path: Path) -> Child | None:
        """The last check of a pipeline."""
        return self._checks.get(path)

    def start(self, path: Path) -> Child:
        """Run a pipeline; PipelineError if it is already running, or too many are."""
        child = self._runs.get(path)
        if child is not None and child.code is None:
            raise PipelineError("The pipeline is already running.")
        self._runs[path] = self._launch(["pipeline", "run", "--quiet", str(path)])
        return self._runs[path]

    def stop(self, path: Path) -> bool:
        """Ask a run that was started here to stop; False if there is none."""
        child = self._runs.get(path)
        if child is None or child.code is not None:
            return False
        child.ask_to_stop()
        return True

    def kill(self, path: Path) -> bool:
        """Kill a run that was started here; False if there is none."""
        child = self._runs.get(path)
        if child is None or child.code is not None:
            return False
        child.reason = "It was stopped immediately; the next run repeats its last batch."
        child.kill()
        return True

    async def check(self, path: Path) -> Child:
        """Check a pipeline in the background; PipelineError if it is already being checked."""
        child = self._checks.get(path)
        if child is not None and child.code is None:
            raise PipelineError("It is already being checked.")
        child = self._checks[path] = self._launch(["pipeline", "check", str(path)])
        watch = asyncio.create_task(self._limit(child), name=f"check of {path.name}")
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return child

    async def close(self) -> None:
        """End all programs that were started here."""
        for watch in self._watches:
            watch.cancel()
        children = [*self._runs.values(), *self._checks.values()]
        await asyncio.gather(*(child.close() for child in children))

    async def _limit(self, child: Child) -> None:
        if not await child.wait(CHECK_SECONDS_MAX):
            child.reason = f"The check took more than {CHECK_SECONDS_MAX:.0f} s and was stopped."
            child.kill()

    def _launch(self, words: Sequence[str]) -> Child:
        children = [*self._runs.values(), *self._checks.values()]
        if sum(child.code is None for child in children) >= CHILDREN_MAX:
            raise PipelineError(f"Already running the maximum of {CHILDREN_MAX} programs.")
        launching = self._launching
        try:
            process = subprocess.Popen(  # noqa: S603 - this program
                [*launching.words, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **launching.environment, "NO_COLOR": "1"},
            )
        except OSError as error:
            raise PipelineError(f"The program could not be started: {error.strerror}.") from None
        return Child(process)
