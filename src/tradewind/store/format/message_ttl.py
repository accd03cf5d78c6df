"""The value of a Nats-TTL header: how long a message lives.

Owns the grammar, which is that of nats-server: whole seconds (`90`), a duration as Go writes it
(`1m30s`, `1.5h`; fractions of a second are dropped), or `never`.
"""

from __future__ import annotations

from typing import Final

from tradewind.durations import (
    DURATION_NS_MAX,
    SECOND_NS,
    TEXT_LENGTH_MAX,
    DurationTooLong,
    exact_duration_ns,
)

NEVER: Final = -1


def parse_ttl_ns(value: bytes) -> int:
    """Parse a time to live in ns, a whole number of seconds; NEVER; 0 for an empty value.

    ValueError describes the error.
    """
    if not value:
        return 0
    if value.isdigit():
        value = value.lstrip(b"0") or b"0"
    if len(value) > TEXT_LENGTH_MAX:
        raise ValueError(f"a time to live has at most {TEXT_LENGTH_MAX} characters")
    if value.lower() == b"never":
        return NEVER
    ttl_ns = int(value) * SECOND_NS if value.isdigit() else _duration_ns(value)
    if ttl_ns < SECOND_NS:
        raise ValueError(f"a time to live is at least one second, not {value!r}")
    return min(ttl_ns // SECOND_NS * SECOND_NS, DURATION_NS_MAX)


def _duration_ns(value: bytes) -> int:
    try:
        return exact_duration_ns(value.decode())
    except DurationTooLong:
        raise ValueError(f"{value!r} is longer than 292 years; use never instead") from None
    except ValueError:
        raise ValueError(f"{value!r} is not a time to live such as 90, 1m30s or never") from None
