"""A query that goes on and on: streams that appear while it runs, and what its progress says."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark_kit import open_store, start_query

import tradewind.sync
from harness import ServerProcess
from tradewind.pipelines.running.lag import StoreLag
from tradewind.spark.options.source_options import SourceOptions
from tradewind.spark.progress.query_metrics import ProgressMetrics
from tradewind.spark.progress.stream_lag import Reporter, query_lag
from tradewind.spark.providers.blocks import BlocksProvider

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
        query = start_query(writer.option("checkpointLocation", str(tmp_path / "check")).start)
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


def test_blocks_tell_the_size_of_what_was_not_read_and_the_gaps(tmp_path: Path) -> None:
    """The size is that of files; how many messages there are is known when the server has stopped.

    No Spark is needed for this.
    """
    provider = BlocksProvider(SourceOptions(store_dir=str(tmp_path), stream=("ORDERS",)))
    with open_store(tmp_path, {"name": "ORDERS"}, block_bytes_max=4000) as (stream,):
        stream.add(300)
        for seq in (50, 60, 299):
            stream.store.table.remove(seq)
        stream.store.commit()
        files = sorted(Path(stream.folder.path).rglob("*.blk"))
        assert len(files) > 3
        whole = sum(file.stat().st_size for file in files)
        (state,) = provider.states()
        assert (state.last_seq, state.messages, state.bytes) == (300, None, None)
        sizes = [provider.bytes_behind("ORDERS", seq) for seq in range(301)]
        assert (sizes[0], sizes[300]) == (whole, 0)
        assert sizes == sorted(sizes, reverse=True)
        assert abs(sizes[150] - whole / 2) < whole / 10
    (state,) = provider.states()
    latest = Reporter().report(
        [state], {"ORDERS": {"seq": 100}}, lambda *_: None, provider.bytes_behind
    )
    end = {"ORDERS": {"created_ns": state.created_ns, "seq": 100}}
    (lag,) = query_lag({"sources": [{"endOffset": end, "latestOffset": latest}]}).lags
    assert (lag.messages, lag.gaps) == (200, 3)
    assert lag.bytes == provider.bytes_behind("ORDERS", 100)
    assert lag.bytes > whole / 2
    # The status of a pipeline says the same.
    meter = StoreLag({"storeDir": str(tmp_path), "stream": "ORDERS"})
    (seen,) = meter.measure({"ORDERS": 100})
    assert (seen.messages, seen.gaps, seen.bytes) == (lag.messages, lag.gaps, lag.bytes)
