"""The value of a `Nats-Schedule` header: when a scheduled message is published.

Owns the grammar of these values and the next time of each.

    @at 2026-12-24T18:00:00Z     once
    @every 1h30m                 again and again, at least a second apart
    @daily, 0 30 9 * * mon-fri   as cron has it, in the zone of `Nats-Schedule-Time-Zone`

Runs that were missed, because the server was down or its clock jumped, collapse into one.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Final

import msgspec

from tradewind.api.cron import TEXT_LENGTH_MAX, Cron, load_zone, parse_cron
from tradewind.api.go_json import JsonError
from tradewind.api.go_time import parse_go_time
from tradewind.api.times import format_time, parse_time
from tradewind.durations import SECOND_NS, later, parse_duration_ns

AT: Final = "@at "
EVERY: Final = "@every "
# Times after the year 9999 have no calendar.
_LAST_SECOND: Final = 253_402_300_799 - 366 * 86_400 * 6


class ZoneError(ValueError):
    """A time zone that is not known."""


class Timing(msgspec.Struct, frozen=True):
    """One of `at_ns`, `every_ns` and `cron` is set."""

    at_ns: int | None = None
    every_ns: int = 0
    cron: Cron | None = None
    zone: tzinfo = UTC
    has_zone: bool = False

    @property
    def repeats(self) -> bool:
        """Whether the schedule repeats."""
        return self.at_ns is None

    def next_ns(self, after_ns: int, now_ns: int) -> int:
        """The next time after the previous one, or after that of the message.

        If it has passed already it is counted from now on.
        """
        if self.at_ns is not None:
            return self.at_ns
        planned_ns = self._behind(after_ns)
        return planned_ns if planned_ns >= now_ns else self._behind(now_ns)

    def first_ns(self, stored_ns: int) -> int:
        """The first time of a message that was stored at this time, past or not."""
        return self._behind(stored_ns) if self.at_ns is None else self.at_ns

    def _behind(self, after_ns: int) -> int:
        if self.cron is None:
            return later(_rounded_ns(after_ns), self.every_ns)
        after_s = min(after_ns // SECOND_NS, _LAST_SECOND)
        found = self.cron.next_after(after_s, self.zone)
        # The zone was known when the message was stored; its rules may have changed since.
        return found * SECOND_NS if found is not None else 2**63 - 1

    def text_of(self, time_ns: int) -> bytes:
        """A time as published messages have it: RFC 3339, in the zone if one was named."""
        if not self.has_zone:
            return format_time(time_ns).encode()
        local = datetime.fromtimestamp(min(time_ns // SECOND_NS, _LAST_SECOND), self.zone)
        text = local.isoformat()
        return (text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text).encode()


def _rounded_ns(time_ns: int) -> int:
    """Round to the nearest whole second."""
    return (time_ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS


def parse_timing(pattern: bytes, zone_name: bytes | None, now_ns: int) -> Timing:
    """Parse the headers; ZoneError or ValueError if they are invalid. None: no zone is named."""
    zone = _zone_of(zone_name) if zone_name is not None else UTC
    if len(pattern) > TEXT_LENGTH_MAX:
        raise ValueError(f"a schedule has at most {TEXT_LENGTH_MAX} bytes")
    text = pattern.decode()
    if text.startswith((AT, EVERY)):
        if zone_name is not None:
            raise ValueError("a time zone requires a cron pattern")
        return _simple_timing(text)
    timing = Timing(cron=parse_cron(text), zone=zone, has_zone=zone_name is not None)
    assert timing.cron is not None
    if timing.cron.next_after(min(now_ns // SECOND_NS, _LAST_SECOND), zone) is None:
        raise ValueError(f"{text!r} does not occur in the next years")
    return timing


def _zone_of(name: bytes) -> tzinfo:
    try:
        return load_zone(name.decode())
    except ValueError as error:
        raise ZoneError(str(error)) from None


def _simple_timing(text: str) -> Timing:
    if text.startswith(AT):
        try:
            at_ns = parse_time(parse_go_time(text.removeprefix(AT)))
            return Timing(at_ns=min(max(at_ns, -(2**63)), 2**63 - 1))
        except JsonError as error:
            raise ValueError(str(error)) from None
    every_ns = parse_duration_ns(text.removeprefix(EVERY))
    if every_ns is None or every_ns < SECOND_NS:
        raise ValueError(f"{text!r} is not at least a second")
    return Timing(every_ns=every_ns)
