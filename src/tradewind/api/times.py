"""Times in Go's format: RFC 3339 with nanoseconds.

Owns the conversion of times from and to nanoseconds since 1970. It never reads a clock.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from tradewind.durations import SECOND_NS

# Go's text for a time that was never set, and its nanoseconds since 1970.
ZERO_TIME: Final = "0001-01-01T00:00:00Z"
ZERO_TIME_NS: Final = -62_135_596_800 * SECOND_NS
_LAST_TIME_NS: Final = 253_402_300_800 * SECOND_NS - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d*)?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)


def format_time(time_ns: int) -> str:
    """Format a time as RFC 3339 in UTC with as many digits of the fraction as it needs.

    A request can name a time a few hours outside of the years 1 to 9999, by its offset: it is
    changed to the nearest that can be written.
    """
    time_ns = min(max(time_ns, ZERO_TIME_NS), _LAST_TIME_NS)
    seconds, nanoseconds = divmod(time_ns, SECOND_NS)
    moment = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    fraction = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    return f"{moment}{fraction}Z"


def parse_time(text: str) -> int:
    """Parse an RFC 3339 time with any offset, as nanoseconds since 1970; ValueError if it is
    invalid.
    """
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError(f"{text[:64]!r} is not a time like 2026-01-31T12:00:00.5Z")
    moment = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if match[3]:
        offset = int(match[4]) * 3600 + int(match[5]) * 60
        seconds -= offset if match[3] == "+" else -offset
    return seconds * SECOND_NS + int((match[2] or "").ljust(9, "0"))


def is_set_time(text: str | None) -> bool:
    """Whether a time of a request is set: Go's clients send the first moment of year 1 for an unset
    time.
    """
    return text is not None and parse_time(text) != ZERO_TIME_NS
