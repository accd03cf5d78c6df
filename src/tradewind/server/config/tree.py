"""The values of a configuration file, each with its file and line, and their digest.

Owns the data structure between `grammar`, which creates the tree, and the modules of the blocks,
which read it, and the parsing of durations and sizes. It never reads files.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime
from decimal import Decimal

import msgspec

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

_TYPE_NAMES = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a decimal number",
    datetime: "a date",
    list: "a list",
    dict: "a block",
}


class ConfigNode(msgspec.Struct):
    """One value. `line` is the line of its key, or that of the value itself inside a list.

    `used` is set when a `$variable` has referred to the value: such a key needs no meaning of its
    own. `size` and `depth` count the subtree as if every variable were expanded, so that neither
    can explode.
    """

    value: str | bool | int | float | datetime | list[ConfigNode] | dict[str, ConfigNode]
    path: str
    line: int
    used: bool = False
    size: int = 1
    depth: int = 1

    @property
    def type_name(self) -> str:
        """The type of the value, in words for the user."""
        return _TYPE_NAMES[type(self.value)]


def digest(root: dict[str, ConfigNode]) -> str:
    """The `sha256:...` digest that nats-server reports: over the values as JSON, not over the
    bytes.
    """
    text = _json(root) + "\n"
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _json(value: object) -> str:
    """The value as Go's JSON: sorted keys, no spaces, HTML characters escaped, whole floats without
    a fraction.
    """
    if isinstance(value, ConfigNode):
        return _json(value.value)
    if isinstance(value, dict):
        items = (f"{_json(key)}:{_json(item)}" for key, item in sorted(value.items()))
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _json_float(value)
    if isinstance(value, datetime):
        return f'"{value.isoformat().removesuffix("+00:00")}Z"'
    return re.sub(
        "[<>&\u2028\u2029]",
        lambda match: f"\\u{ord(match[0]):04x}",
        json.dumps(value, ensure_ascii=False),
    )


def _json_float(value: float) -> str:
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return re.sub(r"e([+-])0", r"e\1", repr(value).replace(".0e", "e"))


_SIZE_SHIFTS = {"K": 10, "M": 20, "G": 30, "T": 40}


def parse_size_text(text: str) -> int | None:
    """Bytes of a quoted size such as "10G" (powers of 1024); None if it is not one, 0 if empty."""
    if not text:
        return 0
    match = re.match(r"([+-]?[0-9]{1,18})([KMGT])\Z", text)
    if not match:
        return None
    size = int(match[1]) << _SIZE_SHIFTS[match[2]]
    return size if INT64_MIN <= size <= INT64_MAX else None
