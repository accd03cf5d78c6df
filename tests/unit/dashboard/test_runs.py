"""Programs that the dashboard starts: they stop when they are asked, and end with it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tradewind.dashboard.data import runs as runs_module
from tradewind.dashboard.data.runs import Child, LaunchCommand, Runs
from tradewind.pipelines.errors import PipelineError

PROGRAM = """
import os, signal, subprocess, sys, time
if "check" in sys.argv:
    print("line 3: key 'sorces' does not exist")
    sys.exit(1)
if "stubborn" in sys.argv[-1]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
below = subprocess.Popen(["sleep", "600"])
print("x" * 100_000)
print(os.environ.get("NATS_PASSWORD"), below.pid, "ready", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def launching(tmp_path: Path) -> LaunchCommand:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    return LaunchCommand((sys.executable, str(script)), {"NATS_PASSWORD": "hidden"})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def ready(child: Child) -> int:
    """Wait for a program; the process below it."""
    await until(lambda: "ready" in child.output)
    return int(child.output.split()[-2])


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_a_run_is_asked_to_stop_alone_and_its_output_is_bounded(
    launching: LaunchCommand,
) -> None:
    runs, path = Runs(launching), Path("a.yaml")
    child = runs.start(path)
    below = await ready(child)
    assert len(child.output) <= runs_module.OUTPUT_BYTES_MAX
    assert "hidden" in child.output  # it is in the environment
    assert os.getpgid(child.pid) == child.pid == os.getpgid(below)
    assert os.getpgid(0) != child.pid
    with pytest.raises(PipelineError, match="is already running"):
        runs.start(path)
    assert runs.stop(path)
    assert await child.wait(30)
    # What is below a runner is ended by the runner, not by a signal from here.
    assert child.code == 0
    assert not is_gone(below)
    os.kill(below, 9)
    assert not runs.stop(path)
    assert not runs.kill(path)
    await runs.close()


async def test_the_whole_group_ends_with_the_dashboard(
    launching: LaunchCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "STOP_SECONDS", 0.2)
    runs = Runs(launching)
    child = runs.start(Path("stubborn.yaml"))
    below = await ready(child)
    await runs.close()
    await until(lambda: is_gone(below))
    assert await child.wait(30)
    assert child.code == -9


async def test_a_run_that_does_not_stop_can_be_ended_at_once(launching: LaunchCommand) -> None:
    runs, path = Runs(launching), Path("stubborn.yaml")
    child = runs.start(path)
    below = await ready(child)
    runs.stop(path)
    assert child.is_stopping
    assert runs.kill(path)
    assert await child.wait(30)
    await until(lambda: is_gone(below))
    assert "stopped immediately" in child.reason
    await runs.close()


async def test_a_check_says_what_is_wrong(launching: LaunchCommand) -> None:
    runs, path = Runs(launching), Path("a.yaml")
    child = await runs.check(path)
    assert await child.wait(30)
    await until(lambda: child.output != "")
    assert child.code == 1
    assert child.output == "line 3: key 'sorces' does not exist\n"
    assert runs.check_of(path) is child
    await runs.close()


async def test_a_check_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "CHECK_SECONDS_MAX", 0.05)
    runs = Runs(LaunchCommand(("sh", "-c", "sleep 600")))
    child = await runs.check(Path("a.yaml"))
    assert await child.wait(30)
    assert "more than" in child.reason
    await runs.close()


async def test_only_so_many_programs_run_at_once(
    launching: LaunchCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "CHILDREN_MAX", 1)
    runs = Runs(launching)
    child = runs.start(Path("a.yaml"))
    below = await ready(child)
    with pytest.raises(PipelineError, match="the maximum of 1 programs"):
        runs.start(Path("b.yaml"))
    assert runs.kill(Path("a.yaml")), "if it were asked to end, the process below it would stay"
    await runs.close()
    await until(lambda: is_gone(below))


async def test_a_program_that_is_not_there_is_an_error_in_words() -> None:
    runs = Runs(LaunchCommand(("/no/such/program",)))
    with pytest.raises(PipelineError, match="could not be started: No such file"):
        runs.start(Path("a.yaml"))
    assert runs.run_of(Path("a.yaml")) is None
    await runs.close()
