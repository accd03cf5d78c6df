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

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lakes import (
    MARK_BATCH,
    MARK_OFFSETS,
    MARK_WRITER,
    BatchWriter,
    SinkQuery,
    is_written,
)
from tradewind.pipelines.places import Place, replace_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DONE_FILE: Final = "published.json"
LIST_FILE: Final = "list.json"
FILES_PREFIX: Final = "files-"
SPARK_LIST: Final = "_spark_metadata"


class Staged(msgspec.Struct, frozen=True):
    """A batch whose files are all written: where each of them goes, by where it is."""

    marks: dict[str, str]
    moves: list[tuple[str, str]]


def parquet_writer(path: str, query: SinkQuery, partition_by: Sequence[str]) -> BatchWriter:
    """Writes batches to a folder of this machine, or one that is mounted."""
    lake = Path(path).absolute()
    if (lake / SPARK_LIST).exists():
        raise PipelineError(
            f"{lake} was written by Spark's own sink: readers would not see what is not in its"
            f" {SPARK_LIST}; choose another folder"
        )
    staging = lake.with_name(f".{lake.name}.staging")
    done_file = query.checkpoint / DONE_FILE

    def write(batch: DataFrame, number: int) -> None:
        marks = query.marks(number)
        if done_file.exists():
            done = msgspec.json.decode(done_file.read_bytes(), type=dict[str, str])
            if is_written(marks, [done]):
                return
        folder = staging / f"{marks[MARK_WRITER]}-{number}"
        staged = _listed(folder)
        if staged is None:
            shutil.rmtree(folder, ignore_errors=True)
            writer = batch.write.partitionBy(*partition_by) if partition_by else batch.write
            files = folder / f"{FILES_PREFIX}{token_hex(8)}"
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

    return write


def _listed(folder: Path) -> Staged | None:
    """What an earlier attempt has written completely; None if there is none."""
    try:
        return msgspec.json.decode((folder / LIST_FILE).read_bytes(), type=Staged)
    except FileNotFoundError:
        return None


def _list(folder: Path, base: Path, marks: dict[str, str]) -> Staged:
    """Sync the files of a batch and list them; those without rows are left where they are."""
    from pyarrow import parquet

    moves = []
    for index, file in enumerate(sorted(base.rglob("part-*.parquet"))):
        if parquet.read_metadata(file).num_rows == 0:
            continue
        _sync(file)
        name = f"part-{marks[MARK_WRITER]}-{int(marks[MARK_BATCH]):08}-{index:05}.parquet"
        target = file.relative_to(base).with_name(name)
        moves.append((str(file.relative_to(folder)), str(target)))
    staged = Staged(marks, moves)
    _replace(folder / LIST_FILE, msgspec.json.encode(staged))
    return staged


def _publish(folder: Path, staged: Staged, lake: Path) -> None:
    """Move the files of a batch that are not in the lake yet."""
    folders = {lake}
    for source, target in staged.moves:
        final = lake / target
        final.parent.mkdir(parents=True, exist_ok=True)
        folders.add(final.parent)
        try:
            (folder / source).rename(final)
        except FileNotFoundError:
            if not final.exists():
                raise PipelineError(f"{folder}: {source} of an unfinished batch is gone") from None
    for one in folders:
        if one.exists():
            _sync(one)


def _note_done(file: Place, data: bytes) -> None:
    if isinstance(file, Path):
        _replace(file, data)
    else:
        replace_file(file, data)


def _replace(path: Path, data: bytes) -> None:
    """Replace a file; after a crash it is the old one or the new one."""
    aside = path.with_name(f"{path.name}.new")
    aside.write_bytes(data)
    _sync(aside)
    aside.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
