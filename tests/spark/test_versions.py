"""What holds on every Spark that we run on; `make spark-versions` runs it on older ones."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark_kit import open_store, run_query

import tradewind
import tradewind.sync
from tradewind.spark.processes.features import HAS_PUSHDOWN, HAS_STREAM_READS, HAS_STREAM_WRITES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store", {"name": "ORDERS"}) as (stream,):
        stream.add(100)
    return tmp_path / "store"


@pytest.mark.skipif(find_spec("pandas") is not None, reason="pandas is installed here")
def test_reads_and_writes_need_no_pandas(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    orders = spark.read.format("jetstream").options(storeDir=str(store), stream="ORDERS").load()
    rows = orders.where("seq > 90").collect()
    assert sorted(row["seq"] for row in rows) == list(range(91, 101))
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "target")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        streams = connection.jetstream_manager().streams
        streams.add(name="COPIES", subjects=["ORDERS.>"])
        target = {"servers": server.url, "stream": "COPIES"}
        copies = orders.select("subject", "data").write.format("jetstream").options(**target)
        copies.mode("append").save()
        assert streams.info("COPIES").state.messages == 100


@pytest.mark.skipif(not HAS_STREAM_WRITES, reason="this Spark lets no source of Python write them")
def test_a_streaming_query_of_another_source_writes_each_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """So that writing is tested where streams cannot be read by streaming queries."""
    texts = tmp_path / "texts"
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "target")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        streams = connection.jetstream_manager().streams
        streams.add(name="COPIES", subjects=["copies.>"])
        for number in range(2):
            texts.mkdir(exist_ok=True)
            (texts / f"{number}.txt").write_text(f"a{number}\nb{number}\n")
            rows = spark.readStream.schema("value string").text(str(texts))
            run_query(
                rows.selectExpr("concat('copies.', value) as subject", "value as data")
                .writeStream.format("jetstream")
                .options(servers=server.url, stream="COPIES")
                .option("checkpointLocation", str(tmp_path / "state"))
                .trigger(availableNow=True)
            )
        found = streams.info("COPIES", subjects_filter=">").state.subjects
        assert found == {f"copies.{letter}{number}": 1 for letter in "ab" for number in range(2)}


@pytest.mark.parametrize(
    ("is_there", "since", "use"),
    [
        (HAS_STREAM_READS, "4.2", lambda spark, store: _follow(spark, store)),
        (HAS_STREAM_WRITES, "4.1", lambda spark, store: _write_stream(spark, store)),
        (HAS_PUSHDOWN, "4.1", lambda spark, store: _push_down(spark, store)),
    ],
    ids=["streaming reads", "streaming writes", "pushdown"],
)
def test_what_this_spark_cannot_do_is_named(
    spark: SparkSession, store: Path, is_there: bool, since: str, use: Any
) -> None:
    if is_there:
        pytest.skip(f"Spark {spark.version} can do it")
    with pytest.raises(Exception, match=f"with Spark {since} or later; this is {spark.version}"):
        use(spark, store)


def _follow(spark: SparkSession, store: Path) -> None:
    frame = spark.readStream.format("jetstream").options(storeDir=str(store), stream="ORDERS")
    query = frame.load().writeStream.format("noop").trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def _write_stream(spark: SparkSession, store: Path) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("'a' as subject", "'b' as data")
    writer = rows.writeStream.format("jetstream").option("checkpointLocation", f"{store}-state")
    query = writer.options(servers="nats://127.0.0.1:1", stream="ORDERS").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def _push_down(spark: SparkSession, store: Path) -> None:
    options = {"storeDir": str(store), "stream": "ORDERS", "pushdown": "true"}
    spark.read.format("jetstream").options(**options).load().collect()


def test_a_spark_without_sources_in_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from tradewind.spark.errors import SparkSetupError
    from tradewind.spark.processes import spark_session

    real = find_spec
    monkeypatch.setattr(
        spark_session, "find_spec", lambda name: None if name.endswith("datasource") else real(name)
    )
    with pytest.raises(SparkSetupError, match=r"does not support data sources in Python \(4\.0 or"):
        spark_session.get_session()
    assert "pyspark" in sys.modules
