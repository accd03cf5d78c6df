"""The common part of writing to Delta and Iceberg tables.

Owns the two phases of a batch. First the executors write data files, which are not visible yet;
then the driver commits all of them at once, together with the marks of the batch (`lakes`). A kill
in between leaves files that no table names, which compaction removes later. A commit that conflicts
with another writer is retried on the new state of the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.batch_steps import BatchStep, RowStep
from tradewind.pipelines.lake.lake_files import (
    FileWriter,
    LakeFile,
    RowKeys,
    Storage,
    WrittenFile,
    rewrite_without,
)
from tradewind.pipelines.lake.lakes import (
    MARK_BATCH,
    MARK_SINK,
    MARK_WRITER,
    BatchWriter,
    SinkQuery,
)
from tradewind.pipelines.lake.upserts import DELETED, KeyBounds, Upsert, check_unique, latest_rows
from tradewind.pipelines.sessions.arrow_jobs import Batches, arrow_schema, map_in_arrow, spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)
COMMITS_MAX: Final = 20
# Attempts to write a batch, each with columns that the one before has found.
ATTEMPTS_MAX: Final = 4
_FILES: Final = "files string, keys binary, note string"
_NOTES: Final = "note string"
_CHANGES: Final = "change string"


class ConflictError(Exception):
    """Another writer has changed the table in a way that the commit did not know of."""


@dataclass(frozen=True)
class TableChange:
    """One commit: files that come, files that go, or all that were there before.

    An upsert has looked for its keys in the files of `planned_with`. The change does not hold for a
    table that has others: they may have the same keys. An append holds whatever the table has. A
    change that keeps all rows only puts them into other files; no batch belongs to it.
    """

    added: Sequence[WrittenFile]
    removed: Sequence[LakeFile] = ()
    replaces_all: bool = False
    planned_with: frozenset[str] | None = None
    keeps_rows: bool = False

    @property
    def is_append(self) -> bool:
        """Whether the commit is right on top of any other."""
        return not self.removed and not self.replaces_all and self.planned_with is None

    def check(self, present: Collection[str]) -> None:
        """Raise ConflictError unless the change holds for a table with the files `present`."""
        if any(file.path not in present for file in self.removed):
            raise ConflictError("a file that is replaced is no longer in the table")
        if self.planned_with is not None and not self.planned_with.issuperset(present):
            raise ConflictError("files have been added to the table meanwhile")


class _RewrittenFile(msgspec.Struct, frozen=True):
    """A file of the table, and those that its other rows are in now."""

    path: str
    added: list[WrittenFile]


class LakeTable(Protocol):
    """A table as its files and its log; each call sees what others have committed."""

    keeps_partition: bool

    @property
    def is_there(self) -> bool:
        """Whether the table exists."""

    @property
    def storage(self) -> Storage:
        """The place of the files of the table, which must exist."""

    def schema(self) -> pa.Schema:
        """The columns of the table, which must exist."""

    def prepare(self, rows: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
        """Make the table, or add columns that it does not have; returns its columns."""

    def partition_by(self) -> list[str]:
        """How the table, which must exist, is divided, as `lake_partitions` writes it."""

    def has_batch(self, marks: Mapping[str, str]) -> bool:
        """Whether a batch is committed; PipelineError if the checkpoint is older than the table."""

    def files(self, columns: Sequence[str] = ()) -> list[LakeFile]:
        """All files, with the bounds of some columns; PipelineError if they do not say it all."""

    def commit(self, change: TableChange, marks: Mapping[str, str]) -> None:
        """Commit, with what is said of the batch; ConflictError if it has to be done again."""


@dataclass(frozen=True)
class TableSink:
    """How rows come into a table: appended, instead of all others (`complete`), or by key.

    With a step, the rows that are written are those that it makes; the key is one of the rows
    before it.
    """

    partition_by: Sequence[str] = ()
    is_complete: bool = False
    upsert: Upsert | None = None
    step: BatchStep | None = None


@dataclass(frozen=True)
class FilesJob:
    """Writes the rows of one part of a batch; runs in an executor."""

    storage: Storage
    schema: pa.Schema
    partition_by: Sequence[str]
    prefix: str
    keeps_partition: bool
    keys: Sequence[str] = ()
    step: RowStep | None = None

    def writer(self) -> FileWriter:
        """A writer of files of the table."""
        return FileWriter(
            self.storage, self.schema, self.partition_by, self.prefix, self.keeps_partition
        )

    def __call__(self, batches: Batches) -> Batches:
        """One row: the files, the keys of an upsert, and what the step has to say."""
        writer = self.writer()
        task = self.step.task() if self.step is not None else None
        found: list[pa.RecordBatch] = []
        is_needed = True
        for batch in batches:
            rows: pa.RecordBatch | None = batch
            if self.keys:
                found.append(batch.select(list(self.keys)))
                kept = batch.filter(pc.invert(batch.column(DELETED)))
                rows = kept.drop_columns([DELETED])
            if task is not None:
                rows = task.rows(rows)
                is_needed = is_needed and rows is not None
            if rows is not None and rows.num_rows and is_needed:
                writer.write(rows)
        files = writer.close()
        if not is_needed:
            remove_files(self.storage, files)
            files = []
        yield pa.RecordBatch.from_pydict(
            {
                "files": pa.array([msgspec.json.encode(files).decode()], pa.string()),
                "keys": pa.array([_packed(found)], pa.binary()),
                "note": pa.array([task.note() if task is not None else ""], pa.string()),
            }
        )


def _packed(found: Sequence[pa.RecordBatch]) -> bytes:
    """The keys of an upsert, each of which must be there once."""
    if not found:
        return b""
    table = pa.Table.from_batches(found)
    check_unique(table)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


@dataclass(frozen=True)
class _LearnJob:
    """Runs a step without writing, for what it learns; runs in an executor."""

    step: RowStep

    def __call__(self, batches: Batches) -> Batches:
        task = self.step.task()
        for batch in batches:
            task.rows(batch)
        yield pa.RecordBatch.from_pydict({"note": pa.array([task.note()], pa.string())})


@dataclass(frozen=True)
class WrittenRows:
    """The files of a batch, which no table names yet, and how they were made."""

    files: list[WrittenFile]
    keys: pa.Table | None
    job: FilesJob
    notes: Sequence[str] = ()


def remove_files(storage: Storage, files: Sequence[WrittenFile]) -> None:
    """Remove files that no table names; one that stays is an orphan, and no error."""
    for file in files:
        with suppress(Exception):  # each file system has its own
            storage.remove(file.path)


@dataclass(frozen=True)
class _RewriteJob:
    """Takes rows by their keys out of files; runs in an executor."""

    files: FilesJob
    keys: Any = field(repr=False)  # a broadcast of Spark

    def __call__(self, batches: Batches) -> Batches:
        keys = RowKeys(self.keys.value)
        for batch in batches:
            for text in batch.column(0).to_pylist():
                file = msgspec.json.decode(text, type=LakeFile)
                added = rewrite_without(self.files.storage, file, keys, self.files.writer())
                if added is not None:
                    change = msgspec.json.encode(_RewrittenFile(file.path, added)).decode()
                    yield pa.RecordBatch.from_pydict({"change": pa.array([change], pa.string())})


def table_writer(table: LakeTable, query: SinkQuery, sink: TableSink) -> BatchWriter:
    """Writes batches to a table."""

    def write(batch: DataFrame, number: int) -> None:
        marks = query.marks(number)
        if table.has_batch(marks):
            return
        rows = latest_rows(batch, sink.upsert) if sink.upsert else batch

        def prepare(columns: pa.Schema) -> FilesJob:
            target = table.prepare(columns, sink.partition_by)
            return FilesJob(
                table.storage,
                target,
                tuple(sink.partition_by),
                f"part-{marks[MARK_WRITER]}-{int(marks[MARK_BATCH]):08}",
                table.keeps_partition,
                tuple(sink.upsert.key) if sink.upsert else (),
            )

        with _SinkErrors(query.sink):
            if sink.step is None:
                written = write_files(rows, prepare(arrow_schema(batch)))
            else:
                known = table.schema() if table.is_there else None
                written = write_by_step(rows, sink.step, known, prepare)
                assert written.job.step is not None
                sink.step.settle(batch, number, written.job.step, written.notes)
        if sink.upsert is not None:
            if written.keys is not None:
                _commit_upsert(table, batch.sparkSession, written, marks)
        elif written.files or sink.is_complete:
            added = written.files
            _commit(table, lambda: TableChange(added, replaces_all=sink.is_complete), marks)
        if sink.step is not None:
            sink.step.committed(written.notes)

    return write


def write_by_step(
    rows: DataFrame,
    steps: BatchStep,
    known: pa.Schema | None,
    prepare: Callable[[pa.Schema], FilesJob],
) -> WrittenRows:
    """Write the rows that a step makes, with all columns that it finds.

    `prepare` makes a table ready for some columns. The files of an attempt that has found more are
    removed.
    """
    step = steps.begin(known)
    if step.is_blind:
        notes = [row["note"] for row in map_in_arrow(rows, _LearnJob(step), _NOTES).collect()]
        seeing = steps.again(step, notes)
        assert seeing is not None
        step = seeing
    for attempt in range(ATTEMPTS_MAX):
        job = replace(prepare(step.schema), step=step)
        written = write_files(rows, job)
        more = steps.again(step, written.notes)
        if more is None:
            return written
        remove_files(job.storage, written.files)
        step = more
        logger.info("a batch is written again with more columns (attempt %d)", attempt + 2)
    raise PipelineError(
        f"the columns of a batch were not found in {ATTEMPTS_MAX} attempts; declare a schema"
    )


def write_files(rows: DataFrame, job: FilesJob) -> WrittenRows:
    """The files that the executors have written, and the keys of an upsert; all else stays with
    them.
    """
    found = map_in_arrow(rows, job, _FILES).collect()
    added = [
        file for row in found for file in msgspec.json.decode(row["files"], type=list[WrittenFile])
    ]
    parts = [pa.ipc.open_stream(bytes(row["keys"])).read_all() for row in found if row["keys"]]
    keys = pa.concat_tables(parts) if parts else None
    return WrittenRows(added, keys, job, [row["note"] for row in found if row["note"]])


def _commit_upsert(
    table: LakeTable, spark: SparkSession, written: WrittenRows, marks: Mapping[str, str]
) -> None:
    """Commit the rows of a batch instead of those that have their keys."""
    added, keys, job = written.files, written.keys, replace(written.job, step=None)
    assert keys is not None
    broadcast = spark.sparkContext.broadcast(keys)
    work = _RewriteJob(job, broadcast)
    bounds = KeyBounds(keys)

    def change() -> TableChange:
        files = table.files(job.keys)
        candidates = {file.path: file for file in files if bounds.may_hold(file)}
        texts = [
            msgspec.json.encode(msgspec.structs.replace(file, bounds={})).decode()
            for file in candidates.values()
        ]
        rows = map_in_arrow(spread(spark, texts), work, _CHANGES).collect() if texts else []
        rewritten = [msgspec.json.decode(row["change"], type=_RewrittenFile) for row in rows]
        others = [file for one in rewritten for file in one.added]
        return TableChange(
            [*added, *others],
            [candidates[one.path] for one in rewritten],
            planned_with=frozenset(file.path for file in files),
        )

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


class _SinkErrors:
    """Errors inside name the sink that they are about."""

    def __init__(self, sink: str) -> None:
        self._sink = sink

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PipelineError):
            raise PipelineError(f"{self._sink}: {error}") from None
