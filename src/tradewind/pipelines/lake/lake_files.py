"""The data files of Delta and Iceberg tables, as executors write and read them.

Owns writing Parquet files: the folder of a partition, a name that no other attempt uses, the
maximum size, and the description for the commit. The module never commits: until then a file is an
orphan that is not read. The module uses Arrow, never Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.lake_partitions import PartitionField, partition_fields
from tradewind.pipelines.lake.lake_schemas import aligned
from tradewind.private_files import sync_path

FILE_BYTES_MAX: Final = 256 << 20
OPEN_FILES_MAX: Final = 64
READ_ROWS: Final = 64 * 1024
TEXT_STATISTIC_MAX: Final = 64
NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
# Characters that Hive and Spark escape in the folder of a partition, and those that end a path
# elsewhere.
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{}[]^ <>|,;&@+~`!$()") | {chr(code) for code in range(32)}
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}


class WrittenFile(msgspec.Struct, frozen=True):
    """A file that is complete; its path is relative to the table's folder."""

    path: str
    size_bytes: int
    rows: int
    partition: dict[str, str | None] = {}
    statistics: str = "{}"


class LakeFile(msgspec.Struct, frozen=True):
    """A file of a table, by the path that its storage opens.

    `bounds` are the smallest and the largest value of some columns, as far as the table says.
    """

    path: str
    size_bytes: int
    rows: int
    partition: dict[str, str | None] = {}
    bounds: dict[str, tuple[Any, Any]] = {}


class Storage(Protocol):
    """Where the files of one table are; it travels to the executors."""

    def writer(self, path: str) -> Any:
        """A file to write, by its path relative to the table; folders are made."""

    def reader(self, path: str) -> Any:
        """A file to read."""

    def sync(self, path: str) -> None:
        """Have a written file on the disk, if it is one of this machine."""

    def size_bytes(self, path: str) -> int:
        """How large a file is."""

    def remove(self, path: str) -> None:
        """Remove a file."""


@dataclass(frozen=True)
class ArrowStorage:
    """A folder of this machine, or of an object store by the file systems of Arrow."""

    folder: str

    def opened(self) -> tuple[pafs.FileSystem, str]:
        """The file system of the folder, and its path there."""
        if "://" not in self.folder:
            return pafs.LocalFileSystem(), self.folder
        parts = urlsplit(self.folder)
        scheme = _SCHEMES.get(parts.scheme, parts.scheme)
        try:
            system, base = pafs.FileSystem.from_uri(f"{scheme}{self.folder[len(parts.scheme) :]}")
        except (pa.ArrowException, OSError, ValueError) as error:
            raise PipelineError(
                f"{self.folder}: not a folder that Arrow can open: {error}"
            ) from None
        return system, base

    def writer(self, path: str) -> Any:
        """See `Storage`."""
        system, base = self.opened()
        whole = f"{base}/{path}"
        if isinstance(system, pafs.LocalFileSystem):
            system.create_dir(str(Path(whole).parent), recursive=True)
        return system.open_output_stream(whole, buffer_size=1 << 20)

    def reader(self, path: str) -> Any:
        """See `Storage`."""
        system, base = self.opened()
        return system.open_input_file(f"{base}/{path}")

    def sync(self, path: str) -> None:
        """See `Storage`."""
        system, base = self.opened()
        if isinstance(system, pafs.LocalFileSystem):
            sync_file(f"{base}/{path}")

    def size_bytes(self, path: str) -> int:
        """See `Storage`."""
        system, base = self.opened()
        return int(system.get_file_info(f"{base}/{path}").size)

    def remove(self, path: str) -> None:
        """See `Storage`."""
        system, base = self.opened()
        system.delete_file(f"{base}/{path}")


def sync_file(path: str) -> None:
    """Have a file and its name in the folder on the disk."""
    sync_path(path)
    sync_path(Path(path).parent)


# -------------------------------------------------------------------------- partitions


