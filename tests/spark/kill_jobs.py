"""What is killed: jobs that copy a stream somewhere else, and what tells how far they are.

A job runs over what is there, on a session of Spark, and ends. Rows come slowly and batches are
small, so that a kill can hit any step of one. The steps of a batch are told by what appears on disk
or in the server: a sign is a set of names, and something has happened when a new one is in it.
"""

from __future__ import annotations

import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from pyarrow import parquet
from spark_kit import run_query

from tradewind.pipelines.loading import load_pipeline
from tradewind.pipelines.pipeline_connections import PipelineAddress
from tradewind.pipelines.runner import Runner, running

if TYPE_CHECKING:
    from kill_kit import Target
    from pyspark.sql import SparkSession

BATCH_ROWS = 60
RUN_SECONDS = 600
SLOW = "coalesce(reflect('java.lang.Thread', 'sleep', 1L), '')"
PIPELINE = """\
pipeline: lake
checkpoint: state
trigger: now
sources:
  orders: {{stream: IN, batch: {rows}}}
steps:
  slow:
    sql: "select seq, concat(subject, {slow}) as subject from orders"
sinks:
  lake: {{from: slow, {sink}}}
"""
Sign = Callable[[], set[str]]


def names(folder: Path, pattern: str) -> Sign:
    """The files of a folder, with the times of those that are replaced."""

    def look() -> set[str]:
        found = set()
        for path in folder.glob(pattern):
            try:
                found.add(f"{path} {path.stat().st_mtime_ns}")
            except FileNotFoundError:
                continue
        return found

    return look


class Job(ABC):
    """A copy of the stream IN."""

    title: str
    checkpoint: Path

    def __init__(self, server: str, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def signs(self, target: Target) -> dict[str, Sign]:
        """How each step of a batch is known, in their order."""
        steps = {"planned": names(self.checkpoint / "offsets", "[0-9]*")}
        steps |= self.writing_signs(target)
        return steps | {"committed": names(self.checkpoint / "commits", "[0-9]*")}

    @abstractmethod
    def writing_signs(self, target: Target) -> dict[str, Sign]:
        """The steps between planning and Spark's own commit."""

    @abstractmethod
    def run(self, spark: SparkSession) -> None:
        """Copy what is there."""

    @abstractmethod
    def expected(self, target: Target) -> Counter[Any]:
        """The rows that have to be there in the end."""

    @abstractmethod
    def found(self, target: Target) -> Counter[Any]:
        """The rows that are there."""

    def look(self) -> None:  # noqa: B027 - most targets are looked at by `check` only
        """Look at the target as a reader would, who does it all the time."""

    def check(self, target: Target) -> None:
        """What has to be right at any moment: no row is there twice, and none that is not in IN."""
        expected = self.expected(target)
        assert not self.found(target) - expected


class StreamJob(Job):
    """A streaming query that copies to the stream OUT."""

    title = "stream to stream"

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(server, folder)
        self.checkpoint = folder / "check"

    def writing_signs(self, target: Target) -> dict[str, Sign]:
        return {
            "marked": lambda: {str(target.last_seq("KV_spark_sinks"))},
            "some rows written": lambda: {str(target.last_seq("OUT"))},
        }

    def run(self, spark: SparkSession) -> None:
        run_query(
            spark.readStream.format("jetstream")
            .options(
                servers=self.server,
                stream="IN",
                maxMsgsPerTrigger=BATCH_ROWS,
                minPartitions=2,
            )
            .load()
            .selectExpr(f"concat('out.', subject, {SLOW}) as subject", "data")
            .writeStream.format("jetstream")
            .options(servers=self.server, stream="OUT", checkpointLocation=str(self.checkpoint))
            .trigger(availableNow=True),
            RUN_SECONDS,
        )

    def expected(self, target: Target) -> Counter[Any]:
        return target.payloads("IN")

    def found(self, target: Target) -> Counter[Any]:
        return target.payloads("OUT")


class LakeJob(Job):
    """A pipeline into a lake, with a file for each subject."""

    sink: str

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(server, folder)
        self.checkpoint = folder / "state" / "queries" / "lake"
        self.lake = folder / "lake"

    def run(self, spark: SparkSession) -> None:
        path = self.folder / "lake.yaml"
        path.write_text(PIPELINE.format(rows=BATCH_ROWS, slow=SLOW, sink=self.sink))
        pipeline = load_pipeline(path)
        runner = Runner(
            pipeline, spark, PipelineAddress(self.server), lambda *_: None, is_once=True
        )
        with running(runner, pipeline.checkpoint):
            runner.wait(Event(), lambda _status: None)
        assert runner.status.state == "done", runner.status.error

    def expected(self, target: Target) -> Counter[Any]:
        return Counter(range(1, target.last_seq("IN") + 1))


class ParquetJob(LakeJob):
    """A folder of Parquet files, which somebody reads all the time."""

    title = "stream to Parquet"
    sink = "parquet: lake, partition_by: subject"

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(server, folder)
        self._seen: dict[Path, int] = {}
        self._rows: Counter[int] = Counter()
        self._lock = threading.Lock()

    def writing_signs(self, target: Target) -> dict[str, Sign]:
        staging = self.folder / ".lake.staging"
        return {
            "some files written": names(staging, "*/files-*/**/*.parquet"),
            "all files listed": names(staging, "*/list.json"),
            "some files in the lake": names(self.lake, "**/*.parquet"),
            "noted as done": names(self.checkpoint, "published.json"),
        }

    def found(self, target: Target) -> Counter[Any]:
        self.look()
        return self._rows

    def look(self) -> None:
        """Read what is new: each file is whole, stays, and has no row of another one."""
        with self._lock:
            for file in sorted(set(self.lake.rglob("*.parquet")) - self._seen.keys()):
                table = parquet.read_table(file, columns=["seq"], partitioning=None)
                self._seen[file] = file.stat().st_ino
                self._rows.update(table["seq"].to_pylist())
            changed = [file for file, number in self._seen.items() if file.stat().st_ino != number]
            assert changed == []
            assert [seq for seq, count in self._rows.items() if count > 1] == []


class TableJob(LakeJob):
    """A table: what is seen of it are whole batches, in their order, at any moment."""

    def check(self, target: Target) -> None:
        found = self.found(target)
        assert found == Counter(range(1, len(found) + 1))
        assert len(found) % BATCH_ROWS == 0


class DeltaJob(TableJob):
    """A Delta table."""

    title = "stream to Delta"
    sink = "delta: lake, partition_by: subject"

    def writing_signs(self, target: Target) -> dict[str, Sign]:
        return {
            "some files written": names(self.lake, "*/*.parquet"),
            "in the table's log": names(self.lake, "_delta_log/*.json"),
        }

    def found(self, target: Target) -> Counter[Any]:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self.lake)):
            return Counter()
        table = DeltaTable(str(self.lake))
        files = [file.removeprefix("file://") for file in table.file_uris()]
        return _rows_of(files)


