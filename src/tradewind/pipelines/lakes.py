"""Tables of Delta and Iceberg, written without a jar.

Owns one commit per micro-batch, which names the batch: the id of the query, its number, and a hash
of the offsets that Spark has planned for it. A batch that Spark gives again after a crash is found
to be there and left alone. A query with a new checkpoint is another one, and writes all it reads; a
checkpoint that was put back from a copy plans other offsets under old numbers, and is an error. The
rows of a batch pass through the driver, so `batch` of the source bounds its memory.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.model import Iceberg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)
MARK_SINK: Final = "tradewind.sink"
MARK_WRITER: Final = "tradewind.writer"
MARK_BATCH: Final = "tradewind.batch"
MARK_OFFSETS: Final = "tradewind.offsets"
BatchWriter = Callable[[Any, int], None]


@dataclass(frozen=True, slots=True)
class SinkQuery:
    """The query of a sink, by its name in the pipeline and the folder where Spark keeps it."""

    sink: str
    checkpoint: Path

    @property
    def query_id(self) -> str:
        """What Spark calls the query; a new checkpoint gets a new one."""
        found: str = msgspec.json.decode((self.checkpoint / "metadata").read_bytes())["id"]
        return found

    def marks(self, number: int) -> dict[str, str]:
        """What a commit says of its batch."""
        planned = (self.checkpoint / "offsets" / str(number)).read_bytes()
        return {
            MARK_SINK: self.sink,
            MARK_WRITER: self.query_id,
            MARK_BATCH: str(number),
            MARK_OFFSETS: hashlib.sha256(planned).hexdigest()[:32],
        }


def is_written(marks: Mapping[str, str], commits: Sequence[Mapping[str, str]]) -> bool:
    """Whether a batch is in a table that has these commits, the latest first.

    PipelineError if the table is ahead of the checkpoint.
    """
    ours = [commit for commit in commits if commit.get(MARK_WRITER) == marks[MARK_WRITER]]
    number = int(marks[MARK_BATCH])
    if ours and int(ours[0][MARK_BATCH]) >= number:
        if all(ours[0][mark] == marks[mark] for mark in (MARK_BATCH, MARK_OFFSETS)):
            return True
        raise PipelineError(
            f"batch {number} of {marks[MARK_SINK]} is not the batch {ours[0][MARK_BATCH]} that the"
            " table has: the checkpoint is older than the table; begin with a new checkpoint, and"
            " remove the rows that it reads again"
        )
    if not ours and any(commit.get(MARK_SINK) == marks[MARK_SINK] for commit in commits):
        logger.warning(
            "%s wrote to this table with another checkpoint: what is read again is in it twice",
            marks[MARK_SINK],
        )
    return False


def delta_writer(
    path: str, query: SinkQuery, partition_by: Sequence[str], mode: str
) -> BatchWriter:
    """Writes batches to a Delta table."""
    delta = _library("deltalake", "delta")

    def write(batch: DataFrame, number: int) -> None:
        marks = query.marks(number)
        if delta.DeltaTable.is_deltatable(path):
            # The history goes on for ever; the transaction says whether there is anything in it.
            table = delta.DeltaTable(path)
            done = table.transaction_version(marks[MARK_WRITER])
            commits = table.history() if done is None or done >= number else []
            if is_written(marks, commits):
                return
        rows = batch.toArrow()
        if rows.num_rows == 0 and mode == "append":
            return
        delta.write_deltalake(
            path,
            rows,
            mode=mode,
            partition_by=list(partition_by) or None,
            commit_properties=delta.CommitProperties(
                custom_metadata=marks,
                app_transactions=[delta.Transaction(app_id=marks[MARK_WRITER], version=number)],
            ),
        )

    return write


def iceberg_writer(
    target: Iceberg, warehouse: str, query: SinkQuery, partition_by: Sequence[str]
) -> BatchWriter:
    """The same for an Iceberg table. It is partitioned when it is made."""
    _library("pyiceberg", "iceberg")

    def write(batch: DataFrame, number: int) -> None:
        catalog = open_catalog(target, warehouse)
        rows = batch.toArrow()
        if rows.num_rows == 0:
            return
        catalog.create_namespace_if_not_exists(target.table.rpartition(".")[0])
        table = catalog.create_table_if_not_exists(target.table, schema=rows.schema)
        if partition_by and table.spec().is_unpartitioned() and not table.snapshots():
            with table.update_spec() as update:
                for column in partition_by:
                    update.add_identity(column)
        marks = query.marks(number)
        if not is_written(marks, _iceberg_commits(table)):
            table.append(rows, snapshot_properties=marks)

    return write


def open_catalog(target: Iceberg, warehouse: str) -> Any:
    """The catalog that the file names, or the one of SQLite in the warehouse folder."""
    catalogs = _library("pyiceberg.catalog", "iceberg")
    if target.catalog:
        return catalogs.load_catalog("tradewind", **target.catalog)
    folder = Path(warehouse).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return catalogs.load_catalog(
        "tradewind", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
    )


def delta_files(path: str) -> list[str]:
    """The files of the latest version of a Delta table."""
    delta = _library("deltalake", "delta")
    found: list[str] = delta.DeltaTable(path).file_uris()
    return found


def check_libraries(kind: str) -> None:
    """PipelineError if what a sink of this kind needs is not installed."""
    if kind == "delta":
        _library("deltalake", kind)
    elif kind == "iceberg":
        _library("pyiceberg.catalog.sql", kind)


def _iceberg_commits(table: Any) -> list[Mapping[str, str]]:
    """What the snapshots say of their batches, the latest first."""
    summaries = (snapshot.summary for snapshot in reversed(table.snapshots()))
    return [summary.additional_properties for summary in summaries if summary is not None]


def _library(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise PipelineError(
            f"{error.name or name} is not installed, which {extra} tables need;"
            f" pip install 'tradewind[{extra}]'"
        ) from None
