"""The value of a Nats-TTL header: how long a message lives.

Owns the grammar, which is that of the official server: whole seconds (`90`), a duration as Go
writes it (`1m30s`, `1.5h`; what is less than a second of it is cut off), or `never`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

SECOND_NS: Final = 1_000_000_000
NEVER: Final = -1
DURATION_NS_MAX: Final = (1 << 63) - 1
_UNITS_NS: Final = {
    b"ns": 1,
    b"us": 1000,
    "µs".encode(): 1000,
    "μs".encode(): 1000,
    b"ms": 1_000_000,
    b"s": SECOND_NS,
    b"m": 60 * SECOND_NS,
    b"h": 3600 * SECOND_NS,
}
_UNIT: Final = b"|".join(re.escape(unit) for unit in sorted(_UNITS_NS, key=len, reverse=True))
_PART: Final = re.compile(rb"(\d*)(?:\.(\d*))?(" + _UNIT + rb")")
# Longer ones cannot mean anything that a shorter one could not.
VALUE_BYTES_MAX: Final = 256


def parse_ttl_ns(value: bytes) -> int:
    """Nanoseconds, a whole number of seconds; NEVER; 0 for an empty value, which says nothing.

    ValueError names what is wrong.
    """
    if not value:
        return 0
    if len(value) > VALUE_BYTES_MAX:
        raise ValueError(f"a time to live has at most {VALUE_BYTES_MAX} characters")
    if value.lower() == b"never":
        return NEVER
    ttl_ns = int(value) * SECOND_NS if value.isdigit() else _duration_ns(value)
    if ttl_ns < SECOND_NS:
        raise ValueError(f"a time to live is at least one second, not {value!r}")
    return min(ttl_ns // SECOND_NS * SECOND_NS, DURATION_NS_MAX)


def _duration_ns(value: bytes) -> int:
    total_ns = Fraction(0)
    offset = 1 if value[:1] in (b"+", b"-") else 0
    while True:
        part = _PART.match(value, offset)
        if part is None or not (part[1] or part[2]):
            raise ValueError(
                f"{value!r} is no time to live; 90, 1m30s and never are examples of one"
            )
        digits = part[1] + (part[2] or b"")
        total_ns += Fraction(int(digits) * _UNITS_NS[part[3]], 10 ** len(part[2] or b""))
        offset = part.end()
        if offset == len(value):
            break
    if total_ns > DURATION_NS_MAX:
        raise ValueError(f"{value!r} is longer than 292 years; never means for ever")
    return -1 if value.startswith(b"-") else int(total_ns)
