"""The common part of writing to Delta and Iceberg tables.

Owns the two phases of a batch. First the executors write data files, which are not visible yet;
then the driver commits all of them at once, together with the marks of the batch (`lakes`). A kill
in between leaves files that no table names, which compaction removes later. A commit that conflicts
with another writer is retried on the new state of the table.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tradewind.pipelines.arrow_jobs import Batches, arrow_schema, map_in_arrow, spread
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake_files import (
    FileWriter,
    LakeFile,
    RowKeys,
    Storage,
    WrittenFile,
    rewrite_without,
)
from tradewind.pipelines.lakes import MARK_BATCH, MARK_SINK, MARK_WRITER, BatchWriter, SinkQuery
from tradewind.pipelines.upserts import DELETED, KeyBounds, Upsert, check_unique, latest_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)
COMMITS_MAX: Final = 20
_FILES: Final = "files string, keys binary"
_CHANGES: Final = "change string"


class ConflictError(Exception):
    """Another writer has changed the table in a way that the commit did not know of."""


@dataclass(frozen=True)
class TableChange:
    """One commit: files that come, files that go, or all that were there before."""

    added: Sequence[WrittenFile]
    removed: Sequence[LakeFile] = ()
    replaces_all: bool = False


class _Rewritten(msgspec.Struct, frozen=True):
    """A file of the table, and those that its other rows are in now."""

    path: str
    added: list[WrittenFile]


class LakeTable(Protocol):
    """A table as its files and its log; each call sees what others have committed."""

    keeps_partition: bool

    @property
    def storage(self) -> Storage:
        """Where its files are; only of a table that is there."""

    def prepare(self, rows: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
        """Make the table, or add columns that it does not have; returns its columns."""

    def has_batch(self, marks: Mapping[str, str]) -> bool:
        """Whether a batch is committed; PipelineError if the checkpoint is older than the table."""

    def files(self, columns: Sequence[str] = ()) -> list[LakeFile]:
        """All files, with the bounds of some columns; PipelineError if they do not say it all."""

    def commit(self, change: TableChange, marks: Mapping[str, str]) -> None:
        """Commit, with what is said of the batch; ConflictError if it has to be done again."""


@dataclass(frozen=True)
class TableSink:
    """How rows come into a table: appended, instead of all others (`complete`), or by key."""

    partition_by: Sequence[str] = ()
    is_complete: bool = False
    upsert: Upsert | None = None


@dataclass(frozen=True)
class _FilesJob:
    """Writes the rows of one part of a batch; runs in an executor."""

    storage: Storage
    schema: pa.Schema
    partition_by: Sequence[str]
    prefix: str
    keeps_partition: bool
    keys: Sequence[str] = ()

    def writer(self) -> FileWriter:
        return FileWriter(
            self.storage, self.schema, self.partition_by, self.prefix, self.keeps_partition
        )

    def __call__(self, batches: Batches) -> Batches:
        writer = self.writer()
        found: list[pa.RecordBatch] = []
        for batch in batches:
            rows = batch
            if self.keys:
                found.append(batch.select(list(self.keys)))
                kept = batch.filter(pc.invert(batch.column(DELETED)))
                rows = kept.drop_columns([DELETED])
            if rows.num_rows:
                writer.write(rows)
        keys = b""
        if found:
            table = pa.Table.from_batches(found)
            check_unique(table)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
            keys = sink.getvalue().to_pybytes()
        files = msgspec.json.encode(writer.close()).decode()
        yield pa.RecordBatch.from_pydict(
            {"files": pa.array([files], pa.string()), "keys": pa.array([keys], pa.binary())}
        )


@dataclass(frozen=True)
class _RewriteJob:
    """Takes rows by their keys out of files; runs in an executor."""

    files: _FilesJob
    keys: Any = field(repr=False)  # a broadcast of Spark

    def __call__(self, batches: Batches) -> Batches:
        keys = RowKeys(self.keys.value)
        for batch in batches:
            for text in batch.column(0).to_pylist():
                file = msgspec.json.decode(text, type=LakeFile)
                added = rewrite_without(self.files.storage, file, keys, self.files.writer())
                if added is not None:
                    change = msgspec.json.encode(_Rewritten(file.path, added)).decode()
                    yield pa.RecordBatch.from_pydict({"change": pa.array([change], pa.string())})


def table_writer(table: LakeTable, query: SinkQuery, sink: TableSink) -> BatchWriter:
    """Writes batches to a table."""

    def write(batch: DataFrame, number: int) -> None:
        marks = query.marks(number)
        if table.has_batch(marks):
            return
        rows = latest_rows(batch, sink.upsert) if sink.upsert else batch
        schema = arrow_schema(batch)
        with _named(query.sink):
            target = table.prepare(schema, sink.partition_by)
        job = _FilesJob(
            table.storage,
            target,
            tuple(sink.partition_by),
            f"part-{marks[MARK_WRITER]}-{int(marks[MARK_BATCH]):08}",
            table.keeps_partition,
            tuple(sink.upsert.key) if sink.upsert else (),
        )
        added, keys = _write_files(rows, job)
        if sink.upsert is not None:
            if keys is not None:
                _commit_upsert(table, batch.sparkSession, job, added, keys, marks)
            return
        if added or sink.is_complete:
            _commit(table, lambda: TableChange(added, replaces_all=sink.is_complete), marks)

    return write


def _write_files(rows: DataFrame, job: _FilesJob) -> tuple[list[WrittenFile], pa.Table | None]:
    """What the executors have written, and the keys of an upsert; all else stays with them."""
    found = map_in_arrow(rows, job, _FILES).collect()
    added = [
        file for row in found for file in msgspec.json.decode(row["files"], type=list[WrittenFile])
    ]
    parts = [pa.ipc.open_stream(bytes(row["keys"])).read_all() for row in found if row["keys"]]
    return added, pa.concat_tables(parts) if parts else None


def _commit_upsert(
    table: LakeTable,
    spark: SparkSession,
    job: _FilesJob,
    added: Sequence[WrittenFile],
    keys: pa.Table,
    marks: Mapping[str, str],
) -> None:
    """Commit the rows of a batch instead of those that have their keys."""
    broadcast = spark.sparkContext.broadcast(keys)
    work = _RewriteJob(job, broadcast)
    bounds = KeyBounds(keys)

    def change() -> TableChange:
        candidates = {file.path: file for file in table.files(job.keys) if bounds.may_hold(file)}
        texts = [
            msgspec.json.encode(msgspec.structs.replace(file, bounds={})).decode()
            for file in candidates.values()
        ]
        rows = map_in_arrow(spread(spark, texts), work, _CHANGES).collect() if texts else []
        rewritten = [msgspec.json.decode(row["change"], type=_Rewritten) for row in rows]
        others = [file for one in rewritten for file in one.added]
        return TableChange([*added, *others], [candidates[one.path] for one in rewritten])

    try:
        _commit(table, change, marks)
    finally:
        broadcast.unpersist()


def _commit(table: LakeTable, change: Any, marks: Mapping[str, str]) -> None:
    """Commit what `change` says of the table as it is now, as often as others are in the way."""
    for _ in range(COMMITS_MAX):
        try:
            table.commit(change(), marks)
        except ConflictError as error:
            if table.has_batch(marks):
                return
            logger.info("%s is committed again: %s", marks[MARK_SINK], error)
            last = error
        else:
            return
    raise PipelineError(
        f"{marks[MARK_SINK]}: batch {marks[MARK_BATCH]} was not committed in {COMMITS_MAX}"
        f" attempts, because other writers keep changing the table: {last}"
    )


class _named:  # noqa: N801
    """Errors inside name the sink that they are about."""

    def __init__(self, sink: str) -> None:
        self._sink = sink

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PipelineError):
            raise PipelineError(f"{self._sink}: {error}") from None
