"""Reads whose stream changes below them while they are killed, beside the jobs of `kill_jobs`."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kill_jobs
from kill_jobs import BATCH_ROWS, SLOW, Job, Sign, StreamJob, names
from kill_views import ViewJob

import tradewind.sync
from tradewind.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kill_kit import Target
    from pyspark.sql import DataFrame, SparkSession

# Fewer than the rows of a run, so that the stream is at its limit before the first read.
LIMIT_ROWS = 100
READS_PER_RUN = 4


class LimitJob(Job):
    """Batch reads of a stream at its limit, whose oldest messages are removed all the time.

    Each read leaves a file with the sequences that it has got, and those that it had to get: from
    the first message that was left after it to the last one that was there before it.
    """

    title = "batch reads of a stream at its limit"
    limits = {"max_msgs": LIMIT_ROWS}

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(server, folder)
        self.checkpoint = folder / "check"  # a batch has none
        self._reads = folder / "reads"
        self._reads.mkdir(exist_ok=True)

    def signs(self, target: Target) -> dict[str, Sign]:
        return self.writing_signs(target)

    def writing_signs(self, target: Target) -> dict[str, Sign]:
        return {
            "loaded": names(self._reads, "*.loaded"),
            "planned": names(self._reads, "*.planned"),
            "read": names(self._reads, "*.json"),
        }

    def run(self, spark: SparkSession) -> None:
        with tradewind.sync.connect(self.server, reconnect_wait=0.01) as connection:
            for _ in range(READS_PER_RUN):
                self._read(spark, connection)

    def _read(self, spark: SparkSession, connection: Any) -> None:
        note = self._reads / f"{time.time_ns()}"
        streams = connection.jetstream_manager().streams
        last_seq = streams.info("IN").state.last_seq
        with _publishing(connection):
            frame = self._load(spark)
            note.with_suffix(".loaded").touch()
            rows = frame.selectExpr("seq", f"{SLOW} as slow").rdd
            assert rows.getNumPartitions() > 0  # which plans it
            note.with_suffix(".planned").touch()
            seqs = [row["seq"] for row in rows.collect()]
        wanted = [streams.info("IN").state.first_seq, last_seq]
        part = note.with_suffix(".part")
        part.write_text(json.dumps({"wanted": wanted, "seqs": seqs}))
        part.replace(note.with_suffix(".json"))

    def _load(self, spark: SparkSession) -> DataFrame:
        source = spark.read.format("jetstream").options(servers=self.server, stream="IN")
        return source.option("minPartitions", 2).load()

    def expected(self, target: Target) -> Counter[Any]:
        rows: Counter[Any] = Counter()
        for name, (first, last), seqs in self._results():
            whole = {
                *range(first, last + 1),
                *range(min(seqs, default=1), max(seqs, default=0) + 1),
            }
            rows.update((name, seq) for seq in whole)
        return rows

    def found(self, target: Target) -> Counter[Any]:
        return Counter((name, seq) for name, _, seqs in self._results() for seq in seqs)

    def _results(self) -> Iterator[tuple[str, list[int], list[int]]]:
        for path in sorted(self._reads.glob("*.json")):
            result = json.loads(path.read_text())
            yield path.name, result["wanted"], result["seqs"]

    def check(self, target: Target) -> None:
        """No read has a row twice, or lacks one."""
        assert self.found(target) == self.expected(target)


@contextmanager
def _publishing(connection: Any) -> Iterator[None]:
    """Publish in a thread, also after the server was killed."""
    is_over = threading.Event()
    js = connection.jetstream()

    def publish() -> None:
        while not is_over.wait(0.002):
            with suppress(ClientError):
                js.publish("in.more", b"%d" % os.getpid())

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class RecreatedJob(StreamJob):
    """A query on block files whose stream is deleted and created again before each kill.

    Unread messages of a deleted stream are lost, as the query has to accept. Each row that arrives
    is from a stream that existed, and exists once; of the last stream all rows arrive.
    """

    title = "recreated streams from block files"

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(server, folder)
        self.source = {
            "storeDir": str(folder / "store"),
            "failOnDataLoss": "false",
        }
        self._generation = 0

    def payload(self, number: int) -> bytes:
        return b"%d of stream %d" % (number, self._generation)

    def disturb(self, target: Target) -> None:
        target.recreate_input()
        self._generation += 1
        target.fill(BATCH_ROWS, self.payload)

    def expected(self, target: Target) -> Counter[Any]:
        rows = target.payloads("IN")
        known = {b"stream %d" % number for number in range(self._generation)}
        earlier = {row for row in self.found(target) if row.partition(b" of ")[2] in known}
        return rows + Counter(earlier)


JOBS: dict[str, type[Job]] = {
    **kill_jobs.JOBS,
    "limits": LimitJob,
    "recreated": RecreatedJob,
    "view": ViewJob,
}
