"""What a start costs where no other server does the same: an embedded server, and commands.

    python -m benchmarks.process_starts

Prints medians: `tradewind.serve` in a process that has had a server before, as each test with the
fixtures of `tradewind.pytest` has, and commands of `tradewind` against a running server.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tradewind

ROUNDS = 20
COMMANDS = (("--help",), ("--version",), ("stream", "ls"), ("pub", "subject", "text"))
PROGRAM = Path(sys.executable).parent / "tradewind"


def milliseconds(start_s: float, end_s: float) -> float:
    """The time between two clock readings."""
    return (end_s - start_s) * 1000


def embedded(settings: Callable[[], dict[str, str]]) -> tuple[float, float, float]:
    """One embedded server: the wall time and CPU time of its start, and the wall time of its
    stop.
    """
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    with tradewind.serve(port=0, **settings()):
        started_s, used_s = time.perf_counter(), time.process_time()
    return (
        milliseconds(wall_s, started_s),
        milliseconds(cpu_s, used_s),
        milliseconds(started_s, time.perf_counter()),
    )


def command_cpu(url: str, arguments: tuple[str, ...]) -> float:
    """The processor time of one command."""
    words = [str(PROGRAM), "--server", url, *arguments]
    started = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    assert started.returncode == 0, f"{words} failed"
    return (used.ru_utime + used.ru_stime) * 1000


def main() -> None:
    """Measure and print all rows."""
    with tempfile.TemporaryDirectory() as folder:
        kinds: tuple[tuple[str, Callable[[], dict[str, str]]], ...] = (
            ("serve()", dict),
            ("serve(jetstream=folder)", lambda: {"jetstream": tempfile.mkdtemp(dir=folder)}),
        )
        for name, settings in kinds:
            embedded(settings)
            rounds = [embedded(settings) for _ in range(ROUNDS)]
            wall, cpu, stop = (statistics.median(each) for each in zip(*rounds, strict=True))
            print(f"{name:30} start {wall:6.1f} ms, CPU {cpu:6.1f} ms; stop {stop:6.1f} ms")
        with tradewind.serve(port=0, jetstream=tempfile.mkdtemp(dir=folder)) as server:
            for arguments in COMMANDS:
                used = statistics.median(command_cpu(server.url, arguments) for _ in range(ROUNDS))
                print(f"{'tradewind ' + ' '.join(arguments):30} CPU {used:6.1f} ms")


if __name__ == "__main__":
    main()
