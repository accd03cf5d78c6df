"""The columns of all tables: messages, key-value buckets and object stores.

Owns their names and order, and for each its type in Spark's DDL and in Arrow, and how it is made:
all values of a batch at once, never one by one. The buffers of the row decoder are wrapped, not
copied. Whatever deals with columns reads these tables: options, the schema, the reads, completion
in the SQL shell, and the test of the documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tradewind.api.names import KV_SUBJECTS
from tradewind.spark.errors import OptionError

if TYPE_CHECKING:
    from tradewind.spark.columnar.memory import Piece
    from tradewind.spark.columnar.rows import RowDecoder

PUT, DELETE, PURGE = "PUT", "DEL", "PURGE"
_HEADERS_TYPE: Final = pa.map_(pa.string(), pa.list_(pa.string()))
_TIME_TYPE: Final = pa.timestamp("us", tz="UTC")


class MessageRows(NamedTuple):
    """Messages that a decoder holds, from row `start` to before row `end`."""

    decoder: RowDecoder
    stream: str
    start: int
    end: int

    @property
    def row_count(self) -> int:
        """How many there are."""
        return self.end - self.start


class BucketRows(NamedTuple):
    """Changes of a bucket, as a batch of messages."""

    bucket: str
    messages: pa.RecordBatch


class ObjectRow(NamedTuple):
    """One object; without its content if that column is not read, or if there is none."""

    bucket: str
    name: str
    modified_us: int
    size: int
    digest: str
    content: bytes | None


RowsT = TypeVar("RowsT")


class Column(NamedTuple, Generic[RowsT]):
    """`ddl` and `arrow` are the same type. `extract` makes the column of all of these rows."""

    ddl: str
    arrow: pa.DataType
    extract: Callable[[RowsT, pa.DataType], pa.Array]


def column_of(
    table: Mapping[str, Column[RowsT]], name: str, option: str = "columns"
) -> Column[RowsT]:
    """The column of this name; OptionError says which there are if it is none of them."""
    if (column := table.get(name)) is None:
        raise OptionError(option, f"no column {name!r}; available: {', '.join(table)}")
    return column


# -------------------------------------------------------------------------- buffers to arrays


def _fixed(kind: pa.DataType, count: int, values: Piece) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)], 0)


def _variable(
    kind: pa.DataType, count: int, offsets: Piece | bytes, values: Piece | bytes
) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(kind, count, buffers, 0)


def _headers(rows: MessageRows, kind: pa.DataType) -> pa.Array:
    nulls, validity, row_ends, name_ends, names, list_ends, value_ends, values = (
        rows.decoder.headers(rows.start, rows.end)
    )
    name_count, value_count = len(name_ends) // 4 - 1, len(value_ends) // 4 - 1
    name_array = _variable(kind.key_type, name_count, name_ends, names)
    value_array = _variable(kind.item_type.value_type, value_count, value_ends, values)
    lists = pa.Array.from_buffers(
        kind.item_type, name_count, [None, pa.py_buffer(list_ends)], 0, children=[value_array]
    )
    entries = pa.StructArray.from_arrays(
        [name_array, lists], fields=[kind.key_field, kind.item_field]
    )
    buffers = [pa.py_buffer(validity), pa.py_buffer(row_ends)]
    return pa.Array.from_buffers(kind, rows.row_count, buffers, nulls, children=[entries])


def _keys(rows: BucketRows, _kind: pa.DataType) -> pa.Array:
    start = len(f"{KV_SUBJECTS}{rows.bucket}.")
    return pc.utf8_slice_codeunits(rows.messages.column("subject"), start)


def _operations(rows: BucketRows, _kind: pa.DataType) -> pa.Array:
    """The operation of each message, from its headers."""
    headers = rows.messages.column("headers")
    said = _first_value(headers, "KV-Operation")
    reason = _first_value(headers, "Nats-Marker-Reason")
    # A marker that the server left: the key has expired, was purged, or was removed.
    is_removed = pc.fill_null(pc.equal(reason, "Remove"), fill_value=False)
    is_marked = pc.is_valid(reason)
    marked = pc.if_else(is_removed, DELETE, PURGE)
    is_known = pc.fill_null(pc.is_in(said, pa.array([DELETE, PURGE])), fill_value=False)
    return pc.if_else(is_known, said, pc.if_else(is_marked, marked, PUT))


def _first_value(headers: pa.Array, name: str) -> pa.Array:
    return pc.list_element(pc.map_lookup(headers, name, "first"), 0)


# -------------------------------------------------------------------------- the tables

MESSAGES: Final[Mapping[str, Column[MessageRows]]] = {
    "stream": Column(
        "string",
        pa.string(),
        lambda rows, kind: pa.repeat(pa.scalar(rows.stream, kind), rows.row_count),
    ),
    "seq": Column(
        "bigint",
        pa.int64(),
        lambda rows, kind: _fixed(kind, rows.row_count, rows.decoder.seqs(rows.start, rows.end)),
    ),
    "subject": Column(
        "string",
        pa.string(),
        lambda rows, kind: _variable(
            kind, rows.row_count, *rows.decoder.subjects(rows.start, rows.end)
        ),
    ),
    "time": Column(
        "timestamp",
        _TIME_TYPE,
        lambda rows, kind: _fixed(kind, rows.row_count, rows.decoder.times(rows.start, rows.end)),
    ),
    "headers": Column("map<string,array<string>>", _HEADERS_TYPE, _headers),
    "data": Column(
        "binary",
        pa.binary(),
        lambda rows, kind: _variable(
            kind, rows.row_count, *rows.decoder.payloads(rows.start, rows.end)
        ),
    ),
}
BUCKET: Final[Mapping[str, Column[BucketRows]]] = {
    "bucket": Column(
        "string",
        pa.string(),
        lambda rows, kind: pa.repeat(pa.scalar(rows.bucket, kind), rows.messages.num_rows),
    ),
    "key": Column("string", pa.string(), _keys),
    "value": Column("binary", pa.binary(), lambda rows, _kind: rows.messages.column("data")),
    "revision": Column("bigint", pa.int64(), lambda rows, _kind: rows.messages.column("seq")),
    "time": Column("timestamp", _TIME_TYPE, lambda rows, _kind: rows.messages.column("time")),
    "operation": Column("string", pa.string(), _operations),
}
OBJECTS: Final[Mapping[str, Column[ObjectRow]]] = {
    "bucket": Column("string", pa.string(), lambda row, kind: pa.array([row.bucket], kind)),
    "name": Column("string", pa.string(), lambda row, kind: pa.array([row.name], kind)),
    "modified": Column(
        "timestamp", _TIME_TYPE, lambda row, kind: pa.array([row.modified_us], kind)
    ),
    "size": Column("bigint", pa.int64(), lambda row, kind: pa.array([row.size], kind)),
    "digest": Column("string", pa.string(), lambda row, kind: pa.array([row.digest], kind)),
    "content": Column("binary", pa.binary(), lambda row, kind: pa.array([row.content], kind)),
}