def partition_text(value: Any) -> str | None:
    """The value of a partition as Delta writes it; None is null, and so is an empty text."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value
        return moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, date):
        return value.isoformat()
    return str(value)


def field_text(field: PartitionField, value: Any) -> str | None:
    """The value of one entry of `partition_by` as a text; None is null."""
    return partition_text(value) if field.transform == "identity" else field.text(value)


def partition_folder(partition: Mapping[str, str | None]) -> str:
    """The folder of a partition as Hive and Spark name it, with a slash after it if it has one."""
    parts = [
        f"{_escaped(name)}={NULL_FOLDER if value is None else _escaped(value)}/"
        for name, value in partition.items()
    ]
    return "".join(parts)


def _escaped(text: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in text)


def partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """The value that a text of a partition stands for."""
    if text is None:
        return pa.scalar(None, kind)
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text.replace("Z", ""))
        return pa.scalar(moment.replace(tzinfo=UTC) if kind.tz else moment, kind)
    if pa.types.is_date(kind):
        return pa.scalar(date.fromisoformat(text), kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(text.lower() == "true", kind)
    return pa.scalar(text, pa.string()).cast(kind)


def split_by(
    batch: pa.RecordBatch, fields: Sequence[PartitionField]
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows of each partition, with its values."""
    if not fields:
        yield (), batch
        return
    codes: Any = None
    for part in fields:
        encoded = part.values(batch.column(part.column)).dictionary_encode("encode")
        indices = encoded.indices.cast(pa.int64())
        size = len(encoded.dictionary)
        codes = indices if codes is None else pc.add(pc.multiply(codes, size), indices)
    # Whole columns are sorted, stably, so that rows of a partition stay in their order.
    counts = pc.value_counts(codes)
    by_code = pc.sort_indices(counts.field("values"))
    rows = batch if len(counts) == 1 else batch.take(pc.sort_indices(codes))
    start = 0
    for count in counts.field("counts").take(by_code).to_pylist():
        inside = rows.slice(start, count)
        start += count
        first = inside.slice(0, 1)
        yield tuple(part.values(first.column(part.column))[0].as_py() for part in fields), inside


# -------------------------------------------------------------------------- writing


@dataclass
class _OpenFile:
    """A file that is being written."""

    path: str
    partition: dict[str, str | None]
    stream: Any
    writer: pq.ParquetWriter
    rows: int = 0


@dataclass
class FileWriter:
    """Writes rows to files of one table; `prefix` names the batch that they belong to.

    `partition_by` has columns and transforms of columns (`lake_partitions`). `keeps_partition` has
    the columns of the partition in the files too, as Iceberg wants it; in a Delta table they are
    only in the log.
    """

    storage: Storage
    schema: pa.Schema
    partition_by: Sequence[str]
    prefix: str
    keeps_partition: bool
    _open: dict[tuple[Any, ...], _OpenFile] = field(default_factory=dict)
    _done: list[WrittenFile] = field(default_factory=list)
    _fields: list[PartitionField] = field(init=False)

    def __post_init__(self) -> None:
        self._fields = partition_fields(self.partition_by)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; columns that the table has and they do not are null."""
        rows = aligned(batch, self.schema)
        for key, part in split_by(rows, self._fields):
            file = self._open.pop(key, None) or self._begin(key)
            self._open[key] = file  # the last one is the one that was used last
            kept = part if self.keeps_partition else part.select(self._file_columns())
            file.writer.write_batch(kept)
            file.rows += part.num_rows
            if file.stream.tell() >= FILE_BYTES_MAX:
                self._finish(key)
        while len(self._open) > OPEN_FILES_MAX:
            self._finish(next(iter(self._open)))

    def close(self) -> list[WrittenFile]:
        """Finish all files, and return them."""
        for key in list(self._open):
            self._finish(key)
        return self._done

    def _file_columns(self) -> list[str]:
        divided = {part.name for part in self._fields}
        return [name for name in self.schema.names if name not in divided]

    def _begin(self, key: tuple[Any, ...]) -> _OpenFile:
        partition = {
            part.name: field_text(part, value)
            for part, value in zip(self._fields, key, strict=True)
        }
        path = f"{partition_folder(partition)}{self.prefix}-{uuid4().hex}.parquet"
        schema = self.schema
        if not self.keeps_partition:
            schema = pa.schema([self.schema.field(name) for name in self._file_columns()])
        stream = self.storage.writer(path)
        writer = pq.ParquetWriter(stream, schema, compression="zstd")
        return _OpenFile(path, partition, stream, writer)

    def _finish(self, key: tuple[Any, ...]) -> None:
        file = self._open.pop(key)
        file.writer.close()
        size = file.stream.tell()
        file.stream.close()
        self.storage.sync(file.path)
        with self.storage.reader(file.path) as stream:
            statistics = statistics_json(pq.read_metadata(stream))
        self._done.append(WrittenFile(file.path, size, file.rows, file.partition, statistics))


def statistics_json(metadata: pq.FileMetaData) -> str:
    """The entry of a Delta log about a file, so that readers can pass it over.

    Bounds are left out where they could be wrong by rounding (decimals), by not-a-number (floats),
    or too long (texts).
    """
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        columns = [metadata.row_group(group).column(index) for group in range(_groups(metadata))]
        name = columns[0].path_in_schema if columns else ""
        kept = [column.statistics for column in columns]
        if not name or "." in name or any(one is None or not one.has_null_count for one in kept):
            continue
        nulls[name] = sum(one.null_count for one in kept)
        bounded = [one for one in kept if one.has_min_max]
        rows = sum(column.num_values for column in columns)
        if bounded and (len(bounded) == len(kept) or nulls[name] == rows):
            low = _bound(min(one.min for one in bounded))
            high = _bound(max(one.max for one in bounded))
            if low is not None and high is not None:
                lows[name], highs[name] = low, high
    document = {
        "numRecords": metadata.num_rows,
        "minValues": lows,
        "maxValues": highs,
        "nullCount": nulls,
    }
    return msgspec.json.encode(document).decode()


def _groups(metadata: pq.FileMetaData) -> int:
    return int(metadata.num_row_groups)


def _bound(value: Any) -> Any:
    """A bound as JSON has it; None if it is better left out."""
    if isinstance(value, bool):
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if value.tzinfo else None
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= TEXT_STATISTIC_MAX else None
    return value if isinstance(value, int) else None


# -------------------------------------------------------------------------- reading


def read_batches(
    storage: Storage,
    file: LakeFile,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    seqs: tuple[int, int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file with the columns of its table, or some of them.

    With `seqs`, parts of the file that have no row between these two sequences are passed over.
    """
    names = list(columns) if columns is not None else schema.names
    wanted = pa.schema([schema.field(name) for name in names])
    with storage.reader(file.path) as stream:
        parquet = pq.ParquetFile(stream)
        stored = set(parquet.schema_arrow.names)
        present = [name for name in names if name in stored]
        if not present:
            yield from _without_columns(parquet.metadata.num_rows, file, wanted)
            return
        groups = None if seqs is None else _groups_between(parquet.metadata, *seqs)
        for batch in parquet.iter_batches(READ_ROWS, groups, columns=present):
            arrays = {name: batch.column(name) for name in present}
            yield aligned(_completed(arrays, batch.num_rows, file, wanted), wanted)