class IcebergJob(TableJob):
    """An Iceberg table."""

    title = "stream to Iceberg"
    sink = "iceberg: {table: lake.orders, warehouse: lake}, partition_by: subject"

    def writing_signs(self, target: Target) -> dict[str, Sign]:
        return {
            "some files written": names(self.lake, "*/*/data/**/*.parquet"),
            "some metadata written": names(self.lake, "*/*/metadata/*"),
            "in the catalog": names(self.lake, "catalog.db"),
        }

    def found(self, target: Target) -> Counter[Any]:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        from tradewind.pipelines.lakes import open_catalog
        from tradewind.pipelines.model import Iceberg

        if not self._has_tables():
            return Counter()
        catalog = open_catalog(Iceberg("lake.orders", "lake"), str(self.lake))
        try:
            table = catalog.load_table("lake.orders")
        except (NoSuchNamespaceError, NoSuchTableError):
            return Counter()
        files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
        return _rows_of(files)

    def _has_tables(self) -> bool:
        """Whether the catalog is made: to open it earlier would make it beside the job."""
        if not (self.lake / "catalog.db").exists():
            return False
        with closing(sqlite3.connect(f"file:{self.lake}/catalog.db?mode=ro", uri=True)) as catalog:
            found = catalog.execute("select name from sqlite_master").fetchall()
        return {("iceberg_tables",), ("iceberg_namespace_properties",)} <= set(found)


def _rows_of(files: list[str]) -> Counter[Any]:
    found: Counter[int] = Counter()
    for file in files:
        table = parquet.read_table(file, columns=["seq"], partitioning=None)
        found.update(table["seq"].to_pylist())
    return found


JOBS: dict[str, type[Job]] = {
    "stream": StreamJob,
    "parquet": ParquetJob,
    "delta": DeltaJob,
    "iceberg": IcebergJob,
}
