"""A query that goes on and on: streams that appear while it runs, and what its progress says."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tradewind.sync
from harness import ServerProcess
from tradewind.spark.lag import query_lag
from tradewind.spark.progress import ProgressMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT_SECONDS = 120


@pytest.fixture(params=["official", "tradewind"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    flags = ["-js", "-sd", str(tmp_path / "store"), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess(request.param, flags).wait_ready()
    try:
        yield process.url
    finally:
        process.stop()


def wait_for(query: Any, is_so: Callable[[], bool]) -> None:
    pause = threading.Event()
    deadline = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline
        pause.wait(0.05)


def test_a_stream_that_appears_is_read_and_the_progress_tells_how_far_behind_the_query_is(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    rows: Counter[tuple[str, int]] = Counter()
    metrics = ProgressMetrics()
    spark.streams.addListener(metrics)
    frame = spark.readStream.format("jetstream").options(
        servers=url, stream="ORDERS_*", maxMsgsPerTrigger=20, columns="stream,seq"
    )

    def take(batch: Any, _number: int) -> None:
        rows.update((row["stream"], row["seq"]) for row in batch.collect())

    with tradewind.sync.connect(url) as connection:
        streams = connection.jetstream_manager().streams

        def add(name: str, count: int) -> None:
            streams.add(name=f"ORDERS_{name}", subjects=[f"orders.{name}"])
            for number in range(count):
                connection.jetstream().publish(f"orders.{name}", b"%d" % number)

        add("A", 30)
        streams.delete_message("ORDERS_A", 7)
        writer = frame.load().writeStream.queryName("following").foreachBatch(take)
        query = writer.option("checkpointLocation", str(tmp_path / "check")).start()
        try:
            # Both are in the progress when the last batch is over.
            wait_for(query, lambda: len([one for one in query.recentProgress if _rows(one)]) == 2)
            assert rows == Counter(("ORDERS_A", seq) for seq in range(1, 31) if seq != 7)
            (first,), (second,) = (
                query_lag(one).lags for one in query.recentProgress if _rows(one)
            )
            assert first.stream == "ORDERS_A"
            assert (first.seq, first.last_seq, first.messages) == (20, 30, 10)
            assert first.seconds > 0
            assert first.bytes > 0
            assert (second.seq, second.messages, second.seconds, second.bytes) == (30, 0, 0, 0)
            assert first.gaps == second.gaps == 1

            add("B", 5)
            wait_for(query, lambda: rows.total() == 34)
            assert rows == Counter(
                [("ORDERS_A", seq) for seq in range(1, 31) if seq != 7]
                + [("ORDERS_B", seq) for seq in range(1, 6)]
            )
            wait_for(query, lambda: len(query_lag(query.lastProgress).lags) == 2)
            lags = {lag.stream: lag for lag in query_lag(query.lastProgress).lags}
            assert set(lags) == {"ORDERS_A", "ORDERS_B"}
            assert (lags["ORDERS_A"].seq, lags["ORDERS_A"].messages) == (30, 0)
            wait_for(
                query,
                lambda: b'lag_messages{query="following",stream="ORDERS_B"}' in metrics.text(),
            )
        finally:
            query.stop()
            spark.streams.removeListener(metrics)


def _rows(progress: Any) -> int:
    return int(progress["numInputRows"])
