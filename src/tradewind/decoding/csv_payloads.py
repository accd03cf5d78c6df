"""CSV payloads: each is one record, with or without a line of names before it.

Owns the names `c1`, `c2`, ... of cells without one, and the way from texts to numbers. CSV has no
types: without a schema each column is a string.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tradewind.decoding.row_decoding import ReadRow, RowPlan

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER: Final = re.compile(r"[+-]?[0-9.]{1,400}(?:[eE][+-]?[0-9]{1,9})?")
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True)
class CsvReader:
    """Reads records of CSV; `given` are the fields, by their place or by the line of names."""

    given: pa.Schema | None = None
    delimiter: str = ","
    has_header: bool = False

    def read(self, payload: bytes, plan: RowPlan) -> ReadRow:
        """One record."""
        lines = io.StringIO(payload.decode(), newline="")
        # A record that is too much is found, and no more are read.
        records = []
        try:
            for record in csv.reader(lines, delimiter=self.delimiter, strict=True):
                if record:
                    records.append(record)
                if len(records) > 2:
                    break
        except csv.Error as error:
            raise ValueError(f"not CSV: {error}") from None
        wanted = 2 if self.has_header else 1
        if len(records) != wanted:
            what = "a line of names and one record" if self.has_header else "one record"
            count = "more" if len(records) > wanted else "less"
            raise ValueError(f"the payload is {count} than {what}")
        cells = records[-1]
        names = records[0] if self.has_header else self._names(len(cells))
        if len(cells) > len(names) or len(set(names)) < len(names):
            raise ValueError("the record has more cells than names, or a name is there twice")
        kinds = {field.name: field.type for field in plan.fields}
        return ReadRow(
            {
                name: cell_value(cell, kinds.get(name))
                for name, cell in zip(names, cells, strict=False)
            }
        )

    def _names(self, count: int) -> list[str]:
        given = [] if self.given is None else list(self.given.names)
        return given[:count] + [f"c{number + 1}" for number in range(len(given), count)]

    def schema(self, payloads: pa.BinaryArray) -> pa.Schema | None:  # noqa: ARG002
        """The given fields."""
        return self.given


def cell_value(text: str, kind: pa.DataType | None) -> Any:
    """The value of a cell for a column; the text itself if it is none of its type.

    An empty cell is null, except in a column of strings.
    """
    if kind is None or pa.types.is_string(kind):
        return text
    if not text:
        return None
    for is_kind, convert in _CONVERSIONS:
        if is_kind(kind):
            value = convert(text.strip())
            return text if value is None else value
    return text


def _integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


def _number(text: str) -> float | None:
    if _NUMBER.fullmatch(text):
        try:
            return float(text)
        except ValueError:
            return None
    return None


def _boolean(text: str) -> bool | None:
    return _BOOLEANS.get(text.lower())


_CONVERSIONS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]], ...]] = (
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _number),
    (pa.types.is_boolean, _boolean),
)
