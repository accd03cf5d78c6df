"""Scheduled messages of streams: `js.schedules` lists, cancels and moves them.

Owns what a schedule is to a client: the last message of a subject, if it has a `Nats-Schedule`
header. The server runs it; the times here are computed from the rule and the time of the message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.timings import parse_timing
from tradewind.client.api_errors import (
    NoMessageFoundError,
    StreamWrongLastSequenceConstantError,
    StreamWrongLastSequenceError,
)
from tradewind.client.core.headers import Headers
from tradewind.client.errors import OptionsError, ScheduleNotFoundError, WrongRevisionError
from tradewind.client.kv.watch import Watcher, open_messages

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg
    from tradewind.client.jetstream import JetStream, PublishOptions
    from tradewind.client.streams.manager import StoredMsg

SCHEDULE: Final = "Nats-Schedule"
_TARGET: Final = "Nats-Schedule-Target"
_SOURCE: Final = "Nats-Schedule-Source"
_TTL: Final = "Nats-Schedule-TTL"
_TIME_ZONE: Final = "Nats-Schedule-Time-Zone"
_ROLLUP: Final = "Nats-Rollup"
_NEVER_NS: Final = 2**63 - 1
ScheduleRule = str | datetime | timedelta
_WRONG_LAST: Final = (StreamWrongLastSequenceError, StreamWrongLastSequenceConstantError)
# What the server or the publisher said of this one publish, and of no later one.
_NOT_KEPT: Final = ("Nats-Expected-", "Nats-Msg-Id")


class StoredSchedule(msgspec.Struct, frozen=True):
    """A message that is published to `target` when `rule` says.

    `rule` is "@at TIME", "@every DURATION" or a cron pattern. `source` names a subject whose last
    message is published instead of its own. `ttl` is how long the published messages live.
    """

    stream: str
    subject: str
    sequence: int
    rule: str
    target: str
    stored_ns: int
    source: str = ""
    ttl: str = ""
    time_zone: str = ""

    @property
    def repeats(self) -> bool:
        """Whether it is published again and again."""
        return not self.rule.startswith("@at ")

    def next_ns(self, now_ns: int) -> int | None:
        """The next time after `now_ns` in nanoseconds, or that of "@at"; None without any.

        An interval is counted from the time of the message: after the server was down for a while,
        it may be another one.
        """
        zone = self.time_zone.encode() if self.time_zone else None
        try:
            timing = parse_timing(self.rule.encode(), zone, now_ns)
        except ValueError:
            return None
        if timing.at_ns is not None:
            return timing.at_ns
        first_ns = timing.first_ns(self.stored_ns)
        if timing.every_ns and first_ns < now_ns:
            passed = -(-(now_ns - first_ns) // timing.every_ns)
            return first_ns + passed * timing.every_ns
        found = timing.next_ns(self.stored_ns, now_ns)
        return None if found >= _NEVER_NS else found


class StreamSchedules:
    """The schedules in streams with `allow_msg_schedules`.

    >>> async for schedule in js.schedules.list("ORDERS"):
    ...     print(schedule.subject, schedule.rule)
    """

    def __init__(self, js: JetStream) -> None:
        self._js = js

    async def list(self, stream: str = "", *filters: str) -> AsyncIterator[StoredSchedule]:
        """Iterate over the schedules of a stream, or of all streams, by sequence.

        `filters` are patterns of the subjects that the schedules are stored under. The last message
        of each subject is looked at, without its payload.
        """
        if stream:
            async for schedule in self._list(stream, filters):
                yield schedule
            return
        if filters:
            raise OptionsError("schedules.list: filters need the name of a stream")
        async for info in self._js.manager.streams.list():
            if info.config.allow_msg_schedules and info.state.messages:
                async for schedule in self._list(info.config.name, ()):
                    yield schedule

    async def get(self, stream: str, subject: str) -> StoredSchedule:
        """The schedule that is stored under a subject; ScheduleNotFoundError if there is none."""
        return _schedule(await self._stored(stream, subject))

    async def cancel(self, stream: str, subject: str) -> StoredSchedule:
        """Remove the schedule under a subject, and return what it was.

        ScheduleNotFoundError if there is none, or if it ran for the last time meanwhile.
        """
        found = _schedule(await self._stored(stream, subject))
        try:
            await self._js.manager.streams.delete_message(stream, found.sequence, erase=False)
        except NoMessageFoundError:
            raise _not_found(stream, subject) from None
        return found

    async def move(
        self, stream: str, subject: str, rule: ScheduleRule, *, time_zone: str | None = None
    ) -> int:
        """Give a schedule another rule, and return the sequence of the new message.

        `rule` is as in `publish`: a datetime, a timedelta, or a text. Everything else stays as it
        is. `time_zone` is that of a cron pattern; by default the one that it had.
        WrongRevisionError if another client has changed the schedule meanwhile.
        """
        stored = await self._stored(stream, subject)
        headers = Headers()
        for name in stored.headers:
            if not name.startswith(_NOT_KEPT) and name not in (SCHEDULE, _TIME_ZONE, _ROLLUP):
                for value in stored.headers.get_all(name):
                    headers.add(name, value)
        options: PublishOptions = {
            "schedule": rule,
            "expect_stream": stream,
            "expect_last_subject_sequence": stored.seq,
        }
        zone = stored.headers.get(_TIME_ZONE, "") if time_zone is None else time_zone
        if zone and isinstance(rule, str) and not rule.startswith(("@at ", "@every ")):
            options["schedule_time_zone"] = zone
        try:
            ack = await self._js.publish(subject, stored.data, headers=headers, **options)
        except _WRONG_LAST:
            raise WrongRevisionError(
                f"schedule {subject!r} of stream {stream!r} was changed or has run meanwhile: look"
                " at it again",
                None,
            ) from None
        return ack.seq

    async def _list(self, stream: str, filters: tuple[str, ...]) -> AsyncIterator[StoredSchedule]:
        messages = await open_messages(
            self._js,
            stream,
            list(filters) or [">"],
            history=False,
            updates_only=False,
            from_revision=0,
            headers_only=True,
        )

        def decode(message: Msg) -> StoredSchedule | None:
            return _delivered(stream, message) if SCHEDULE in message.headers else None

        async with Watcher(messages, decode) as watcher:
            async for schedule in watcher.initial():
                yield schedule

    async def _stored(self, stream: str, subject: str) -> StoredMsg:
        try:
            found = await self._js.manager.streams.get_message(stream, last_by_subject=subject)
        except NoMessageFoundError:
            raise _not_found(stream, subject) from None
        if SCHEDULE not in found.headers:
            raise _not_found(stream, subject)
        return found


def _not_found(stream: str, subject: str) -> ScheduleNotFoundError:
    return ScheduleNotFoundError(f"stream {stream!r} has no schedule under subject {subject!r}")


def _schedule(stored: StoredMsg) -> StoredSchedule:
    return _made(stored.stream, stored.subject, stored.seq, stored.time_ns, stored.headers)


def _delivered(stream: str, message: Msg) -> StoredSchedule:
    about = message.metadata
    return _made(
        stream, message.subject, about.stream_sequence, about.timestamp_ns, message.headers
    )


def _made(
    stream: str, subject: str, sequence: int, time_ns: int, headers: Headers
) -> StoredSchedule:
    return StoredSchedule(
        stream,
        subject,
        sequence,
        headers.get(SCHEDULE, ""),
        headers.get(_TARGET, ""),
        time_ns,
        headers.get(_SOURCE, ""),
        headers.get(_TTL, ""),
        headers.get(_TIME_ZONE, ""),
    )
