"""Sizes, durations, counts and times in the notation of the `nats` command line.

Owns both directions: `10GB` and `1d12h` in a flag, `10 GiB` and `1d12h0m0s` in output. Settings are
shown in full; ages and measurements, where seconds do not matter, as `1d12h`.
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from decimal import Decimal
from typing import Final

from tradewind.api.times import ZERO_TIME, parse_time
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.durations import DURATION_NS_MAX, HOUR_NS, MINUTE_NS, SECOND_NS, format_duration

DAY_NS: Final = 24 * HOUR_NS
YEAR_NS: Final = 365 * DAY_NS
_UNIT_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": MINUTE_NS,
    "h": HOUR_NS,
    "d": DAY_NS,
    "D": DAY_NS,
    "w": 7 * DAY_NS,
    "W": 7 * DAY_NS,
    "M": 30 * DAY_NS,
    "y": YEAR_NS,
    "Y": YEAR_NS,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|[smhdDwWMyY])")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+\Z")
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgtpe]?)(?:i?b)?\Z", re.IGNORECASE)
_SIZE_UNITS: Final = "kmgtpe"
_IEC: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
SIZE_MAX: Final = 2**63 - 1


def parse_duration_ns(text: str, flag: str) -> int:
    """Nanoseconds of `1y2w3d4h5m6s`; `0`, `-1` and an empty text mean no limit and give 0."""
    if text in ("", "0", "-1"):
        return 0
    if not _DURATION.match(text):
        raise CommandError(
            f"{flag} must be a duration such as 30s, 5m, 2h, 1d, 1w, 1M, 1y or 1d12h, not {text!r}",
            exit_code=EXIT_USAGE,
        )
    total = sum(int(Decimal(number) * _UNIT_NS[unit]) for number, unit in _PART.findall(text))
    if total > DURATION_NS_MAX:
        raise CommandError(
            f"{flag} must be a duration of at most 292 years, not {text!r}", exit_code=EXIT_USAGE
        )
    return total


def parse_size(text: str, flag: str) -> int:
    """Bytes of `512`, `10KB`, `1.5GiB` (all powers of 1024); -1 for `-1` and an empty text."""
    if text in ("", "-1"):
        return -1
    match = _SIZE.match(text.strip())
    if not match:
        raise CommandError(
            f"{flag} must be a size such as 512, 64KB, 10MB or 1.5GiB, or -1 for no limit, "
            f"not {text!r}",
            exit_code=EXIT_USAGE,
        )
    power = _SIZE_UNITS.index(match[2].lower()) + 1 if match[2] else 0
    size = int(Decimal(match[1]) * 1024**power)
    if size > SIZE_MAX:
        raise CommandError(f"{flag} must be at most 8 EiB, not {text!r}", exit_code=EXIT_USAGE)
    return size


def size_text(size_bytes: int) -> str:
    """`76 B`, `1.5 KiB`, `10 GiB`."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    value, power = float(size_bytes), 0
    while value >= 1024 and power < len(_IEC) - 1:
        value /= 1024
        power += 1
    tenths = int(value * 10 + 0.5) / 10
    return f"{tenths:.1f} {_IEC[power]}" if tenths < 10 else f"{tenths:.0f} {_IEC[power]}"


def count_text(count: int) -> str:
    """`1,000,002`."""
    return f"{count:,}"


def counted(count: int, noun: str) -> str:
    """`1 message`, `1,000 messages`."""
    return f"{count_text(count)} {noun}" if count == 1 else f"{count_text(count)} {noun}s"


def duration_text(duration_ns: int) -> str:
    """`1y2d3h4m5s`, `2h0m0s`, `1m30s`, `2.50s`."""
    seconds = duration_ns // SECOND_NS
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    years = days // 365
    if years:
        return f"{years}y{days % 365}d{hours % 24}h{minutes % 60}m{seconds % 60}s"
    if days:
        return f"{days}d{hours % 24}h{minutes % 60}m{seconds % 60}s"
    if hours:
        return f"{hours}h{minutes % 60}m{seconds % 60}s"
    if minutes:
        return f"{minutes}m{seconds % 60}s"
    return f"{duration_ns / SECOND_NS:.2f}s"


def short_duration(duration_ns: int) -> str:
    """A duration to three digits or two units: `48.2µs`, `1.05ms`, `12.3s`, `1m30s`, `3d2h`."""
    if duration_ns < MINUTE_NS:
        scale = 10 ** max(len(str(duration_ns)) - 3, 0)
        duration_ns = round(duration_ns / scale) * scale
        if duration_ns < MINUTE_NS:
            return format_duration(duration_ns)
    units = [(YEAR_NS, "y"), (DAY_NS, "d"), (HOUR_NS, "h"), (MINUTE_NS, "m"), (SECOND_NS, "s")]
    at = next(place for place, (unit_ns, _) in enumerate(units) if duration_ns >= unit_ns)
    (unit_ns, name), (next_ns, next_name) = units[at : at + 2]
    rest = duration_ns % unit_ns // next_ns
    return f"{duration_ns // unit_ns}{name}" + (f"{rest}{next_name}" if rest else "")


def short_duration_of(text: str) -> str:
    """The same of a text that a server wrote, as `3d2h10m4s` or `1.234567ms`."""
    try:
        return short_duration(parse_duration_ns(text, "duration")) if text else ""
    except CommandError:
        return text


def time_text(text: str | None) -> str:
    """A time of the API in local time: `2026-01-02 03:04:05`; `never` for none."""
    if not text or text == ZERO_TIME:
        return "never"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(parse_time(text) / SECOND_NS))


def since_text(text: str | None) -> str:
    """How long ago a time of the API was: `1m30s`; `never` for none."""
    if not text or text == ZERO_TIME:
        return "never"
    return short_duration(max(0, time.time_ns() - parse_time(text)))


def limit_text(value: int, text: str = "") -> str:
    """`unlimited` for a limit that is not set, else `text` or the number."""
    return "unlimited" if value <= 0 else text or count_text(value)


def parse_moment_ns(text: str, flag: str, *, ago: bool = False) -> int:
    """A moment: RFC 3339, `2026-01-31 12:00:00` in local time, or a duration from now on.

    `ago` counts the duration backwards.
    """
    try:
        return parse_time(text)
    except ValueError:
        pass
    try:
        return round(datetime.fromisoformat(text).astimezone().timestamp()) * SECOND_NS
    except ValueError:
        pass
    duration_ns = parse_duration_ns(text, flag)
    return time.time_ns() - duration_ns if ago else time.time_ns() + duration_ns
