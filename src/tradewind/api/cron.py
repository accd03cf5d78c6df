"""Recurring times in cron notation: six fields from second to weekday, in a time zone.

Owns the grammar and the arithmetic. It never reads a clock: the caller passes the time to start
from.

    0 30 9 * * mon-fri       half past nine on working days
    */10 * * * * *           every ten seconds
    0 0 0 29 2 ?             on leap days

The two day fields are combined as in nats-server: if one of them is `*` or `?`, both must match,
otherwise either. A local time that is skipped by a clock change does not occur; one that is
repeated occurs twice.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

YEARS_MAX: Final = 5
TEXT_LENGTH_MAX: Final = 1024
# Names of time zones have less than 40 characters.
ZONE_LENGTH_MAX: Final = 128
_MONTHS: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_WEEKDAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_DAYS_OF: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DIGITS: Final = re.compile(r"\+?[0-9]{1,18}", re.ASCII)
_NAMED: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_QUARTER_S: Final = 900
_LOCAL_ZONE_FILE: Final = Path("/etc/localtime")


class Cron(msgspec.Struct, frozen=True):
    """The allowed numbers of each field. Weekday 0 is Sunday."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    needs_both_days: bool

    def next_after(self, after_s: int, zone: tzinfo) -> int | None:
        """The first second since 1970 after `after_s` that matches; None if it is years away.

        Walks through time itself and looks at the clock of the zone, so changes of that clock need
        no rules here. Hours are passed in quarters, since no zone changes its clock within one.
        """
        at_s = after_s + 1
        last_year = datetime.fromtimestamp(at_s, zone).year + YEARS_MAX
        while True:
            local = datetime.fromtimestamp(at_s, zone)
            if local.year > last_year:
                return None
            if local.month not in self.months:
                at_s = _midnight_s(_first_of_next_month(local), zone)
            elif not self._has_day(local):
                at_s = _midnight_s(local + timedelta(days=1), zone)
            elif local.hour not in self.hours:
                at_s += _QUARTER_S - (local.minute * 60 + local.second) % _QUARTER_S
            elif local.minute not in self.minutes:
                at_s += 60 - local.second
            elif local.second not in self.seconds:
                at_s += 1
            else:
                return at_s

    def _has_day(self, local: datetime) -> bool:
        is_day = local.day in self.days
        is_weekday = local.isoweekday() % 7 in self.weekdays
        return is_day and is_weekday if self.needs_both_days else is_day or is_weekday


def _first_of_next_month(local: datetime) -> datetime:
    if local.month == len(_MONTHS):
        return local.replace(year=local.year + 1, month=1, day=1)
    return local.replace(month=local.month + 1, day=1)


def _midnight_s(local: datetime, zone: tzinfo) -> int:
    """The first moment of a day, which need not be called midnight."""
    return int(datetime(local.year, local.month, local.day, tzinfo=zone).timestamp())


@lru_cache(maxsize=1024)
def parse_cron(text: str) -> Cron:
    """Parse a pattern; ValueError names the invalid field."""
    if len(text) > TEXT_LENGTH_MAX:
        raise ValueError(f"a pattern has at most {TEXT_LENGTH_MAX} characters")
    fields = _NAMED.get(text, text).split()
    if len(fields) != 6:
        raise ValueError(f"{text!r} has {len(fields)} fields; a cron pattern has six")
    second, minute, hour, day, month, weekday = fields
    days, any_day = _parse_field(day, "day", 1, 31)
    weekdays, any_weekday = _parse_field(weekday, "weekday", 0, 6, _WEEKDAYS)
    months, _ = _parse_field(month, "month", 1, 12, _MONTHS)
    pattern = Cron(
        _parse_field(second, "second", 0, 59)[0],
        _parse_field(minute, "minute", 0, 59)[0],
        _parse_field(hour, "hour", 0, 23)[0],
        days,
        months,
        weekdays,
        any_day or any_weekday,
    )
    if pattern.needs_both_days and all(_DAYS_OF[month - 1] < min(days) for month in months):
        raise ValueError(f"{text!r}: no such month has that many days")
    return pattern


def _parse_field(
    text: str, what: str, low: int, high: int, names: list[str] | None = None
) -> tuple[frozenset[int], bool]:
    """The numbers of a field, and whether it allows any value."""
    found: set[int] = set()
    is_any = False
    for item in text.split(","):
        if not item:
            continue
        span, slash, step_text = item.partition("/")
        first, dash, last = span.partition("-")
        step = _number(step_text, what) if slash else 1
        if first in ("*", "?"):
            start, end = low, high
            is_any = is_any or step == 1
        else:
            start = _number(first, what, names, low)
            end = _number(last, what, names, low) if dash else start
            if slash and not dash:
                end = high
        if not low <= start <= end <= high or step < 1:
            raise ValueError(f"{what}: {item!r} is not within {low} and {high}")
        found.update(range(start, end + 1, step))
    if not found:
        raise ValueError(f"{what}: {text!r} names nothing")
    return frozenset(found), is_any


def _number(text: str, what: str, names: list[str] | None = None, low: int = 0) -> int:
    if names is not None and text.lower() in names:
        return names.index(text.lower()) + low
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"{what}: {text!r} is not a number")
    return int(text)


@lru_cache(maxsize=1024)
def load_zone(name: str) -> tzinfo:
    """The time zone of an IANA name, or of this machine (`Local`); ValueError if there is none."""
    if name == "Local":
        return _local_zone()
    # The library follows the parts of a name one by one, each a call deeper.
    if len(name) > ZONE_LENGTH_MAX:
        raise ValueError(f"the name of a time zone has at most {ZONE_LENGTH_MAX} characters")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise ValueError(f"{name[:64]!r} is not a time zone such as Europe/Berlin") from error


def _local_zone() -> tzinfo:
    name = os.environ.get("TZ", "").removeprefix(":")
    try:
        if name:
            return ZoneInfo(name)
        with _LOCAL_ZONE_FILE.open("rb") as file:
            return ZoneInfo.from_file(file, key="Local")
    except (ZoneInfoNotFoundError, OSError, ValueError):
        return UTC
