"""Decoders of formats whose payloads are objects: read one by one, then built as columns.

Owns the way from objects to columns, the rescued column and the reasons, the same for all formats.
The module never reads bytes itself; a `PayloadReader` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

import pyarrow as pa

from tradewind.decoding.column_growth import (
    column_name,
    field_name,
    grown_schema,
    joined_schema,
)
from tradewind.decoding.column_values import ABSENT, Fit, fit_for, json_text
from tradewind.decoding.decoder_contract import RESCUED_COLUMN, DecodedPayloads, DecodingError
from tradewind.decoding.payload_kinds import Kind, absorb

PAYLOAD_BYTES_MAX: Final = 64 << 20
REASON_CHARACTERS_MAX: Final = 300
# In the rescued column: the whole payload, where it cannot be taken apart without loss.
PAYLOAD_KEY: Final = "_payload"
_TOO_DEEP: Final = "objects or lists are nested too deeply"
_TOO_LARGE: Final = f"more than {PAYLOAD_BYTES_MAX >> 20} MiB"


@dataclass(slots=True)
class ReadRow:
    """One payload: its fields, and what else is to be rescued; or why it cannot be decoded."""

    fields: Mapping[str, Any] | None = None
    left: dict[str, Any] | None = None
    reason: str | None = None


class PayloadReader(Protocol):
    """A reader that knows a format; a value that can be pickled."""

    def read(self, payload: bytes, plan: RowPlan) -> ReadRow:
        """One payload; ValueError or RecursionError if it cannot be read."""

    def schema(self, payloads: pa.BinaryArray) -> pa.Schema | None:
        """The fields of a schema that was given, or that these payloads name; None if none was."""


@dataclass(frozen=True)
class RowPlan:
    """How objects become some columns: for each field the number of its column, and its fit.

    `fields` are the columns with the names that they have in payloads.
    """

    columns: pa.Schema
    fields: pa.Schema
    has_decimals: bool
    places: Mapping[str, tuple[int, Fit]]


@lru_cache(maxsize=64)
def plan_of(columns: pa.Schema, reserved: tuple[str, ...]) -> RowPlan:
    """The plan for some columns."""
    names = [field_name(field.name, reserved) for field in columns]
    places = {
        name: (number, fit_for(field.type))
        for number, (name, field) in enumerate(zip(names, columns, strict=True))
    }
    fields = [field.with_name(name) for name, field in zip(names, columns, strict=True)]
    has_decimals = any(_holds_decimal(field.type) for field in columns)
    return RowPlan(columns, pa.schema(fields), has_decimals, places)


def _holds_decimal(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_holds_decimal(kind.field(number).type) for number in range(kind.num_fields))


@dataclass(frozen=True)
class ObjectDecoder:
    """A decoder of objects. `reserved` are columns that fields must not have, in lower case."""

    reader: PayloadReader
    reserved: tuple[str, ...] = ()
    widens: bool = False

    def fields(self, payloads: pa.BinaryArray, known: pa.Schema) -> pa.Schema:
        """The known columns and the new ones; see `Decoder.fields`."""
        given = self.reader.schema(payloads)
        if given is not None:
            return joined_schema(known, renamed(given, self.reserved))
        plan = plan_of(known, self.reserved)
        kind = Kind("struct")
        for payload in payloads.to_pylist():
            row = self.row(payload, plan)
            if row.fields is not None:
                kind = absorb(kind, dict(row.fields))
        return grown_schema(known, kind, self.reserved, widens=self.widens)

    def decode(self, payloads: pa.BinaryArray, fields: pa.Schema) -> DecodedPayloads:
        """The payloads as columns; see `Decoder.decode`."""
        plan = plan_of(fields, self.reserved)
        return built([self.row(payload, plan) for payload in payloads.to_pylist()], plan)

    def row(self, payload: bytes | None, plan: RowPlan) -> ReadRow:
        """One payload, or the reason why it cannot be read."""
        if payload is None:
            return ReadRow()
        if len(payload) > PAYLOAD_BYTES_MAX:
            return ReadRow(reason=_TOO_LARGE)
        try:
            return self.reader.read(payload, plan)
        except RecursionError:
            return ReadRow(reason=_TOO_DEEP)
        except ValueError as error:
            return ReadRow(reason=one_line(error))


def one_line(error: BaseException) -> str:
    """The text of an error as a reason."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= REASON_CHARACTERS_MAX else f"{text[:REASON_CHARACTERS_MAX]}..."


