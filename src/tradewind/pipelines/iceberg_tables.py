"""Iceberg tables, without a jar.

Owns reading and writing a table of a catalog with the library pyiceberg. A table is created or
extended by columns in a separate commit. Then the files of a batch are added in one commit. The
marks of the batch are in the summary of its snapshot; those of the latest batch of each query are
also in the properties of the table, because snapshots expire.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pyarrow as pa

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake_files import LakeFile, local_path, partition_text, sync_file
from tradewind.pipelines.lake_schemas import merged_schema, plain_schema, stored_schema
from tradewind.pipelines.lake_tables import ConflictError, TableChange
from tradewind.pipelines.lakes import MARK_WRITER, is_written, library, open_catalog
from tradewind.pipelines.model import Iceberg

logger = logging.getLogger(__name__)
LATEST: Final = "tradewind.latest."
DATA_FOLDER: Final = "data"


@dataclass(frozen=True)
class IcebergStorage:
    """The data folder of a table, by the file access of pyiceberg."""

    io: Any = field(repr=False)  # it may hold a secret
    folder: str

    def _path(self, path: str) -> str:
        return path if "://" in path or path.startswith("/") else f"{self.folder}/{path}"

    def writer(self, path: str) -> Any:
        """See `Storage`."""
        return self.io.new_output(self._path(path)).create()

    def reader(self, path: str) -> Any:
        """See `Storage`."""
        return self.io.new_input(self._path(path)).open()

    def sync(self, path: str) -> None:
        """See `Storage`."""
        if local := local_path(self._path(path)):
            sync_file(local)

    def size_bytes(self, path: str) -> int:
        """See `Storage`."""
        return len(self.io.new_input(self._path(path)))


class IcebergLake:
    """A table by its name in a catalog."""

    keeps_partition = True

    def __init__(self, target: Iceberg, warehouse: str) -> None:
        library("pyiceberg", "iceberg")
        self._target = target
        self._warehouse = warehouse

    def load(self) -> Any:
        """The table as it is now; None if it is not there."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        catalog = open_catalog(self._target, self._warehouse)
        try:
            return catalog.load_table(self._target.table)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _loaded(self) -> Any:
        table = self.load()
        if table is None:
            raise PipelineError(f"table {self._target.table} does not exist in its catalog")
        return table

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._target.table

    @property
    def storage(self) -> IcebergStorage:
        """See `LakeTable`."""
        table = self._loaded()
        return IcebergStorage(table.io, f"{table.location()}/{DATA_FOLDER}")

    @property
    def is_there(self) -> bool:
        """Whether the catalog has the table."""
        return self.load() is not None

    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return _schema_of(self._loaded())

    def prepare(self, rows: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
        """See `LakeTable`."""
        from pyiceberg.exceptions import CommitFailedException

        table = self.load()
        if table is None:
            table = self._create(rows, partition_by)
        parts = _partition_columns(table)
        if list(partition_by) != parts:
            raise PipelineError(
                f"{self._target.table} is partitioned by {parts or 'nothing'}, and partition_by"
                f" says {list(partition_by) or 'nothing'}: a table keeps its partitions"
            )
        present = _schema_of(table)
        merged = merged_schema(present, rows)
        if merged != present:
            try:
                with table.update_schema() as update:
                    update.union_by_name(merged)
            except CommitFailedException:
                # Another writer was first; what it has left is compared again.
                return self.prepare(rows, partition_by)
        return merged

    def _create(self, rows: pa.Schema, partition_by: Sequence[str]) -> Any:
        """Make the table with its partitions at once: one without would have to stay without."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        catalog = open_catalog(self._target, self._warehouse)
        _ensure_namespace(catalog, self._target.table.rpartition(".")[0])
        try:
            with (
                catalog.create_table_transaction(
                    self._target.table, schema=stored_schema(rows)
                ) as transaction,
                transaction.update_spec() as update,
            ):
                for column in partition_by:
                    update.add_identity(column)
        except (CommitFailedException, TableAlreadyExistsError):
            logger.info("%s was created by another writer in the meantime", self._target.table)
        return self._loaded()

    def has_batch(self, marks: Mapping[str, str]) -> bool:
        """See `LakeTable`."""
        table = self.load()
        if table is None:
            return False
        latest = table.properties.get(LATEST + marks[MARK_WRITER])
        if latest is not None:
            return is_written(marks, [msgspec.json.decode(latest, type=dict[str, str])])
        # Of a query that has not written here yet, or by a version that knew no such property.
        summaries = (snapshot.summary for snapshot in reversed(table.snapshots()))
        commits = [one.additional_properties for one in summaries if one is not None]
        return is_written(marks, commits)

    def files(self, columns: Sequence[str] = ()) -> list[LakeFile]:
        """See `LakeTable`."""
        table = self._loaded()
        return [lake_file(table, task, columns) for task in planned(table)]

    def commit(self, change: TableChange, marks: Mapping[str, str]) -> None:
        """See `LakeTable`."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        table = self._loaded()
        folder = f"{table.location()}/{DATA_FOLDER}"
        paths = [f"{folder}/{file.path}" for file in change.added]
        gone = {file.path for file in change.removed}
        old = [task.file for task in planned(table) if task.file.file_path in gone] if gone else []
        if len(old) != len(gone):
            raise ConflictError("a file that is replaced is no longer in the table")
        if change.replaces_all:
            old = [task.file for task in planned(table)]
        try:
            with table.transaction() as transaction:
                if marks:
                    latest = msgspec.json.encode(dict(marks)).decode()
                    transaction.set_properties({LATEST + marks[MARK_WRITER]: latest})
                if not old:
                    # The names of these files are ours alone, so none can be in the table already.
                    transaction.add_files(
                        paths, snapshot_properties=dict(marks), check_duplicate_files=False
                    )
                else:
                    _name_columns(transaction)
                    snapshot = transaction.update_snapshot(snapshot_properties=dict(marks))
                    with snapshot.overwrite() as overwrite:
                        for one in old:
                            overwrite.delete_data_file(one)
                        for one in parquet_files_to_data_files(
                            table.io, transaction.table_metadata, iter(paths)
                        ):
                            overwrite.append_data_file(one)
        except (CommitFailedException, ValidationException) as error:
            raise ConflictError(str(error).splitlines()[0]) from None


def _ensure_namespace(catalog: Any, namespace: str) -> None:
    try:
        catalog.create_namespace_if_not_exists(namespace)
    except Exception:
        # Another writer may have been first; each kind of catalog has its own error for that.
        if not catalog.namespace_exists(namespace):
            raise


def _name_columns(transaction: Any) -> None:
    """Have the columns of files without ids known by their names, as `add_files` does."""
    from pyiceberg.table import TableProperties

    metadata = transaction.table_metadata
    if metadata.name_mapping() is None:
        mapping = metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def planned(table: Any) -> list[Any]:
    """All files of the latest snapshot; PipelineError if some of their rows are deleted apart."""
    tasks = list(table.scan().plan_files())
    if any(task.delete_files for task in tasks):
        raise PipelineError(
            f"{'.'.join(table.name())} has files of deleted rows, made by another writer; have that"
            " one rewrite its data files first"
        )
    return tasks


def lake_file(table: Any, task: Any, columns: Sequence[str] = ()) -> LakeFile:
    """A file of a scan."""
    from pyiceberg.conversions import from_bytes

    schema = table.schema()
    one = task.file
    bounds: dict[str, tuple[Any, Any]] = {}
    for name in columns:
        known = schema.find_field(name)
        low = (one.lower_bounds or {}).get(known.field_id)
        high = (one.upper_bounds or {}).get(known.field_id)
        if low is not None and high is not None:
            kind = known.field_type
            bounds[name] = (from_bytes(kind, low), from_bytes(kind, high))
    names = _partition_columns(table)
    values = [one.partition[index] for index in range(len(names))]
    partition = {name: partition_text(value) for name, value in zip(names, values, strict=True)}
    return LakeFile(one.file_path, one.file_size_in_bytes, one.record_count, partition, bounds)


def _partition_columns(table: Any) -> list[str]:
    """The columns that a table is partitioned by; PipelineError if it is not by their values."""
    schema = table.schema()
    columns = []
    for part in table.spec().fields:
        name = schema.find_column_name(part.source_id)
        if str(part.transform) != "identity":
            raise PipelineError(
                f"{'.'.join(table.name())} is partitioned by {part.transform} of {name}; tables are"
                " written here that are partitioned by columns as they are"
            )
        columns.append(name)
    return columns


def _schema_of(table: Any) -> pa.Schema:
    """Columns without the ids of Iceberg: our files are known by the names of their columns."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))
