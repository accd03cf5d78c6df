"""Durations, sizes and lists in the notation of forms, in both directions.

Owns the notation. Reading the text of a value gives the value again, so a field that stays
untouched never changes a configuration.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from tradewind.durations import DAY_NS, DURATION_NS_MAX, exact_setting_ns, format_duration
from tradewind.errors import TradewindError

SIZE_MAX: Final = 2**63 - 1
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SIZE: Final = re.compile(
    r"([0-9]{1,20}(?:\.[0-9]{1,9})?)\s{0,4}([kmgtpe]?)(?:i?b|bytes?)?\Z", re.IGNORECASE
)
# Whole words beside the letters that the grammar of durations has.
_WORDS: Final = {
    **dict.fromkeys(("week", "weeks"), "w"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("hour", "hours", "hr", "hrs"), "h"),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), "m"),
    **dict.fromkeys(("second", "seconds", "sec", "secs"), "s"),
}
_WORD: Final = re.compile(r"[a-z]{2,8}")
ENTRY_LENGTH_MAX: Final = 100


class BadValueError(TradewindError):
    """A text that is not the value that a field needs; the text continues "must be"."""


def duration_entry(duration_ns: int) -> str:
    """A duration as a form shows it: `7d`, `1d12h`, `90m` as `1h30m`; empty for none."""
    if duration_ns <= 0:
        return ""
    days, rest = divmod(duration_ns, DAY_NS)
    text = format_duration(rest) if rest else ""
    # Go writes 2h0m0s; people write 2h.
    text = re.sub(r"(?<=m)0s\Z", "", text)
    text = re.sub(r"(?<=h)0m\Z", "", text)
    return f"{days}d{text}" if days else text


def parse_duration_entry(text: str) -> int:
    """The nanoseconds of `7d`, `7 days`, `1h 30m`, `90 minutes`; 0 for an empty text."""
    wanted = text.strip().lower()
    if not wanted:
        return 0
    if len(wanted) <= ENTRY_LENGTH_MAX:
        plain = _WORD.sub(lambda found: _WORDS.get(found[0], found[0]), wanted).replace(" ", "")
        try:
            found = exact_setting_ns(plain)
        except ValueError:
            found = -1
        if 0 <= found <= DURATION_NS_MAX:
            return found
    raise BadValueError(f"must be a duration like 30s, 24h or 7 days, not {text[:40]!r}")


def size_entry(size_bytes: int) -> str:
    """A size as a form shows it: the largest unit that gives it exactly; empty for none."""
    if size_bytes <= 0:
        return ""
    value, power = size_bytes, 0
    while value % 1024 == 0 and power < len(_UNITS) - 1:
        value //= 1024
        power += 1
    return f"{value} {_UNITS[power]}"


def parse_size_entry(text: str, *, empty: int = 0) -> int:
    """The bytes of `512`, `64 KiB` or `1.5 GB`, all powers of 1024; `empty` for an empty text."""
    wanted = text.strip()
    if not wanted:
        return empty
    match = _SIZE.match(wanted) if len(wanted) <= ENTRY_LENGTH_MAX else None
    if match is None:
        raise BadValueError(f"must be a size like 512, 64 KiB or 1.5 GiB, not {text[:40]!r}")
    found = int(Decimal(match[1]) * 1024 ** " kmgtpe".index(match[2].lower() or " "))
    if found > SIZE_MAX:
        raise BadValueError(f"must be less than 8 EiB, not {text[:40]!r}")
    return found


def list_entry(items: list[str]) -> str:
    """A list of names or subjects in one line."""
    return ", ".join(items)


def parse_list_entry(text: str) -> list[str]:
    """The items of a line, joined by commas, blanks or line ends."""
    return text.replace(",", " ").split()
