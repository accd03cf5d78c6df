"""Frames of any library as batches of Arrow, to be written.

Owns the ways in which libraries hand over a frame, and the types that are changed on the way: the
rest of the product knows one type for texts, one for bytes and one for lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from tradewind.spark.errors import OptionError

BATCH_ROWS: Final = 16_384


def frame_batches(frame: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a frame; OptionError if it is none."""
    reader = _reader_of(frame)
    schema = _plain_schema(reader.schema)
    for batch in reader:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield _as_plain(batch.slice(start, BATCH_ROWS), schema)


def _reader_of(frame: Any) -> Any:
    if isinstance(frame, pa.RecordBatchReader):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame]).to_reader()
    if isinstance(frame, pa.Table):
        return frame.to_reader(BATCH_ROWS)
    kind = f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}"
    if kind == "pandas.DataFrame":
        return pa.Table.from_pandas(frame, preserve_index=False).to_reader(BATCH_ROWS)
    if kind == "polars.LazyFrame":
        frame = frame.collect()
    if kind.endswith(".DuckDBPyRelation"):
        return frame.to_arrow_reader(BATCH_ROWS)
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(frame)
    if isinstance(frame, Iterable) and not isinstance(frame, str | bytes | dict):
        batches = iter(frame)
        first = next(batches, None)
        if isinstance(first, pa.RecordBatch):
            return pa.RecordBatchReader.from_batches(first.schema, _with(first, batches))
    raise OptionError(
        "frame",
        f"{type(frame).__name__} is no frame: give one of Arrow, pandas, polars or DuckDB, or an"
        " iterator of record batches",
    )


def _with(first: pa.RecordBatch, others: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise OptionError("frame", f"it has several columns {name!r}")
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The one type that is used for values of this one."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    is_binary = pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    if is_binary or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _plain_type(one.type)) for one in kind])
    if hasattr(kind, "value_type"):
        return pa.list_(_plain_type(kind.value_type))
    return kind


def _as_plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for array, field in zip(batch.columns, schema, strict=True):
        try:
            arrays.append(array if array.type == field.type else array.cast(field.type))
        except pa.ArrowException as error:
            raise OptionError(
                "frame", f"column {field.name} of type {array.type} cannot be written: {error}"
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def column_kinds(schema: pa.Schema) -> dict[str, str]:
    """The types of columns as Spark writes them, as far as their use depends on them."""
    return {field.name: _kind(field.type) for field in schema}


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"map<{_kind(kind.key_type)},{_kind(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "struct<>"
    return f"array<{_kind(kind.value_type)}>" if pa.types.is_list(kind) else str(kind)
