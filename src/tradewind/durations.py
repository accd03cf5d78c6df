"""Durations in Go's notation: `1h30m`, `1.5s`, `250ms`.

Owns the grammar in both directions; everything else uses nanoseconds. It never reads a clock.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

MICROSECOND_NS: Final = 1_000
MILLISECOND_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
MINUTE_NS: Final = 60 * SECOND_NS
HOUR_NS: Final = 60 * MINUTE_NS
DAY_NS: Final = 24 * HOUR_NS
DURATION_NS_MAX: Final = 2**63 - 1
# Longer texts cannot express anything that a shorter one could not.
TEXT_LENGTH_MAX: Final = 256
_UNIT_NS: Final = {
    "ns": 1,
    "us": MICROSECOND_NS,
    "µs": MICROSECOND_NS,  # micro sign
    "μs": MICROSECOND_NS,  # Greek mu
    "ms": MILLISECOND_NS,
    "s": SECOND_NS,
    "m": MINUTE_NS,
    "h": HOUR_NS,
}
_PART: Final = re.compile(r"([0-9]{1,256}(?:\.[0-9]{0,256})?|\.[0-9]{1,256})(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"[+-]?(?:0|(?:{_PART.pattern})+)\Z")
# Days and weeks, which Go does not have, may precede what it has.
_DAYS: Final = re.compile(r"(?:([0-9]{1,9})w)?(?:([0-9]{1,9})d)?")


def later(time_ns: int, duration_ns: int) -> int:
    """The sum of a time and a duration, limited to 64 bits."""
    return min(max(time_ns + duration_ns, -DURATION_NS_MAX - 1), DURATION_NS_MAX)


class DurationTooLong(ValueError):  # noqa: N818 - it names what was found
    """A duration that 64 bits of nanoseconds cannot hold: 292 years."""


def parse_duration_ns(text: str) -> int | None:
    """The nanoseconds of a text such as "1h30m"; None if it is not valid or exceeds 64 bits."""
    try:
        return exact_duration_ns(text)
    except ValueError:
        return None


def exact_duration_ns(text: str) -> int:
    """The nanoseconds of a text; ValueError if it is not valid, DurationTooLong if it exceeds 64
    bits.
    """
    if len(text) > TEXT_LENGTH_MAX or not _DURATION.match(text):
        raise ValueError(f'{text[:64]!r} is not a duration such as "1h30m" or "500ms"')
    total_ns = sum(int(Decimal(number) * _UNIT_NS[unit]) for number, unit in _PART.findall(text))
    if total_ns > DURATION_NS_MAX + text.startswith("-"):
        raise DurationTooLong(f"{text[:64]!r} is longer than 292 years")
    return -total_ns if text.startswith("-") else total_ns


def exact_setting_ns(text: str) -> int:
    """The same for a setting that people write, which may begin with weeks and days: `1w2d12h`."""
    match = _DAYS.match(text)
    assert match is not None, "all of it is optional"
    weeks, days = match.groups()
    rest = text[match.end() :]
    if (weeks is None and days is None) or (rest and not rest[0].isdecimal()):
        return exact_duration_ns(text)
    total_ns = (int(weeks or 0) * 7 + int(days or 0)) * DAY_NS
    if rest:
        total_ns += exact_duration_ns(rest)
    if total_ns > DURATION_NS_MAX:
        raise DurationTooLong(f"{text[:64]!r} is longer than 292 years")
    return total_ns


def format_duration(duration_ns: int) -> str:
    """A duration as Go prints it: `0s`, `845µs`, `5.40354ms`, `1m2.5s`, `26h0m1s`."""
    if duration_ns == 0:
        return "0s"
    sign, left = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    if left < MICROSECOND_NS:
        return f"{sign}{left}ns"
    if left < MILLISECOND_NS:
        return f"{sign}{_trimmed(left // MICROSECOND_NS, left % MICROSECOND_NS, 3)}µs"
    if left < SECOND_NS:
        return f"{sign}{_trimmed(left // MILLISECOND_NS, left % MILLISECOND_NS, 6)}ms"
    hours, left = divmod(left, HOUR_NS)
    minutes, left = divmod(left, MINUTE_NS)
    seconds = _trimmed(left // SECOND_NS, left % SECOND_NS, 9)
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}s"
    return f"{sign}{minutes}m{seconds}s" if minutes else f"{sign}{seconds}s"


def _trimmed(whole: int, fraction: int, digits: int) -> str:
    """`whole.fraction` with `digits` fractional digits, without trailing zeros."""
    text = f"{fraction:0{digits}d}".rstrip("0")
    return f"{whole}.{text}" if text else str(whole)
