"""Wraps the buffers of the row decoder in Arrow arrays.

Owns the Arrow types of the columns in `columns`, and creating the columns of messages. It never
copies or selects data, which is up to the decoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tradewind.spark.columns import MESSAGES

if TYPE_CHECKING:
    from tradewind.spark.memory import Piece
    from tradewind.spark.rows import RowDecoder

# A task costs Spark about 0.1 s, a batch about 1 ms; below 10,000 rows the latter shows.
BATCH_ROWS_MAX: Final = 65_536
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024

_HEADERS_TYPE: Final = pa.map_(pa.string(), pa.list_(pa.string()))
# By what Spark's DDL calls them.
_TYPES: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,array<string>>": _HEADERS_TYPE,
    "binary": pa.binary(),
}


def arrow_schema(columns: Iterable[str], kinds: Mapping[str, str] = MESSAGES) -> pa.Schema:
    """The schema of batches with these columns."""
    return pa.schema([(name, _TYPES[kinds[name]]) for name in columns])


def batches(decoder: RowDecoder, stream: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """All rows that the decoder holds, in batches of a size that suits Spark."""
    schema = arrow_schema(columns)
    start = 0
    while start < decoder.row_count:
        end = decoder.batch_end(start, BATCH_ROWS_MAX, BATCH_BYTES_MAX)
        arrays = [_array(decoder, field, stream, start, end) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        start = end


def _array(decoder: RowDecoder, field: pa.Field, stream: str, start: int, end: int) -> pa.Array:
    """One column of these rows."""
    count = end - start
    match field.name:
        case "stream":
            return pa.repeat(pa.scalar(stream, field.type), count)
        case "seq":
            return _fixed(field.type, count, decoder.seqs(start, end))
        case "time":
            return _fixed(field.type, count, decoder.times(start, end))
        case "subject":
            return _variable(field.type, count, *decoder.subjects(start, end))
        case "data":
            return _variable(field.type, count, *decoder.payloads(start, end))
        case "headers":
            return _headers(count, decoder.headers(start, end))
    raise AssertionError(f"{field.name} is not a column of messages")


def _fixed(kind: pa.DataType, count: int, values: Piece) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)], 0)


def _variable(
    kind: pa.DataType, count: int, offsets: Piece | bytes, values: Piece | bytes
) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(kind, count, buffers, 0)


def _headers(
    count: int, parts: tuple[int, Piece, Piece, bytes, bytes, bytes, bytes, bytes]
) -> pa.Array:
    nulls, validity, row_ends, name_ends, names, list_ends, value_ends, values = parts
    name_count, value_count = len(name_ends) // 4 - 1, len(value_ends) // 4 - 1
    name_array = _variable(pa.string(), name_count, name_ends, names)
    value_array = _variable(pa.string(), value_count, value_ends, values)
    lists = pa.Array.from_buffers(
        pa.list_(pa.string()),
        name_count,
        [None, pa.py_buffer(list_ends)],
        0,
        children=[value_array],
    )
    entries = pa.StructArray.from_arrays(
        [name_array, lists], fields=[_HEADERS_TYPE.key_field, _HEADERS_TYPE.item_field]
    )
    buffers = [pa.py_buffer(validity), pa.py_buffer(row_ends)]
    return pa.Array.from_buffers(_HEADERS_TYPE, count, buffers, nulls, children=[entries])
