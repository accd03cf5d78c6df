"""Durations in human notation: `500 ms`, `2 seconds`, `1 hour`.

Owns the units, and conversion to the notation of Spark.
"""

from __future__ import annotations

import re
from typing import Final

_TEXT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([A-Za-z]+)")
_UNITS_MS: Final = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}


def parse_interval_ms(text: str) -> int:
    """Milliseconds of one number with a unit; ValueError says what would be right."""
    found = _TEXT.fullmatch(text.strip())
    unit = found[2].lower() if found else ""
    size = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
    if found is None or size is None:
        raise ValueError(f"{text!r} is not a duration; use 500 ms, 2 seconds or 1 hour")
    milliseconds = round(float(found[1]) * size)
    if milliseconds <= 0:
        raise ValueError(f"{text!r} is too short; use at least 1 ms")
    return milliseconds


def spark_interval(text: str) -> str:
    """The same length as Spark reads it."""
    return f"{parse_interval_ms(text)} milliseconds"
