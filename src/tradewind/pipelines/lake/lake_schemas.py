"""Matches the columns of a batch with those of an existing table.

Owns the allowed differences: a column (or a nested field) that the table lacks is added and is null
in older rows; one that the batch lacks is null in its rows; a narrower number fits a wider one. All
other differences are errors that name the column and both types. The module uses Arrow only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tradewind.pipelines.errors import PipelineError

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a new table for rows of this schema: all of them may become null."""
    return pa.schema([_new_field(field, "") for field in schema])


def _new_field(field: pa.Field, path: str) -> pa.Field:
    kind = _stored_type(field.type)
    if pa.types.is_null(kind):
        raise PipelineError(
            f"column {path}{field.name} has no type: cast(null as string) or another has one"
        )
    return pa.field(field.name, kind)


def _stored_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _stored_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_stored_type(kind.key_type), _stored_type(kind.item_type))
    if _is_list(kind):
        return pa.list_(pa.field("element", _stored_type(kind.value_type)))
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a table as our own files have them: names, types, and which may be null."""
    return pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: pa.Field, name: str = "") -> pa.Field:
    return pa.field(name or field.name, _plain_type(field.type), field.nullable)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_field(kind.item_field, "value"))
    if _is_list(kind):
        return pa.list_(_plain_field(kind.value_field, "element"))
    return _stored_type(kind)


def merged_schema(table: pa.Schema, batch: pa.Schema) -> pa.Schema:
    """The columns of the table with those that the batch adds, after the others.

    PipelineError names a column whose type does not fit.
    """
    return pa.schema(_merged_fields(list(table), list(batch), ""))


def _merged_fields(
    table: Sequence[pa.Field], batch: Sequence[pa.Field], path: str
) -> list[pa.Field]:
    given = {field.name: field for field in batch}
    folded = {field.name.lower(): field.name for field in table}
    result = []
    for field in table:
        other = given.pop(field.name, None)
        kind = _merged_type(field.type, other.type, path + field.name) if other else field.type
        if other is None and not field.nullable:
            raise PipelineError(
                f"column {path}{field.name} must not be null in the table, and the rows have none"
            )
        result.append(pa.field(field.name, kind, field.nullable))
    for name, field in given.items():
        if name.lower() in folded:
            raise PipelineError(
                f"column {path}{name} differs from {path}{folded[name.lower()]} of the table only"
                " in its case; give it the same name or another one"
            )
        result.append(_new_field(field, path))
    return result


def _merged_type(table: pa.DataType, batch: pa.DataType, path: str) -> pa.DataType:
    """The type of the table's column when rows of a batch come into it."""
    batch = _stored_type(batch)
    if _stored_type(table) == batch or _is_wider(table, batch):
        return table
    if pa.types.is_struct(table) and pa.types.is_struct(batch):
        return pa.struct(_merged_fields(list(table), list(batch), f"{path}."))
    if _is_list(table) and _is_list(batch):
        element = _merged_type(table.value_type, batch.value_type, f"{path}.element")
        return pa.list_(pa.field("element", element, table.value_field.nullable))
    if pa.types.is_map(table) and pa.types.is_map(batch):
        key = _merged_type(table.key_type, batch.key_type, f"{path}.key")
        item = _merged_type(table.item_type, batch.item_type, f"{path}.value")
        return pa.map_(key, pa.field("value", item, table.item_field.nullable))
    raise PipelineError(
        f"column {path} is {type_text(table)} in the table and {type_text(batch)} in the rows:"
        " convert it in a step, give it another name, or begin another table"
    )


def _is_wider(table: pa.DataType, batch: pa.DataType) -> bool:
    """Whether every value of the second type is one of the first."""
    if table in _INTEGERS and batch in _INTEGERS:
        return _INTEGERS.index(table) >= _INTEGERS.index(batch)
    if pa.types.is_decimal(table) and pa.types.is_decimal(batch):
        return bool(table.scale == batch.scale and table.precision >= batch.precision)
    return bool(table == pa.float64() and batch == pa.float32())


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def type_text(kind: pa.DataType) -> str:
    """A type in the words of SQL, where those differ from Arrow's."""
    names = {
        pa.int8(): "tinyint",
        pa.int16(): "smallint",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.bool_(): "boolean",
        pa.date32(): "date",
        pa.timestamp("us"): "timestamp_ntz",
        pa.timestamp("us", tz="UTC"): "timestamp",
    }
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return names.get(_stored_type(kind), str(kind))


def aligned(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of the table; PipelineError if one is null that must not be."""
    columns = []
    for field in target:
        index = batch.schema.get_field_index(field.name)
        column = (
            fitted(batch.column(index), field.type)
            if index >= 0
            else pa.nulls(batch.num_rows, field.type)
        )
        if not field.nullable and column.null_count:
            raise PipelineError(f"column {field.name} must not be null in the table, and a row is")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=target)


def fitted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as the type of the table's column has them; missing fields of a struct are null."""
    if values.type == kind:
        return values
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        parts = []
        for field in kind:
            index = values.type.get_field_index(field.name)
            parts.append(
                fitted(pc.struct_field(values, index), field.type)
                if index >= 0
                else pa.nulls(len(values), field.type)
            )
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pc.is_null(values))
    if pa.types.is_map(kind):
        whole = _unsliced(values)
        keys, items = fitted(whole.keys, kind.key_type), fitted(whole.items, kind.item_type)
        return pa.MapArray.from_arrays(whole.offsets, keys, items, kind, mask=pc.is_null(whole))
    if _is_list(kind) and pa.types.is_list(values.type):
        whole = _unsliced(values)
        inner = fitted(whole.values, kind.value_type)
        return pa.ListArray.from_arrays(whole.offsets, inner, kind, mask=pc.is_null(whole))
    return values.cast(kind)


def _unsliced(values: pa.Array) -> pa.Array:
    """The same values from their own first one on: offsets with a mask must begin there."""
    return pc.take(values, pa.array(range(len(values)), pa.int64())) if values.offset else values
