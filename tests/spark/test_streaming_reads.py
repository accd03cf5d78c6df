"""`spark.readStream.format("jetstream")`: offsets, limits, restarts and lost data."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from query_kit import Query
from spark_kit import Stream, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = {"name": "ORDERS"}


def test_batches_follow_the_limit_and_a_restart_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    query = Query(spark, tmp_path, root, maxMsgsPerTrigger=400)
    with open_store(root, ORDERS, block_bytes_max=8000) as (stream,):
        stream.add(1000)
        query.run()
        assert [len(batch) for batch in query.batches] == [400, 400, 200]
        stream.add(30)
        with pytest.raises(Exception, match="the sink has failed"):
            query.run(fail=lambda number: number == 3)
        stream.add(30)
        query.run()
    # The failed batch comes again with the same rows, then what has arrived since.
    assert query.batches[3:] == [list(range(1001, 1031)), list(range(1031, 1061))]


def test_bytes_limit_batches_too(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    query = Query(spark, tmp_path, root, maxBytesPerTrigger=5000, startingSeq=3)
    with open_store(root, ORDERS) as (stream,):
        stream.add(4, size=2000)
        stream.add(1, size=9000)
        stream.add(1)
        query.run()
    assert query.batches == [[3, 4], [5], [6]]


def test_a_query_can_begin_at_a_time_and_with_new_streams(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    # Such a run does not wait for so many.
    options = {"startingTime": "2026-11-01T00:00:00.090Z", "minMsgsPerTrigger": 1000}
    query = Query(spark, tmp_path, root, **options)
    with open_store(root, ORDERS) as (stream,):
        stream.add(100)
        query.run("*")
    assert query.batches == [list(range(90, 101))]
    query.options = {}
    with open_store(root, ORDERS, {"name": "NEW"}) as (_, added):
        added.add(3)
        query.run("*")
    assert query.batches[1:] == [[1, 2, 3]]


def fill_and_lose(root: Path, query: Query, lose: Callable[[Stream], None]) -> None:
    with open_store(root, ORDERS, block_bytes_max=2000) as (stream,):
        stream.add(100)
        query.run()
        stream.add(200)
        lose(stream)


def test_messages_that_were_removed_unread_are_named(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    query = Query(spark, tmp_path, root)

    def lose(stream: Stream) -> None:
        stream.store.table.compact(151)
        stream.store.commit()
        stream.store.commit()
        with pytest.raises(Exception, match="sequences 101 to 150 were removed before they"):
            query.run()
        query.options = {"failOnDataLoss": "false"}
        query.run()

    fill_and_lose(root, query, lose)
    assert query.batches == [list(range(1, 101)), list(range(151, 301))]


def test_deleted_messages_are_ordinary(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    query = Query(spark, tmp_path, root)

    def lose(stream: Stream) -> None:
        for seq in (102, 150, 151):
            stream.store.table.remove(seq)
        stream.store.commit()
        query.run()

    fill_and_lose(root, query, lose)
    assert query.batches[1] == [seq for seq in range(101, 301) if seq not in (102, 150, 151)]


def test_a_stream_that_was_made_again_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    query = Query(spark, tmp_path, root)
    with open_store(root, ORDERS) as (stream,):
        stream.add(10)
        query.run()
    shutil.rmtree(root)
    with open_store(root, ORDERS) as (stream,):
        stream.add(50)
    with pytest.raises(Exception, match="it was deleted and recreated"):
        query.run()
    query.options = {"failOnDataLoss": "false"}
    query.run()
    assert query.batches == [list(range(1, 11)), list(range(1, 51))]
