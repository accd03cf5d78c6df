"""Tables of Delta and Iceberg, written without a jar.

Owns one commit per micro-batch, with the number of the batch in it: a batch that Spark gives again
after a crash is found to be there and left alone. The rows of a batch pass through the driver, so
`batch` of the source bounds its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.model import Iceberg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK_WRITER: Final = "tradewind.writer"
MARK_BATCH: Final = "tradewind.batch"
BatchWriter = Callable[[Any, int], None]


def delta_writer(path: str, writer: str, partition_by: Sequence[str], mode: str) -> BatchWriter:
    """Writes batches to a Delta table; `writer` names the query that they are of."""
    delta = _library("deltalake", "delta")

    def write(batch: DataFrame, number: int) -> None:
        if delta.DeltaTable.is_deltatable(path):
            done = delta.DeltaTable(path).transaction_version(writer)
            if done is not None and done >= number:
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
                app_transactions=[delta.Transaction(app_id=writer, version=number)]
            ),
        )

    return write


def iceberg_writer(
    target: Iceberg, warehouse: str, writer: str, partition_by: Sequence[str]
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
        if _iceberg_done(table, writer) >= number:
            return
        marks = {MARK_WRITER: writer, MARK_BATCH: str(number)}
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


def _iceberg_done(table: Any, writer: str) -> int:
    """The last batch of a writer that the table has; -1 if there is none."""
    for snapshot in reversed(table.snapshots()):
        summary = snapshot.summary
        if summary is not None and summary.get(MARK_WRITER) == writer:
            return int(summary[MARK_BATCH])
    return -1


def _library(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise PipelineError(
            f"{error.name or name} is not installed, which {extra} tables need;"
            f" pip install 'tradewind[{extra}]'"
        ) from None
