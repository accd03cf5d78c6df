"""The columns of a stream's table: its own, and those of payloads.

Owns which fields become columns, and what happens to their types when payloads change: a new field
is a new column, a nested one is added to its struct, and all that was there stays as it is. A value
that does not fit is left to the column `_rescued`. The module is pure and uses Arrow only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from tradewind.decoding.decoder_contract import RESCUED_COLUMN
from tradewind.pipelines.lake.lake_schemas import stored_schema
from tradewind.pipelines.tables.table_spec import (
    DATA_COLUMN,
    DAY,
    HOUR,
    TableSpec,
    first_columns,
    is_column_name,
)

# The maximum of one table; fields that come later are left to `_rescued`.
COLUMNS_MAX: Final = 2000
TIME_TYPE: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final[dict[str, pa.DataType]] = {
    "seq": pa.int64(),
    "subject": pa.string(),
    "key": pa.string(),
    "operation": pa.string(),
    "time": TIME_TYPE,
    "headers": pa.map_(pa.string(), pa.list_(pa.field("element", pa.string()))),
    DAY: pa.date32(),
    HOUR: TIME_TYPE,
    RESCUED_COLUMN: pa.string(),
    DATA_COLUMN: pa.binary(),
}
# Types that the formats of tables do not have, and those that hold the same values.
_WIDER: Final = {
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def own_columns(stream: str, spec: TableSpec) -> list[str]:
    """The columns that are not of a payload, in the order of the table."""
    parts = [name for name in spec.partition if name in (DAY, HOUR)]
    names = [*first_columns(stream), *parts]
    if not spec.is_raw:
        names.append(RESCUED_COLUMN)
    return [*names, DATA_COLUMN] if spec.has_data else names


def table_columns(stream: str, spec: TableSpec, fields: pa.Schema) -> pa.Schema:
    """All columns of a table with these columns of payloads."""
    own = [pa.field(name, _TYPES[name]) for name in own_columns(stream, spec)]
    first = len(first_columns(stream))
    return pa.schema([*own[:first], *fields, *own[first:]])


def fields_of(stream: str, spec: TableSpec, columns: pa.Schema) -> pa.Schema:
    """The columns of payloads that a table has, by all of its columns."""
    own = {*own_columns(stream, spec), *first_columns(stream), DATA_COLUMN, RESCUED_COLUMN}
    return pa.schema([pa.field(one.name, one.type) for one in columns if one.name not in own])


def evolved(known: pa.Schema, found: pa.Schema) -> pa.Schema:
    """The known columns with those that were found beside them; known types stay as they are."""
    return pa.schema(_more_fields(list(known), list(found)))


def _more_fields(known: Iterable[pa.Field], found: Iterable[pa.Field]) -> list[pa.Field]:
    given = {one.name: one for one in found}
    result = [
        pa.field(one.name, _more_type(one.type, given[one.name].type))
        if one.name in given
        else pa.field(one.name, one.type)
        for one in known
    ]
    taken = {one.name.lower() for one in result}
    for name, one in given.items():
        kind = _kept_type(one.type)
        # Most readers of tables cannot tell names by their case.
        is_taken = name.lower() in taken or len(result) >= COLUMNS_MAX
        if kind is None or is_taken or not is_column_name(name):
            continue
        taken.add(name.lower())
        result.append(pa.field(name, kind))
    return result


def _more_type(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        return pa.struct(_more_fields(list(known), list(found)))
    if _is_list(known) and _is_list(found):
        return pa.list_(pa.field("element", _more_type(known.value_type, found.value_type)))
    return known


def _kept_type(kind: pa.DataType) -> pa.DataType | None:
    """The type of a new column; None as long as nothing but null was seen."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        fields = _more_fields((), list(kind))
        return pa.struct(fields) if fields else None
    if _is_list(kind):
        element = _kept_type(kind.value_type)
        return None if element is None else pa.list_(pa.field("element", element))
    wider = _WIDER.get(kind, kind)
    kept: pa.DataType = stored_schema(pa.schema([pa.field("one", wider)])).field(0).type
    return kept


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def joined_fields(parts: Iterable[pa.Schema], known: pa.Schema) -> pa.Schema:
    """The fields that several parts of a batch have found, as one; of two types the one that holds
    more.

    A number with a fraction holds one without. Where types have nothing in common, the first one
    stays; values of the other are left to `_rescued`. Known fields keep their types in any case.
    """
    result = known
    for part in parts:
        result = pa.schema(
            [pa.field(one.name, _joined_type(one, known, part)) for one in evolved(result, part)]
        )
    return result


def _joined_type(one: pa.Field, known: pa.Schema, part: pa.Schema) -> pa.DataType:
    is_new = known.get_field_index(one.name) < 0 and part.get_field_index(one.name) >= 0
    if is_new and part.field(one.name).type == pa.float64() and one.type == pa.int64():
        return pa.float64()
    return one.type
