"""Explains why a payload does not fit its schema.

Owns the texts for bad rows. The module runs in Spark's Python workers for bad rows only, so it may
inspect every field. The module never decides whether a row is bad, which is up to Spark's own
reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

SHOWN_CHARACTERS: Final = 80
_INTEGERS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
# name, type as Spark writes it, whether it must be there
Field = tuple[str, str, bool]


def reason_of(payload: bytes | None, fields: Sequence[Field]) -> str:
    """The problem with a payload, the first one that is found."""
    if not payload:
        return "the payload is empty"
    try:
        value = msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        return f"the payload is not JSON: {error}"
    if not isinstance(value, dict):
        return f"the payload is JSON, but not an object: {_shown(value)}"
    for name, kind, is_required in fields:
        found = value.get(name)
        if found is None:
            if is_required:
                return f"field {name} is missing"
        elif not _fits(found, kind):
            return f"field {name}: {_shown(found)} is not of type {kind}"
    return "the payload does not match the schema"


def _fits(value: Any, kind: str) -> bool:
    """Whether a value can be of a type; in doubt it is."""
    if kind in _INTEGERS:
        bound = 1 << (_INTEGERS[kind] - 1)
        return type(value) is int and -bound <= value < bound
    if kind in ("double", "float"):
        return type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity")
    if kind.startswith("decimal("):
        digits, _, scale = kind[8:-1].partition(",")
        return type(value) in (int, float) and abs(value) < 10 ** (int(digits) - int(scale))
    if kind == "boolean":
        return type(value) is bool
    if kind.startswith("array<"):
        return isinstance(value, list)
    if kind.startswith(("struct<", "map<")):
        return isinstance(value, dict)
    if kind in ("date", "timestamp", "timestamp_ntz", "binary"):
        return isinstance(value, str)
    return True


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
