"""Makes a lake from the rows of a query: Parquet files, a Delta table or an Iceberg table.

Owns when it is there. Files and Delta tables are made in a hidden folder beside their place,
synced, and moved; a folder that is replaced changes places with the new one in one step. An Iceberg
table gets all rows in one commit, and a new one that did not get them is removed again.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.pipelines.definition.model import Iceberg
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.lakes import (
    MARK_BATCH,
    MARK_OFFSETS,
    MARK_SINK,
    MARK_UNTIL,
    MARK_WRITER,
    SinkQuery,
)
from tradewind.pipelines.sessions.spark_errors import short_reason
from tradewind.platform_calls import exchange_folders
from tradewind.private_files import sync_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tradewind.pipelines.sql.write_plans import CreatePlan

# Says which statement has made a folder; readers pass over names that begin with _.
NOTE_FILE: Final = "_tradewind_statement.json"
_NO_FOLDER: Final = Path()


class LakeNote(msgspec.Struct, frozen=True):
    """The statement that has made a lake, and how many rows that had."""

    statement: str
    rows: int


@dataclass(frozen=True, slots=True)
class StatementQuery(SinkQuery):
    """A statement as the writers of tables know queries: it has one batch."""

    statement: str = ""

    def marks(self, number: int) -> dict[str, str]:
        """See `SinkQuery`."""
        return {
            MARK_SINK: self.sink,
            MARK_WRITER: self.statement,
            MARK_BATCH: str(number),
            MARK_OFFSETS: self.statement,
            MARK_UNTIL: "{}",
        }


def create_lake(plan: CreatePlan, frame: DataFrame, folder: str, statement: str) -> tuple[str, int]:
    """Make the lake; its place, and how many rows it has."""
    for column in plan.partition_by:
        if column not in frame.columns:
            raise PipelineError(f"partitioned by {column}: the query has no such column")
    if plan.format == "iceberg":
        return _create_iceberg(plan, frame, folder, statement)
    place = _place(plan, folder)
    if os.path.lexists(place) and not plan.may_replace:
        note = _note_of(place)
        if note is not None and note.statement == statement:
            return str(place), note.rows  # sent again, after the answer was lost
        if plan.may_exist:
            return str(place), 0
        raise PipelineError(
            f"{place} exists already; `create or replace table` replaces it as a whole"
        )
    if plan.may_replace and os.path.lexists(place):
        _check_replaced(place)
    staging = place.with_name(f".{place.name}.{statement}.new")
    try:
        staging.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(staging, ignore_errors=True)
        rows = _write(plan, frame, staging, statement)
        (staging / NOTE_FILE).write_bytes(msgspec.json.encode(LakeNote(statement, rows)))
        _sync_tree(staging)
        _move(staging, place, may_replace=plan.may_replace)
    except OSError as error:
        raise PipelineError(
            f"{place} was not made: {error.strerror or error}; nothing was changed"
        ) from None
    except PipelineError:
        raise
    except Exception as error:  # of Spark, and of Java below it
        raise PipelineError(
            f"{place} was not made: {short_reason(error)}; nothing was changed"
        ) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return str(place), rows


def _place(plan: CreatePlan, folder: str) -> Path:
    text = plan.location or plan.name
    if "://" in text:
        raise PipelineError(
            f"location {text}: a {plan.format} table is made in a folder of this machine"
        )
    if not plan.location and "." in plan.name:
        raise PipelineError(f"create table {plan.name}: a name without dots, or a location")
    return Path(folder or ".").absolute() / Path(text.removeprefix("file:")).expanduser()


def _note_of(place: Path) -> LakeNote | None:
    try:
        return msgspec.json.decode((place / NOTE_FILE).read_bytes(), type=LakeNote)
    except (OSError, msgspec.DecodeError):
        return None


def _check_replaced(place: Path) -> None:
    """PipelineError if the place is not a lake, so that a misspelt folder is not lost."""
    is_lake = (
        place.is_dir()
        and not place.is_symlink()
        and ((place / "_delta_log").is_dir() or (place / NOTE_FILE).is_file())
    )
    if not is_lake:
        raise PipelineError(
            f"{place} is not replaced: it is neither a Delta table nor was it made by create table"
        )


def _write(plan: CreatePlan, frame: DataFrame, staging: Path, statement: str) -> int:
    """Write all files of a new lake into a folder; how many rows they have."""
    if plan.format == "parquet":
        from pyarrow import parquet

        writer = frame.write.partitionBy(*plan.partition_by) if plan.partition_by else frame.write
        writer.parquet(str(staging))
        return sum(parquet.read_metadata(file).num_rows for file in staging.rglob("part-*.parquet"))
    from tradewind.pipelines.lake.delta_tables import DeltaLake

    return _write_table(plan, frame, DeltaLake(str(staging)), statement)


def _write_table(plan: CreatePlan, frame: DataFrame, table: Any, statement: str) -> int:
    from tradewind.pipelines.lake.lake_tables import TableSink, table_writer

    query = StatementQuery(plan.name, _NO_FOLDER, statement=statement)
    table_writer(table, query, TableSink(plan.partition_by, plan.may_replace))(frame, 0)
    return sum(file.rows for file in table.files())


def _create_iceberg(
    plan: CreatePlan, frame: DataFrame, folder: str, statement: str
) -> tuple[str, int]:
    from tradewind.pipelines.lake.iceberg_tables import IcebergLake
    from tradewind.pipelines.lake.lakes import open_catalog

    if not plan.location:
        raise PipelineError("create table using iceberg: location 'WAREHOUSE' names its warehouse")
    if "." not in plan.name:
        raise PipelineError(f"create table {plan.name} using iceberg: a name such as sales.orders")
    if "://" in plan.location:
        raise PipelineError(f"location {plan.location}: a warehouse is a folder of this machine")
    warehouse = str(Path(folder or ".").absolute() / Path(plan.location).expanduser())
    target = Iceberg(plan.name, warehouse)
    table = IcebergLake(target, warehouse)
    place = f"iceberg:{warehouse}#{plan.name}"
    marks = StatementQuery(plan.name, _NO_FOLDER, statement=statement).marks(0)
    was_there = table.is_there
    if was_there and not plan.may_replace:
        if table.has_batch(marks):
            return place, sum(file.rows for file in table.files())
        if plan.may_exist:
            return place, 0
        raise PipelineError(
            f"{plan.name} exists already in {warehouse}; `create or replace table` replaces its"
            " rows"
        )
    try:
        return place, _write_table(plan, frame, table, statement)
    except Exception as error:  # of Spark, and of Java below it
        if not was_there and table.is_there and not table.has_batch(marks):
            open_catalog(target, warehouse).drop_table(plan.name)
        raise PipelineError(
            f"{plan.name} was not made: {short_reason(error)}; nothing was changed"
        ) from None


# -------------------------------------------------------------------------- folders


def _sync_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in (*names, ""):
            sync_path(Path(parent, name))


def _move(staging: Path, place: Path, *, may_replace: bool) -> None:
    """Put a folder in its place; what was there is where the folder was then."""
    if may_replace and os.path.lexists(place):
        _exchange(staging, place)
    else:
        staging.rename(place)
    sync_path(place.parent)


def _exchange(one: Path, other: Path) -> None:
    """Have two folders change places in one step, which Linux can on most file systems."""
    try:
        exchange_folders(one, other)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
            raise PipelineError(
                f"{other} is not replaced: its file system cannot exchange two folders; remove it"
                " first, or choose another location"
            ) from None
        raise
