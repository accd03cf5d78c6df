"""Retention rules: the last backups, and one for each of so many hours, days and weeks.

Owns the rules. A backup is kept if any of them wants it; for a period, the newest one of it is
taken. It never removes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from tradewind.api.times import parse_time
from tradewind.backups.backup_errors import BackupError
from tradewind.durations import SECOND_NS


class KeepRules(msgspec.Struct, frozen=True, kw_only=True):
    """How many backups to keep; periods without a backup do not count."""

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0

    def check(self) -> None:
        """BackupError unless the rules keep something."""
        if not any(msgspec.structs.astuple(self)):
            raise BackupError(
                "without a rule, all backups would be removed; name one of --keep-last,"
                " --keep-hourly, --keep-daily and --keep-weekly"
            )

    def kept(self, backups: Sequence[tuple[str, str]]) -> set[str]:
        """The ids of the backups to keep, out of ids with times in rising order."""
        newest = [(backup_id, _moment(time)) for backup_id, time in reversed(backups)]
        kept = {backup_id for backup_id, _ in newest[: self.last]}
        for count, period in (
            (self.hourly, _hour),
            (self.daily, _day),
            (self.weekly, _week),
        ):
            kept |= _of_periods(newest, count, period)
        return kept


def _moment(time: str) -> datetime:
    return datetime.fromtimestamp(parse_time(time) // SECOND_NS, UTC)


def _hour(moment: datetime) -> object:
    return moment.date(), moment.hour


def _day(moment: datetime) -> object:
    return moment.date()


def _week(moment: datetime) -> object:
    return moment.isocalendar()[:2]


def _of_periods(
    newest: Sequence[tuple[str, datetime]], count: int, period: Callable[[datetime], object]
) -> set[str]:
    """The newest backup of each of the last `count` periods that have one."""
    found: dict[object, str] = {}
    for backup_id, moment in newest:
        if len(found) == count and period(moment) not in found:
            break
        found.setdefault(period(moment), backup_id)
    return set(found.values())
