"""Key-value buckets and object stores as tables, made by another client on both servers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats
import pytest
from query_kit import Query

from harness import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LARGE = bytes(range(256)) * 2000


async def fill(url: str) -> None:
    client = await nats.connect(url)
    js = client.jetstream()
    bucket = await js.create_key_value(bucket="PRICES", history=3)
    for price in ("1", "2"):
        for key in ("apple", "pear.green", "plum", "fig"):
            await bucket.put(key, price.encode())
    await bucket.delete("plum")
    await bucket.purge("fig")
    await bucket.put("apple", b"3")
    single = await js.create_key_value(bucket="SINGLE")
    await single.put("a", b"old")
    await single.put("a", b"new")
    await single.put("b", b"gone")
    await single.delete("b")
    objects = await js.create_object_store("FILES")
    await objects.put("large.bin", LARGE)
    await objects.put("empty", b"")
    await objects.put("twice", b"first")
    await objects.put("twice", b"second")
    await objects.put("deleted", b"x")
    await objects.delete("deleted")
    await client.close()


@pytest.fixture(scope="module", params=["official", "tradewind"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, dict[str, str]]]:
    """The options of both ways to read."""
    folder = tmp_path_factory.mktemp(request.param) / "store"
    process = ServerProcess(
        request.param, ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", "-1"]
    ).wait_ready()
    try:
        asyncio.run(fill(process.url))
        yield {"network": {"servers": process.url}, "blocks": {"storeDir": str(folder)}}
    finally:
        process.stop()


def load(spark: SparkSession, **options: Any) -> DataFrame:
    return spark.read.format("jetstream").options(**options).load()


@pytest.mark.parametrize("mode", ["network", "blocks"])
def test_a_bucket_has_one_row_per_key(
    spark: SparkSession, server: dict[str, dict[str, str]], mode: str
) -> None:
    frame = load(spark, bucket="PRICES", **server[mode])
    assert frame.columns == ["bucket", "key", "value", "revision", "time", "operation"]
    found = {row["key"]: (bytes(row["value"]), row["revision"]) for row in frame.collect()}
    assert found == {"apple": (b"3", 11), "pear.green": (b"2", 6)}
    pushed = load(spark, bucket="PRICES", pushdown="true", **server[mode])
    one = pushed.where("key = 'apple'").collect()
    assert [bytes(row["value"]) for row in one] == [b"3"]


def test_a_bucket_without_history_is_read_in_parts(
    spark: SparkSession, server: dict[str, dict[str, str]]
) -> None:
    frame = load(spark, bucket="SINGLE", minPartitions=2, **server["blocks"])
    assert [(row["key"], bytes(row["value"])) for row in frame.collect()] == [("a", b"new")]


def test_the_history_has_all_changes_that_are_kept(
    spark: SparkSession, server: dict[str, dict[str, str]]
) -> None:
    frame = load(spark, bucket="PRICES", history="true", **server["network"])
    found = sorted((row["revision"], row["key"], row["operation"]) for row in frame.collect())
    assert [change[1:] for change in found] == [
        ("apple", "PUT"),
        ("pear.green", "PUT"),
        ("plum", "PUT"),
        ("apple", "PUT"),
        ("pear.green", "PUT"),
        ("plum", "PUT"),
        ("plum", "DEL"),
        ("fig", "PURGE"),
        ("apple", "PUT"),
    ]


def test_changes_are_followed(
    spark: SparkSession, server: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, None, **server["network"], bucket="PRICES", column="revision")
    query.run("")
    assert query.batches == [[1, 2, 3, 5, 6, 7, 9, 10, 11]]


@pytest.mark.parametrize("mode", ["network", "blocks"])
def test_objects_have_their_content(
    spark: SparkSession, server: dict[str, dict[str, str]], mode: str
) -> None:
    frame = load(spark, objectStore="FILES", **server[mode])
    assert frame.columns == ["bucket", "name", "modified", "size", "digest", "content"]
    found = {
        row["name"]: (row["size"], hashlib.sha256(bytes(row["content"])).hexdigest())
        for row in frame.collect()
    }
    expected = {"large.bin": LARGE, "empty": b"", "twice": b"second"}
    assert found == {
        name: (len(content), hashlib.sha256(content).hexdigest())
        for name, content in expected.items()
    }
