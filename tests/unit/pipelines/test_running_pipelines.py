"""Running pipelines: how others find them, and how one is stopped that others have started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.definition.model import Pipeline
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.machine.private_folder import private_folder
from tradewind.pipelines.running.stopping import is_runner, stop_runner
from tradewind.pipelines.state import announcing
from tradewind.pipelines.state.announcing import announced, running_files
from tradewind.pipelines.state.status import PipelineStatus, State, write_status

FILE = """
pipeline: sales
checkpoint: state
sources:
  orders: {stream: ORDERS}
sinks:
  out: {from: orders, parquet: lake}
"""
HOLDER = """
import sys, time
from pathlib import Path
from tradewind.pipelines.state.leases import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    path = tmp_path / "sales.yaml"
    path.write_text(FILE)
    return load_pipeline(path)


@pytest.fixture
def holder(pipeline: Pipeline) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of the checkpoint, as a runner does."""
    command = [sys.executable, "-c", HOLDER, str(pipeline.checkpoint)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def told(pipeline: Pipeline, pid: int, state: State = "running", host: str = "") -> None:
    now = time.time_ns()
    host = host or os.uname().nodename
    file = str(pipeline.document.path)
    status = PipelineStatus("sales", file, state, pid, host, "local[*]", now, now)
    write_status(pipeline.checkpoint, status)


def test_a_runner_gets_a_signal_and_ends(pipeline: Pipeline, holder: subprocess.Popen[str]) -> None:
    told(pipeline, holder.pid)
    assert stop_runner(pipeline) == holder.pid
    assert holder.wait(30) == -15
    with pytest.raises(PipelineError, match="is not running"):
        stop_runner(pipeline)


def test_a_process_that_only_has_the_number_is_left_alone(
    pipeline: Pipeline, holder: subprocess.Popen[str]
) -> None:
    checkpoint = pipeline.checkpoint
    assert isinstance(checkpoint, Path)
    assert is_runner(holder.pid, checkpoint)
    with subprocess.Popen(["sleep", "600"]) as bystander:
        told(pipeline, bystander.pid)
        with pytest.raises(PipelineError, match="left alone"):
            stop_runner(pipeline)
        assert bystander.poll() is None
        bystander.kill()


def test_one_that_has_the_file_open_without_the_lock_is_left_alone(pipeline: Pipeline) -> None:
    checkpoint = pipeline.checkpoint
    assert isinstance(checkpoint, Path)
    checkpoint.mkdir()
    lock = checkpoint / "lock"
    lock.touch()
    with lock.open() as file, subprocess.Popen(["sleep", "600"], stdin=file) as bystander:
        assert not is_runner(bystander.pid, checkpoint)
        bystander.kill()


@pytest.mark.parametrize(
    ("state", "pid", "host", "text"),
    [
        ("stopped", 1, "", "is not running"),
        ("running", 1, "elsewhere", "runs on elsewhere; stop it there"),
        ("running", os.getpid(), "", "part of this process"),
    ],
    ids=["stopped", "elsewhere", "itself"],  # a process number would differ between workers
)
def test_what_cannot_be_stopped_from_here_is_said(
    pipeline: Pipeline, state: State, pid: int, host: str, text: str
) -> None:
    told(pipeline, pid, state, host)
    with pytest.raises(PipelineError, match=text):
        stop_runner(pipeline)


def test_running_pipelines_are_found_until_they_end(pipeline: Pipeline) -> None:
    assert running_files() == []
    with announced(pipeline):
        assert running_files() == [pipeline.document.path.resolve()]
    assert running_files() == []


def test_notes_of_those_that_were_killed_and_what_is_no_note_are_passed_over(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    with announced(pipeline):
        folder = private_folder()
        assert folder is not None
        notes = folder / announcing.NOTES_FOLDER
        (notes / "a.json").write_text('{"file": "/gone.yaml", "pid": 999999999}')
        (notes / "b.json").write_text("no note")
        assert running_files() == [pipeline.document.path.resolve()]
        folder.chmod(0o755)
        assert running_files() == []  # anybody could have written them
        folder.chmod(0o700)


def test_a_pipeline_runs_also_if_it_cannot_be_announced(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with announced(pipeline):
        assert running_files() == []
