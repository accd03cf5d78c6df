"""The jobs that are killed: they copy a stream somewhere else, and signs show their progress.

A job processes the existing messages, on a session of Spark, and ends. Rows come slowly and batches
are small, so that a kill can hit any step of one. The steps of a batch are recognised by what
appears on disk or in the server: a sign is a set of names, and a new name in it shows that
something has happened.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

from pyarrow import parquet
from spark_kit import run_query

from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.definition.model import Iceberg
from tradewind.pipelines.lake.delta_tables import DeltaLake
from tradewind.pipelines.lake.iceberg_tables import IcebergLake
from tradewind.pipelines.lake.maintenance import MaintenancePolicy, maintain
from tradewind.pipelines.running.runner import Runner, running
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.table_runs import table_job
from tradewind.pipelines.table_runs.table_job import TableWork
from tradewind.pipelines.tables.table_spec import TableSpec

if TYPE_CHECKING:
    from kill_kit import Target
    from pyspark.sql import SparkSession

BATCH_ROWS = 60
# Of upserts: not all of a batch before, and some of the one before that.
KEYS = 97
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
    sql: "select seq, {columns}concat(subject, {slow}) as subject from orders"
sinks:
  lake: {{from: slow, {sink}}}
"""
SHARED_PIPELINE = f"""\
pipeline: shared
checkpoint: state
trigger: now
sources:
  orders: {{stream: IN, batch: {BATCH_ROWS}, share: true}}
steps:
  slow:
    sql: "select seq, data, concat(subject, {SLOW}) as subject from orders"
sinks:
  lake: {{from: slow, parquet: lake}}
  copy: {{from: slow, stream: OUT, subject: "out.{{subject}}", data: data}}
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
    limits: ClassVar[dict[str, Any]] = {}  # of the stream IN

    def __init__(self, server: str, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def payload(self, number: int) -> bytes:
        """The payload of a message, counted from 0; two consecutive messages have the same."""
        return b"%d" % (number // 2)

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

    def disturb(self, target: Target) -> None:  # noqa: B027 - most jobs have enough with the kill
        """Do something else that a job has to outlive, right before each kill."""

    def look(self) -> None:  # noqa: B027 - most targets are looked at by `check` only
        """Look at the target as a reader would, who does it all the time."""

    def check(self, target: Target) -> None:
        """Check what must hold at any moment: no row exists twice, and every row comes from IN."""
        expected = self.expected(target)
        assert not self.found(target) - expected


class StreamJob(Job):
    """A streaming query that copies to the stream OUT."""

    title = "stream to stream"

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(server, folder)
        self.checkpoint = folder / "check"
        self.source = {"servers": server}

    def writing_signs(self, target: Target) -> dict[str, Sign]:
        return {
            "marked": lambda: {str(target.last_seq("KV_spark_sinks"))},
            "some rows written": lambda: {str(target.last_seq("OUT"))},
        }

    def run(self, spark: SparkSession) -> None:
        run_query(
            spark.readStream.format("jetstream")
            .options(stream="IN", maxMsgsPerTrigger=BATCH_ROWS, minPartitions=2, **self.source)
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
    columns = ""

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(server, folder)
        self.checkpoint = folder / "state" / "queries" / "lake"
        self.lake = folder / "lake"

    def run(self, spark: SparkSession) -> None:
        path = self.folder / "lake.yaml"
        text = PIPELINE.format(rows=BATCH_ROWS, slow=SLOW, sink=self.sink, columns=self.columns)
        path.write_text(text)
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
    """A job that writes a folder of Parquet files, which a reader reads all the time."""

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

        if not self.has_tables():
            return Counter()
        try:
            table = load_iceberg(self.lake)
        except (NoSuchNamespaceError, NoSuchTableError):
            return Counter()
        files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
        return _rows_of(files)

    def has_tables(self) -> bool:
        """Whether the catalog is made: to open it earlier would make it beside the job."""
        if not (self.lake / "catalog.db").exists():
            return False
        with closing(sqlite3.connect(f"file:{self.lake}/catalog.db?mode=ro", uri=True)) as catalog:
            found = catalog.execute("select name from sqlite_master").fetchall()
        return {("iceberg_tables",), ("iceberg_namespace_properties",)} <= set(found)


class Upserts(TableJob):
    """A job whose rows replace others, while maintenance joins the files that they are in.

    A row replaces the one that is `KEYS` rows older. Maintenance runs all the time, forgets all
    versions but three, and is never killed; its changes are committed between any two steps.
    """

    columns = f"cast(seq % {KEYS} as int) as k, "

    def look(self) -> None:
        """Maintain the table, if it is there already."""
        if (table := self.table()) is not None and table.is_there:
            maintain(table, MaintenancePolicy(expire_seconds=0, keep_snapshots=3))

    @abstractmethod
    def table(self) -> DeltaLake | IcebergLake | None:
        """The table; None if opening it would make a part of it."""

    def expected(self, target: Target) -> Counter[Any]:
        return _last_of_each_key(target.last_seq("IN"))

    def check(self, target: Target) -> None:
        found = self.found(target)
        last_seq = max(found, default=0)
        assert found == _last_of_each_key(last_seq)
        assert last_seq % BATCH_ROWS == 0


class DeltaUpserts(Upserts, DeltaJob):
    """A Delta table."""

    title = "upserts to Delta beside maintenance"
    sink = "delta: lake, mode: upsert, key: k"

    def writing_signs(self, target: Target) -> dict[str, Sign]:
        return {
            "some files written": names(self.lake, "*.parquet"),
            "in the table's log": names(self.lake, "_delta_log/*.json"),
        }

    def table(self) -> DeltaLake:
        return DeltaLake(str(self.lake))


class IcebergUpserts(Upserts, IcebergJob):
    """An Iceberg table."""

    title = "upserts to Iceberg beside maintenance"
    sink = "iceberg: {table: lake.orders, warehouse: lake}, mode: upsert, key: k"

    def table(self) -> IcebergLake | None:
        return (
            IcebergLake(Iceberg("lake.orders", ""), str(self.lake)) if self.has_tables() else None
        )


def _last_of_each_key(last_seq: int) -> Counter[Any]:
    return Counter(range(max(last_seq - KEYS, 0) + 1, last_seq + 1))


class StreamTableJob(IcebergJob):
    """The table of a stream, whose payloads get new fields, do not fit, or are no JSON at all."""

    title = "stream to its table"

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(server, folder)
        to = str(self.lake)
        self._spec = TableSpec(to, table="lake.orders", dead_letters="OUT", partition=["subject"])
        self.checkpoint = self.lake / "_tradewind" / "IN" / "queries" / "table"

    def payload(self, number: int) -> bytes:
        if number % 25 == 7:
            return b"no JSON %d" % number
        fields = {"id": "text" if number % 10 == 3 else number, f"new_{number // 150}": number}
        return json.dumps(fields).encode()

    def writing_signs(self, target: Target) -> dict[str, Sign]:
        letters = {"some letters published": lambda: {str(target.last_seq("OUT"))}}
        return letters | super().writing_signs(target)

    def run(self, spark: SparkSession) -> None:
        work = TableWork(
            spark, PipelineAddress(self.server), is_once=True, batch_messages=BATCH_ROWS
        )
        job = table_job.TableJob("IN", self._spec, work)
        while not job.is_over:
            job.poll()
            threading.Event().wait(0.05)
        assert job.status.state == "done", job.status.error

    def expected(self, target: Target) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for number in range(target.last_seq("IN")):
            payload = self.payload(number)
            found[payload if payload.startswith(b"no") else (number + 1, payload)] += 1
        return found

    def found(self, target: Target) -> Counter[Any]:
        """Letters, and rows as the payloads that they must have been made of."""
        rows: Counter[Any] = Counter(target.payloads("OUT"))
        if super().found(target):
            table = load_iceberg(self.lake)
            own = {"seq", "subject", "time", "headers", "_rescued"}
            for row in table.scan().to_arrow().to_pylist():
                fields = {name: row[name] for name in row if name not in own}
                fields |= json.loads(row["_rescued"] or "{}")
                kept = {name: value for name, value in fields.items() if value is not None}
                rows[row["seq"], json.dumps(kept).encode()] += 1
        return rows

    def check(self, target: Target) -> None:
        Job.check(self, target)


def load_iceberg(lake: Path) -> Any:
    """The table of a warehouse, for any writer."""
    from tradewind.pipelines.lake.lakes import open_catalog

    return open_catalog(Iceberg("lake.orders", "lake"), str(lake)).load_table("lake.orders")


class SharedJob(Job):
    """A folder of Parquet files and the stream OUT, written by one query one after the other."""

    title = "stream to Parquet and stream, shared"

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(server, folder)
        self.checkpoint = folder / "state" / "queries" / "orders_shared"
        self.lake = folder / "lake"

    def writing_signs(self, target: Target) -> dict[str, Sign]:
        return {
            "all files listed": names(self.folder / ".lake.staging", "*/list.json"),
            "first sink done": names(self.checkpoint, "sinks/lake/published.json"),
            "some rows of the second": lambda: {str(target.last_seq("OUT"))},
        }

    def run(self, spark: SparkSession) -> None:
        path = self.folder / "shared.yaml"
        path.write_text(SHARED_PIPELINE)
        pipeline = load_pipeline(path)
        address = PipelineAddress(self.server)
        runner = Runner(pipeline, spark, address, lambda *_: None, is_once=True)
        with running(runner, pipeline.checkpoint):
            runner.wait(Event(), lambda _status: None)
        assert runner.status.state == "done", runner.status.error

    def expected(self, target: Target) -> Counter[Any]:
        rows: Counter[Any] = Counter(range(1, target.last_seq("IN") + 1))
        return rows + target.payloads("IN")

    def found(self, target: Target) -> Counter[Any]:
        files = [str(file) for file in self.lake.rglob("*.parquet")]
        return _rows_of(files) + target.payloads("OUT")


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
    "upsert-delta": DeltaUpserts,
    "upsert-iceberg": IcebergUpserts,
    "table": StreamTableJob,
    "shared": SharedJob,
}