def renamed(fields: pa.Schema, reserved: tuple[str, ...]) -> pa.Schema:
    """Given fields as columns; DecodingError names one that can have none."""
    columns = []
    for field in fields:
        column = column_name(field.name, reserved)
        if column is None:
            raise DecodingError(
                f"the schema has a field {field.name!r}, which cannot be a column: its name is"
                " empty, too long, unprintable, or one that a renamed field has"
            )
        columns.append(field.with_name(column))
    folded: dict[str, str] = {}
    for field in columns:
        if field.name.lower() in folded:
            raise DecodingError(
                f"fields {folded[field.name.lower()]!r} and {field.name!r} of the schema differ by"
                " case only; a table cannot have both"
            )
        folded[field.name.lower()] = field.name
    return pa.schema(columns)


class RowCells:
    """The cells of some columns, filled row by row; `columns` may hold some already."""

    def __init__(self, plan: RowPlan, count: int, columns: list[list[Any]] | None = None) -> None:
        self._plan = plan
        self._count = count
        self._columns = columns or [[None] * count for _ in plan.columns]
        self._rescued: list[str | None] = [None] * count
        self._reasons: list[str | None] = [None] * count

    def put(self, number: int, row: ReadRow) -> None:
        """Put a row where nothing is yet."""
        if row.fields is None:
            self._reasons[number] = row.reason
            return
        try:
            left = self._place(number, row)
            if left:
                self._rescued[number] = json_text(left)
        except RecursionError:
            self._reasons[number] = _TOO_DEEP
            self.clear(number)

    def clear(self, number: int) -> None:
        """Empty the columns of a row."""
        for column in self._columns:
            column[number] = None

    def _place(self, number: int, row: ReadRow) -> dict[str, Any]:
        """Put the fields of a row into the columns; returns what is left over."""
        left: dict[str, Any] = {}
        assert row.fields is not None
        for name, value in row.fields.items():
            if value is None:
                continue
            place = self._plan.places.get(name)
            if place is None:
                left[name] = value
                continue
            self._columns[place[0]][number], rest = place[1](value)
            if rest is not ABSENT:
                left[name] = rest
        return left | row.left if row.left else left

    def decoded(self) -> DecodedPayloads:
        """All rows."""
        columns = self._plan.columns
        arrays = [
            arrow_array(values, field) for values, field in zip(self._columns, columns, strict=True)
        ]
        return DecodedPayloads(
            struct_of(arrays, columns, self._count),
            arrow_array(self._rescued, pa.field(RESCUED_COLUMN, pa.string())),
            pa.array(self._reasons, pa.string()),
        )


def built(rows: Sequence[ReadRow], plan: RowPlan) -> DecodedPayloads:
    """Rows as columns."""
    cells = RowCells(plan, len(rows))
    for number, row in enumerate(rows):
        cells.put(number, row)
    return cells.decoded()


def arrow_array(values: Iterable[Any], field: pa.Field) -> pa.Array:
    """Values of one column; DecodingError if a decoder of the user made some that are none."""
    try:
        array = pa.array(values, field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise DecodingError(f"column {field.name}: {one_line(error)}") from None
    if isinstance(array, pa.ChunkedArray):
        raise DecodingError(
            f"column {field.name}: more than 2 GiB in one batch; read fewer messages at a time"
        )
    return array


def struct_of(arrays: Sequence[pa.Array], columns: pa.Schema, count: int) -> pa.StructArray:
    """Columns as one struct, also if there are none."""
    if not arrays:
        return pa.array([{}] * count, pa.struct([]))
    return pa.StructArray.from_arrays(arrays, fields=list(columns))
