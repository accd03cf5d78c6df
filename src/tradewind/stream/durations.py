"""Go's durations, and how long a message may live (`Nats-TTL`).

Owns the grammar: "90", "1m30s", "1.5h", "never".
"""

from __future__ import annotations

import re
from typing import Final

NS_PER_SECOND: Final = 1_000_000_000
NEVER: Final = -1
_INT64_MAX: Final = 2**63 - 1
_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": NS_PER_SECOND,
    "m": 60 * NS_PER_SECOND,
    "h": 3600 * NS_PER_SECOND,
}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")


def parse_duration(text: str) -> int | None:
    """Nanoseconds of a Go duration; None if it is none or does not fit into 64 bits."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total_ns = position = 0
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None or not (match[1] or match[2]):
            return None
        unit_ns = _UNITS_NS[match[3]]
        total_ns += int(match[1] or 0) * unit_ns
        if match[2]:
            total_ns += int(match[2]) * unit_ns // 10 ** len(match[2])
        if total_ns > _INT64_MAX:
            return None
        position = match.end()
    return sign * total_ns if position else None


def parse_ttl(value: bytes) -> int:
    """Seconds that a message lives, NEVER if it is exempt, 0 if the value says nothing sensible."""
    text = value.decode("utf-8", "replace")
    if not text:
        return 0
    if text.lower() == "never":
        return NEVER
    if text.isascii() and text.isdigit():
        seconds = int(text)
        return seconds if seconds <= _INT64_MAX else 0
    duration_ns = parse_duration(text)
    return 0 if duration_ns is None or duration_ns < NS_PER_SECOND else duration_ns // NS_PER_SECOND
