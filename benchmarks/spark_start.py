"""`python -m benchmarks.spark_start`: what the first answers of `tradewind sql` cost.

A new `tradewind sql` groups a stream of 100,000 messages by subject three times. For each of its
processes, and the answers, the seconds and the CPU time up to then are printed, without the server.
Its Python processes are forked or, with TRADEWIND_SPARK_LAUNCHER=off, started one by one. As a
process is looked at every 20 ms, what it does right before its end is missing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import tradewind
import tradewind.sync
from benchmarks.procfs import TreeClock, process_cpu_s

PAYLOAD = b"x" * 128
SUBJECTS = 7
ANSWERS = 3
LOOK_SECONDS = 0.02
QUERY = "select subject, count(*) from ORDERS group by 1"
JAVA, FORKED, STARTED, OTHER = "Java", "Python, forked", "Python, started", "the command itself"


class Looker:
    """Looks at the processes below one until it has ended."""

    def __init__(self, pid: int) -> None:
        self._clock = TreeClock(pid)
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.kinds: dict[int, str] = {}
        self.cpu_s: dict[int, float] = {}
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._clock.read_s()
            for pid in list(self._clock.pids()):
                try:
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()
                    self.cpu_s[pid] = process_cpu_s(pid)
                except OSError:
                    continue
                if command:
                    self.kinds[pid] = self._kind(pid, command)

    def _kind(self, pid: int, command: bytes) -> str:
        if pid == self._pid:
            return OTHER
        if b"java" in command.partition(b"\0")[0]:
            return JAVA
        if b"-IS" in command or b"launcher_parent" in command:
            return FORKED
        return FORKED if self.kinds.get(pid) == FORKED else STARTED

    def total_s(self) -> float:
        return sum(self.cpu_s.values())

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def measure(url: str, switch: str) -> None:
    """Ask three times, and print what it took."""
    variables = {**os.environ, "TRADEWIND_SPARK_LAUNCHER": switch}
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "tradewind.cli", "-s", url, "sql"],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    looker = Looker(process.pid)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{QUERY};\n" * ANSWERS)
    process.stdin.close()
    print(f"launcher {switch}")
    for line in process.stdout:
        if f"orders.{SUBJECTS - 1}" in line:
            cpu_s = looker.total_s()
            print(f"  answer after {time.monotonic() - began:6.2f} s, {cpu_s:6.2f} s of CPU")
    process.wait()
    looker.end()
    for kind in (OTHER, JAVA, FORKED, STARTED):
        used = [looker.cpu_s[pid] for pid, one in looker.kinds.items() if one == kind]
        if used:
            print(f"  {kind:20} {len(used):3} processes {sum(used):6.2f} s of CPU")


def main() -> None:
    """Measure with the launcher and without it, in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--launcher", choices=("off", "on"), nargs="*", default=("off", "on"))
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        tradewind.serve(port=0, jetstream=folder) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        connection.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.>"])
        js = connection.jetstream()
        for number in range(arguments.messages):
            js.publish_async(f"orders.{number % SUBJECTS}", PAYLOAD)
        js.publish_async_completed()
        for _ in range(arguments.rounds):
            for switch in arguments.launcher:
                measure(server.url, switch)


if __name__ == "__main__":
    main()
