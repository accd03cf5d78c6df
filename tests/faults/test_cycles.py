"""The tests of `cycle_checks`, in a process that has nothing else.

They search all objects for garbage, again and again. Beside the tests of the whole suite, which are
millions of objects, that took seventeen times as long.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKS = 10


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_dropped_is_freed() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    result = subprocess.run(
        [*command, "tests/faults/cycle_checks.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{CHECKS} passed" in result.stdout, result.stdout
