"""Names and types that a user writes: `id bigint, items array<struct<sku: string, count: int>>`.

Owns the grammar, which is that of Spark's DDL without `not null` and comments. The module never
asks Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NoReturn

import pyarrow as pa

from tradewind.decoding.column_growth import COLUMNS_MAX
from tradewind.decoding.decoder_contract import DecodingError
from tradewind.decoding.payload_kinds import DEPTH_MAX

TEXT_CHARACTERS_MAX: Final = 1 << 20
_NAMES: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
}
TYPE_NAMES: Final = (
    "bigint, int, double, float, boolean, string, binary, timestamp, date, decimal(p,s),"
    " array<...>, struct<name: type, ...>, map<string,...>"
)
_TOKEN: Final = re.compile(r"\s+|`(?:[^`]|``)*`|[\w.$-]+|[<>(),:]")


def columns_of(given: str | Mapping[str, str]) -> pa.Schema:
    """The fields of names and types, as a text or a mapping; DecodingError says what is wrong."""
    if isinstance(given, str):
        parser = _TypeText(given, "schema")
        fields = parser.fields(0, "")
    else:
        fields = [pa.field(str(name), type_of(kind, str(name))) for name, kind in given.items()]
    if not fields:
        raise DecodingError(f"schema: no fields; write `name type`, with one of {TYPE_NAMES}")
    names: set[str] = set()
    for field in fields:
        if field.name.lower() in names:
            raise DecodingError(f"schema: field {field.name!r} is there twice; case does not count")
        names.add(field.name.lower())
    return pa.schema(fields)


def type_of(text: object, name: str) -> pa.DataType:
    """One type; `name` is that of its field, for the error."""
    if not isinstance(text, str):
        raise DecodingError(f"field {name}: the type must be a text, one of {TYPE_NAMES}")
    parser = _TypeText(text, f"field {name}")
    kind = parser.kind(0)
    parser.expect_end()
    return kind


class _TypeText:
    """Reads one text from left to right."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._count = 0
        self._tokens: list[tuple[str, int]] = []
        if len(text) > TEXT_CHARACTERS_MAX:
            raise DecodingError(f"{where}: more than {TEXT_CHARACTERS_MAX} characters")
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise DecodingError(
                    f"{where}: character {position + 1} {text[position]!r} is no part of a type;"
                    " a name with other characters is written between backticks"
                )
            if not match[0].isspace():
                self._tokens.append((match[0], position))
            position = match.end()
        self._tokens.append(("", len(text)))
        self._next = 0

    def fields(self, depth: int, end: str) -> list[pa.Field]:
        """Names with types, up to a sign or the end of the text."""
        found: list[pa.Field] = []
        while True:
            if self._peek() == end and not found:
                break
            name = self._name()
            if self._peek() == ":":
                self._next += 1
            found.append(pa.field(name, self.kind(depth)))
            self._count += 1
            if self._count > COLUMNS_MAX:
                raise DecodingError(f"{self._where}: more than {COLUMNS_MAX} fields")
            if self._peek() != ",":
                break
            self._next += 1
        self._expect(end)
        return found

    def kind(self, depth: int) -> pa.DataType:
        """A type."""
        if depth > DEPTH_MAX:
            raise DecodingError(f"{self._where}: types are nested deeper than {DEPTH_MAX}")
        word = self._peek().lower()
        if word in _NAMES:
            self._next += 1
            return _NAMES[word]
        if word not in ("decimal", "numeric", "array", "struct", "map"):
            self._fail(f"is no type; it must be one of {TYPE_NAMES}")
        self._next += 1
        if word in ("decimal", "numeric"):
            return self._decimal()
        self._expect("<")
        if word == "struct":
            fields = self.fields(depth + 1, ">")
            if not fields:
                self._fail("ends a struct without fields")
            return pa.struct(fields)
        if word == "map":
            if self.kind(depth + 1) != pa.string():
                self._fail("follows a key that is no string: map<string,...>")
            self._expect(",")
            kind = self.kind(depth + 1)
            self._expect(">")
            return pa.map_(pa.string(), kind)
        kind = self.kind(depth + 1)
        self._expect(">")
        return pa.list_(pa.field("element", kind))

    def expect_end(self) -> None:
        """Refuse a text that goes on."""
        self._expect("")

    def _decimal(self) -> pa.DataType:
        if self._peek() != "(":
            return pa.decimal128(10, 0)
        self._next += 1
        precision = self._number(1, 38)
        scale = 0
        if self._peek() == ",":
            self._next += 1
            scale = self._number(0, precision)
        self._expect(")")
        return pa.decimal128(precision, scale)

    def _number(self, least: int, most: int) -> int:
        text = self._peek()
        if not text.isascii() or not text.isdigit() or not least <= int(text[:9]) <= most:
            self._fail(f"must be a number from {least} to {most}")
        self._next += 1
        return int(text[:9])

    def _name(self) -> str:
        text = self._peek()
        if text[:1] == "`":
            text = text[1:-1].replace("``", "`")
        elif text in ("", "<", ">", "(", ")", ",", ":"):
            self._fail("is where the name of a field should be")
        if not text:
            self._fail("is a field without a name")
        self._next += 1
        return text

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            self._fail(f"is where {repr(sign) if sign else 'the end'} should be")
        if sign:
            self._next += 1

    def _peek(self) -> str:
        return self._tokens[self._next][0]

    def _fail(self, text: str) -> NoReturn:
        token, position = self._tokens[self._next]
        place = f"character {position + 1}: {token!r}" if token else "the end of the text"
        raise DecodingError(f"{self._where}: {place} {text}")
