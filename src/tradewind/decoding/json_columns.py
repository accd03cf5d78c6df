"""JSON objects that fit their columns exactly, decoded without a look at each value.

Owns a type for the JSON library that is as strict as the columns: what does not fit is refused by
the library and read by `json_payloads`, which finds out what is left over. Both give the same
columns for the same payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tradewind.decoding.column_growth import grown_schema
from tradewind.decoding.column_values import ABSENT, Fit, fit_for
from tradewind.decoding.decoder_contract import DecodedPayloads
from tradewind.decoding.json_payloads import decode_json, quotes_in, quotes_of, repeats_fields
from tradewind.decoding.payload_kinds import Kind, absorb
from tradewind.decoding.row_decoding import (
    PAYLOAD_BYTES_MAX,
    ObjectDecoder,
    RowCells,
    RowPlan,
    plan_of,
)

# Before there is a type for the others.
_SAMPLE: Final = 256
_EXACT_FLOAT: Final = 1 << 53
_BITS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_MISFITS: Final = (ValueError, RecursionError, TypeError)


@dataclass(frozen=True)
class FastColumn:
    """One column: how its values are taken from the objects that the library makes.

    `quotes` is how many a value has in JSON with its name, 0 if they must be counted. `fit` is for
    values that are texts in JSON and something else in the column.
    """

    take: Callable[[Any], Any]
    quotes: int
    fit: Fit | None = None
    has_structs: bool = False


@dataclass(frozen=True)
class FastPlan:
    """The strict decoder of some columns."""

    decode: Callable[[bytes], Any]
    nothing: Any
    columns: tuple[FastColumn, ...]


@lru_cache(maxsize=64)
def fast_plan(fields: pa.Schema) -> FastPlan | None:
    """The strict decoder for these fields; None if one of their types has none."""
    columns, types = [], []
    for number, field in enumerate(fields):
        take = attrgetter(f"f{number}")
        if (kind := _strict_type(field.type)) is not None:
            has_structs = _has(field.type, pa.types.is_struct)
            columns.append(FastColumn(take, _quotes(field.type), has_structs=has_structs))
        elif _is_text_in_json(field.type):
            kind = str
            columns.append(FastColumn(take, 4, fit_for(field.type)))
        else:
            return None
        types.append((f"f{number}", kind | None, None))
    names = {f"f{number}": field.name for number, field in enumerate(fields)}
    if not types or not _are_plain(names.values()):
        return None
    row = msgspec.defstruct("JsonRow", types, rename=names, forbid_unknown_fields=True, gc=False)
    return FastPlan(msgspec.json.Decoder(row).decode, row(), tuple(columns))


def _are_plain(names: Iterable[str]) -> bool:
    """Whether no name needs an escape in JSON: the library has no types for those."""
    return all(name.isprintable() and not {'"', "\\"} & {*name} for name in names)


def _quotes(kind: pa.DataType) -> int:
    """How many quotes each value has with its name; 0 if not all have the same number."""
    if pa.types.is_string(kind):
        return 4
    is_counted = _has(kind, pa.types.is_struct) or _has(kind, pa.types.is_string)
    return 0 if is_counted else 2


def _has(kind: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return is_kind(kind) or any(_has(one, is_kind) for one in inner)


def _is_text_in_json(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) or pa.types.is_binary(kind))


def _strict_type(kind: pa.DataType) -> Any:
    """The type that takes exactly the values that fit a column as they are."""
    if kind in _BITS:
        half = 1 << _BITS[kind] - 1
        return Annotated[int, msgspec.Meta(ge=-half, le=half - 1)]
    if pa.types.is_float64(kind):
        # Beyond these an integer may not be the same number.
        return Annotated[float, msgspec.Meta(ge=-_EXACT_FLOAT, le=_EXACT_FLOAT)]
    if pa.types.is_string(kind):
        return str
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_list(kind):
        inner = _strict_type(kind.value_type)
        return None if inner is None else list[inner | None]  # type: ignore[valid-type]
    if pa.types.is_struct(kind):
        types = []
        for number, field in enumerate(kind):
            inner = _strict_type(field.type)
            if inner is None:
                return None
            types.append((f"f{number}", inner | None, None))
        names = {f"f{number}": field.name for number, field in enumerate(kind)}
        if not types or not _are_plain(names.values()):
            return None
        return msgspec.defstruct(
            "JsonStruct",
            types,
            rename=names,
            forbid_unknown_fields=True,
            gc=False,
            omit_defaults=True,
        )
    return None


@dataclass(frozen=True)
class JsonDecoder(ObjectDecoder):
    """JSON objects as columns."""

    def fields(self, payloads: pa.BinaryArray, known: pa.Schema) -> pa.Schema:
        """The known columns and the new ones; see `Decoder.fields`."""
        if self.reader.schema(payloads) is not None:
            return super().fields(payloads, known)
        plan = plan_of(known, self.reserved)
        kind = Kind("struct")
        items = payloads.to_pylist()
        for payload in items[:_SAMPLE]:
            kind = self._absorbed(kind, payload, plan)
        # A payload that fits the columns found so far adds nothing to them.
        found = grown_schema(known, kind, self.reserved, widens=self.widens)
        fast = fast_plan(plan_of(found, self.reserved).fields)
        for payload in items[_SAMPLE:]:
            if fast is not None:
                try:
                    fast.decode(payload)
                    continue
                except _MISFITS:
                    pass
            kind = self._absorbed(kind, payload, plan)
        return grown_schema(known, kind, self.reserved, widens=self.widens)

    def _absorbed(self, kind: Kind, payload: bytes | None, plan: RowPlan) -> Kind:
        row = self.row(payload, plan)
        return kind if row.fields is None else absorb(kind, dict(row.fields))

    def decode(self, payloads: pa.BinaryArray, fields: pa.Schema) -> DecodedPayloads:
        """The payloads as columns; see `Decoder.decode`."""
        plan = plan_of(fields, self.reserved)
        fast = fast_plan(plan.fields)
        if fast is None or payloads.nbytes > PAYLOAD_BYTES_MAX:
            return super().decode(payloads, fields)
        items = payloads.to_pylist()
        objects, misfits = _objects(items, fast)
        columns, others = _columns(objects, fast)
        cells = RowCells(plan, len(items), columns)
        suspects = _suspects(items, columns, fast, {*misfits, *others})
        for number in sorted({*misfits, *others, *suspects}):
            cells.clear(number)
            cells.put(number, self.row(items[number], plan))
        return cells.decoded()


def _objects(items: Sequence[bytes | None], fast: FastPlan) -> tuple[list[Any], list[int]]:
    """The objects of payloads that fit, and the numbers of the others, which have an empty one."""
    objects, misfits = [], []
    decode, nothing = fast.decode, fast.nothing
    for number, payload in enumerate(items):
        try:
            objects.append(decode(payload))  # type: ignore[arg-type]
        except _MISFITS:
            objects.append(nothing)
            misfits.append(number)
    return objects, misfits


def _columns(objects: list[Any], fast: FastPlan) -> tuple[list[list[Any]], list[int]]:
    """The values of each column, and the numbers of objects with a text that does not fit."""
    columns, others = [], []
    for column in fast.columns:
        values = list(map(column.take, objects))
        if column.has_structs:
            values = msgspec.to_builtins(values)
        elif column.fit is not None:
            for number, value in enumerate(values):
                if value is not None:
                    values[number], rest = column.fit(value)
                    if rest is not ABSENT:
                        others.append(number)
        columns.append(values)
    return columns, others


def _suspects(
    items: Sequence[bytes | None], columns: list[list[Any]], fast: FastPlan, skipped: set[int]
) -> list[int]:
    """The payloads in which a field may be there twice, of which the library takes the last.

    A payload has as many quotes as its names and texts need. Fields that are null have quotes too,
    which is only seen when the payload is read again.
    """
    expected = pa.scalar(0, pa.int64())
    for column, values in zip(fast.columns, columns, strict=True):
        if column.quotes == 0:
            found = [0 if value is None else 2 + quotes_of(value) for value in values]
            expected = pc.add(expected, pa.array(found, pa.int64()))
        elif None in values:
            found = [0 if value is None else column.quotes for value in values]
            expected = pc.add(expected, pa.array(found, pa.int64()))
        else:
            expected = pc.add(expected, pa.scalar(column.quotes, pa.int64()))
    counted = [0 if item is None else quotes_in(item) for item in items]
    differ = pc.indices_nonzero(pc.not_equal(pa.array(counted, pa.int64()), expected))
    return [
        number
        for number in differ.to_pylist()
        if number not in skipped and repeats_fields(items[number], decode_json(items[number]))
    ]
