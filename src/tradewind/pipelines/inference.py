"""Infers the schema of JSON payloads from a sample.

Owns merging the types of two payloads: numbers widen, objects get the fields of both, and
conflicting types become a string, which holds any JSON. It is pure; the results are in Spark's DDL.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 63) - 1
FIELDS_MAX: Final = 2000


@dataclass(slots=True)
class Kind:
    """The type of a value: a scalar by name, `array` of one kind, or `struct` of fields."""

    name: str
    item: Kind | None = None
    fields: dict[str, Kind] = field(default_factory=dict)

    def ddl(self) -> str:
        """The type as Spark writes it.

        What was always null is a string, and so is an object whose fields differ by case only,
        which Spark cannot tell apart: a string holds any JSON.
        """
        if self.name == "array":
            assert self.item is not None
            return f"array<{self.item.ddl()}>"
        if self.name == "struct" and self.fields and not self.is_ambiguous:
            return f"struct<{', '.join(_field(*one, ': ') for one in self.fields.items())}>"
        return "string" if self.name in ("null", "struct") else self.name

    @property
    def is_ambiguous(self) -> bool:
        """Whether two fields differ by case only."""
        return len({name.lower() for name in self.fields}) < len(self.fields)


@dataclass(frozen=True, slots=True)
class Inferred:
    """What a sample gave: the fields as DDL, how many payloads were no JSON object, the names."""

    ddl: str
    sampled: int
    others: int
    names: tuple[str, ...] = ()


def infer(payloads: Iterable[bytes]) -> Inferred:
    """The schema of these payloads; ValueError if none of them is an object with fields."""
    merged = Kind("struct")
    sampled = others = 0
    for payload in payloads:
        sampled += 1
        try:
            value = msgspec.json.decode(payload)
        except msgspec.DecodeError:
            value = None
        if isinstance(value, dict):
            merged = merge(merged, kind_of(value))
        else:
            others += 1
    if not merged.fields:
        raise ValueError(f"none of the {sampled} messages sampled is a JSON object with fields")
    if len(merged.fields) > FIELDS_MAX:
        raise ValueError(f"more than {FIELDS_MAX} fields; declare those that matter")
    folded: dict[str, str] = {}
    for name in merged.fields:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            raise ValueError(f"fields {other!r} and {name!r} differ by case only; declare them")
    ddl = ", ".join(_field(*one, " ") for one in merged.fields.items())
    return Inferred(ddl, sampled, others, tuple(merged.fields))


def kind_of(value: Any) -> Kind:
    """The kind of one JSON value."""
    if value is None:
        return Kind("null")
    if isinstance(value, bool):
        return Kind("boolean")
    if isinstance(value, int):
        return Kind("bigint" if _INT_MIN <= value <= _INT_MAX else "string")
    if isinstance(value, float):
        return Kind("double")
    if isinstance(value, list):
        item = Kind("null")
        for one in value:
            item = merge(item, kind_of(one))
        return Kind("array", item)
    if isinstance(value, dict):
        # A column must have a name.
        return Kind("struct", fields={name: kind_of(one) for name, one in value.items() if name})
    return Kind("string")


def merge(one: Kind, other: Kind) -> Kind:
    """The kind that holds the values of both."""
    if one.name == "null":
        return other
    if other.name == "null":
        return one
    if one.name == other.name == "struct":
        fields = dict(one.fields)
        for name, kind in other.fields.items():
            fields[name] = merge(fields[name], kind) if name in fields else kind
        return Kind("struct", fields=fields)
    if one.name == other.name == "array":
        assert one.item is not None
        assert other.item is not None
        return Kind("array", merge(one.item, other.item))
    if one.name == other.name:
        return one
    if {one.name, other.name} == {"bigint", "double"}:
        return Kind("double")
    return Kind("string")


def _field(name: str, kind: Kind, between: str) -> str:
    quoted = name.replace("`", "``")
    return f"`{quoted}`{between}{kind.ddl()}"
