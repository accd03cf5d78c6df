"""The same source through a server, on both servers: equal rows, nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from query_kit import Query

import tradewind.sync
from harness import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 3000


@pytest.fixture(scope="module", params=["official", "tradewind"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """A server with one stream of 3000 messages, of which each seventh is deleted."""
    folder = tmp_path_factory.mktemp(request.param) / "store"
    process = ServerProcess(
        request.param, ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", "-1"]
    ).wait_ready()
    try:
        with tradewind.sync.connect(process.url) as connection:
            fill(connection)
        yield process.url, folder
    finally:
        process.stop()


def fill(connection: Any) -> None:
    manager = connection.jetstream_manager()
    manager.streams.add(name="ORDERS", subjects=["orders.>"])
    js = connection.jetstream()
    for number in range(1, COUNT + 1):
        headers = {"No": str(number), "Tag": ["a", "b"]} if number % 10 == 0 else None
        js.publish_async(f"orders.{number % 4}", b"%d" % number, headers=headers)
    js.publish_async_completed()
    for seq in range(7, COUNT + 1, 7):
        manager.streams.delete_message("ORDERS", seq)


def load(spark: SparkSession, **options: Any) -> DataFrame:
    return spark.read.format("jetstream").options(stream="ORDERS", **options).load()


def test_the_network_the_blocks_and_a_backup_give_the_same_rows(
    spark: SparkSession, server: tuple[str, Path]
) -> None:
    url, folder = server
    network = load(spark, servers=url, minPartitions=3)
    assert network.rdd.getNumPartitions() == 3
    by_network = sorted(network.collect(), key=lambda row: row["seq"])
    by_blocks = sorted(load(spark, storeDir=str(folder)).collect(), key=lambda row: row["seq"])
    assert [row["seq"] for row in by_network] == [n for n in range(1, COUNT + 1) if n % 7]
    assert by_network == by_blocks
    backup = load(spark, servers=url, readMode="backup", minPartitions=3)
    assert backup.rdd.getNumPartitions() == 1
    assert backup.collect() == by_blocks


def test_conditions_are_checked_in_either_mode(
    spark: SparkSession, server: tuple[str, Path]
) -> None:
    frame = load(spark, servers=server[0], filterSubjects="orders.1,orders.2", pushdown="true")
    found = frame.where("seq > 100 and seq < 200 and subject = 'orders.2'").collect()
    assert sorted(row["seq"] for row in found) == [
        seq for seq in range(101, 200) if seq % 4 == 2 and seq % 7
    ]


def test_a_streaming_query_goes_on_after_a_restart(
    spark: SparkSession, server: tuple[str, Path], tmp_path: Path
) -> None:
    url, _ = server
    query = Query(spark, tmp_path, None, servers=url, maxMsgsPerTrigger=1500, startingSeq=1001)
    query.run()
    wanted = [seq for seq in range(1001, COUNT + 1) if seq % 7]
    assert [seq for batch in query.batches for seq in batch] == wanted
    assert max(len(batch) for batch in query.batches) <= 1500
    with tradewind.sync.connect(url) as connection:
        seq = connection.jetstream().publish("orders.new", b"late").seq
        consumers = list(connection.jetstream_manager().consumers.names("ORDERS"))
    query.batches.clear()
    query.run()
    assert query.batches[-1][-1] == seq
    assert consumers == []


def test_an_unknown_stream_or_server_is_named(
    spark: SparkSession, server: tuple[str, Path]
) -> None:
    reader = spark.read.format("jetstream").option("servers", server[0])
    with pytest.raises(Exception, match=r"option stream: 'NONE': .*not found"):
        reader.load("NONE").collect()
    with pytest.raises(Exception, match="option servers: cannot connect"):
        load(spark, servers="nats://127.0.0.1:1").collect()


def test_messages_that_are_removed_between_planning_and_reading_are_an_error(
    spark: SparkSession, server: tuple[str, Path]
) -> None:
    url, _ = server
    with tradewind.sync.connect(url) as connection:
        streams = connection.jetstream_manager().streams
        streams.add(name="SHORT", subjects=["short.>"])
        js = connection.jetstream()
        for number in range(100):
            js.publish_async("short.x", b"%d" % number)
        js.publish_async_completed()
        reader = spark.read.format("jetstream").options(servers=url, stream="SHORT")
        later = reader.load().rdd
        strict = reader.option("failOnDataLoss", "true").load().rdd
        lenient = reader.option("failOnDataLoss", "false").load().rdd
        assert {frame.getNumPartitions() for frame in (later, strict, lenient)} == {1}
        streams.purge("SHORT", keep=10)
        with pytest.raises(Exception, match="90 messages among the sequences 1 to 90 were removed"):
            strict.collect()
        for frame in (later, lenient):
            assert [row["seq"] for row in frame.collect()] == list(range(91, 101))
        streams.delete("SHORT")


def test_a_work_queue_is_empty_when_a_query_has_committed_all_of_it(
    spark: SparkSession, server: tuple[str, Path], tmp_path: Path
) -> None:
    url, _ = server
    query = Query(spark, tmp_path, None, servers=url, maxMsgsPerTrigger=40, ackConsumer="lake")
    with tradewind.sync.connect(url) as connection:
        streams = connection.jetstream_manager().streams
        streams.add(name="JOBS", subjects=["jobs.>"], retention="workqueue", allow_direct=True)
        js = connection.jetstream()
        for number in range(100):
            js.publish_async("jobs.x", b"%d" % number)
        js.publish_async_completed()
        with pytest.raises(Exception, match="the sink has failed"):
            query.run("JOBS", fail=lambda number: number == 1)
        # The first batch is committed, the second one is not.
        assert streams.info("JOBS").state.first_seq == 41
        query.run("JOBS")
        assert query.batches == [list(range(1, 41)), list(range(41, 81)), list(range(81, 101))]
        assert streams.info("JOBS").state.messages == 0
        streams.delete("JOBS")
