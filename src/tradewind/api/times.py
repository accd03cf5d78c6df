"""Times and durations as Go writes them: RFC 3339 with nanoseconds, and `1m2.5s`.

Owns the conversion of times from and to nanoseconds since 1970. Never reads a clock.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

NS_PER_SECOND: Final = 1_000_000_000
MICROSECOND_NS: Final = 1_000
MILLISECOND_NS: Final = 1_000_000
MINUTE_NS: Final = 60 * NS_PER_SECOND
HOUR_NS: Final = 60 * MINUTE_NS
# What Go writes for a time that was never set, and its nanoseconds since 1970.
ZERO_TIME: Final = "0001-01-01T00:00:00Z"
ZERO_TIME_NS: Final = -62_135_596_800 * NS_PER_SECOND
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d*)?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)


def format_time(time_ns: int) -> str:
    """RFC 3339 in UTC with as many digits of the fraction as it needs."""
    seconds, nanoseconds = divmod(time_ns, NS_PER_SECOND)
    moment = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    fraction = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    return f"{moment}{fraction}Z"


def parse_time(text: str) -> int:
    """Nanoseconds since 1970 of an RFC 3339 time with any offset; ValueError if it is none."""
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError(f"{text[:64]!r} is no time like 2026-01-31T12:00:00.5Z")
    moment = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if match[3]:
        offset = int(match[4]) * 3600 + int(match[5]) * 60
        seconds -= offset if match[3] == "+" else -offset
    return seconds * NS_PER_SECOND + int((match[2] or "").ljust(9, "0"))


def go_duration(duration_ns: int) -> str:
    """A duration as Go prints it: `0s`, `845µs`, `5.40354ms`, `1m2.5s`, `26h0m1s`."""
    if duration_ns == 0:
        return "0s"
    sign, left = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    if left < MICROSECOND_NS:
        return f"{sign}{left}ns"
    if left < MILLISECOND_NS:
        return f"{sign}{_trimmed(left // MICROSECOND_NS, left % MICROSECOND_NS, 3)}µs"
    if left < NS_PER_SECOND:
        return f"{sign}{_trimmed(left // MILLISECOND_NS, left % MILLISECOND_NS, 6)}ms"
    hours, left = divmod(left, HOUR_NS)
    minutes, left = divmod(left, MINUTE_NS)
    seconds = _trimmed(left // NS_PER_SECOND, left % NS_PER_SECOND, 9)
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}s"
    return f"{sign}{minutes}m{seconds}s" if minutes else f"{sign}{seconds}s"


def _trimmed(whole: int, fraction: int, digits: int) -> str:
    """`whole.fraction` with `digits` fractional digits, without trailing zeros."""
    text = f"{fraction:0{digits}d}".rstrip("0")
    return f"{whole}.{text}" if text else str(whole)
