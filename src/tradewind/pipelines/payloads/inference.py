"""Infers the schema of JSON payloads from a sample.

Owns what a sample must have, and the result in Spark's DDL. How types are merged is
`tradewind.decoding.payload_kinds`. The module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from tradewind.decoding.payload_kinds import Kind, absorb, field_ddl
from tradewind.errors import JSON_ERRORS

FIELDS_MAX: Final = 2000


@dataclass(frozen=True, slots=True)
class InferredFields:
    """The result of a sample: the fields as DDL, how many payloads were no object, the names."""

    ddl: str
    sampled: int
    others: int
    names: tuple[str, ...] = ()


def infer(payloads: Iterable[bytes]) -> InferredFields:
    """The schema of these payloads; ValueError if none of them is an object with fields."""
    merged = Kind("struct")
    sampled = others = 0
    for payload in payloads:
        sampled += 1
        try:
            value = msgspec.json.decode(payload)
        except JSON_ERRORS:
            value = None
        if isinstance(value, dict):
            merged = absorb(merged, value)
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
    ddl = ", ".join(field_ddl(*one, " ") for one in merged.fields.items())
    return InferredFields(ddl, sampled, others, tuple(merged.fields))
