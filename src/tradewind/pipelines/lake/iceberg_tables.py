"""Iceberg tables, without a jar.

Owns reading and writing a table of a catalog with the library pyiceberg. A table is created or
extended by columns in a separate commit. Then the files of a batch are added in one commit. The
marks of the batch are in the summary of its snapshot; those of the latest batch of each query are
also in the properties of the table, because snapshots expire.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tradewind.pipelines.definition.model import Iceberg
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.lake_files import (
    LakeFile,
    WrittenFile,
    field_text,
    local_path,
    sync_file,
)
from tradewind.pipelines.lake.lake_partitions import PartitionField, partition_fields
from tradewind.pipelines.lake.lake_schemas import merged_schema, plain_schema, stored_schema
from tradewind.pipelines.lake.lake_tables import ConflictError, TableChange
from tradewind.pipelines.lake.lakes import (
    COMPACTED,
    LATEST,
    MARK_WRITER,
    is_written,
    library,
    open_catalog,
)

logger = logging.getLogger(__name__)
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

    def remove(self, path: str) -> None:
        """See `Storage`."""
        self.io.delete(self._path(path))


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
        """The name in messages."""
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
        wanted = partition_fields(partition_by)
        for one in wanted:
            one.check(rows)
        if table is None:
            table = self._create(rows, wanted)
        fields = _fields_of(table)
        if wanted != fields:
            parts, said = ([one.notation for one in some] for some in (fields, wanted))
            raise PipelineError(
                f"{self._target.table} is partitioned by {parts or 'nothing'}, and partition_by"
                f" says {said or 'nothing'}: a table keeps its partitions"
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

    def partition_by(self) -> list[str]:
        """See `LakeTable`."""
        return [one.notation for one in _fields_of(self._loaded())]

    def _create(self, rows: pa.Schema, fields: Sequence[PartitionField]) -> Any:
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
                for one in fields:
                    transform = f"bucket[{one.buckets}]" if one.buckets else one.transform
                    update.add_field(one.column, transform, one.name)
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
        # For a query that has not written here yet, or one of a version that knew no such property.
        return is_written(marks, commits_of(table))

    def files(self, columns: Sequence[str] = ()) -> list[LakeFile]:
        """See `LakeTable`."""
        table = self._loaded()
        return [lake_file(table, task, columns) for task in planned(table)]

    def pinned(self, columns: Sequence[str] = ()) -> tuple[Any, list[LakeFile]] | None:
        """The library's table as it is now, which later commits do not change, and its files.

        None if it is not there.
        """
        table = self.load()
        if table is None:
            return None
        return table, [lake_file(table, task, columns) for task in planned(table)]

    def commit(self, change: TableChange, marks: Mapping[str, str]) -> None:
        """See `LakeTable`."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        table = self._loaded()
        old: list[Any] = []
        if not change.is_append:
            present = {task.file.file_path: task.file for task in planned(table)}
            change.check(present)
            gone = list(present) if change.replaces_all else [file.path for file in change.removed]
            old = [present[path] for path in gone]
            _commit_once(table)
        try:
            with table.transaction() as transaction:
                if change.keeps_rows:
                    transaction.set_properties({COMPACTED: str(time.time_ns() // 1_000_000)})
                if marks:
                    latest = msgspec.json.encode(dict(marks)).decode()
                    transaction.set_properties({LATEST + marks[MARK_WRITER]: latest})
                _name_columns(transaction)
                snapshot = transaction.update_snapshot(snapshot_properties=dict(marks))
                with snapshot.overwrite() if old else _append_of(snapshot, table) as files:
                    for one in old:
                        files.delete_data_file(one)
                    for one in _data_files(table, transaction.table_metadata, change.added):
                        files.append_data_file(one)
        except (CommitFailedException, ValidationException) as error:
            raise ConflictError(str(error).splitlines()[0]) from None


def _ensure_namespace(catalog: Any, namespace: str) -> None:
    try:
        catalog.create_namespace_if_not_exists(namespace)
    except Exception:
        # Another writer may have been first; each kind of catalog has its own error for that.
        if not catalog.namespace_exists(namespace):
            raise


def _commit_once(table: Any) -> None:
    """Have a commit fail where another was first, instead of being put on top of that.

    The setting is only that of the object: what is committed are changes, not the whole.
    """
    from pyiceberg.table import TableProperties

    settings = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": settings})


def _name_columns(transaction: Any) -> None:
    """Have the columns of files without ids known by their names, as `add_files` does."""
    from pyiceberg.table import TableProperties

    metadata = transaction.table_metadata
    if metadata.name_mapping() is None:
        mapping = metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def commits_of(table: Any) -> list[dict[str, str]]:
    """The properties of the snapshots of a table, the latest first."""
    summaries = (snapshot.summary for snapshot in reversed(table.snapshots()))
    return [one.additional_properties for one in summaries if one is not None]


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
    if one.spec_id != table.spec().spec_id:
        raise PipelineError(
            f"{'.'.join(table.name())} has files of an older partition spec; have the writer that"
            " changed it rewrite its data files first"
        )
    partition = {
        part.name: field_text(part, one.partition[index])
        for index, part in enumerate(_fields_of(table))
    }
    return LakeFile(one.file_path, one.file_size_in_bytes, one.record_count, partition, bounds)


def _fields_of(table: Any) -> list[PartitionField]:
    """How a table is partitioned; PipelineError if it is by a transform that is not known here."""
    schema = table.schema()
    found = []
    for part in table.spec().fields:
        column = schema.find_column_name(part.source_id)
        text = str(part.transform)
        if text.startswith("bucket["):
            found.append(PartitionField(column, "bucket", int(text[7:-1])))
        elif text in ("identity", "month", "day", "hour"):
            found.append(PartitionField(column, text))  # type: ignore[arg-type]  # one of these
        else:
            raise PipelineError(
                f"{'.'.join(table.name())} is partitioned by {text} of {column}; tables are written"
                " here that are partitioned by columns, month, day, hour or bucket"
            )
    return found


def _append_of(snapshot: Any, table: Any) -> Any:
    """An append, which joins small manifests if the table asks for that."""
    from pyiceberg.table import TableProperties

    setting = table.properties.get(TableProperties.MANIFEST_MERGE_ENABLED, "false")
    return snapshot.merge_append() if setting.lower() == "true" else snapshot.fast_append()


def _data_files(table: Any, metadata: Any, files: Sequence[WrittenFile]) -> Iterator[Any]:
    """New files as a commit has them, with the partition that each was written for.

    A partition that keeps an order is taken from the bounds of the file, where an empty text is not
    null; a bucket cannot be.
    """
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.typedef import Record
    from pyiceberg.utils.concurrent import ExecutorFactory

    schema, spec = metadata.schema(), metadata.spec()
    plan = compute_statistics_plan(schema, metadata.properties)
    mapping = parquet_path_to_id_mapping(schema)

    def made(file: WrittenFile) -> Any:
        path = f"{table.location()}/{DATA_FOLDER}/{file.path}"
        with table.io.new_input(path).open() as stream:
            parquet = pq.read_metadata(stream)
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=parquet, stats_columns=plan, parquet_column_mapping=mapping
        )
        values = []
        # By their order: another writer may have called them otherwise.
        for part, text in zip(spec.fields, file.partition.values(), strict=True):
            if part.transform.preserves_order:
                values.append(statistics.partition(PartitionSpec(part), schema)[0])
            else:
                values.append(None if text is None else int(text))
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(*values),
            file_size_in_bytes=file.size_bytes,
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    return iter(ExecutorFactory.get_or_create().map(made, files))


def _schema_of(table: Any) -> pa.Schema:
    """Columns without the ids of Iceberg: our files are known by the names of their columns."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))
