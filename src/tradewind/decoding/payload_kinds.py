"""The types of the values in payloads, and what two of them have in common.

Owns merging: numbers widen, objects get the fields of both, lists the items of both, and types that
conflict become a string, which holds any JSON. The result is the same whatever the order of the
values, apart from the order of the fields. The module is pure, and it never knows Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
# Objects and lists within one another that become types; what is deeper is a string with its JSON.
DEPTH_MAX: Final = 16


@dataclass(slots=True)
class Kind:
    """The type of a value: a scalar by name, `array` of one kind, or `struct` of fields."""

    name: str
    item: Kind | None = None
    fields: dict[str, Kind] = field(default_factory=dict)

    def ddl(self) -> str:
        """The type as Spark writes it.

        A value that was always null is a string, and so is an object whose fields differ by case
        only, which Spark cannot distinguish: a string holds any JSON.
        """
        if self.name == "array":
            assert self.item is not None
            return f"array<{self.item.ddl()}>"
        if self.name == "struct" and self.fields and not self.is_ambiguous:
            return f"struct<{', '.join(field_ddl(*one, ': ') for one in self.fields.items())}>"
        return "string" if self.name in ("null", "struct") else self.name

    @property
    def is_ambiguous(self) -> bool:
        """Whether two fields differ by case only."""
        return len({name.lower() for name in self.fields}) < len(self.fields)


def field_ddl(name: str, kind: Kind, between: str) -> str:
    """A field as Spark writes it."""
    quoted = name.replace("`", "``")
    return f"`{quoted}`{between}{kind.ddl()}"


def kind_of(value: Any, depth: int = DEPTH_MAX) -> Kind:
    """The kind of one value."""
    if isinstance(value, dict):
        if depth <= 0:
            return Kind("string")
        # A column must have a name.
        fields = {
            name: kind_of(one, depth - 1)
            for name, one in value.items()
            if name and isinstance(name, str)
        }
        return Kind("struct", fields=fields)
    if isinstance(value, list | tuple):
        if depth <= 0:
            return Kind("string")
        item = Kind("null")
        for one in value:
            item = absorb(item, one, depth - 1)
        return Kind("array", item)
    return Kind(_scalar_name(value))


def _scalar_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if INT_MIN <= value <= INT_MAX else "string"
    if isinstance(value, float | Decimal):
        return "double"
    if isinstance(value, bytes):
        return "binary"
    if isinstance(value, datetime):
        return "timestamp"
    return "date" if isinstance(value, date) else "string"


def absorb(kind: Kind, value: Any, depth: int = DEPTH_MAX) -> Kind:
    """The kind that holds a value as well; `kind` itself is changed where it can be.

    Without this, each of many objects would cost a copy of all fields of those before it.
    """
    if depth > 0 and kind.name == "struct" and isinstance(value, dict):
        fields = kind.fields
        for name, one in value.items():
            if not name or not isinstance(name, str):
                continue
            known = fields.get(name)
            fields[name] = (
                kind_of(one, depth - 1) if known is None else absorb(known, one, depth - 1)
            )
        return kind
    if depth > 0 and kind.name == "array" and isinstance(value, list | tuple):
        assert kind.item is not None
        for one in value:
            kind.item = absorb(kind.item, one, depth - 1)
        return kind
    return merge(kind, kind_of(value, depth))


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
