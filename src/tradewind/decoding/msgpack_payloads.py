"""MessagePack payloads: each is one map whose keys are strings.

Owns reading them without loss: of keys that appear twice the last one counts, and the payload as a
whole is rescued, in base64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from tradewind.decoding.row_decoding import PAYLOAD_KEY, ReadRow, RowPlan

_DECODE: Final = msgspec.msgpack.Decoder().decode
# The other headers of maps, with the bytes of their counts: 0x80 to 0x8f are small ones.
_MAPS: Final = {0xDE: 2, 0xDF: 4}
_LISTS: Final = {0xDC: 2, 0xDD: 4}
# Bytes after the first one of values of a fixed size.
_FIXED: Final = {
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
    0xD4: 2,
    0xD5: 3,
    0xD6: 5,
    0xD7: 9,
    0xD8: 17,
}
# Bytes of the size of values that have one, and how many there are before the value itself.
_SIZED: Final = {
    0xC4: (1, 0),
    0xC5: (2, 0),
    0xC6: (4, 0),
    0xC7: (1, 1),
    0xC8: (2, 1),
    0xC9: (4, 1),
    0xD9: (1, 0),
    0xDA: (2, 0),
    0xDB: (4, 0),
}


@dataclass(frozen=True)
class MsgpackReader:
    """Reads maps of MessagePack; `given` are the fields, if they were given."""

    given: pa.Schema | None = None

    def read(self, payload: bytes, plan: RowPlan) -> ReadRow:  # noqa: ARG002
        """One map."""
        value = _DECODE(payload)
        if not isinstance(value, dict):
            raise ValueError(f"the payload is a {type(value).__name__}, not a map")  # noqa: TRY004
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"the key {key!r:.40} is not a string")  # noqa: TRY004
        if keys_in(payload) != keys_of(value):
            return ReadRow(value, {PAYLOAD_KEY: payload})
        return ReadRow(value)

    def schema(self, payloads: pa.BinaryArray) -> pa.Schema | None:  # noqa: ARG002
        """The given fields."""
        return self.given


def keys_of(value: Any) -> int:
    """How many keys all maps of a value have."""
    count, stack = 0, [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            count += len(one)
            stack.extend(one.values())
            stack.extend(key for key in one if isinstance(key, tuple))
        elif isinstance(one, list | tuple):
            stack.extend(one)
    return count


def keys_in(payload: bytes) -> int:
    """How many keys all maps of a payload have, which is known to be valid."""
    count = position = 0
    end = len(payload)
    while position < end:
        first = payload[position]
        position += 1
        if 0x80 <= first <= 0x8F:
            count += first & 0x0F
        elif first in _MAPS:
            size = _MAPS[first]
            count += int.from_bytes(payload[position : position + size])
            position += size
        elif 0xA0 <= first <= 0xBF:
            position += first & 0x1F
        elif first in _LISTS:
            position += _LISTS[first]
        elif first in _FIXED:
            position += _FIXED[first]
        elif first in _SIZED:
            size, more = _SIZED[first]
            position += int.from_bytes(payload[position : position + size]) + size + more
    return count
