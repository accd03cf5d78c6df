"""Streams with a lake table for DuckDB: the files of the table and the tail after them.

Owns the rows at one point (`pinned_streams`) under the names that they have in SQL. A table of
decoded rows is a view over its files, into which DuckDB pushes columns and conditions; a table of
raw messages has the fields of its payloads as any stream does. If compaction removes files that a
query reads, the table is pinned again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from tradewind.api.names import KV_SUBJECTS
from tradewind.frames.stream_dataset import FrameRows, StreamDataset
from tradewind.pipelines.lake.lake_files import ArrowStorage, LakeFile, local_path, partition_value
from tradewind.pipelines.sql.duck_tables import DuckFields, DuckTable, SqlColumns
from tradewind.pipelines.sql.engines import NeedsSparkError
from tradewind.pipelines.tables.pinned_streams import latest_puts
from tradewind.pipelines.tables.table_queries import shown_columns
from tradewind.pipelines.tables.table_spec import DATA_COLUMN
from tradewind.spark.columnar.rows import SEQUENCE_MAX, TIME_NS_MAX, TIME_NS_MIN
from tradewind.spark.contract.filters import RowFilter, push_filters
from tradewind.spark.options.source_options import parse_options

if TYPE_CHECKING:
    import duckdb

    from tradewind.frames.narrowing import Condition
    from tradewind.pipelines.tables.pinned_streams import PinnedStream
    from tradewind.pipelines.tables.table_points import TablePoint
    from tradewind.pipelines.tables.table_queries import StreamLake

# The tail is in the memory of this process while a question is answered.
TAIL_BYTES_MAX: Final = 256 << 20
SAMPLE_ROWS: Final = 500
_KEY: Final = "key"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_GONE: Final = ("FileNotFoundError", "No such file", "does not exist", "Path does not exist")
_UNRESOLVED: Final = "Referenced column"


class DuckLake:
    """A stream or bucket with its table, up to the end that both had when the question came."""

    def __init__(self, lake: StreamLake, pinned: PinnedStream, options: Mapping[str, str]) -> None:
        self.name = lake.name
        self._lake = lake
        self._options = options
        self._inner: DuckTable | None = None
        self._rows: FrameRows | None = None
        self._take(pinned)

    def _take(self, pinned: PinnedStream) -> None:
        if pinned.rows is None:
            raise NeedsSparkError(
                f"the messages after the table of {self.name} are more than"
                f" {TAIL_BYTES_MAX >> 20} MiB, until `tradewind table run` has written them"
            )
        self._pinned = pinned
        self._scan = LakeScan(self._lake, pinned, self._options)
        payload = "value" if self._lake.is_bucket else DATA_COLUMN
        self._fields = DuckFields(self._scan.sample(payload) if self._is_raw else [])

    @property
    def _is_raw(self) -> bool:
        return self._lake.spec.is_raw

    def register(self, engine: duckdb.DuckDBPyConnection) -> None:
        """Make the table known under its name."""
        if self._inner is not None:
            self._inner.register(engine)
        elif self._is_raw:
            payload = "value" if self._lake.is_bucket else DATA_COLUMN
            columns = SqlColumns(self.name, self._scan, payload, self._fields.schema)
            self._rows = FrameRows(self._scan, columns)
            engine.register(self.name, StreamDataset(self._rows))
        else:
            self._view(engine)

    def _view(self, engine: duckdb.DuckDBPyConnection) -> None:
        """A view, so that DuckDB pushes columns and conditions down to files and tail."""
        pinned, scan = self._pinned, self._scan
        columns = ", ".join(self._expression(*one) for one in scan.shown)
        hidden = f"_lake_{token_hex(8)}"
        if pinned.spec.rows == "latest":
            assert pinned.rows is not None
            engine.register(f"{hidden}_files", scan.files)
            engine.register(f"{hidden}_tail", scan.tail)
            engine.register(f"{hidden}_changed", pinned.rows.select([_KEY]))
            changed = f'{_KEY} in (from "{hidden}_changed")'
            rows = f'"{hidden}_files" where not {changed} union all from "{hidden}_tail"'
        else:
            engine.register(hidden, ds.dataset([scan.files, scan.tail]))
            rows = f'"{hidden}"'
        view = f"create view {_quoted(self.name)} as from (from {rows}) select {columns}"
        engine.execute(view)

    def _expression(self, shown: str, column: str | None) -> str:
        if column is None:
            text = self.name.replace("'", "''")
            return f"'{text}' as {_quoted(shown)}"
        source = _quoted(column)
        if column == DATA_COLUMN and pa.types.is_binary(
            self._pinned.point.schema.field(column).type
        ):
            source = f"coalesce(try(decode({source})), '0x' || lower(hex({source})))"
        return f"{source} as {_quoted(shown)}"

    @property
    def failure(self) -> BaseException | None:
        """Why the last read of it failed, if that is known."""
        if self._inner is not None:
            return self._inner.failure
        return None if self._rows is None else self._rows.failure

    def widen(self, error: Exception) -> bool:
        """Whether this is why a query failed; then the next `register` is another one."""
        if self._inner is not None:
            return self._inner.widen(error)
        text = str(error)
        if any(sign in text for sign in _GONE) and ".parquet" in text:
            # Compacted, and removed since: the table has the rows in other files.
            pinned = self._lake.pin(TAIL_BYTES_MAX)
            if pinned is None:
                return False
            self._take(pinned)
            return True
        if self._is_raw:
            return self._fields.widen(self.failure)
        if text.startswith("Binder Error") and _UNRESOLVED in text and not self._lake.spec.tiers:
            # A field that the table has no column for: the stream itself may have it.
            self._inner = DuckTable(self.name, self._options, is_bucket=self._lake.is_bucket)
            return True
        return False

    def close(self) -> None:
        """Close the connections of the stream, if it was read itself."""
        if self._inner is not None:
            self._inner.close()


class LakeScan:
    """The rows of a pinned stream under their names in SQL; see `FrameScan`."""

    def __init__(self, lake: StreamLake, pinned: PinnedStream, options: Mapping[str, str]) -> None:
        assert pinned.rows is not None
        self._lake = lake
        self._options = parse_options(
            {**options, "bucket" if lake.is_bucket else "stream": lake.name}
        )
        self._is_latest = pinned.spec.rows == "latest"
        changed = pinned.rows.column(_KEY) if self._is_latest else None
        self._changed = changed if changed is not None and len(changed) else None
        self.files = files_dataset(pinned.point)
        tail = latest_puts(pinned.rows) if self._is_latest else pinned.rows
        self.tail = ds.dataset(tail)
        self.shown = shown_columns(pinned.point.schema.names, is_bucket=lake.is_bucket)
        self.schema = pa.schema(
            [
                pa.field(name, pa.string())
                if column is None
                else pinned.point.schema.field(column).with_name(name)
                for name, column in self.shown
            ]
        )

    def narrowed(self, conditions: Sequence[Condition]) -> RowFilter:
        """See `FrameScan`."""
        rows, _ = push_filters(RowFilter(), conditions, self._options)
        return rows

    def batches(
        self, columns: Sequence[str], rows: RowFilter | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows of the files, then those of the tail."""
        wanted = RowFilter() if rows is None else rows
        if wanted.is_empty or not wanted.has_stream(self._lake.name):
            return
        sources = dict(self.shown)
        projection = {name: self._source(sources[name]) for name in columns}
        condition = self._condition(wanted)
        kept = None if self._changed is None else ~pc.field(_KEY).isin(self._changed)
        for part, own in ((self.files, kept), (self.tail, None)):
            both = [one for one in (condition, own) if one is not None]
            needed = both[0] & both[1] if len(both) == 2 else both[0] if both else None
            yield from part.to_batches(columns=projection, filter=needed)

    def sample(self, payload: str) -> list[bytes]:
        """The first payloads of the files and the last ones of the tail."""
        column = dict(self.shown)[payload]
        first = self.files.head(SAMPLE_ROWS, columns=[column])[column]
        last = self.tail.to_table(columns=[column])[column]
        found = [*first.to_pylist(), *last[-SAMPLE_ROWS:].to_pylist()]
        return [one for one in found if one]

    def _source(self, column: str | None) -> pc.Expression:
        return pc.scalar(self._lake.name) if column is None else pc.field(column)

    def _condition(self, rows: RowFilter) -> pc.Expression | None:
        """The condition on the columns of the table; None if all rows are wanted."""
        return _all_of(self._conditions(rows))

    def _conditions(self, rows: RowFilter) -> Iterator[pc.Expression]:
        if rows.first_seq > 1:
            yield pc.field("seq") >= rows.first_seq
        if rows.last_seq < SEQUENCE_MAX:
            yield pc.field("seq") <= rows.last_seq
        if rows.first_time_ns > TIME_NS_MIN:
            yield pc.field("time") >= _moment(rows.first_time_ns)
        if rows.last_time_ns < TIME_NS_MAX:
            yield pc.field("time") <= _moment(rows.last_time_ns)
        column, cut = ("subject", 0)
        if self._lake.is_bucket:
            column, cut = (_KEY, len(f"{KV_SUBJECTS}{self._lake.name}."))
        for group in rows.patterns:
            yield pc.field(column).isin([one.decode()[cut:] for one in group])


