"""Finds misspelt types in schemas without Spark.

Owns the names of Spark's types and as much of their notation as is needed to find them. Types that
are not understood are left to Spark, which reads every schema before a pipeline runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tradewind.pipelines.definition.model import INFER

if TYPE_CHECKING:
    from tradewind.documents import Key
    from tradewind.pipelines.definition.model import Pipeline

TYPES: Final = frozenset(
    {
        *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
        *("float", "real", "double", "decimal", "dec", "numeric", "string", "char", "character"),
        *("varchar", "binary", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz"),
        *("interval", "array", "map", "struct", "variant", "void", "geometry", "geography"),
    }
)
_NESTED: Final = ("array", "map", "struct")
# Names that other systems have for a type of Spark.
_FOREIGN: Final = {
    "text": "string",
    "str": "string",
    "bool": "boolean",
    "int64": "bigint",
    "int32": "int",
    "int16": "smallint",
    "int8": "tinyint",
    "float64": "double",
    "float32": "float",
    "number": "double",
    "datetime": "timestamp",
    "bytes": "binary",
    "bytea": "binary",
    "blob": "binary",
    "json": "string",
    "uuid": "string",
    "list": "array<...>",
    "object": "struct<...>",
    "serial": "bigint",
}
_WORD: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*")
_FIELD: Final = re.compile(r"\s*(?:`(?:[^`]|``)*`|[^\s`:,<>()]+)\s*:?\s*")


class UnknownTypeError(ValueError):
    """A type that Spark does not have."""


def check_types(pipeline: Pipeline) -> None:
    """PipelineFileError at the first schema of a source that names a type that does not exist."""
    for keys, schema in _schemas(pipeline):
        entries: list[tuple[tuple[Key, ...], str]] = []
        if isinstance(schema, dict):
            entries = [((*keys, name), f"`x` {kind}") for name, kind in schema.items()]
        elif schema and schema.strip() != INFER:
            entries = [(keys, schema)]
        for place, text in entries:
            try:
                check_fields(text)
            except UnknownTypeError as error:
                raise pipeline.document.error(place, str(error)) from None


def _schemas(pipeline: Pipeline) -> Iterator[tuple[tuple[Key, ...], str | dict[str, str]]]:
    for name, source in pipeline.sources.items():
        yield ("sources", name, "schema"), source.schema
        if source.payload is not None:
            yield ("sources", name, "payload", "schema"), source.payload.schema


def check_fields(text: str) -> None:
    """UnknownTypeError if a field of `id bigint not null, at timestamp` has no type of Spark."""
    for part in _parts(text):
        if found := _FIELD.match(part):
            check_type(part[found.end() :])


def check_type(text: str) -> None:
    """The same for one type, which may be nested: `array<struct<a: int>>`."""
    found = _WORD.match(text)
    if found is None:
        return
    name, rest = found[1].lower(), text[found.end() :]
    if name not in TYPES:
        from tradewind.pipelines.definition.loading import near

        meant = _FOREIGN.get(name)
        hint = f"; did you mean {meant!r}?" if meant else near(name, TYPES)
        raise UnknownTypeError(f"type {found[1]!r} does not exist{hint}")
    inner = _inside(rest) if name in _NESTED else ""
    if name == "struct":
        check_fields(inner)
    else:
        for part in _parts(inner):
            check_type(part)


def _inside(text: str) -> str:
    """The text between the brackets at the begin of a text; empty if there are none."""
    if not text.startswith("<"):
        return ""
    depth = 0
    for index, sign in enumerate(text):
        depth += (sign == "<") - (sign == ">")
        if depth == 0:
            return text[1:index]
    return ""


def _parts(text: str) -> Iterator[str]:
    """The parts of a list, at commas outside of brackets, quotes and comments of fields."""
    depth, begin, quote = 0, 0, ""
    for index, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "`'\"":
            quote = sign
        elif sign in "<(":
            depth += 1
        elif sign in ">)":
            depth -= 1
        elif sign == "," and depth == 0:
            yield text[begin:index]
            begin = index + 1
    if text[begin:].strip():
        yield text[begin:]
