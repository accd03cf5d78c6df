"""The columns that payloads have: names, Arrow types, limits, and how they grow.

Owns the rules of evolution. A column that is known keeps its name and its type; objects and lists
get new fields inside. The module never sees a payload: `payload_kinds` says what those hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import pyarrow as pa

from tradewind.decoding.payload_kinds import Kind

# Columns and fields within them, together.
COLUMNS_MAX: Final = 2000
NAME_CHARACTERS_MAX: Final = 255
# Before the name of a field that the table has another column for.
CLASH_PREFIX: Final = "payload_"

_SCALARS: Final = {
    "boolean": pa.bool_(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}
_WIDTHS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
# Numbers that some table formats can widen, and what to.
_WIDER: Final = {
    "bigint": {kind: pa.int64() for kind in _WIDTHS[:3]},
    "double": {kind: pa.float64() for kind in (*_WIDTHS, pa.float32())},
}


def column_name(field: str, reserved: Collection[str] = ()) -> str | None:
    """The column of a field of the payload; None if it cannot have one.

    A field that is called as a reserved column (in lower case), in whatever case, gets `payload_`
    in front. A field that has such a name already has no column, so each has one origin. Nor has
    one without a name, or with a name that is too long or cannot be printed.
    """
    if not field or len(field) > NAME_CHARACTERS_MAX or not field.isprintable():
        return None
    folded = field.lower()
    if folded in reserved:
        return CLASH_PREFIX + field
    is_taken = folded.startswith(CLASH_PREFIX) and folded[len(CLASH_PREFIX) :] in reserved
    return None if is_taken else field


def field_name(column: str, reserved: Collection[str] = ()) -> str:
    """The field of the payload that a column holds: the reverse of `column_name`."""
    field = column[len(CLASH_PREFIX) :] if column.lower().startswith(CLASH_PREFIX) else ""
    return field if field.lower() in reserved else column


def grown_schema(
    known: pa.Schema, kind: Kind, reserved: Collection[str] = (), *, widens: bool = False
) -> pa.Schema:
    """The known columns and those that the fields of an object add, in the order they came in.

    With `widens` numbers that are known become wider; otherwise no known type ever changes, since
    no table format can make a `double` of a `bigint`. Among new names that differ by case only, the
    last one in the alphabet is a column. From `COLUMNS_MAX` on nothing is added.
    """
    growth = _Growth(sum(_size(field.type) for field in known), widens)
    return pa.schema(growth.fields(known, kind, reserved))


def _size(kind: pa.DataType) -> int:
    """How many columns a column counts for."""
    if pa.types.is_struct(kind):
        return 1 + sum(_size(field.type) for field in kind)
    if pa.types.is_map(kind):
        return 1 + _size(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _size(kind.value_type)
    return 1


class _Growth:
    """One run over all columns, with what is left of the limit."""

    def __init__(self, count: int, widens: bool) -> None:  # noqa: FBT001
        self._left = COLUMNS_MAX - count
        self._widens = widens

    def fields(
        self, known: Iterable[pa.Field], kind: Kind, reserved: Collection[str] = ()
    ) -> list[pa.Field]:
        """The fields of a struct, or of the whole payload."""
        result = []
        folded = set()
        for field in known:
            folded.add(field.name.lower())
            other = kind.fields.get(field_name(field.name, reserved))
            result.append(field if other is None else field.with_type(self._grown(field, other)))
        chosen: dict[str, str] = {}
        for name in kind.fields:
            column = column_name(name, reserved)
            if column is not None and column.lower() not in folded:
                chosen[column.lower()] = max(chosen.get(column.lower(), name), name)
        for name in chosen.values():
            column = column_name(name, reserved)
            added = self._new(kind.fields[name])
            if column is not None and added is not None:
                result.append(pa.field(column, added))
        return result

    def _grown(self, field: pa.Field, kind: Kind) -> pa.DataType:
        return self._grown_type(field.type, kind)

    def _grown_type(self, known: pa.DataType, kind: Kind) -> pa.DataType:
        if pa.types.is_struct(known) and kind.name == "struct":
            return pa.struct(self.fields(known, kind))
        if pa.types.is_list(known) and kind.name == "array" and kind.item is not None:
            item = known.value_field
            return pa.list_(item.with_type(self._grown_type(item.type, kind.item)))
        if pa.types.is_map(known) and kind.name == "struct":
            item = known.item_field
            for one in kind.fields.values():
                item = item.with_type(self._grown_type(item.type, one))
            return pa.map_(known.key_type, item)
        if self._widens:
            return _WIDER.get(kind.name, {}).get(known, known)
        return known

    def _new(self, kind: Kind) -> pa.DataType | None:
        """The type of a new column; None as long as nothing was seen in it."""
        if kind.name == "array":
            assert kind.item is not None
            item = self._new(kind.item)
            return None if item is None else pa.list_(pa.field("element", item))
        if self._left <= 0 or kind.name == "null":
            return None
        self._left -= 1
        if kind.name == "struct":
            fields = self.fields((), kind)
            if not fields:
                self._left += 1
                return None
            return pa.struct(fields)
        return _SCALARS[kind.name]


def joined_schema(known: pa.Schema, given: pa.Schema) -> pa.Schema:
    """The known columns, unchanged apart from new fields inside, and those only a schema has."""
    return pa.schema(_joined(list(known), list(given)))


def _joined(known: list[pa.Field], given: list[pa.Field]) -> list[pa.Field]:
    others = {field.name: field for field in given}
    folded = {field.name.lower() for field in known}
    result = [
        field.with_type(_joined_type(field.type, others[field.name].type))
        if field.name in others
        else field
        for field in known
    ]
    return result + [field for field in given if field.name.lower() not in folded]


def _joined_type(known: pa.DataType, given: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(known) and pa.types.is_struct(given):
        return pa.struct(_joined(list(known), list(given)))
    if pa.types.is_list(known) and pa.types.is_list(given):
        item = known.value_field
        return pa.list_(item.with_type(_joined_type(item.type, given.value_type)))
    return known
