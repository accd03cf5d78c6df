"""Scheduled messages of all streams: what is pending, and when it runs next.

Owns the bounds of listing them. The last message of each subject is looked at, so it is done only
while a page shows it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from tradewind.client.jetstream import JetStream
    from tradewind.client.stream_schedules import StoredSchedule

SCHEDULES_MAX: Final = 1000
NEVER_NS: Final = 2**63 - 1


class PendingSchedule(msgspec.Struct, frozen=True):
    """A schedule and its next run; `next_ns` is None if there is none."""

    schedule: StoredSchedule
    next_ns: int | None


class PendingSchedules(msgspec.Struct, frozen=True):
    """The schedules by their next run; `is_cut` says that there are more."""

    rows: tuple[PendingSchedule, ...] = ()
    is_cut: bool = False


async def ask_schedules(jetstream: JetStream, stream: str = "") -> PendingSchedules:
    """List the schedules of a stream, or of all."""
    found: list[PendingSchedule] = []
    is_cut = False
    now_ns = time.time_ns()
    async for each in jetstream.schedules.list(stream):
        if len(found) >= SCHEDULES_MAX:
            is_cut = True
            break
        found.append(PendingSchedule(each, each.next_ns(now_ns)))
    found.sort(key=_order)
    return PendingSchedules(tuple(found), is_cut)


def _order(each: PendingSchedule) -> tuple[int, str, str]:
    due = each.next_ns if each.next_ns is not None else NEVER_NS
    return (due, each.schedule.stream, each.schedule.subject)
