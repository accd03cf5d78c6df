"""`spark.read.format("jetstream")` on the block files of a store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark_kit import Stream, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 5000
FIRST_TIME = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Stream]]:
    """A store that is in use: 5000 orders in blocks of 30 KB, of which each seventh is deleted."""
    root = tmp_path_factory.mktemp("orders") / "store"
    with open_store(root, {"name": "ORDERS"}, {"name": "OTHER"}, block_bytes_max=30_000) as streams:
        streams[0].add(COUNT)
        streams[1].add(3)
        for seq in range(7, COUNT + 1, 7):
            assert streams[0].store.table.remove(seq)
        streams[0].store.commit()
        yield root, streams[0]


def load(spark: SparkSession, root: Path, stream: str = "ORDERS", **options: Any) -> DataFrame:
    reader = spark.read.format("jetstream").option("storeDir", str(root)).option("stream", stream)
    return reader.options(**options).load()


def expected() -> list[int]:
    return [seq for seq in range(1, COUNT + 1) if seq % 7]


def test_all_rows_arrive_once_with_all_columns(
    spark: SparkSession, orders: tuple[Path, Stream]
) -> None:
    frame = load(spark, orders[0], minPartitions=5)
    assert frame.rdd.getNumPartitions() >= 5
    rows = {row["seq"]: row for row in frame.collect()}
    assert sorted(rows) == expected()
    row = rows[20]
    assert (row["stream"], row["subject"]) == ("ORDERS", "ORDERS.0")
    assert bytes(row["data"]).startswith(b"20:")
    assert row["headers"] == {"Tag": ["a", "b"], "No": ["20"]}
    assert row["time"].astimezone(UTC) == FIRST_TIME + timedelta(milliseconds=20)
    assert rows[1]["headers"] is None


def test_conditions_are_checked_by_the_source(
    spark: SparkSession, orders: tuple[Path, Stream]
) -> None:
    frame = load(spark, orders[0], pushdown="true")
    chosen = frame.where(
        "seq > 100 and seq <= 2000 and subject in ('ORDERS.1', 'ORDERS.2')"
        " and time >= timestamp'2026-11-01 00:00:00.200' and time < timestamp'2026-11-01 00:00:01'"
    )
    found = sorted(row["seq"] for row in chosen.collect())
    assert found == [seq for seq in expected() if 200 <= seq < 1000 and seq % 4 in (1, 2)]
    plan = chosen._jdf.queryExecution().executedPlan().toString()
    assert "Filter" not in plan.replace("RuntimeFilters", "")


@pytest.mark.parametrize(
    ("condition", "keeps"),
    [
        ("subject like 'ORDERS.1%'", lambda seq: seq % 4 == 1),
        ("headers['No'][0] = '40'", lambda seq: seq == 40),
        ("stream = 'OTHER'", lambda _: False),
        ("seq > 10 and seq < 5", lambda _: False),
    ],
)
def test_conditions_of_any_kind_give_the_right_rows(
    spark: SparkSession, orders: tuple[Path, Stream], condition: str, keeps: Any
) -> None:
    columns = "stream,seq,subject,time,headers"
    found = load(spark, orders[0], columns=columns, pushdown="true").where(condition)
    assert sorted(row["seq"] for row in found.collect()) == [
        seq for seq in expected() if keeps(seq)
    ]


def test_options_choose_rows_and_columns(spark: SparkSession, orders: tuple[Path, Stream]) -> None:
    frame = load(
        spark,
        orders[0],
        columns="seq,data",
        startingSeq=10,
        endingTime="2026-11-01T00:00:00.05Z",
        filterSubjects="ORDERS.3,ORDERS.*.x",
    )
    assert frame.columns == ["seq", "data"]
    assert [row["seq"] for row in frame.collect()] == [11, 15, 19, 23, 27, 31, 39, 43, 47]


def test_without_pushdown_spark_does_the_filtering(
    spark: SparkSession, orders: tuple[Path, Stream]
) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        found = load(spark, orders[0], pushdown="true").where("seq < 4").collect()
    finally:
        spark.conf.set(setting, "true")
    assert [row["seq"] for row in found] == [1, 2, 3]


def test_a_frame_can_be_used_more_than_once(
    spark: SparkSession, orders: tuple[Path, Stream]
) -> None:
    """Spark 4.3 gives wrong rows here if conditions are pushed down."""
    frame = load(spark, orders[0], columns="seq")
    both = frame.where("seq < 4").union(frame.where(f"seq >= {COUNT - 1}"))
    assert sorted(row["seq"] for row in both.collect()) == [1, 2, 3, COUNT - 1, COUNT]
    assert frame.count() == len(expected())


def test_a_pattern_reads_several_streams(spark: SparkSession, orders: tuple[Path, Stream]) -> None:
    counts = load(spark, orders[0], "O*").groupBy("stream").count().collect()
    assert {row["stream"]: row["count"] for row in counts} == {
        "ORDERS": len(expected()),
        "OTHER": 3,
    }


def test_a_wrong_option_is_named(spark: SparkSession, orders: tuple[Path, Stream]) -> None:
    with pytest.raises(Exception, match="option startseq: unknown option"):
        load(spark, orders[0], startSeq=3)
    with pytest.raises(Exception, match=r"there is no 'NONE' in .*found: ORDERS, OTHER"):
        load(spark, orders[0], "NONE").collect()
