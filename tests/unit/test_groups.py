"""Tests of one group run in one process, and neighbours of a file as far as that is of use.

Servers and Java are started once per process, so this decides how long all tests take. The plugin
that does it has stopped once with a new version of pytest, and nothing failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.remote import Producer

from scheduling import NEIGHBOURS_MAX, NeighbourScheduling

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


class Worker:
    """The side of a process that the scheduler sees."""

    gateway = SimpleNamespace(id="worker")

    def __init__(self) -> None:
        self.shutting_down = False
        self.given: list[list[int]] = []
        self.waiting: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given.append(indices)
        self.waiting += indices

    def shutdown(self) -> None:
        self.shutting_down = True


NAMES = [
    *(f"tests/test_a.py::test_it[{number}]" for number in range(3 * NEIGHBOURS_MAX + 5)),
    *(f"tests/test_b.py::test_it[x@{number}]" for number in range(3)),
    *(f"tests/test_{file}.py::test_it[{number}]@one" for file in "cd" for number in range(40)),
    *(f"tests/test_e.py::test_it[{number}]@two" for number in range(4)),
    *(f"tests/test_f.py::test_it[{number}]" for number in range(NEIGHBOURS_MAX)),
]


@pytest.fixture
def workers() -> list[Worker]:
    return [Worker() for _ in range(3)]


@pytest.fixture
def schedule(workers: list[Worker]) -> NeighbourScheduling:
    """One that has given out the first tests."""
    config: Any = SimpleNamespace(
        getvalue=lambda _: ["popen"] * len(workers),
        option=SimpleNamespace(loadscopereorder=True),
    )
    made = NeighbourScheduling(config, Producer("schedule", enabled=False))
    for worker in workers:
        node: Any = worker
        made.add_node(node)
        made.add_node_collection(node, NAMES)
    made.schedule()
    return made


def run(schedule: NeighbourScheduling, workers: list[Worker]) -> None:
    """Let the workers run one test each in turn until there is none."""
    while any(worker.waiting for worker in workers):
        for worker in workers:
            if worker.waiting:
                end(schedule, worker, worker.waiting.pop(0))


def end(schedule: NeighbourScheduling, worker: Any, index: int) -> None:
    schedule.mark_test_complete(worker, index)


def test_every_test_is_given_out_once_in_units_of_a_file_or_a_group(
    schedule: NeighbourScheduling, workers: list[Worker]
) -> None:
    run(schedule, workers)
    units = [unit for worker in workers for unit in worker.given]
    assert sorted(index for unit in units for index in unit) == list(range(len(NAMES)))
    groups = [unit for unit in units if any("]@" in NAMES[index] for index in unit)]
    assert [len(group) for group in groups] == [80, 4]
    units = [unit for unit in units if unit not in groups]
    assert all(len({NAMES[index].partition("::")[0] for index in unit}) == 1 for unit in units)
    sizes = sorted(len(unit) for unit in units)
    assert sizes == [3, 5, *[NEIGHBOURS_MAX] * 4]
    assert schedule.tests_finished
    assert not schedule.has_pending
    assert all(worker.shutting_down for worker in workers)


def test_groups_are_given_out_first(schedule: NeighbourScheduling, workers: list[Worker]) -> None:
    first = [NAMES[worker.given[0][0]].rpartition("]")[2] for worker in workers]
    assert first == ["@one", "@two", ""]


def test_what_a_worker_that_dies_has_not_run_is_run_by_others(
    schedule: NeighbourScheduling, workers: list[Worker]
) -> None:
    dead: Any
    dead, *others = workers
    ran = [dead.waiting.pop(0) for _ in range(3)]
    for index in ran:
        schedule.mark_test_complete(dead, index)
    assert schedule.remove_node(dead) == NAMES[dead.waiting[0]]
    run(schedule, others)
    again = [index for worker in others for unit in worker.given for index in unit]
    assert sorted([*ran, *again]) == list(range(len(NAMES)))
