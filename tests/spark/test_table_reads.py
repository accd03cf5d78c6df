"""A stream that has a table is one relation for Spark: files by its own reader, and the tail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_kit import Place, orders_place

from tradewind.api.times import parse_time
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sql.query_session import QuerySession, SqlQuestion
from tradewind.pipelines.table_runs.table_job import TableWork
from tradewind.pipelines.table_runs.table_runner import TableRunner
from tradewind.pipelines.tables import pinned_streams, table_reading
from tradewind.pipelines.tables.stream_tables import put_table
from tradewind.pipelines.tables.table_reading import read_stream
from tradewind.pipelines.tables.table_spec import TableSpec, with_table
from tradewind.pipelines.tables.table_writing import open_lake
from written_tables import WrittenFolder, WrittenTable, raw_rows, spec_of, written_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    with orders_place(spark, tmp_path) as place:
        yield place


def give_table(place: Place, spec: TableSpec) -> WrittenTable | WrittenFolder:
    streams = place.connection.jetstream_manager().streams
    config = streams.info("ORDERS").config
    info = streams.update(config, metadata=with_table({}, spec))
    return written_table(spec, "ORDERS", parse_time(info.created))


def plan_of(frame: DataFrame) -> str:
    text: str = frame._jdf.queryExecution().executedPlan().toString()
    return text


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_table_and_tail_are_one_relation(place: Place, kind: str) -> None:
    table = give_table(place, spec_of(place.folder, kind, partition=["subject"]))
    for number in range(30):
        place.publish(b"%d" % (number + 1), subject=f"orders.{(number + 1) % 3}")
    table.add(raw_rows(1, 10), 10)
    table.add(raw_rows(11, 20), 20)
    table.join()
    table.add(raw_rows(21, 25, note=["x"] * 5), 25)
    frame = read_stream(place.spark, "ORDERS", place.url)
    # What comes later does not change it.
    place.publish(b"31")
    table.add(raw_rows(26, 28), 28)
    assert sorted(frame.columns) == sorted(["seq", "subject", "time", "headers", "data", "note"])
    found = {row["seq"]: row for row in frame.collect()}
    assert sorted(found) == list(range(1, 31))
    assert frame.count() == 30
    assert all(bytes(row["data"]) == b"%d" % seq for seq, row in found.items())
    assert all(row["subject"] == f"orders.{seq % 3}" for seq, row in found.items())
    assert sorted(seq for seq, row in found.items() if row["note"]) == [21, 22, 23, 24, 25]
    assert found[10]["headers"] == {"No": ["10"]}


def test_conditions_and_columns_are_pushed_into_the_files(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = give_table(place, spec_of(place.folder, "delta", partition=["subject"]))
    place.publish(*(b"%d" % number for number in range(1, 31)), subject="orders.0")
    table.add(raw_rows(1, 20), 20)
    frame = read_stream(place.spark, "ORDERS", place.url)
    old = frame.where("seq < 5 and time > timestamp '2026-01-01 00:00:00Z'").select("seq")
    plan = plan_of(old)
    assert plan.count("LessThan(seq,5)") == 2, "in the table, and in the tail"
    assert "GreaterThan(time," in plan
    assert "ReadSchema: struct<seq:bigint,time:timestamp>" in plan
    assert [row["seq"] for row in old.orderBy("seq").collect()] == [1, 2, 3, 4]
    one = frame.where("subject = 'orders.1'").select("seq", "data")
    assert "PartitionFilters: [isnotnull(subject" in plan_of(one)
    assert len(one.collect()) == 7
    # The tail cannot have such rows, and on a cluster it is not even in the plan.
    monkeypatch.setattr(table_reading, "spill", lambda _spark, _rows: "")
    far = read_stream(place.spark, "ORDERS", place.url)
    assert "LocalTableScan" not in plan_of(far.where("seq < 5"))
    assert sorted(row["seq"] for row in far.where("seq > 18").collect()) == list(range(19, 31))
    # A tail that is not small is read by executors, in the same bounds.
    monkeypatch.setattr(pinned_streams, "TAIL_BYTES_MAX", 0)
    large = read_stream(place.spark, "ORDERS", place.url)
    place.publish(b"later")
    assert "jetstream" in plan_of(large).lower()
    assert sorted(row["seq"] for row in large.select("seq").collect()) == list(range(1, 31))
    assert large.where("data = '30'").count() == 1


def run_tables(place: Place) -> None:
    """Bring all tables up to the end of their streams."""
    work = TableWork(place.spark, PipelineAddress(place.url), is_once=True)
    runner = TableRunner(work, note=lambda _text: None)
    runner.wait(Event())
    assert [status.state for status in runner.statuses] == ["done"], runner.statuses


def sql(place: Place, text: str) -> list[Any]:
    answer = QuerySession(place.spark).ask(SqlQuestion(text, PipelineAddress(place.url)))
    return [tuple(row) for row in answer.rows]


def test_sql_and_other_engines_read_the_same_rows(place: Place) -> None:
    """The stream has lost its begin, the table has it; DuckDB and pyiceberg read the table too."""
    duckdb = pytest.importorskip("duckdb")
    streams = place.connection.jetstream_manager().streams
    spec = TableSpec(str(place.folder / "lake"), partition=["day"])
    put_table(place.connection.jetstream_manager(), "ORDERS", spec)
    assert sql(place, "select count(*), max(seq) from ORDERS") == [(0, None)]
    place.publish_orders(0, 20)
    place.publish(b"no json")
    run_tables(place)
    table = open_lake("ORDERS", spec).load()
    with_pyiceberg = {row["seq"]: row for row in table.scan().to_arrow().to_pylist()}
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    with_duckdb = duckdb.sql(f"select seq, id, amount from read_parquet({files})").fetchall()
    with_spark = {
        row["seq"]: row for row in read_stream(place.spark, "ORDERS", place.url).collect()
    }
    assert sorted(with_spark) == sorted(with_pyiceberg) == list(range(1, 22))
    for name in ("id", "amount", "region", "_rescued", "day", "subject"):
        found = {seq: row[name] for seq, row in with_spark.items()}
        assert found == {seq: row[name] for seq, row in with_pyiceberg.items()}
    assert sorted(with_duckdb) == sorted((s, r["id"], r["amount"]) for s, r in with_spark.items())
    place.publish_orders(30, 3)
    place.publish(b'{"id": 33, "amount": 1.5, "new": 7}', b'{"id": 34, "amount": "much"}')
    streams.purge("ORDERS", seq=10)
    assert sql(place, "select count(*) as n, min(seq), max(seq) from ORDERS") == [(26, 1, 26)]
    assert sql(place, "select stream, id from ORDERS where seq = 3") == [("ORDERS", 2)]
    amounts = "select count(*), sum(amount), count(_rescued) from ORDERS where id < 100"
    total = sum(number + 0.25 for number in [*range(20), 30, 31, 32]) + 1.5
    assert sql(place, amounts) == [(25, total, 2)]
    # The table has no payloads, so this query reads what the stream has.
    assert sql(place, "select min(seq), count(data) from ORDERS") == [(10, 17)]


def test_a_bucket_has_the_values_of_its_table_and_of_its_tail(place: Place) -> None:
    bucket = place.connection.jetstream().kv.create("PRICES")
    for number, key in enumerate(("a", "b", "c", "d")):
        bucket.put(key, b'{"price": %d}' % number)
    put_table(
        place.connection.jetstream_manager(),
        "KV_PRICES",
        TableSpec(str(place.folder / "lake"), "delta"),
    )
    run_tables(place)
    bucket.put("a", b'{"price": 10}')
    bucket.delete("b")
    bucket.put("e", b'{"price": 14}')
    expected = {"a": 10, "c": 2, "d": 3, "e": 14}
    frame = read_stream(place.spark, "KV_PRICES", place.url)
    assert {row["key"]: row["price"] for row in frame.collect()} == expected
    assert dict(sql(place, "select key, price from PRICES")) == expected
    assert sql(place, "select count(*), max(revision) from PRICES") == [(4, 7)]
