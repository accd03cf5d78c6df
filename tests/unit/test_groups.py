"""Tests of one group run in one process.

Servers and Java are started once per process, so this decides how long all tests take. The plugin
that does it has stopped once with a new version of pytest, and nothing failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = """
import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "grouped" in str(item.path):
            item.add_marker(pytest.mark.xdist_group("one"))
"""
TEST = """
import os
import pathlib

import pytest


@pytest.mark.parametrize("number", range(6))
def test_it(number):
    with pathlib.Path("processes").open("a") as file:
        file.write(f"{os.getpid()}\\n")
"""


def test_tests_of_a_group_run_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in ("a", "b"):
        (tmp_path / f"test_grouped_{name}.py").write_text(TEST)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "12 passed" in done.stdout, done.stdout + done.stderr
    processes = (tmp_path / "processes").read_text().split()
    assert len(processes) == 12
    assert len(set(processes)) == 1
