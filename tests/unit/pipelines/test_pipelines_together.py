"""Several pipelines next to each other, with fakes instead of runners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.running import runner as runner_module
from tradewind.pipelines.running.together import run_together


class FakeRunner:
    """A pipeline that is active for some looks, and then done, or fails."""

    def __init__(self, name: str, looks: int = 0, *, breaks: bool = False) -> None:
        self.name = name
        self.pipeline = SimpleNamespace(checkpoint=name)
        self.status = SimpleNamespace(pipeline=name, state="running")
        self._looks = looks
        self._breaks = breaks

    def poll(self) -> bool:
        self._looks -= 1
        if self._looks < 0 and self._breaks:
            self.status.state = "failed"
            raise PipelineError(f"{self.name} broke")
        return self._looks >= 0

    def finish(self, *, is_active: bool) -> None:
        self.status.state = "stopped" if is_active else "done"


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    happened: list[str] = []

    @contextmanager
    def running(runner: FakeRunner, _checkpoint: str) -> Iterator[None]:
        if runner.name == "locked":
            raise PipelineError("the pipeline is already running")
        happened.append(f"begin {runner.name}")
        yield
        happened.append(f"end {runner.name}")

    monkeypatch.setattr(runner_module, "running", running)
    monkeypatch.setattr(runner_module, "POLL_SECONDS", 0)
    return happened


def run(*runners: FakeRunner, stop: Event | None = None, **how: Any) -> tuple[list[str], list[str]]:
    failures: list[str] = []
    makers: list[Any] = [lambda one=one: one for one in runners]
    run_together(
        makers,
        stop or Event(),
        lambda _status: None,
        lambda error: failures.append(str(error)),
        **how,
    )
    return [one.status.state for one in runners], failures


def test_each_ends_when_it_is_done_and_failures_stop_only_their_own(events: list[str]) -> None:
    broken = FakeRunner("broken", 1, breaks=True)
    states, failures = run(
        FakeRunner("short", 1), broken, FakeRunner("locked"), FakeRunner("long", 9)
    )
    assert states == ["done", "failed", "running", "done"]
    assert failures == ["the pipeline is already running", "broken broke"]
    assert events == [
        *("begin short", "begin broken", "begin long"),
        *("end short", "end broken", "end long"),
    ]


def test_all_are_stopped_when_told_to_and_when_the_time_is_up(events: list[str]) -> None:
    stop = Event()
    first = FakeRunner("first", 10**9)
    assert run(first, FakeRunner("second", 10**9), seconds=0.01)[0] == ["stopped", "stopped"]
    assert len(events) == 4
    stop.set()
    assert run(FakeRunner("never"), stop=stop)[0] == ["running"]
    assert len(events) == 4
