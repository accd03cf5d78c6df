"""Run the tests, and look a second time at the few that failed beside others.

    python tools/run_tests.py -n 4 --dist loadgroup       # any arguments of pytest

Thousands of tests share two cores with servers, browsers and Spark, so now and then one fails for
want of processor time and never does alone. Up to two failed tests are therefore run again, five
times each, with the machine to themselves. A test that passes every time is named as unsteady at
the end of the output, where its first failure is shown too: it is a defect to mend, but it does not
fail the run. A test that fails once more fails the run, and so do more than two failures, and
errors outside tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED_TESTS = 1  # the exit code of pytest
UNSTEADY_MOST = 2
REPETITIONS = 5


def run_pytest(arguments: list[str], folder: Path) -> int:
    """The exit code of pytest; its output goes where ours goes."""
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=folder, check=False).returncode  # noqa: S603


def main(
    arguments: list[str],
    folder: Path = ROOT,
    pytest: Callable[[list[str], Path], int] = run_pytest,
) -> int:
    """The exit code of pytest, or 0 if all that failed pass by themselves."""
    record = folder / ".pytest_cache/v/cache/lastfailed"
    record.unlink(missing_ok=True)
    exit_code = pytest(arguments, folder)
    if exit_code != FAILED_TESTS or not record.exists():
        return exit_code
    failed = sorted(json.loads(record.read_text()))
    if len(failed) > UNSTEADY_MOST or not all("::" in name for name in failed):
        return exit_code
    for name in failed:
        say(f"{name} failed beside others; now {REPETITIONS} times by itself")
        if any(pytest([name], folder) for _ in range(REPETITIONS)):
            say(f"{name} fails by itself as well")
            return exit_code
    for name in failed:
        say(f"UNSTEADY: {name} failed once and passed {REPETITIONS} times by itself; mend it")
    return 0


def say(text: str) -> None:
    """Print a line at once, between the lines of the tests' own processes."""
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
