"""Celery on both servers: workers with processes, results, chords, and a worker that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chord, group
from celery.exceptions import TimeoutError as ResultTimeoutError

import tradewind.sync
from celery_tasks import make_app
from harness import ServerProcess, wait_for

KITS = Path(__file__).parent.parent / "kits"
SECONDS = 60.0

pytestmark = pytest.mark.slow


class Worker:
    """A worker with one process for tasks, in a process group of its own."""

    def __init__(self, url: str, folder: Path, name: str, queue: str = "celery") -> None:
        self._log = (folder / f"{name}.log").open("w")
        arguments = [
            "-A", "celery_tasks", "worker", "-c", "1", "-n", f"{name}@test", "--loglevel", "INFO",
            "--without-gossip", "--without-mingle", "-Q", queue,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "celery", *arguments],
            cwd=KITS,
            env={**os.environ, "CELERY_TASKS_URL": url},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill it and its processes, as a power failure would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def stop(self) -> None:
        """Let it finish its tasks."""
        self.process.terminate()
        try:
            assert self.process.wait(SECONDS) == 0
        finally:
            if self.process.poll() is None:
                self.kill()
            self._log.close()


@pytest.fixture(scope="module")
def app(js_server: ServerProcess) -> Iterator[Any]:
    app = make_app(f"{js_server.url}/KOMBU")
    yield app
    app.close()
    with tradewind.sync.connect(js_server.url) as client:
        streams = client.jetstream().manager.streams
        for name in list(streams.names()):
            streams.delete(name)


@pytest.fixture(scope="module")
def worker(
    app: Any, js_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    worker = Worker(app.conf.broker_url, tmp_path_factory.mktemp("worker"), "steady")
    yield worker
    worker.stop()


def test_tasks_have_results(app: Any, worker: Worker) -> None:
    assert app.tasks["add"].delay(1, 2).get(timeout=SECONDS) == 3
    with pytest.raises(ValueError, match="on purpose"):
        app.tasks["fail"].delay().get(timeout=SECONDS)
    assert app.tasks["again"].delay().get(timeout=SECONDS) == 2
    results = group(app.tasks["add"].s(number, 1) for number in range(20))()
    assert results.get(timeout=SECONDS) == list(range(1, 21))
    chain = app.tasks["add"].s(1, 2) | app.tasks["add"].s(3)
    assert chain().get(timeout=SECONDS) == 6


def test_a_chord_is_called_once_with_all_results(app: Any, worker: Worker) -> None:
    parts = [app.tasks["add"].s(number, number) for number in range(10)]
    called = chord(parts)(app.tasks["total"].s())
    assert called.get(timeout=SECONDS) == 90


def test_a_countdown_is_kept_by_the_server(
    app: Any, worker: Worker, js_server: ServerProcess
) -> None:
    begun = time.monotonic()
    result = app.tasks["add"].apply_async((2, 2), countdown=2)
    with tradewind.sync.connect(js_server.url) as client:
        js = client.jetstream()
        assert js.manager.streams.info("KOMBU", subjects_filter="KOMBU.delay.>").state.subjects
    assert result.get(timeout=SECONDS) == 4
    assert time.monotonic() - begun > 1.9


def test_workers_answer_remote_control(app: Any, worker: Worker) -> None:
    assert app.tasks["add"].delay(1, 2).get(timeout=SECONDS) == 3  # it is there
    answers = app.control.ping(timeout=SECONDS, limit=1)
    assert answers == [{"steady@test": {"ok": "pong"}}]


def test_a_result_that_does_not_come_is_a_timeout(app: Any) -> None:
    with pytest.raises(ResultTimeoutError):
        app.AsyncResult("nobody-runs-it").get(timeout=0.2)
    result = app.AsyncResult("nobody-runs-it")
    assert result.state == "PENDING"
    result.forget()


def test_results_expire_and_are_forgotten(app: Any, js_server: ServerProcess) -> None:
    backend = app.backend
    backend.store_result("kept", 17, "SUCCESS")
    assert app.AsyncResult("kept").get(timeout=SECONDS) == 17
    with tradewind.sync.connect(js_server.url) as client:
        stored = client.jetstream().manager.streams.get_message(
            "KV_RESULTS", last_by_subject="$KV.RESULTS.celery-task-meta-kept"
        )
    assert stored.headers["Nats-TTL"] == str(int(backend.expires))
    app.AsyncResult("kept").forget()
    assert app.AsyncResult("kept").state == "PENDING"


def test_a_part_of_a_chord_that_runs_twice_counts_once(app: Any) -> None:
    backend = app.backend
    key = backend.get_key_for_chord("group-of-two")
    backend._part.id = "first"
    assert [backend.incr(key), backend.incr(key)] == [1, 1]
    backend._part.id = "second"
    assert backend.incr(key) == 2
    backend._part.id = ""
    backend.delete(key)
    assert backend.incr(key) == 1
    backend.delete(key)


def test_a_task_of_a_killed_worker_runs_again_in_another(
    app: Any, js_server: ServerProcess, tmp_path: Path
) -> None:
    url = app.conf.broker_url
    first = Worker(url, tmp_path, "first", "doomed")
    try:
        result = app.tasks["wait"].apply_async((str(tmp_path),), queue="doomed")
        waiting = app.tasks["add"].apply_async((20, 3), queue="doomed")
        wait_for((tmp_path / "started").exists)
    finally:
        first.kill()
    second = Worker(url, tmp_path, "second", "doomed")
    try:
        (tmp_path / "go").touch()
        assert result.get(timeout=SECONDS) is True
        assert waiting.get(timeout=SECONDS) == 23
        assert len((tmp_path / "started").read_text().splitlines()) == 2
    finally:
        second.stop()