def _all_of(conditions: Iterator[pc.Expression]) -> pc.Expression | None:
    found: pc.Expression | None = None
    for one in conditions:
        found = one if found is None else found & one
    return found


def _moment(time_ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_ns // 1000)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


# -------------------------------------------------------------------------- files


def files_dataset(point: TablePoint) -> ds.Dataset:
    """The rows of a pinned table, by the readers of Arrow."""
    if not point.files:
        return ds.dataset(point.schema.empty_table())
    system, _ = ArrowStorage(point.folder if not local_path(point.folder) else "/").opened()
    return ds.FileSystemDataset.from_paths(
        [_path_in(file, system) for file in point.files],
        schema=point.schema,
        format=ds.ParquetFileFormat(),
        filesystem=system,
        partitions=[_partition(point, file) for file in point.files],
    )


def _path_in(file: LakeFile, system: pafs.FileSystem) -> str:
    """The path of a file in its file system, which knows no schemes."""
    if isinstance(system, pafs.LocalFileSystem):
        return local_path(file.path)
    parts = urlsplit(file.path)
    return f"{parts.netloc}{parts.path}"


def _partition(point: TablePoint, file: LakeFile) -> pc.Expression:
    """The columns of a file that only the name of its folder says."""
    if not point.in_folders:
        return pc.scalar(True)
    parts: Any = []
    for name in point.partition_by:
        value = partition_value(file.partition.get(name), point.schema.field(name).type)
        column = pc.field(name)
        parts.append(column == value if value.is_valid else column.is_null())
    found = _all_of(iter(parts))
    return pc.scalar(True) if found is None else found
