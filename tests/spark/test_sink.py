"""`write` and `writeStream` with the format `jetstream`, on both servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark_kit import run_query

import tradewind.sync
from jetstream_servers import add_empty_stream, jetstream_on_both
from tradewind.spark.processes.spark_session import get_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 3000


server = jetstream_on_both()


@pytest.fixture
def connection(server: str) -> Iterator[Any]:
    """Each test begins with an empty stream OUT and no buckets."""
    with tradewind.sync.connect(server) as connected:
        manager = connected.jetstream_manager()
        for name in list(manager.streams.names()):
            manager.streams.delete(name)
        add_empty_stream(manager.streams, name="OUT", subjects=["out.>"])
        yield connected


def messages(connection: Any, stream: str = "OUT") -> list[Any]:
    """All of them in their order; none was removed."""
    state = connection.jetstream_manager().streams.info(stream).state
    assert state.last_seq == state.messages
    if not state.messages:
        return []
    found = list(connection.jetstream().consumers.ordered(stream).fetch(state.messages))
    assert len(found) == state.messages
    return found


def save(frame: DataFrame, server: str, **options: Any) -> None:
    target = {} if "bucket" in options else {"stream": "OUT"}
    writer = frame.write.format("jetstream").mode("append")
    writer.options(servers=server, **(target | options)).save()


def test_each_row_becomes_a_message(spark: SparkSession, server: str, connection: Any) -> None:
    frame = spark.range(COUNT).selectExpr(
        "concat('out.', id % 3) as subject",
        "if(id % 2 = 0, map('No', cast(id as string)), null) as headers",
        "cast(cast(id as string) as binary) as data",
    )
    save(frame.repartition(3), server)
    found = {message.data: message for message in messages(connection)}
    assert sorted(int(data) for data in found) == list(range(COUNT))
    assert found[b"7"].subject == "out.1"
    assert found[b"8"].headers["No"] == "8"
    assert "No" not in found[b"7"].headers
    # Nobody can repeat this write, so nothing is kept of it.
    assert connection.jetstream_manager().streams.info("KV_spark_sinks").state.messages == 0


def test_a_thread_that_asks_for_the_session_can_write(
    spark: SparkSession, server: str, connection: Any, tmp_path: Path
) -> None:
    """Spark alone finds no format of Python in a thread other than that of its session."""

    def write() -> None:
        found = get_session()
        assert found is spark
        rows = found.range(3).selectExpr("'out.x' as subject", "cast(id as string) as data")
        save(rows, server)
        changes = found.readStream.format("jetstream").options(servers=server, stream="OUT")
        run_query(
            changes.load()
            .selectExpr("'out.y' as subject", "data")
            .writeStream.format("jetstream")
            .options(servers=server, stream="OUT", checkpointLocation=str(tmp_path))
            .trigger(availableNow=True)
        )

    with ThreadPoolExecutor(1) as threads:
        threads.submit(write).result()
    assert [message.subject for message in messages(connection)] == ["out.x"] * 3 + ["out.y"] * 3


def test_columns_become_json_and_subjects_come_from_a_template(
    spark: SparkSession, server: str, connection: Any
) -> None:
    frame = spark.sql(
        "select 'north' as region, 3 as amount, timestamp'2026-11-16 08:00:00' as at,"
        " map('a', array(1, null)) as more, cast(1.50 as decimal(5, 2)) as price"
    )
    save(frame, server, subject="out.{region}.{amount}")
    (message,) = messages(connection)
    assert message.subject == "out.north.3"
    assert json.loads(message.data) == {
        "region": "north",
        "amount": 3,
        "at": "2026-11-16T08:00:00Z",
        "more": {"a": [1, None]},
        "price": 1.5,
    }


def test_rows_of_a_read_can_be_written_as_they_are(
    spark: SparkSession, server: str, connection: Any
) -> None:
    js = connection.jetstream()
    connection.jetstream_manager().streams.add(name="IN", subjects=["out_in.>"])
    for number in range(10):
        headers = {"Tag": ["a", "b"]} if number == 3 else None
        js.publish(f"out_in.{number}", b"%d" % number, headers=headers, msg_id=str(number))
    read = spark.read.format("jetstream").options(servers=server, stream="IN").load()
    save(read.selectExpr("*", "concat('out.', subject) as copied"), server, subject="{copied}")
    found = {message.data: message for message in messages(connection)}
    assert found[b"3"].subject == "out.out_in.3"
    assert found[b"3"].headers.get_all("Tag") == ["a", "b"]
    assert len(found) == 10


def test_a_bucket_has_the_last_row_of_each_key(
    spark: SparkSession, server: str, connection: Any
) -> None:
    prices = connection.jetstream().kv.create("PRICES", history=5)
    prices.put("fig", b"9")
    prices.put("plum", b"9")
    rows = [("apple", "1", None), ("pear", "2", "PUT"), ("apple", "3", None), ("fig", None, None)]
    frame = spark.createDataFrame(
        [*rows, ("plum", "x", "PURGE")], "key string, value string, operation string"
    ).coalesce(1)
    save(frame, server, bucket="PRICES")
    assert {key: prices.get(key).value for key in prices.keys()} == {  # noqa: SIM118
        "apple": b"3",
        "pear": b"2",
    }
    assert [entry.operation for entry in prices.history("fig")] == ["PUT", "DEL"]
    assert [entry.operation for entry in prices.history("plum")] == ["PURGE"]


def test_a_named_write_is_done_once(spark: SparkSession, server: str, connection: Any) -> None:
    frame = spark.range(100).selectExpr("'out.x' as subject", "cast(id as string) as data")
    for version in (1, 1, 2, 1, 2):
        save(frame.coalesce(2), server, txnAppId="job", txnVersion=version)
    assert sorted(int(message.data) for message in messages(connection)) == sorted(
        [*range(100), *range(100)]
    )


def test_equal_rows_are_all_written(spark: SparkSession, server: str, connection: Any) -> None:
    frame = spark.range(50).selectExpr("'out.x' as subject", "'same' as data")
    save(frame.repartition(2), server)
    assert len(messages(connection)) == 50


def test_a_streaming_query_writes_each_row_once(
    spark: SparkSession, server: str, connection: Any, tmp_path: Path
) -> None:
    js = connection.jetstream()
    connection.jetstream_manager().streams.add(name="IN", subjects=["in.>"])
    total = 0
    for count in (500, 300):
        for number in range(total, total + count):
            js.publish_async("in.x", b"%d" % number)
        js.publish_async_completed()
        total += count
        run_query(
            spark.readStream.format("jetstream")
            .options(servers=server, stream="IN", maxMsgsPerTrigger=200, minPartitions=2)
            .load()
            .selectExpr("concat('out.', seq) as subject", "data")
            .writeStream.format("jetstream")
            .options(servers=server, stream="OUT", checkpointLocation=str(tmp_path))
            .trigger(availableNow=True)
        )
        assert sorted(int(message.data) for message in messages(connection)) == list(range(total))


# What the sink says by itself: the server makes no difference, so one is enough.
WRONG_FRAMES: list[tuple[str, dict[str, Any], str]] = [
    ("'a b' as subject, 'x' as data", {}, "subject 'a b': tokens joined by single dots"),
    ("'out.x' as subject, 'x' as data, 1 as more", {}, "column more would not be written"),
    ("'x' as data", {}, "the frame has no column subject"),
    ("'out.x' as subject", {}, "no column for the payload"),
    ("'out.x' as subject, 1 as data", {}, "column data is int, not string or binary"),
    ("1 as n", {"subject": "out.{m}"}, "no column 'm'"),
    ("1 as n", {"subject": "out.{n"}, "write columns as {column}"),
    ("1 as n", {"subject": "out.x", "windowSize": 3}, "unknown option for writes"),
    ("'out.x' as subject, map('a', 'b\\nc') as headers, 'x' as data", {}, "has no newline"),
]
WRONG_TARGETS: list[tuple[str, dict[str, Any], str]] = [
    ("'in.x' as subject, 'x' as data", {}, "subject 'in.x' is not one of stream OUT"),
    ("'out.x' as subject, 'x' as data", {"stream": "NONE"}, "stream not found"),
    ("'a.*' as key, 'x' as value", {"bucket": "B"}, "KV_B|stream not found"),
]


def refuse(spark: SparkSession, server: str, case: tuple[str, dict[str, Any], str]) -> None:
    columns, options, text = case
    with pytest.raises(Exception, match=text):
        save(spark.sql(f"select {columns}"), server, **options)


@pytest.mark.parametrize("case", WRONG_TARGETS, ids=lambda case: case[2])
def test_what_a_server_does_not_take_is_named(
    spark: SparkSession,
    server: str,
    connection: Any,
    case: tuple[str, dict[str, Any], str],
) -> None:
    refuse(spark, server, case)
    assert messages(connection) == []


@pytest.mark.parametrize("server", ["tradewind"], indirect=True)
@pytest.mark.parametrize("case", WRONG_FRAMES, ids=lambda case: case[2])
def test_what_cannot_be_written_is_named(
    spark: SparkSession,
    server: str,
    connection: Any,
    case: tuple[str, dict[str, Any], str],
) -> None:
    refuse(spark, server, case)
    assert messages(connection) == []
