"""The restart policy of a pipeline, with fakes that fail as they are told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pipeline_texts import pipeline_of_text

from tradewind.pipelines.definition.model import RestartPolicy
from tradewind.pipelines.errors import PipelineFileError
from tradewind.pipelines.running.restart_policy import Restarts
from tradewind.pipelines.state.status import QueryStatus

ERROR = RuntimeError("the disk is full")
TEXT = """pipeline: copy
checkpoint: state
restart: {attempts: 3, delay: 10 seconds, max_delay: 15 seconds}
sources:
  orders: {stream: ORDERS}
sinks:
  lake: {from: orders, parquet: lake}
"""


class Failing:
    """A query that has failed; each start makes another one, or fails itself."""

    def __init__(self, *, starts: bool = True) -> None:
        self.query: Any = object()
        self.status = QueryStatus("lake", "parquet lake")
        self._starts = starts

    @property
    def start(self) -> Any:
        return self._start

    def _start(self) -> object:
        if not self._starts:
            raise RuntimeError("no server")
        return SimpleNamespace()


def restarts(clock: list[float], attempts: int = 3) -> Restarts:
    policy = RestartPolicy(attempts, "10 seconds", "15 seconds")
    return Restarts(policy, lambda: clock[0])


def test_without_a_policy_no_query_is_started_again() -> None:
    assert not Restarts(None).takes(Failing(), ERROR)


def test_a_query_is_started_after_pauses_that_grow_until_its_attempts_are_used_up() -> None:
    clock, one = [0.0], Failing()
    plan = restarts(clock)
    for pause in (10, 15, 15):
        failed = one.query
        assert plan.takes(one, ERROR)
        clock[0] += pause - 0.1
        assert plan.takes(one, ERROR)
        assert one.query is failed
        assert f"of 3): {ERROR}" in plan.notes()[0]
        clock[0] += 0.1
        assert plan.takes(one, ERROR)
        assert one.query is not failed
        assert plan.notes() == []
    assert one.status.restarts == 3
    assert not plan.takes(one, ERROR)


def test_a_batch_in_between_makes_the_attempts_start_over() -> None:
    clock, one = [0.0], Failing()
    plan = restarts(clock, attempts=1)
    for batches in range(5):
        one.status.batches = batches
        assert plan.takes(one, ERROR)
        clock[0] += 10
        assert plan.takes(one, ERROR)
    assert not plan.takes(one, ERROR)


def test_a_start_that_fails_is_an_attempt_too() -> None:
    clock, one = [0.0], Failing(starts=False)
    plan = restarts(clock)
    assert plan.takes(one, ERROR)
    for _ in range(2):
        clock[0] += 15
        assert plan.takes(one, ERROR)
        assert "no server" in plan.notes()[0]
    clock[0] += 15
    assert not plan.takes(one, ERROR)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("attempts: 3", "attempts: 0", "attempts must be from 1"),
        ("delay: 10 seconds", "delay: soon", "'soon' is not a duration"),
        ("max_delay: 15 seconds", "max_delay: 1 s", "'1 s' is shorter than the delay"),
        ("attempts: 3, ", "", "missing required field `attempts`"),
    ],
)
def test_a_wrong_policy_is_an_error_of_its_line(old: str, new: str, message: str) -> None:
    assert pipeline_of_text(TEXT).head.restart is not None
    with pytest.raises(PipelineFileError) as caught:
        pipeline_of_text(TEXT.replace(old, new, 1))
    assert (caught.value.line, message in caught.value.text) == (3, True), caught.value.text
