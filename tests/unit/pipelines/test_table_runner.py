"""Tables that come, change, fail and go. No Spark is needed: their queries are fakes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tradewind.client.errors import ConnectionClosedError
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.state.leases import locked
from tradewind.pipelines.state.status import QueryStatus
from tradewind.pipelines.table_runs import table_job, table_runner
from tradewind.pipelines.table_runs.table_job import TableJob, TableWork
from tradewind.pipelines.table_runs.table_runner import TableRunner
from tradewind.pipelines.tables.stream_tables import StreamTable
from tradewind.pipelines.tables.table_spec import TableSpec
from tradewind.pipelines.tables.table_status import read_table_status, state_place
from tradewind.spark.progress.stream_lag import StreamLag


class FakeRunner:
    """A run that fails when it is told to, and ends when it is told to."""

    error = ""
    is_active = True
    is_idle = True
    behind = 0
    made: list[FakeRunner] = []

    def __init__(self, pipeline: Any, *_rest: object, is_once: bool) -> None:
        self.pipeline = pipeline
        self.is_once = is_once
        self.stopped: list[str] = []
        lag = StreamLag("ORDERS", 1, messages=self.behind, seconds=0.5)
        query = QueryStatus("table", "", batches=1, lags=[lag])
        self.status = SimpleNamespace(queries=[query], note="")
        FakeRunner.made.append(self)

    def poll(self) -> bool:
        if self.error:
            raise PipelineError(self.error)
        return self.is_active

    def stop(self, state: str) -> None:
        self.stopped.append(state)


@contextmanager
def fake_running(runner: FakeRunner, checkpoint: Path) -> Iterator[FakeRunner]:
    with locked(checkpoint):
        yield runner


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that tests set; the queries of tables are fakes."""
    now = [1000.0]
    for name, value in {"error": "", "is_active": True, "behind": 0, "made": []}.items():
        monkeypatch.setattr(FakeRunner, name, value)
    monkeypatch.setattr(table_job, "Runner", FakeRunner)
    monkeypatch.setattr(table_job, "running", fake_running)
    for module in (table_job, table_runner):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def work(**settings: Any) -> TableWork:
    return TableWork(SimpleNamespace(), PipelineAddress(), **settings)  # type: ignore[arg-type]


@pytest.fixture
def spec(tmp_path: Path) -> TableSpec:
    return TableSpec(str(tmp_path / "lake"), format="parquet")


def test_a_table_that_fails_is_tried_again_later_and_later(
    spec: TableSpec, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeRunner, "error", "the disk\nis full")
    job = TableJob("ORDERS", spec, work())
    starts = []
    for _ in range(700):
        before = len(FakeRunner.made)
        job.poll()
        if len(FakeRunner.made) > before:
            starts.append(clock[0] - 1000)
        clock[0] += 1
    assert starts[:5] == [0, 5, 15, 35, 75]
    status = read_table_status(state_place("ORDERS", spec))
    assert status is not None
    assert (status.state, status.error) == ("failed", "the disk is full")
    assert status.failures == len(starts)
    assert status.retry_ns > status.updated_ns
    monkeypatch.setattr(FakeRunner, "error", "")
    clock[0] += 1000
    job.poll()
    assert (job.status.state, job.status.error, job.status.failures) == ("running", "", 0)
    assert (job.status.behind_messages, job.status.behind_seconds) == (0, 0.5)


def test_what_is_wrong_before_the_start_is_told_too(spec: TableSpec) -> None:
    odd = msgspec.structs.replace(spec, payload="morse")
    job = TableJob("ORDERS", odd, work(is_once=True))
    job.poll()
    assert job.is_over
    status = read_table_status(state_place("ORDERS", spec))
    assert status is not None
    assert "'morse'" in status.error


def test_the_status_of_another_runner_is_left_alone(spec: TableSpec) -> None:
    place = state_place("ORDERS", spec)
    job = TableJob("ORDERS", spec, work())
    with locked(place):
        job.poll()
    assert "in use" in job.status.error
    assert read_table_status(place) is None


def test_rows_without_a_checkpoint_are_not_written_again(spec: TableSpec) -> None:
    Path(spec.to).mkdir()
    Path(spec.to, "part-a-00000000-00000.parquet").write_text("rows")
    job = TableJob("ORDERS", spec, work())
    job.poll()
    assert "has rows already" in job.status.error
    assert FakeRunner.made == []


def test_a_table_that_is_far_behind_catches_up_without_pauses(
    spec: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeRunner, "behind", 100)
    job = TableJob("ORDERS", spec, work(batch_messages=10))
    job.poll()
    monkeypatch.setattr(FakeRunner, "is_active", False)
    job.poll()
    monkeypatch.setattr(FakeRunner, "is_active", True)
    monkeypatch.setattr(FakeRunner, "behind", 0)
    job.poll()
    job.poll()
    assert [runner.is_once for runner in FakeRunner.made] == [False, True, False]
    assert job.status.state == "running"
    job.stop()
    assert job.status.state == "stopped"
    assert FakeRunner.made[-1].stopped == ["stopped"]


def test_tables_follow_what_streams_ask_for(
    spec: TableSpec, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[StreamTable] = [StreamTable("ORDERS", spec), StreamTable("ODD", None, "no table")]
    notes: list[str] = []
    is_down = [False]

    def ask(_manager: object) -> list[StreamTable]:
        if is_down[0]:
            raise ConnectionClosedError("nobody is there")
        return found

    connection = SimpleNamespace(jetstream_manager=lambda: None, close=lambda: None)
    monkeypatch.setattr(PipelineAddress, "connect", lambda _address: connection)
    monkeypatch.setattr(table_runner, "list_tables", ask)
    runner = TableRunner(work(), note=notes.append)

    def look() -> list[str]:
        clock[0] += 10
        assert runner.poll()
        return [status.stream for status in runner.statuses]

    assert look() == ["ORDERS"]
    assert "table of ODD: no table" in notes
    other = msgspec.structs.replace(spec, every="1h")
    found[0] = StreamTable("ORDERS", other)
    assert look() == ["ORDERS"]
    assert [made.stopped for made in FakeRunner.made] == [["stopped"], []]
    is_down[0] = True
    assert look() == ["ORDERS"]
    assert look() == ["ORDERS"]
    assert [note for note in notes if "does not answer" in note] == [
        "the server does not answer: nobody is there"
    ]
    is_down[0] = False
    found.clear()
    assert look() == []
    assert FakeRunner.made[-1].stopped == ["stopped"]
    runner.close()


def test_without_spark_no_table_is_tried_again(
    spec: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = SimpleNamespace(jetstream_manager=lambda: None, close=lambda: None)
    monkeypatch.setattr(PipelineAddress, "connect", lambda _address: connection)
    monkeypatch.setattr(table_runner, "list_tables", lambda _manager: [StreamTable("A", spec)])
    monkeypatch.setattr(FakeRunner, "error", "the gateway is closed")
    with pytest.raises(PipelineError, match="Spark has ended"):
        TableRunner(work(), note=lambda _text: None).poll()


def test_a_stream_without_a_table_cannot_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = SimpleNamespace(jetstream_manager=lambda: None, close=lambda: None)
    monkeypatch.setattr(PipelineAddress, "connect", lambda _address: connection)
    monkeypatch.setattr(table_runner, "list_tables", lambda _manager: [])
    with pytest.raises(PipelineError, match="'ORDERS' has no table"):
        TableRunner(work(), ["ORDERS"]).poll()
    assert not TableRunner(work(is_once=True)).poll()
