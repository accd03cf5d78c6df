"""Reads well-formed requests with the JSON decoder of Python's library.

Owns the fast path. It returns the same values as `requests` would, or None: everything unusual or
wrong is left to the slow path, which knows all details of Go's decoder and its error texts. As
there, names are case-insensitive, the last of two equal names is used, null changes nothing, and
bytes that are not UTF-8 are read as U+FFFD.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tradewind.api.field_shapes import Shape
from tradewind.api.go_json import DEPTH_MAX, HALVES, VALUES_MAX, JsonError, join_halves
from tradewind.api.go_time import parse_go_time

if TYPE_CHECKING:
    from collections.abc import Callable

# Not for numbers that are never negative, but the decoder does not tell it from 0.
_MINUS_ZERO: Final = re.compile(rb"[\s:,\[]-0")
# A time that is longer has useless digits, or is none.
TIME_CHARACTERS_MAX: Final = 64
RANGES: Final = {
    "int": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
    "time.Duration": (-(2**63), 2**63 - 1),
}
ZEROS: Final[Mapping[str, Callable[[], Any]]] = {
    "struct": dict,
    "list": list,
    "map": dict,
    "string": str,
    "bool": bool,
    "time": str,
    "number": int,
}


class _NotPlainError(Exception):
    """The document is left to the slow path."""


def read_plainly(
    fields: Mapping[str, Shape], body: bytes, *, allow_unknown: bool = False
) -> dict[str, Any] | None:
    """Read the values of a request with these fields; None if it needs the slow path.

    With `allow_unknown`, unknown members are ignored, as they are there.
    """
    try:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            text = HALVES.sub("\ufffd", body.decode(errors="surrogateescape"))
        document = _DECODER.decode(text)
        if type(document) is not tuple:
            return None
        values: dict[str, Any] = {}
        # An escape by number may be half of a character, or hide a letter where Go wants it plain.
        reader = _Reader(
            allow_unknown=allow_unknown,
            has_numbered=b"\\u" in body,
            has_minus_zero=b"-0" in body and _MINUS_ZERO.search(body) is not None,
        )
        reader.fill(document, values, fields)
    except (ValueError, RecursionError, _NotPlainError):
        return None
    return values if reader.values <= VALUES_MAX else None


def _refuse(text: str) -> NoReturn:
    raise _NotPlainError(text)


class _Fraction(str):
    """A number that is not an integer; no field takes one."""

    __slots__ = ()


# Objects become tuples of pairs, so that they are no lists and repeated names are seen.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=tuple, parse_float=_Fraction, parse_constant=_refuse
)


class _Reader:
    """Puts decoded values into dicts that msgspec can convert, and counts them."""

    def __init__(self, *, allow_unknown: bool, has_numbered: bool, has_minus_zero: bool) -> None:
        self.values = 1
        self._has_minus_zero = has_minus_zero
        self._allow_unknown = allow_unknown
        self._has_numbered = has_numbered

    def fill(
        self,
        members: tuple[tuple[str, Any], ...],
        values: dict[str, Any],
        fields: Mapping[str, Shape],
    ) -> None:
        self.values += len(members)
        for name, value in members:
            shape = fields.get(name)
            known = name
            if shape is None:
                known = name.casefold()
                shape = fields.get(known)
                if shape is None:
                    self._pass_over(name, value)
                    continue
            kind = shape.kind
            if kind == "string" and type(value) is str:
                values[known] = self._text(value)
            elif value is None and kind != "enum":
                if shape.is_nullable:
                    values.pop(known, None)
            elif kind == "struct" and type(value) is tuple:
                assert shape.fields is not None
                self.fill(value, values.setdefault(known, {}), shape.fields)
            elif kind == "map" and type(value) is tuple:
                self._fill_map(value, values.setdefault(known, {}), shape)
            else:
                values[known] = self._item(value, shape)

    def _pass_over(self, name: str, value: Any) -> None:
        """Ignore an unknown member, except for its part in the size of the document."""
        if not self._allow_unknown or (self._has_numbered and HALVES.search(name)):
            raise _NotPlainError(name)
        level = [value] if type(value) is list or type(value) is tuple else []
        depth = 1
        while level:
            depth += 1
            if depth > DEPTH_MAX:
                raise _NotPlainError(name)
            self.values += sum(map(len, level))
            if self.values > VALUES_MAX:
                raise _NotPlainError(name)
            level = [
                inner
                for outer in level
                for item in outer
                # A member of an object is a pair of its name and its value.
                for inner in ((item[1],) if type(outer) is tuple else (item,))
                if type(inner) is list or type(inner) is tuple
            ]

    def _text(self, value: str) -> str:
        return join_halves(value) if self._has_numbered else value

    def _fill_map(
        self, members: tuple[tuple[str, Any], ...], values: dict[str, Any], shape: Shape
    ) -> None:
        assert shape.item is not None
        self.values += len(members)
        for key, value in members:
            values[self._text(key)] = self._item(value, shape.item)

    def _item(self, value: Any, shape: Shape) -> Any:
        kind = shape.kind
        if kind == "string" and type(value) is str:
            return self._text(value)
        if shape.enum is not None:
            if self._has_numbered:
                raise _NotPlainError(kind)
            return shape.enum(value).value
        if value is None:
            return ZEROS[kind]()
        if kind == "number" and type(value) is int:
            low, high = RANGES[shape.go_type]
            if low <= value <= high and (value or low or not self._has_minus_zero):
                return value
        elif kind == "bool" and type(value) is bool:
            return value
        elif kind == "list" and type(value) is list:
            assert shape.item is not None
            self.values += len(value)
            item = shape.item
            return [self._item(child, item) for child in value]
        elif kind == "struct" and type(value) is tuple:
            assert shape.fields is not None
            values: dict[str, Any] = {}
            self.fill(value, values, shape.fields)
            return values
        elif kind == "time" and type(value) is str:
            return self._time(value)
        raise _NotPlainError(kind)

    def _time(self, text: str) -> str:
        if len(text) > TIME_CHARACTERS_MAX:
            raise _NotPlainError(text)
        try:
            return parse_go_time(text)
        except JsonError:
            raise _NotPlainError(text) from None
