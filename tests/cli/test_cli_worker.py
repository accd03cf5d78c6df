"""`tradewind worker`: processes that are started, restarted, drained and ended, on both servers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tradewind
import tradewind.sync
from cli_outcome import Cli
from harness import ServerProcess, wait_for
from tradewind.client.errors import OptionsError
from tradewind.worker.supervisor import backoff_seconds
from tradewind.worker.worker_app import load_worker

MODULE = """
import os
import time
from contextlib import asynccontextmanager
from pathlib import Path

import tradewind

folder = Path(__file__).parent


@asynccontextmanager
async def lifespan(connection):
    (folder / f"entered-{os.getpid()}").touch()
    yield
    (folder / f"left-{os.getpid()}").touch()


app = tradewind.Worker("JOBS", "doer", codec="json", create={"max_deliver": 5}, lifespan=lifespan)


@app.handler
def do(job, message):
    with open(folder / "done", "a") as file:
        file.write(f"{job} {os.getpid()}\\n")
    if job == "die":
        if message.metadata.delivered_count == 1:
            os._exit(7)
    if job == "wait":
        while not (folder / "go").exists():
            time.sleep(0.01)
"""


class Running:
    """A worker whose lines are read all the time."""

    def __init__(self, server: str, folder: Path, *flags: str) -> None:
        (folder / "jobs.py").write_text(MODULE)
        self.folder = folder
        command = [sys.executable, "-m", "tradewind.cli", "worker", *flags, "--server", server]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, cwd=folder, env=dict(os.environ)
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)
        self.process.stderr.close()

    @property
    def log(self) -> str:
        return "".join(list(self.lines))

    def saw(self, pattern: str, count: int = 1) -> None:
        wait_for(lambda: len(re.findall(pattern, self.log)) >= count, lambda: self.log, 60)

    def done(self) -> list[list[str]]:
        path = self.folder / "done"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(60)
        return code


@pytest.fixture
def running(js_server: ServerProcess, tmp_path: Path) -> Iterator[Any]:
    started: list[Running] = []

    def start(*flags: str) -> Running:
        started.append(Running(js_server.url, tmp_path, *flags))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
        each._reader.join(60)


@pytest.fixture
def jobs(js_server: ServerProcess) -> Iterator[Any]:
    """Publishes jobs to a stream that is removed after the test."""
    with tradewind.sync.connect(js_server.url, timeout=60) as connection:
        js = connection.jetstream()
        js.manager.streams.add(name="JOBS", subjects=["jobs"], storage="memory")
        try:
            yield js
        finally:
            js.manager.streams.delete("JOBS")


def nothing_left(js: Any) -> None:
    """Wait until the server has taken note of all acknowledgements."""

    def is_settled() -> bool:
        info = js.manager.consumers.info("JOBS", "doer")
        return not info.num_ack_pending and not info.num_pending

    wait_for(is_settled, "messages are left", 60)


def test_jobs_are_shared_by_processes_that_drain_at_the_end(running: Any, jobs: Any) -> None:
    worker = running("jobs:app", "--processes", "2", "--concurrency", "3")
    worker.saw("handles the messages of 'doer' of 'JOBS'", 2)
    for number in range(200):
        jobs.publish("jobs", f"{number}")
    wait_for(lambda: len({job for job, _ in worker.done()}) == 200, lambda: worker.log, 60)
    assert jobs.manager.consumers.info("JOBS", "doer").config.max_deliver == 5
    assert worker.end() == 0
    assert "stopping 2 processes: signal SIGTERM" in worker.log
    assert len(re.findall(r"process \d, pid \d+, ended with 0", worker.log)) == 2
    assert len(list(worker.folder.glob("entered-*"))) == 2
    assert len(list(worker.folder.glob("left-*"))) == 2
    nothing_left(jobs)


def test_a_process_that_dies_is_replaced_and_its_message_comes_again(
    running: Any, jobs: Any
) -> None:
    jobs.manager.consumers.add(
        "JOBS",
        durable_name="doer",
        ack_policy="explicit",
        ack_wait=timedelta(seconds=1),
    )
    worker = running("jobs")
    worker.saw("handles")
    jobs.publish("jobs", '"die"')
    worker.saw(r"process 1, pid \d+, ended with 7; the next one starts in 0\.5 s")
    worker.saw("handles", 2)
    wait_for(lambda: len(worker.done()) >= 2, lambda: worker.log, 60)
    assert len({pid for _, pid in worker.done()}) == 2
    nothing_left(jobs)
    assert worker.end(signal.SIGINT) == 0


def test_a_handler_finishes_after_a_signal_and_its_message_is_acknowledged(
    running: Any, jobs: Any
) -> None:
    worker = running("jobs:app")
    worker.saw("handles")
    jobs.publish("jobs", '"wait"')
    wait_for(worker.done, lambda: worker.log, 60)
    worker.process.send_signal(signal.SIGTERM)
    worker.saw("stopping: 1 handlers are running")
    (worker.folder / "go").touch()
    assert worker.process.wait(60) == 0
    worker._reader.join(60)
    assert "stopped: 1 succeeded" in worker.log
    nothing_left(jobs)


def test_a_second_signal_ends_processes_whose_handlers_do_not(running: Any, jobs: Any) -> None:
    worker = running("jobs:app", "--grace", "1h")
    worker.saw("handles")
    jobs.publish("jobs", '"wait"')
    wait_for(worker.done, lambda: worker.log, 60)
    worker.process.send_signal(signal.SIGTERM)
    worker.saw("stopping: 1 handlers are running")
    assert worker.end() == 0
    assert "ending 1 processes now: signal SIGTERM" in worker.log
    assert "stopped: 1 given back" in worker.log
    consumer = jobs.consumers.get("JOBS", "doer")
    assert consumer.next(timeout=60).metadata.delivered_count == 2


def test_processes_end_when_their_supervisor_is_killed(running: Any, jobs: Any) -> None:
    worker = running("jobs:app", "--processes", "2")
    worker.saw("handles", 2)
    worker.process.kill()
    worker.process.wait()
    worker._reader.join(60)  # the last of them has closed its end
    assert worker.log.count("stopped: no messages") == 2


def test_a_missing_stream_is_waited_for(running: Any, js_server: ServerProcess) -> None:
    worker = running("jobs:app")
    worker.saw(r"stream not found \(10059\)")
    worker.saw("ended with 1; the next one starts in 0.5 s")
    with tradewind.sync.connect(js_server.url, timeout=60) as connection:
        js = connection.jetstream()
        js.manager.streams.add(name="JOBS", subjects=["jobs"], storage="memory")
        try:
            worker.saw("handles")
            assert worker.end() == 0
        finally:
            js.manager.streams.delete("JOBS")


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("nowhere:app", "there is no module 'nowhere' in"),
        ("jobs:folder", "jobs:folder is a PosixPath, not a worker: folder = tradewind.Worker"),
        ("jobs:none", "jobs:none is nothing, not a worker"),
        ("jobs.py:app", "there is no module 'jobs.py'"),
        ("a b", "a worker must be named as"),
    ],
)
def test_a_worker_that_cannot_be_loaded_ends_with_one_line(
    running: Any, place: str, text: str
) -> None:
    worker = running(place, "--processes", "2")
    assert worker.process.wait(60) == 2
    worker._reader.join(60)
    assert text in worker.log
    assert "Traceback" not in worker.log


def test_wrong_flags_are_refused(offline: Cli) -> None:
    for flags, text in (
        (("--processes", "0"), "--processes must be from 1 to 1,000, not 0"),
        (("--grace", "soon"), "--grace"),
    ):
        outcome = offline("worker", "jobs:app", *flags)
        assert (outcome.code, text in outcome.err) == (2, True), outcome


def test_delays_between_restarts_grow_to_a_limit() -> None:
    assert [backoff_seconds(failures) for failures in (1, 2, 3, 7, 100_000)] == [0.5, 1, 2, 30, 30]


# ---------------------------------------------------------------------- the declaration


def test_a_wrong_declaration_fails_where_it_is_written() -> None:
    for arguments, settings, text in (
        (("", "c"), {}, "stream must be the name of a stream"),
        (("S", 3), {}, "consumer must be the name of a consumer, not 3"),
        (("S", "c"), {"create": 1.5}, "create must be True, or the settings"),
        (("S", "c"), {"lifespan": 3}, "lifespan must be a function"),
        (("S", "c"), {"concurrency": 0}, "concurrency: a number"),
        (("S", "c"), {"concurency": 1}, "did you mean 'concurrency'"),
    ):
        with pytest.raises(OptionsError, match=text):
            tradewind.Worker(*arguments, **settings)  # type: ignore[arg-type]


def test_a_worker_has_one_handler_that_fits() -> None:
    app = tradewind.Worker("S", "c", codec="json")
    with pytest.raises(OptionsError, match=r"it is called as one\(value, message\)"):

        @app.handler
        def one(message: object) -> None: ...

    @app.handler
    def two(value: object, message: object) -> None: ...

    with pytest.raises(OptionsError, match="handler must be declared only once: it is two already"):
        app.handler(two)


def test_a_module_that_fails_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import nothing_of_this_name\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        load_worker("needs_more")
