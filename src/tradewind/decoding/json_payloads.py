"""JSON payloads: each is one object.

Owns reading them without loss: of fields that appear twice the last one counts, and the payload as
a whole is rescued.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from tradewind.decoding.row_decoding import PAYLOAD_KEY, ReadRow, RowPlan

decode_json: Final = msgspec.json.Decoder().decode
# Numbers with all their digits, for columns of decimals.
_DECODE_EXACTLY: Final = msgspec.json.Decoder(float_hook=Decimal).decode
_TYPES: Final = {list: "a list", str: "a string", type(None): "null", bool: "a boolean"}


@dataclass(frozen=True)
class JsonReader:
    """Reads JSON objects; `given` are the fields, if they were given."""

    given: pa.Schema | None = None

    def read(self, payload: bytes, plan: RowPlan) -> ReadRow:
        """One object."""
        if not payload:
            raise ValueError("the payload is empty, not a JSON object")
        value = (_DECODE_EXACTLY if plan.has_decimals else decode_json)(payload)
        if not isinstance(value, dict):
            found = _TYPES.get(type(value), "a number")
            raise ValueError(f"the payload is {found}, not a JSON object")  # noqa: TRY004
        if repeats_fields(payload, value):
            return ReadRow(value, {PAYLOAD_KEY: payload.decode()})
        return ReadRow(value)

    def schema(self, payloads: pa.BinaryArray) -> pa.Schema | None:  # noqa: ARG002
        """The given fields."""
        return self.given


def repeats_fields(payload: bytes, value: Any) -> bool:
    """Whether an object in a payload has a field twice, of which `value` has only the last."""
    return quotes_in(payload) != quotes_of(value)


def quotes_in(payload: bytes) -> int:
    """How many quotes begin or end a text in JSON."""
    if b"\\" in payload:
        # Each escape is two bytes at least, the first a backslash, so these are never half of one.
        payload = payload.replace(b"\\\\", b"").replace(b'\\"', b"")
    return payload.count(b'"')


def quotes_of(value: Any) -> int:
    """How many quotes the texts and names of fields of a value need in JSON."""
    count, stack = 0, [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            count += 1
        elif isinstance(one, dict):
            count += len(one)
            stack.extend(one.values())
        elif isinstance(one, list):
            stack.extend(one)
    return 2 * count
