"""Sources that are not followed read table and tail as one relation, on both servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

import tradewind.sync
from harness import ServerProcess
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.running.runner import Runner, running
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.table_runs.table_job import TableWork
from tradewind.pipelines.table_runs.table_runner import TableRunner
from tradewind.pipelines.tables.pinned_streams import StreamPlace
from tradewind.pipelines.tables.stream_tables import put_table
from tradewind.pipelines.tables.table_proof import ProofCounts
from tradewind.pipelines.tables.table_reading import read_stream
from tradewind.pipelines.tables.table_spec import TableSpec
from tradewind.pipelines.tables.table_status import read_table_status, state_place
from tradewind.pipelines.tables.tier_keeping import verify_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("deltalake")
PIPELINE = """\
pipeline: totals
checkpoint: state
trigger: now
sources:
  ticks: {{stream: TICKS}}
  orders:
    stream: ORDERS
    follow: false
    payload: {payload}
steps:
  chosen:
    sql: "select o.seq, o.stream, o.id from ticks cross join orders o"
sinks:
  lake: {{from: chosen, parquet: out}}
"""


class Head:
    """A stream that has lost its begin; its table has it."""

    def __init__(self, spark: SparkSession, url: str, connection: Any, folder: Path) -> None:
        self.spark, self.folder, self.url = spark, folder, url
        self.address = PipelineAddress(url)
        self.manager = connection.jetstream_manager()
        self.js = connection.jetstream()
        self.manager.streams.add(name="ORDERS", subjects=["orders.*"])
        self.manager.streams.add(name="TICKS", subjects=["ticks"])
        self.js.publish("ticks", b"")
        self.runs = 0

    def publish(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.js.publish("orders.a", b'{"id": %d}' % number)

    def write_table(self, spec: TableSpec) -> None:
        put_table(self.manager, "ORDERS", spec)
        runner = TableRunner(
            TableWork(self.spark, self.address, is_once=True), note=lambda _text: None
        )
        runner.wait(Event())
        (status,) = runner.statuses
        assert (status.state, status.error) == ("done", "")

    def run(self, payload: str) -> list[tuple[int, str, int]]:
        """What a new pipeline makes of the stream, once."""
        self.runs += 1
        path = self.folder / f"run{self.runs}" / "totals.yaml"
        path.parent.mkdir()
        path.write_text(PIPELINE.format(payload=payload))
        pipeline = load_pipeline(path)
        runner = Runner(pipeline, self.spark, self.address, lambda *_: None, is_once=True)
        with running(runner, pipeline.checkpoint):
            runner.wait(Event(), lambda _status: None)
        assert runner.status.state == "done", runner.status.error
        rows = self.spark.read.parquet(str(path.parent / "out")).collect()
        return sorted((row["seq"], row["stream"], row["id"]) for row in rows)


@pytest.fixture(params=["official", "tradewind"])
def head(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Head]:
    flags = ["-js", "-sd", str(tmp_path / "store"), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess(request.param, flags).wait_ready()
    try:
        with tradewind.sync.connect(process.url) as connection:
            yield Head(spark, process.url, connection, tmp_path)
    finally:
        process.stop()


def test_a_source_reads_what_only_the_table_has(head: Head) -> None:
    whole = [(seq, "ORDERS", seq - 1) for seq in range(1, 13)]
    head.publish(0, 8)
    head.write_table(TableSpec(str(head.folder / "lake"), "delta", keeps_data=True))
    head.publish(8, 4)
    head.manager.streams.purge("ORDERS", seq=6)
    assert head.run('{schema: "id bigint"}') == whole
    # Without payloads the columns are those of the table, as in SQL.
    head.manager.streams.purge("ORDERS", seq=7)
    assert head.run("{format: table}") == whole


def test_a_table_without_payloads_has_its_columns(head: Head) -> None:
    with pytest.raises(PipelineError, match="has no table, or none that was written yet"):
        head.run("{format: table}")
    head.publish(0, 5)
    head.write_table(TableSpec(str(head.folder / "lake"), "delta"))
    head.publish(5, 2)
    head.manager.streams.purge("ORDERS", seq=4)
    assert head.run("{format: table}") == [(seq, "ORDERS", seq - 1) for seq in range(1, 8)]
    # The payloads of what is gone are gone, too.
    assert head.run('{schema: "id bigint"}') == [(seq, "ORDERS", seq - 1) for seq in range(4, 8)]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_verified_messages_leave_while_a_table_runs(head: Head, kind: str) -> None:
    spec = TableSpec(str(head.folder / "lake"), kind, tiers=True, tier_limits={"max_msgs": 3})
    head.publish(0, 4)
    head.write_table(spec)
    head.publish(4, 5)
    head.write_table(spec)
    status = read_table_status(state_place("ORDERS", spec))
    assert status is not None
    assert status.tier is not None
    assert (status.tier.error, status.tier.mark.seq, status.tier.mark.released) == ("", 9, 6)
    assert verify_table("ORDERS", spec, StreamPlace(head.address)) == (9, ProofCounts(3))
    assert head.manager.streams.info("ORDERS").state.first_seq == 7
    assert head.run('{schema: "id bigint"}') == [(seq, "ORDERS", seq - 1) for seq in range(1, 10)]
    head.publish(9, 2)
    frame = read_stream(head.spark, "ORDERS", head.url)
    rows = {row["seq"]: row["id"] for row in frame.collect()}
    assert rows == {seq: seq - 1 for seq in range(1, 12)}
    assert read_stream(head.spark, "ORDERS", head.url).where("id between 5 and 9").count() == 5
