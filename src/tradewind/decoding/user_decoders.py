"""Decoders that users write: a function of Python over a batch of payloads.

Owns how such a function is named, found and called. The function is looked up where it runs, by its
name, so it must be importable on executors too.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from tradewind.decoding.column_growth import grown_schema, joined_schema
from tradewind.decoding.decoder_contract import DecodedPayloads, DecodingError
from tradewind.decoding.payload_kinds import Kind, absorb
from tradewind.decoding.row_decoding import ReadRow, RowPlan, built, one_line, plan_of, renamed

_PLACE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

UserFunction = Callable[..., Any]


def is_place(name: str) -> bool:
    """Whether a name is `module:function`."""
    return _PLACE.fullmatch(name) is not None


@lru_cache(maxsize=64)
def function_at(place: str) -> tuple[UserFunction, bool]:
    """The function at `module:function`, and whether it takes a schema as well."""
    module_name, _, path = place.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise DecodingError(f"payload {place}: {one_line(error)}") from None
    if not callable(found):
        raise DecodingError(f"payload {place}: not a function")
    try:
        count = len(inspect.signature(found).parameters)
    except (TypeError, ValueError):
        count = 1
    if count not in (1, 2):
        raise DecodingError(
            f"payload {place}: the function must take a BinaryArray, and if it wants a Schema"
        )
    return found, count == 2


@dataclass(frozen=True)
class UserDecoder:
    """A function of a user as a decoder; `given` are the fields, if they were given."""

    place: str
    given: pa.Schema | None = None
    reserved: tuple[str, ...] = ()
    widens: bool = False

    def fields(self, payloads: pa.BinaryArray, known: pa.Schema) -> pa.Schema:
        """The known columns and the new ones; see `Decoder.fields`."""
        if self.given is not None:
            return joined_schema(known, renamed(self.given, self.reserved))
        plan = plan_of(known, self.reserved)
        kind = Kind("struct")
        for row in self._rows(payloads, plan):
            if row.fields is not None:
                kind = absorb(kind, dict(row.fields))
        return grown_schema(known, kind, self.reserved, widens=self.widens)

    def decode(self, payloads: pa.BinaryArray, fields: pa.Schema) -> DecodedPayloads:
        """The payloads as columns; see `Decoder.decode`."""
        plan = plan_of(fields, self.reserved)
        return built(self._rows(payloads, plan), plan)

    def _rows(self, payloads: pa.BinaryArray, plan: RowPlan) -> list[ReadRow]:
        """The result of the function; if it fails, it is called for each payload alone."""
        try:
            return self._called(payloads, plan)
        except DecodingError:
            raise
        except Exception as error:
            if len(payloads) == 1:
                return [ReadRow(reason=one_line(error))]
        return [
            row
            for number in range(len(payloads))
            for row in self._rows(payloads.slice(number, 1), plan)
        ]

    def _called(self, payloads: pa.BinaryArray, plan: RowPlan) -> list[ReadRow]:
        if len(payloads) == 0:
            return []
        function, takes_schema = function_at(self.place)
        result = function(payloads, plan.fields) if takes_schema else function(payloads)
        values: Iterable[Any] = result
        if isinstance(result, pa.StructArray | pa.ChunkedArray):
            values = result.to_pylist()
        if not isinstance(values, list) or len(values) != len(payloads):
            raise DecodingError(
                f"payload {self.place}: the function must return a StructArray or a list of dicts"
                f" with one entry for each of its {len(payloads)} payloads"
            )
        return [
            _user_row(value, is_null=not payload.is_valid)
            for value, payload in zip(values, payloads, strict=True)
        ]


def _user_row(value: Any, *, is_null: bool) -> ReadRow:
    if is_null:
        return ReadRow()
    if value is None:
        return ReadRow(reason="the decoder returned nothing for this payload")
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        return ReadRow(reason="the decoder returned no dict with names as keys")
    return ReadRow(value)