def _groups_between(metadata: pq.FileMetaData, first_seq: int, last_seq: int) -> list[int]:
    """The row groups that may have a row between two sequences."""
    index = next(
        (one for one in range(metadata.num_columns) if _column_path(metadata, one) == "seq"), None
    )
    found = []
    for group in range(_groups(metadata)):
        known = None if index is None else metadata.row_group(group).column(index).statistics
        is_outside = (
            known is not None
            and known.has_min_max
            and (known.max < first_seq or known.min > last_seq)
        )
        if not is_outside:
            found.append(group)
    return found


def _column_path(metadata: pq.FileMetaData, index: int) -> str:
    return str(metadata.schema.column(index).path)


def _without_columns(count: int, file: LakeFile, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of which a file has nothing but their number."""
    for start in range(0, count, READ_ROWS):
        rows = min(READ_ROWS, count - start)
        yield aligned(_completed({}, rows, file, wanted), wanted)


def _completed(
    arrays: dict[str, pa.Array], rows: int, file: LakeFile, wanted: pa.Schema
) -> pa.RecordBatch:
    for name in wanted.names:
        if name not in arrays:
            kind = wanted.field(name).type
            value = partition_value(file.partition.get(name), kind)
            arrays[name] = pa.repeat(value, rows)
    return pa.RecordBatch.from_pydict(arrays)


# -------------------------------------------------------------------------- without some keys


@dataclass(frozen=True)
class RowKeys:
    """Rows of some columns, each of which stands for a row that is replaced or deleted."""

    table: pa.Table

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """A mask of the rows that have one of the keys."""
        names = self.table.column_names
        if len(names) == 1:
            values = self.table.column(0).combine_chunks()
            column = batch.column(names[0])
            return pc.is_in(column, value_set=values.cast(column.type), skip_nulls=True)
        index = "__row"
        numbered = pa.table(
            {name: batch.column(name) for name in names}
            | {index: pa.array(range(batch.num_rows), pa.int64())}
        )
        wanted = self.table.cast(numbered.drop_columns([index]).schema)
        hit = numbered.join(wanted, keys=names, join_type="left semi")[index]
        return pc.is_in(numbered[index].combine_chunks(), value_set=hit.combine_chunks())


def rewrite_without(
    storage: Storage, file: LakeFile, keys: RowKeys, writer: FileWriter
) -> list[WrittenFile] | None:
    """Write the rows of a file that have none of the keys to new files; None if all of them do."""
    names = keys.table.column_names
    found = read_batches(storage, file, writer.schema, names)
    if not any(pc.any(keys.mask(batch)).as_py() for batch in found):
        return None
    for batch in read_batches(storage, file, writer.schema):
        kept = batch.filter(pc.invert(keys.mask(batch)))
        if kept.num_rows:
            writer.write(kept)
    return writer.close()


def local_path(uri: str) -> str:
    """The path of a file of this machine; empty if it is none."""
    if "://" not in uri:
        return uri.removeprefix("file:")
    # Nothing is unescaped: the folder of a partition has such a name, and so does pyiceberg see it.
    return uri.removeprefix("file://") if uri.startswith("file:///") else ""
