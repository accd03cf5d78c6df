"""Tables are maintained while they run, one at a time, and failures are told in the status."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.table_runs.table_rounds import TableRounds
from tradewind.pipelines.tables import table_upkeep
from tradewind.pipelines.tables.table_spec import TableSpec
from tradewind.pipelines.tables.table_upkeep import UPKEEP_SECONDS, maintain_table, upkeep_round

WAIT_SECONDS = 60.0


def job(name: str, spec: TableSpec, *, is_running: bool = True) -> Any:
    status = SimpleNamespace(maintained_ns=0, files_joined=0, snapshots_expired=0, upkeep_error="")
    return SimpleNamespace(stream=name, spec=spec, is_running=is_running, status=status)


@pytest.fixture
def spec(tmp_path: Path) -> TableSpec:
    return TableSpec(str(tmp_path / "lake"), format="delta")


def test_a_table_that_is_not_there_yet_is_left_alone(spec: TableSpec, tmp_path: Path) -> None:
    assert maintain_table("ORDERS", spec) is None
    assert maintain_table("ORDERS", TableSpec(str(tmp_path / "x"), format="parquet")) is None
    assert maintain_table("ORDERS", TableSpec(str(tmp_path / "y"))) is None
    assert list(tmp_path.iterdir()) == []


def test_small_files_of_a_table_are_joined_while_it_runs(spec: TableSpec) -> None:
    delta = DeltaLake(spec.to)
    rows = pa.table({"seq": pa.array([1, 2], pa.int64())})
    for _ in range(10):
        delta._library.write_deltalake(spec.to, rows, mode="append")
    assert len(delta.files()) == 10
    now = [0.0]
    upkeep = TableRounds(upkeep_round, UPKEEP_SECONDS, clock=lambda: now[0])
    orders = job("ORDERS", spec)
    upkeep.poll({"ORDERS": orders})
    upkeep.wait(WAIT_SECONDS)
    assert orders.status.maintained_ns == 0
    now[0] = UPKEEP_SECONDS
    upkeep.poll({"ORDERS": orders})
    upkeep.wait(WAIT_SECONDS)
    assert orders.status.upkeep_error == ""
    assert orders.status.maintained_ns > 0
    assert orders.status.files_joined == 10
    assert len(delta.files()) == 1
    assert sum(file.rows for file in delta.files()) == 20


def test_one_failing_table_keeps_no_other_from_its_round(
    spec: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fail_for_a(stream: str, _spec: TableSpec) -> None:
        asked.append(stream)
        if stream == "A":
            raise PipelineError("the catalog is away\nand more")

    monkeypatch.setattr(table_upkeep, "maintain_table", fail_for_a)
    now = [0.0]
    upkeep = TableRounds(upkeep_round, UPKEEP_SECONDS, clock=lambda: now[0])
    jobs = {name: job(name, spec, is_running=name != "C") for name in "ABC"}
    for seconds in (0.0, UPKEEP_SECONDS, UPKEEP_SECONDS, UPKEEP_SECONDS):
        now[0] = seconds
        upkeep.poll(jobs)
        upkeep.wait(WAIT_SECONDS)
    assert asked == ["A", "B"]
    assert jobs["A"].status.upkeep_error == "the catalog is away"
    assert jobs["B"].status.upkeep_error == ""
