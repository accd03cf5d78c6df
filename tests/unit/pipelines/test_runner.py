"""When a pipeline is done, and when it has failed: queries that end at inconvenient moments.

No Spark is needed for this: the queries are fakes that end as they are told.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.pipelines import runner as runner_module
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.loading import load_pipeline
from tradewind.pipelines.pipeline_connections import PipelineAddress
from tradewind.pipelines.runner import RESTARTS_MAX, SLOW_SIGNS, Runner, _Running
from tradewind.pipelines.status import QueryStatus

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


def runner_of(folder: Path, *queries: Query) -> tuple[Runner, list[Query]]:
    """A runner whose only query is the first of these; the others are its restarts."""
    file = folder / "p.yaml"
    file.write_text(PIPELINE)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local"))
    made = Runner(load_pipeline(file), spark, PipelineAddress(""), lambda *_: None, is_once=True)
    waiting: list[Any] = list(queries)
    running = _Running(lambda: waiting.pop(0), waiting.pop(0), QueryStatus("lake", "lake"), [])
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


def test_a_query_that_never_comes_up_is_an_error_in_the_end(tmp_path: Path) -> None:
    runner, left = runner_of(tmp_path, *(Query(SLOW_SIGNS[0]) for _ in range(RESTARTS_MAX + 2)))
    with pytest.raises(PipelineError, match=SLOW_SIGNS[0]):
        runner.wait(Event(), lambda _status: None)
    assert len(left) == 1


def test_a_pipeline_that_is_stopped_is_not_done(tmp_path: Path) -> None:
    runner, _ = runner_of(tmp_path, Query(looks=1000))
    should_stop = Event()
    should_stop.set()
    runner.wait(should_stop, lambda _status: None)
    assert runner.status.state == "stopped"
