"""tools/run_tests.py: which failures are looked at a second time, and what fails a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools import run_tests as tool

RECORD = ".pytest_cache/v/cache/lastfailed"
EARLIER = "test_earlier.py::test_of_an_earlier_run"


class FakePytest:
    """Answers the first run with these failures, and each later one with the next exit code."""

    def __init__(self, folder: Path, exit_code: int, failed: list[str], *alone: int) -> None:
        self.record = folder / RECORD
        self.record.parent.mkdir(parents=True)
        self.record.write_text(json.dumps({EARLIER: True}))
        self.exit_code = exit_code
        self.failed = failed
        self.alone = list(alone)
        self.asked: list[list[str]] = []

    def __call__(self, arguments: list[str], folder: Path) -> int:
        self.asked.append(arguments)
        if len(self.asked) > 1:
            return self.alone.pop(0)
        assert not self.record.exists(), "failures of an earlier run are forgotten"
        if self.failed:
            self.record.write_text(json.dumps(dict.fromkeys(self.failed, True)))
        return self.exit_code


def test_a_run_without_failures_passes_and_repeats_nothing(tmp_path: Path) -> None:
    fake = FakePytest(tmp_path, 0, [])
    assert tool.main(["-n", "4"], tmp_path, fake) == 0
    assert fake.asked == [["-n", "4"]]


def test_a_test_that_always_fails_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakePytest(tmp_path, 1, ["test_a.py::test_broken"], 1)
    assert tool.main([], tmp_path, fake) == 1
    assert fake.asked == [[], ["test_a.py::test_broken"]]
    assert "test_a.py::test_broken fails by itself as well" in capsys.readouterr().out


@pytest.mark.parametrize("passes", range(tool.REPETITIONS))
def test_a_test_that_fails_once_more_by_itself_fails_the_run(tmp_path: Path, passes: int) -> None:
    fake = FakePytest(tmp_path, 1, ["test_a.py::test_now_and_then"], *[0] * passes, 1)
    assert tool.main([], tmp_path, fake) == 1
    assert fake.alone == []


def test_an_unsteady_test_does_not_excuse_a_broken_one(tmp_path: Path) -> None:
    failed = ["test_a.py::test_unsteady", "test_b.py::test_broken"]
    fake = FakePytest(tmp_path, 1, failed, *[0] * tool.REPETITIONS, 1)
    assert tool.main([], tmp_path, fake) == 1


def test_many_failures_fail_the_run_at_once(tmp_path: Path) -> None:
    failed = [f"test_a.py::test_{number}" for number in range(tool.UNSTEADY_MOST + 1)]
    fake = FakePytest(tmp_path, 1, failed)
    assert tool.main([], tmp_path, fake) == 1
    assert len(fake.asked) == 1


@pytest.mark.parametrize("exit_code", [1, 2, 3, 4, 5])
def test_errors_outside_tests_fail_the_run_at_once(tmp_path: Path, exit_code: int) -> None:
    fake = FakePytest(tmp_path, exit_code, ["test_a.py"])
    assert tool.main([], tmp_path, fake) == exit_code
    assert len(fake.asked) == 1


def test_a_real_test_that_passes_by_itself_is_named_as_unsteady(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tmp_path.joinpath("pytest.ini").write_text("[pytest]\n")
    tmp_path.joinpath("test_module.py").write_text(
        "from pathlib import Path\n\n"
        "def test_unsteady():\n"
        "    mark = Path(__file__).with_name('mark')\n"
        "    was_there = mark.exists()\n"
        "    mark.touch()\n"
        "    assert was_there\n"
    )
    assert tool.main(["-q"], tmp_path) == 0
    said = capfd.readouterr().out
    assert "1 failed in" in said
    assert said.count("1 passed in") == tool.REPETITIONS
    assert "UNSTEADY: test_module.py::test_unsteady failed once and passed" in said
