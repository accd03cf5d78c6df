"""What the Spark benchmark writes: rows of a frame to a stream, and a stream that is followed.

The stream that is followed gets its messages from a thread of this process, at an even pace. The
latency of a row is at most the time of the micro-batch that runs when it arrives plus that of its
own; both come from Spark's own report of each batch.
"""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import tradewind.sync
from benchmarks.figures import percentile

MESSAGES_PER_SECOND = 10_000
MESSAGES_PER_STEP = 200
WARM_BATCHES = 10
WAIT_SECONDS = 300


def write_stream(frame: Any, url: str, rows: int) -> None:
    """Write subject and data of all rows to a new stream, each one acknowledged."""
    with tradewind.sync.connect(url) as connection:
        streams = connection.jetstream_manager().streams
        streams.add(name="OUT", subjects=["out.>"])
        chosen = frame.selectExpr("concat('out.', subject) as subject", "data")
        writer = chosen.write.format("jetstream").mode("append")
        writer.options(servers=url, stream="OUT").save()
        stored = streams.info("OUT").state.messages
        # A server that still has to remember the ids of all these rows would do so in the next job.
        streams.delete("OUT")
        if stored != rows:
            raise AssertionError(f"{stored} of {rows} rows are in the stream")


class Feed(threading.Thread):
    """Publishes at an even pace until it is told to stop."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.is_over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        """Late messages are sent as fast as possible, so that the average is right."""
        payload = bytes(128)
        with tradewind.sync.connect(self._url) as connection:
            js = connection.jetstream()
            start = time.perf_counter()
            while not self.is_over.is_set():
                for _ in range(MESSAGES_PER_STEP):
                    js.publish_async("tail.x", payload)
                self.sent += MESSAGES_PER_STEP
                ahead = start + self.sent / MESSAGES_PER_SECOND - time.perf_counter()
                self.is_over.wait(max(ahead, 0))
            js.publish_async_completed()


def measure_tail(spark: Any, url: str, checkpoint: Path, batches: int) -> dict[str, list[float]]:
    """Follow a stream with 10,000 messages a second; seconds of its micro-batches."""
    with tradewind.sync.connect(url) as connection:
        connection.jetstream_manager().streams.add(name="TAIL", subjects=["tail.>"])
    frame = spark.readStream.format("jetstream").options(servers=url, stream="TAIL").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    feed = Feed(url)
    feed.start()
    seen: dict[int, tuple[int, float]] = {}
    deadline = time.monotonic() + WAIT_SECONDS
    while len(seen) < WARM_BATCHES + batches and time.monotonic() < deadline:
        for progress in query.recentProgress:
            seconds = progress["durationMs"]["triggerExecution"] / 1000
            if progress["numInputRows"]:
                seen[progress["batchId"]] = (progress["numInputRows"], seconds)
        feed.is_over.wait(0.2)
    feed.is_over.set()
    feed.join()
    query.stop()
    durations = [seen[number][1] for number in sorted(seen)[WARM_BATCHES:]]
    waits = [one + other for one, other in itertools.pairwise(durations)]
    rows = sum(seen[number][0] for number in sorted(seen)[WARM_BATCHES:])
    return {
        "micro-batch at 10,000 messages/s, median s": [percentile(sorted(durations), 0.5)],
        "micro-batch at 10,000 messages/s, 99 % below s": [percentile(sorted(durations), 0.99)],
        "latency of a row at most, median s": [percentile(sorted(waits), 0.5)],
        "rows/s of the query that follows": [rows / sum(durations)],
    }
