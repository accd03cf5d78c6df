"""Streams that have a table, for `tradewind sql`.

Owns when a query uses the table of a stream, the names that its columns have there, and counts that
are known without reading. A stream that has no table, or none yet, is read as it is, and so is one
whose table lacks a column that the query names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from tradewind.api.names import KV_STREAM
from tradewind.pipelines.notation.column_templates import quoted_sql
from tradewind.pipelines.relations.queries import QueryTable, text_or_bytes
from tradewind.pipelines.tables.pinned_streams import (
    PinnedStream,
    StreamPlace,
    pin_stream,
    table_spec_of,
)
from tradewind.pipelines.tables.table_points import pin_table
from tradewind.pipelines.tables.table_reading import stream_frame
from tradewind.pipelines.tables.table_spec import DATA_COLUMN, TableSpec, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tradewind.api.stream_types import StreamInfo

# Names that a bucket has for the columns of its table in SQL.
_BUCKET_NAMES: Final = {"seq": "revision", DATA_COLUMN: "value"}
_BUCKET_FIRST: Final = ("bucket", "key", "value", "revision", "time", "operation")
_GONE: Final = ("FAILED_READ_FILE", "FileNotFoundException", "PATH_NOT_FOUND")
_UNRESOLVED: Final = "UNRESOLVED_COLUMN"


class ShownTable(Protocol):
    """A table of a query, under its name."""

    name: str

    def view(self) -> None:
        """Make the table known under its name."""

    def widen(self, error: BaseException) -> bool:
        """Whether this is why a query failed; then the next `view` is another one."""

    def settle(self) -> object:
        """Make the fields fit all messages, for a query that cannot be run again."""


@dataclass(frozen=True)
class StreamLake:
    """The table of a stream or bucket that a query names."""

    name: str
    stream: str
    spec: TableSpec
    where: StreamPlace

    @property
    def is_bucket(self) -> bool:
        """Whether the query names a bucket, and not its stream."""
        return self.name != self.stream

    def version(self) -> int | None:
        """The version of the table as it is now; None if it has none yet."""
        point = pin_table(self.stream, self.spec)
        return point.version if point is not None else None

    def pin(self, tail_bytes_max: int | None = None) -> PinnedStream | None:
        """Table and tail as they are now; see `pin_stream`."""
        return pin_stream(self.stream, self.where, tail_bytes_max=tail_bytes_max)


def lake_of_query(
    name: str, where: StreamPlace, info: StreamInfo | None, *, is_bucket: bool
) -> StreamLake | None:
    """The table that a query for this name uses; None if it reads the stream itself.

    A bucket is one row per key, and its stream is its messages: tables of another kind are not what
    the query asks for.
    """
    stream = KV_STREAM + name if is_bucket else name
    if info is not None:
        spec = table_of(stream, info.config.metadata)
    else:
        spec = table_spec_of(stream, where) if where.store else None
    if spec is None or spec.rows != ("latest" if is_bucket else "messages"):
        return None
    return StreamLake(name, stream, spec, where)


def count_rows(pinned: PinnedStream) -> tuple[int, int | None, int | None] | None:
    """The number of rows, and the first and last sequence; None if only a read can show it."""
    rows, point = pinned.rows, pinned.point
    if rows is None or pinned.spec.rows != "messages":
        return None
    bounds = [file.bounds.get("seq", (None, None)) for file in point.files]
    if any(not file.rows for file in point.files) or any(None in pair for pair in bounds):
        return None
    seqs = [seq for pair in bounds for seq in pair]
    if rows.num_rows:
        found = rows["seq"].to_pylist()
        seqs += [min(found), max(found)]
    count = sum(file.rows for file in point.files) + rows.num_rows
    return count, min(seqs, default=None), max(seqs, default=None)


def named_columns(frame: DataFrame, name: str, *, is_bucket: bool) -> DataFrame:
    """The rows of a table with the names that a stream or bucket has in SQL."""
    from pyspark.sql.functions import col, lit

    shown = shown_columns(frame.columns, is_bucket=is_bucket)
    return frame.select(
        *(
            (lit(name) if column is None else col(quoted_sql(column))).alias(one)
            for one, column in shown
        )
    )


def shown_columns(columns: Sequence[str], *, is_bucket: bool) -> list[tuple[str, str | None]]:
    """The columns that a table has in SQL, and its own ones that they are; None is the name.

    A field of the payloads that has such a name keeps it.
    """
    known = {column.lower() for column in columns}
    first = "bucket" if is_bucket else "stream"
    sources: dict[str, str | None] = {} if first in known else {first: None}
    for column in columns:
        shown = _BUCKET_NAMES.get(column, column) if is_bucket else column
        sources[column if shown != column and shown in known else shown] = column
    order: list[str] = [one for one in _BUCKET_FIRST if one in sources] if is_bucket else []
    order += [one for one in sources if one not in order]
    return [(one, sources[one]) for one in order]


class StreamQueryTable:
    """A stream with its table at one point, under the name that a query uses."""

    def __init__(
        self, spark: SparkSession, lake: StreamLake, pinned: PinnedStream, options: dict[str, str]
    ) -> None:
        self.name = lake.name
        self._spark = spark
        self._lake = lake
        self._options = options
        self._inner: QueryTable | None = None
        self._frame: DataFrame | None = None
        self._take(pinned)

    def _take(self, pinned: PinnedStream) -> None:
        """Use what was pinned; payloads that are not decoded are, as those of any stream."""
        spec, is_bucket = self._lake.spec, self._lake.is_bucket
        frame = named_columns(stream_frame(self._spark, pinned), self.name, is_bucket=is_bucket)
        self._inner = self._frame = None
        if spec.is_raw:
            self._inner = self._plain(frame)
            return
        column = "value" if is_bucket else DATA_COLUMN
        if column in frame.columns and dict(frame.dtypes)[column] == "binary":
            frame = frame.withColumn(column, text_or_bytes(column))
        self._frame = frame

    def _plain(self, frame: DataFrame | None = None) -> QueryTable:
        return QueryTable(
            self._spark, self.name, self._options, is_bucket=self._lake.is_bucket, frame=frame
        )

    def begin(self) -> None:
        """Use the table again for another query, if the one before could not."""
        if not self._lake.spec.is_raw:
            self._inner = None

    def view(self) -> None:
        """See `ShownTable`."""
        if self._inner is not None:
            self._inner.view()
        elif self._frame is not None:
            self._frame.createOrReplaceTempView(quoted_sql(self.name))

    def settle(self) -> object:
        """See `ShownTable`; the columns of a table that is decoded fit all of its rows."""
        return self._inner.settle() if self._inner is not None else None

    def widen(self, error: BaseException) -> bool:
        """See `ShownTable`."""
        if any(sign in str(error) for sign in _GONE):
            # Compacted, and removed since: the table has the rows in other files.
            pinned = self._lake.pin()
            if pinned is None:
                return False
            self._take(pinned)
            return True
        if self._inner is not None:
            return self._inner.widen(error)
        if _UNRESOLVED in str(error) and not self._lake.spec.tiers:
            self._inner = self._plain()
            return True
        return False
