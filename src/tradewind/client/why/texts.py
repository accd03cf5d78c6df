"""Human-readable numbers, sizes, times and durations.

Owns the texts only. It never reads a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from tradewind.api.times import ZERO_TIME, parse_time
from tradewind.durations import SECOND_NS

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_THOUSANDS: Final = ("", "k", "M", "G", "T", "P")
_SPANS: Final = (
    (365 * 86_400, "year"),
    (86_400, "day"),
    (3_600, "hour"),
    (60, "minute"),
    (1, "second"),
)
UNLIMITED: Final = "no limit"


def count(number: float) -> str:
    """1234567 as 1,234,567."""
    return f"{number:,.0f}"


def short(number: float) -> str:
    """A number in few characters: 1.2k, 34M."""
    step = 0
    while abs(number) >= 999.5 and step < len(_THOUSANDS) - 1:
        number /= 1000
        step += 1
    digits = 0 if abs(number) >= 99.5 or number == int(number) else 1
    return f"{number:.{digits}f}{_THOUSANDS[step]}"


def size(number: float) -> str:
    """Bytes with a unit that fits."""
    step = 0
    while abs(number) >= 1023.5 and step < len(_SIZES) - 1:
        number /= 1024
        step += 1
    digits = 0 if step == 0 or abs(number) >= 99.5 else 1
    return f"{number:.{digits}f} {_SIZES[step]}"


def span(seconds: float) -> str:
    """A duration in its two largest units: `2 hours 5 minutes`."""
    if seconds < 0:
        return f"minus {span(-seconds)}"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    left = int(seconds)
    parts: list[str] = []
    for unit, name in _SPANS:
        number, rest = divmod(left, unit)
        if number or (unit == 1 and not parts):
            parts.append(f"{number} {name}{'' if number == 1 else 's'}")
            left = rest
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0 ") or len(parts) == 1)


def span_ns(nanoseconds: int) -> str:
    """The same of nanoseconds."""
    return span(nanoseconds / SECOND_NS)


def limit(number: int, unit: str = "") -> str:
    """A limit of a configuration, where 0 and -1 mean none."""
    if number <= 0:
        return UNLIMITED
    return size(number) if unit == "bytes" else count(number)


def moment(time_ns: int) -> str:
    """A time to the millisecond, in UTC."""
    seconds, rest = divmod(time_ns, SECOND_NS)
    try:
        made = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return "an impossible time"
    return f"{made:%Y-%m-%d %H:%M:%S}.{rest // 1_000_000:03d} UTC"


def time_text(text: str) -> str:
    """A time of the API; "never" for the one that Go writes for none."""
    if not text or text == ZERO_TIME:
        return "never"
    try:
        return moment(parse_time(text))
    except ValueError:
        return text


def since(text: str | None, now_ns: int) -> str:
    """How long ago a time of the API is."""
    if not text or text == ZERO_TIME:
        return "never"
    try:
        passed = (now_ns - parse_time(text)) / SECOND_NS
    except ValueError:
        return text
    return "now" if passed < 1 else f"{span(passed)} ago"


def many(number: int, one: str, more: str = "") -> str:
    """`1 message`, `2 messages`."""
    return f"{count(number)} {one if number == 1 else more or one + 's'}"
