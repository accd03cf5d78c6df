"""Encode monitoring documents as JSON in steps, because some have millions of lines.

Owns the division of a document into pieces. Pieces are encoded by `formats`, and the text is the
same as if the document were encoded at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET

from tradewind.monitor.formats import compact_json, indented_json
from tradewind.monitor.stepping import Stepped

# The number of values that are encoded in one step; a document with fewer is not divided.
PIECE_VALUES_MAX: Final = 512
_INDENT: Final = b"  "
_SCALARS: Final = (
    msgspec.inspect.StrType,
    msgspec.inspect.IntType,
    msgspec.inspect.FloatType,
    msgspec.inspect.BoolType,
    msgspec.inspect.NoneType,
)


def json_steps(document: Any, *, indented: bool) -> Stepped[list[bytes]]:
    """The text in pieces. The document is consumed: its lists are emptied as they are written,
    because freeing all of it at the end would be a long step.
    """
    pieces: list[bytes] = []
    for piece in _Writer(indented=indented).value(document, 0):
        pieces.append(piece)
        yield
    return pieces


class _Writer:
    """Writes pieces in one of the two forms."""

    def __init__(self, *, indented: bool) -> None:
        self._indented = indented
        self._colon = b": " if indented else b":"

    def value(self, value: Any, depth: int) -> Iterator[bytes]:
        """The pieces of a value, which begins where the last piece ended."""
        if _count(value, PIECE_VALUES_MAX) < PIECE_VALUES_MAX:
            yield self._whole(value, depth)
        elif isinstance(value, list | tuple):
            yield from self._list(value, depth)
        else:
            yield from self._object(_members(value), depth)

    def _object(self, members: Iterable[tuple[str, Any]], depth: int) -> Iterator[bytes]:
        before = b"{"
        for name, value in members:
            yield before + self._line(depth + 1) + compact_json(name) + self._colon
            yield from self.value(value, depth + 1)
            before = b","
        yield self._line(depth) + b"}"

    def _list(self, values: list[Any] | tuple[Any, ...], depth: int) -> Iterator[bytes]:
        before, line = b"[", self._line(depth + 1)
        for part in _parts(values):
            if len(part) > 1 or _count(part, PIECE_VALUES_MAX) < PIECE_VALUES_MAX:
                # Without the brackets and the line breaks next to them.
                end = -1 - len(self._line(depth))
                yield before + self._whole(part, depth)[1:end]
            else:
                yield before + line
                yield from self.value(part[0], depth + 1)
            before = b","
            part.clear()
        yield self._line(depth) + b"]"

    def _whole(self, value: Any, depth: int) -> bytes:
        if not self._indented:
            return compact_json(value)
        # A line break inside a string is written as an escape.
        return indented_json(value).replace(b"\n", self._line(depth))

    def _line(self, depth: int) -> bytes:
        return b"\n" + _INDENT * depth if self._indented else b""


def _parts(values: list[Any] | tuple[Any, ...]) -> Iterator[list[Any]]:
    """The values in groups that are small enough for one step; a group of a single value may be
    larger.
    """
    emptied = values if isinstance(values, list) else None
    kind: Any = type(values[0])
    if _is_flat(kind):
        width = max(PIECE_VALUES_MAX // _width(kind), 1)
        for start in range(0, len(values), width):
            part = list(values[start : start + width])
            if emptied is not None:
                emptied[start : start + width] = [None] * len(part)
            yield part
        return
    part = []
    total = 0
    for index in range(len(values)):
        value = values[index]
        if emptied is not None:
            emptied[index] = None
        count = _count(value, PIECE_VALUES_MAX)
        if part and total + count > PIECE_VALUES_MAX:
            yield part
            part, total = [], 0
        part.append(value)
        total += count
        del value
    yield part


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """The members of an object or struct that are written."""
    if isinstance(value, dict):
        yield from value.items()
        return
    for field, name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        if (member := getattr(value, field)) is not UNSET:
            yield name, member


def _count(value: Any, limit: int) -> int:
    """The number of values in a value, up to the limit."""
    if isinstance(value, list | tuple):
        inner: Iterable[Any] = value
        if len(value) >= limit:
            return limit
    elif isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, msgspec.Struct) and _is_divisible(type(value)):
        if _is_flat(type(value)):
            return _width(type(value))
        inner = (member for _, member in _members(value))
    else:
        return 1
    total = 1
    for member in inner:
        total += _count(member, limit - total)
        if total >= limit:
            return limit
    return total


@lru_cache(maxsize=256)
def _is_divisible(kind: type[msgspec.Struct]) -> bool:
    """Whether the text of a struct is that of its fields."""
    config = kind.__struct_config__
    return not (config.omit_defaults or config.array_like or config.tag is not None)


@lru_cache(maxsize=256)
def _is_flat(kind: type) -> bool:
    """Whether no field of a type has parts."""
    if not issubclass(kind, msgspec.Struct):
        return kind in (str, int, float, bool)
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return all(
        isinstance(each, _SCALARS)
        for field in info.fields
        for each in (
            field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else [field.type]
        )
    )


@lru_cache(maxsize=256)
def _width(kind: type) -> int:
    return len(kind.__struct_fields__) if issubclass(kind, msgspec.Struct) else 1
