"""Parses times in requests like Go's time.Parse for RFC 3339, with the same errors.

Owns the texts of these errors. The conversion to nanoseconds is in `times`.
"""

from __future__ import annotations

import re
from typing import Final

from tradewind.api.go_json import JsonError, quote_bytes

_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
_DIGITS: Final = re.compile(r"\d*", re.ASCII)
_FRACTION: Final = re.compile(r"[.,]\d+", re.ASCII)
_ZONE: Final = re.compile(r"Z|([+-])(\d\d):(\d\d)", re.ASCII)
# Each byte as Go quotes it where it stands alone.
_QUOTED_BYTES: Final = tuple(quote_bytes(bytes([byte]))[1:-1] for byte in range(256))
_DAYS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# The name in the layout, how many digits, the range, and what follows.
_FIELDS: Final = (
    ("2006", 4, 4, "", 0, 9999, "-"),
    ("01", 2, 2, "month", 1, 12, "-"),
    ("02", 2, 2, "", 0, 99, "T"),
    ("15", 1, 2, "hour", 0, 23, ":"),
    ("04", 2, 2, "minute", 0, 59, ":"),
    ("05", 2, 2, "second", 0, 59, ""),
)


def parse_go_time(text: str) -> str:
    """Parse a time and write it as Go does; JsonError with Go's text if it is invalid."""
    rest = text
    numbers: list[int] = []
    for name, least, most, what, low, high, separator in _FIELDS:
        match = _DIGITS.match(rest)
        digits = match[0][:most] if match is not None else ""
        if len(digits) < least:
            raise _unparsable(text, rest, name)
        rest = rest[len(digits) :]
        numbers.append(int(digits))
        if not low <= numbers[-1] <= high:
            raise _out_of_range(text, what)
        if not rest.startswith(separator):
            raise _unparsable(text, rest, separator)
        rest = rest[len(separator) :]
    fraction = _FRACTION.match(rest)
    rest = rest[fraction.end() :] if fraction else rest
    zone = _zone(text, rest)
    year, month, day, hour, minute, second = numbers
    if not 1 <= day <= _days_in(year, month):
        raise _out_of_range(text, "day")
    digits = fraction[0][1:10].rstrip("0") if fraction else ""
    return (
        f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}"
        f"{'.' if digits else ''}{digits}{zone}"
    )


def _zone(text: str, rest: str) -> str:
    match = _ZONE.match(rest)
    if not match:
        raise _unparsable(text, rest, "Z07:00")
    if match[1] and int(match[2]) > 24:
        raise _out_of_range(text, "time zone offset hour")
    if match[1] and int(match[3]) > 60:
        raise _out_of_range(text, "time zone offset minute")
    if match.end() < len(rest):
        raise JsonError(f"parsing time {_quoted(text)}: extra text: {_quoted(rest[match.end() :])}")
    is_utc = not match[1] or (match[2], match[3]) == ("00", "00")
    return "Z" if is_utc else match[0]


def _days_in(year: int, month: int) -> int:
    is_leap_year = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _DAYS[month] + (is_leap_year and month == 2)


def _out_of_range(text: str, what: str) -> JsonError:
    return JsonError(f"parsing time {_quoted(text)}: {what} out of range")


def _unparsable(text: str, rest: str, name: str) -> JsonError:
    return JsonError(
        f"parsing time {_quoted(text)} as {_quoted(_LAYOUT)}: "
        f"cannot parse {_quoted(rest)} as {_quoted(name)}"
    )


def _quoted(text: str) -> str:
    """Quote a time byte by byte, as Go does."""
    data = text.encode(errors="replace")
    return quote_bytes(data) if data.isascii() else _quoted_bytes(data)


def _quoted_bytes(data: bytes) -> str:
    return f'"{"".join([_QUOTED_BYTES[byte] for byte in data])}"'
