"""Times on pages: short, with the full time under the pointer.

Owns the elements that the script shows in the zone that the visitor has chosen. Without the script
they are in UTC.
"""

from __future__ import annotations

import time
from typing import Final

from tradewind.api.times import ZERO_TIME, parse_time
from tradewind.dashboard.data.page_texts import moment
from tradewind.dashboard.look.elements import Child, Markup, tag
from tradewind.durations import SECOND_NS

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86_400
_DATE_LENGTH: Final = len("2026-01-31")


def short_span(seconds: float) -> str:
    """A duration in few characters: 12 s, 3 min, 2 h 5 min, 4 days."""
    whole = int(seconds)
    if whole < MINUTE:
        return f"{max(whole, 0)} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min"
    if whole < DAY:
        minutes = whole % HOUR // MINUTE
        return f"{whole // HOUR} h {minutes} min" if minutes else f"{whole // HOUR} h"
    days = whole // DAY
    return f"{days:,} day{'' if days == 1 else 's'}"


def ago(when: str | int | None, now_ns: int | None = None) -> Child:
    """How long ago a time of the API is, or one in nanoseconds since 1970; "never" for the one that
    Go writes for none.
    """
    made = when if isinstance(when, int) else _parsed(when)
    if isinstance(made, str):
        return made
    passed = ((time.time_ns() if now_ns is None else now_ns) - made) / SECOND_NS
    shown = "now" if passed < 1 else f"{short_span(passed)} ago"
    return _element(made, shown, "ago")


def at(when: str | int | None) -> Child:
    """A time of the API, or in nanoseconds since 1970, to the millisecond."""
    made = when if isinstance(when, int) else _parsed(when)
    return made if isinstance(made, str) else _element(made, moment(made), "full")


def _parsed(text: str | None) -> int | str:
    if not text or text == ZERO_TIME:
        return "never"
    try:
        return parse_time(text)
    except ValueError:
        return text


def _element(time_ns: int, shown: str, shows: str) -> Markup:
    full = moment(time_ns)
    is_time = full[:1].isdigit()
    return tag(
        "time",
        shown,
        datetime=full.replace(" UTC", "Z").replace(" ", "T") if is_time else None,
        title=full,
        data_full=full if is_time else None,
        data_shows=shows,
    )
