"""When a pipeline is done, and when it has failed: queries that end at inconvenient moments.

No Spark is needed for this: the queries are fakes that end as they are told.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.running import runner as runner_module
from tradewind.pipelines.running import slow_starts
from tradewind.pipelines.running.runner import Runner, _RunningQuery
from tradewind.pipelines.running.slow_starts import PATIENCE_SECONDS, PAUSES, SlowStart
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.spark_errors import SLOW_SIGNS
from tradewind.pipelines.state.status import QueryStatus

PIPELINE = """\
pipeline: copy
checkpoint: state
sources:
  orders: {stream: ORDERS}
sinks:
  lake: {from: orders, parquet: lake}
"""


class Query:
    """A query that ends after so many looks at its error, with this one or without any."""

    def __init__(self, error: str = "", looks: int = 0) -> None:
        self._error = error
        self._looks = looks
        self.recentProgress: list[Any] = []
        self.status = {"message": "Initializing sources", "isTriggerActive": False}

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self._looks > 0

    def exception(self) -> Exception | None:
        if self._looks > 0:
            self._looks -= 1
            return None
        return Exception(self._error) if self._error else None

    def stop(self) -> None:
        self._looks = 0


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "POLL_SECONDS", 0)
    monkeypatch.setattr(slow_starts, "PAUSES", (0.0,))


def runner_of(folder: Path, *queries: Query) -> tuple[Runner, list[Query]]:
    """A runner whose only query is the first of these; the others are its restarts."""
    file = folder / "p.yaml"
    file.write_text(PIPELINE)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local"))
    made = Runner(load_pipeline(file), spark, PipelineAddress(""), lambda *_: None, is_once=True)
    waiting: list[Any] = list(queries)
    running = _RunningQuery(lambda: waiting.pop(0), waiting.pop(0), QueryStatus("lake", "lake"), [])
    made._queries.append(running)
    return made, waiting


def test_a_query_that_fails_twice_at_its_start_is_not_taken_for_done(tmp_path: Path) -> None:
    slow = SLOW_SIGNS[0]
    runner, left = runner_of(tmp_path, Query(slow), Query(slow), Query(slow), Query())
    runner.wait(Event(), lambda _status: None)
    assert left == []
    assert runner.status.state == "done"
    assert runner.status.queries[0].restarts == 3


def test_a_query_that_fails_right_after_it_was_looked_at_is_not_taken_for_done(
    tmp_path: Path,
) -> None:
    runner, _ = runner_of(tmp_path, Query("the disk is full", looks=1))
    with pytest.raises(PipelineError, match="the disk is full"):
        runner.wait(Event(), lambda _status: None)
    assert runner.status.state == "failed"


class Clock:
    """A clock that goes on by so much with each look at it."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 1000.0
        self._step = step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


def test_a_query_that_never_comes_up_is_tried_for_minutes_and_then_an_error(
    tmp_path: Path,
) -> None:
    runner, left = runner_of(tmp_path, *(Query(SLOW_SIGNS[0]) for _ in range(1000)))
    runner._queries[0].slow_start = SlowStart(Clock(step=1.0))
    with pytest.raises(
        PipelineError, match=r"too busy to start .* \(after \d+ tries in 15 minutes\)"
    ):
        runner.wait(Event(), lambda _status: None)
    tries = 999 - len(left)
    assert tries > 10
    assert runner.status.queries[0].restarts == tries


def test_a_restart_that_fails_at_once_fails_the_pipeline_with_its_reason(tmp_path: Path) -> None:
    runner, _ = runner_of(tmp_path, Query(SLOW_SIGNS[0]))

    def start() -> Any:
        raise RuntimeError("Answer from Java side is empty")

    runner._queries[0].start = start
    with pytest.raises(PipelineError, match="lake: Spark's Java process has ended"):
        runner.wait(Event(), lambda _status: None)
    assert runner.status.state == "failed"


def test_the_status_says_what_a_query_waits_for(tmp_path: Path) -> None:
    runner, _ = runner_of(tmp_path, Query(SLOW_SIGNS[0]), Query())
    clock = Clock()
    plan = runner._queries[0].slow_start = SlowStart(clock)
    plan.is_hopeless(Exception(SLOW_SIGNS[0]), 0)
    clock.now -= 60
    assert runner.poll()
    assert "lake: the machine is too busy" in runner.status.note
    assert "Try 1 follows in 60 s" in runner.status.note
    clock.now += 60
    assert runner.poll()
    assert runner.status.note == ""
    assert runner.status.queries[0].restarts == 1


def test_pauses_grow_and_progress_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_starts, "PAUSES", PAUSES)
    clock = Clock()
    plan = SlowStart(clock)
    slow = Exception(f"org.apache.spark.SparkException: {SLOW_SIGNS[0]}.")

    def pause(batches: int) -> float:
        assert not plan.is_hopeless(slow, batches)
        began = clock.now
        while not plan.take():
            clock.now += 0.5
        return clock.now - began

    assert [pause(0) for _ in range(8)] == [1, 2, 5, 10, 20, 30, 30, 30]
    assert pause(3) == 1
    clock.now += PATIENCE_SECONDS
    assert plan.is_hopeless(slow, 3)
    assert not plan.is_hopeless(slow, 4)
    assert plan.is_hopeless(Exception("the disk is full"), 4)


def test_a_pipeline_that_is_stopped_is_not_done(tmp_path: Path) -> None:
    runner, _ = runner_of(tmp_path, Query(looks=1000))
    should_stop = Event()
    should_stop.set()
    runner.wait(should_stop, lambda _status: None)
    assert runner.status.state == "stopped"
