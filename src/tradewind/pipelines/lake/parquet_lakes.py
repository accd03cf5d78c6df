"""Writes folders of Parquet files that every reader can read, even after a crash.

Owns adding a micro-batch to the folder: its files are written outside of it, listed, synced, and
then moved to names derived from the batch. A batch that is repeated after a crash finds its list
and moves the remaining files, or finds that it is complete. A file in the folder is therefore
always complete, and no row is in two files; a list of valid files, which only Spark would use, is
not needed.

Each attempt writes to its own folder, because the Java process of a killed driver may continue for
a while.

The files of one batch appear one after the other. The folder and the one beside it are on the same
file system, which the executors can access too.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.batch_steps import BatchStep
from tradewind.pipelines.lake.lake_partitions import frame_with_derived, partition_fields
from tradewind.pipelines.lake.lakes import (
    MARK_BATCH,
    MARK_OFFSETS,
    MARK_WRITER,
    BatchWriter,
    SinkQuery,
    is_written,
)
from tradewind.pipelines.machine.places import Place, replace_file
from tradewind.private_files import replace_durably, sync_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

DONE_FILE: Final = "published.json"
LIST_FILE: Final = "list.json"
FILES_PREFIX: Final = "files-"
SPARK_LIST: Final = "_spark_metadata"
COLUMNS_FILE: Final = "columns.json"


class KeptColumns(msgspec.Struct, frozen=True):
    """The columns of a folder, for people and as Arrow writes them."""

    columns: dict[str, str]
    arrow: bytes


class StagedBatch(msgspec.Struct, frozen=True):
    """A batch whose files are all written: where each of them goes, by where it is."""

    marks: dict[str, str]
    moves: list[tuple[str, str]]


@dataclass(frozen=True)
class ParquetLake:
    """A folder of this machine that batches are written to, with what they have left beside it."""

    path: str

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.path

    @property
    def is_there(self) -> bool:
        """Whether the folder is there."""
        if "://" in self.path:
            raise PipelineError(
                f"{self.path} is written by Spark's own sink, which keeps it in order by itself"
            )
        return Path(self.path).is_dir()

    def files(self) -> list[tuple[Path, int, int]]:
        """All files, with their sizes and the times of their writing in milliseconds."""
        found = []
        for path in sorted(Path(self.path).rglob("*.parquet")):
            with suppress(FileNotFoundError):
                state = path.stat()
                found.append((path, state.st_size, state.st_mtime_ns // 1_000_000))
        return found

    def remove_leftovers(self, seconds: float) -> int:
        """Remove what attempts have left that did not come to their list; returns their files.

        A batch with a list is finished by its query, so its files stay however old they are.
        """
        border = time.time() - seconds
        removed = 0
        for folder in _folders(staging_of(Path(self.path).absolute())):
            staged = _listed(folder)
            used = {Path(source).parts[0] for source, _ in staged.moves} if staged else set()
            for attempt in _folders(folder):
                files = [path for path in attempt.rglob("*") if path.is_file()]
                if attempt.name in used or _newest([attempt, *files]) >= border:
                    continue
                shutil.rmtree(attempt, ignore_errors=True)
                removed += len(files)
            if staged is None and not any(folder.iterdir()) and _newest([folder]) < border:
                folder.rmdir()
        return removed


def staging_of(lake: Path) -> Path:
    """Where the files of a batch are before they are moved to the folder."""
    return lake.with_name(f".{lake.name}.staging")


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []


def _newest(paths: Sequence[Path]) -> float:
    """The latest time of change of the paths; now if one is gone, as a writer is then at work."""
    try:
        return max(path.stat().st_mtime for path in paths)
    except FileNotFoundError:
        return time.time()


def parquet_writer(
    path: str, query: SinkQuery, partition_by: Sequence[str], step: BatchStep | None = None
) -> BatchWriter:
    """Writes batches to a folder of this machine, or one that is mounted.

    With a step, the rows are those that it makes. A folder has no columns of its own: those that
    were found are kept beside the checkpoint.
    """
    lake = Path(path).absolute()
    if (lake / SPARK_LIST).exists():
        raise PipelineError(
            f"{lake} was written by Spark's own sink: readers would not see what is not in its"
            f" {SPARK_LIST}; choose another folder"
        )
    staging = staging_of(lake)
    partition_fields(partition_by)
    done_file = query.notes / DONE_FILE

    def write(batch: DataFrame, number: int) -> None:
        marks = query.marks(number)
        if done_file.exists():
            done = msgspec.json.decode(done_file.read_bytes(), type=dict[str, str])
            if is_written(marks, [done]):
                return
        folder = staging / f"{marks[MARK_WRITER]}-{number}"
        staged = _listed(folder)
        notes: Sequence[str] = ()  # an earlier attempt has not left any
        if staged is None:
            shutil.rmtree(folder, ignore_errors=True)
            files = folder / f"{FILES_PREFIX}{token_hex(8)}"
            if step is not None:
                notes = _write_by_step(batch, number, step, query, files, partition_by)
            else:
                rows, names = frame_with_derived(batch, partition_by, "folders of Parquet files")
                writer = rows.write.partitionBy(*names) if names else rows.write
                writer.parquet(str(files))
            staged = _list(folder, files, marks)
        elif staged.marks[MARK_OFFSETS] != marks[MARK_OFFSETS]:
            raise PipelineError(
                f"{folder} has another batch {number}: the checkpoint is older than the lake; begin"
                " with a new checkpoint, and remove the rows that it reads again"
            )
        _publish(folder, staged, lake)
        _note_done(done_file, msgspec.json.encode(marks))
        shutil.rmtree(folder)
        if step is not None:
            step.committed(notes)

    return write


def _write_by_step(
    batch: DataFrame,
    number: int,
    steps: BatchStep,
    query: SinkQuery,
    files: Path,
    partition_by: Sequence[str],
) -> Sequence[str]:
    """Write the rows of a step to a folder of their own, and keep their columns."""
    from tradewind.pipelines.lake.lake_files import ArrowStorage
    from tradewind.pipelines.lake.lake_schemas import merged_schema, stored_schema
    from tradewind.pipelines.lake.lake_tables import FilesJob, write_by_step

    known = read_columns(query.checkpoint)

    def prepare(columns: pa.Schema) -> FilesJob:
        target = stored_schema(columns) if known is None else merged_schema(known, columns)
        for entry in partition_fields(partition_by):
            entry.check(target)
        if target != known:
            keep_columns(query.checkpoint, target)
        return FilesJob(ArrowStorage(str(files)), target, tuple(partition_by), "part", False)

    files.mkdir(parents=True)
    written = write_by_step(batch, steps, known, prepare)
    assert written.job.step is not None
    steps.settle(batch, number, written.job.step, written.notes)
    return written.notes


def read_columns(checkpoint: Place) -> pa.Schema | None:
    """The columns of a folder that a step writes; None if it has none yet."""
    import pyarrow as pa

    try:
        data = (checkpoint / COLUMNS_FILE).read_bytes()
    except FileNotFoundError:
        return None
    kept = msgspec.json.decode(data, type=KeptColumns)
    return pa.ipc.read_schema(pa.BufferReader(kept.arrow))


def keep_columns(checkpoint: Place, columns: pa.Schema) -> None:
    """Keep the columns of a folder, with their types in words for people."""
    from tradewind.pipelines.lake.lake_schemas import type_text

    texts = {field.name: type_text(field.type) for field in columns}
    data = msgspec.json.encode(KeptColumns(texts, columns.serialize().to_pybytes()))
    _note_done(checkpoint / COLUMNS_FILE, msgspec.json.format(data))


def _listed(folder: Path) -> StagedBatch | None:
    """The batch that an earlier attempt has written completely; None if there is none."""
    try:
        return msgspec.json.decode((folder / LIST_FILE).read_bytes(), type=StagedBatch)
    except FileNotFoundError:
        return None


def _list(folder: Path, base: Path, marks: dict[str, str]) -> StagedBatch:
    """Sync the files of a batch and list them; those without rows are left where they are."""
    from pyarrow import parquet

    moves = []
    for index, file in enumerate(sorted(base.rglob("part-*.parquet"))):
        if parquet.read_metadata(file).num_rows == 0:
            continue
        sync_path(file)
        name = f"part-{marks[MARK_WRITER]}-{int(marks[MARK_BATCH]):08}-{index:05}.parquet"
        target = file.relative_to(base).with_name(name)
        moves.append((str(file.relative_to(folder)), str(target)))
    staged = StagedBatch(marks, moves)
    replace_durably(folder / LIST_FILE, msgspec.json.encode(staged))
    # Without the list, a batch that is repeated could leave other files beside those moved before.
    for one in (folder.parent, folder.parent.parent):
        sync_path(one)
    return staged


def _publish(folder: Path, staged: StagedBatch, lake: Path) -> None:
    """Move the files of a batch that are not in the lake yet, with all folders that are new."""
    folders = {lake.parent, lake}
    for source, target in staged.moves:
        final = lake / target
        final.parent.mkdir(parents=True, exist_ok=True)
        folders.update(parent for parent in final.parents if lake in parent.parents)
        try:
            (folder / source).rename(final)
        except FileNotFoundError:
            if not final.exists():
                raise PipelineError(f"{folder}: {source} of an unfinished batch is gone") from None
    for one in folders:
        if one.exists():
            sync_path(one)


def _note_done(file: Place, data: bytes) -> None:
    if isinstance(file, Path):
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(file, data)
    else:
        replace_file(file, data)
