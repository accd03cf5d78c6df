"""How well a stream is protected: what would be lost now, and what prevents a failover.

Owns looking at both sides and judging what is there. It never changes anything.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.times import parse_time
from tradewind.recovery.change_over_marks import MARK, Role, read_mark
from tradewind.recovery.records import Records
from tradewind.recovery.recovery_errors import AWAY
from tradewind.recovery.sides import StreamSide

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamConfig, StreamInfo
    from tradewind.recovery.change_over_marks import RecoveryMark
    from tradewind.sync import Connection

# An origin sends a heartbeat every second; this much silence is a lost connection.
SILENCE_NS_MAX: Final = 15_000_000_000
# Settings that a mirror should share with its origin, because it may have to take its place.
_SHARED: Final = (
    "retention",
    "max_msgs",
    "max_bytes",
    "max_age",
    "max_msgs_per_subject",
    "max_msg_size",
    "discard",
    "discard_new_per_subject",
    "allow_rollup_hdrs",
    "allow_msg_ttl",
    "deny_delete",
    "deny_purge",
    "subject_transform",
    "republish",
)


class RecoveryState(StrEnum):
    """The relation of a stream and its mirror."""

    PROTECTED = "protected"  # the standby follows the origin
    UNPROTECTED = "unprotected"  # something is wrong: see the problems
    ORIGIN_AWAY = "origin away"  # the origin does not answer
    CHANGING = "changing"  # a failover or failback is under way
    FAILED_OVER = "failed over"  # the standby takes the messages
    TWO_WRITERS = "two writers"  # both sides take messages


class ConsumerProtection(msgspec.Struct, kw_only=True):
    """A consumer of the origin and its recorded state at the standby; None if there is none."""

    name: str
    floor: int
    pending: int
    recorded_floor: int | None = None


class StreamStatus(msgspec.Struct, kw_only=True):
    """The status of a stream at both sides.

    `rpo_ns` is the age of the oldest message that the standby does not have, 0 if it has all, None
    if it is unknown because the origin does not answer. `last_seen_ns` is how long ago the standby
    last heard of the origin, None if never. `problems` prevent a failover.
    """

    stream: str
    state: RecoveryState = RecoveryState.PROTECTED
    is_connected: bool = False
    origin_last_seq: int | None = None
    standby_last_seq: int | None = None
    lag_messages: int | None = None
    rpo_ns: int | None = None
    last_seen_ns: int | None = None
    recorded_ns: int | None = None  # how long ago the origin was recorded
    consumers: list[ConsumerProtection] = []
    problems: list[str] = []
    notes: list[str] = []

    @property
    def can_fail_over(self) -> bool:
        """Whether a planned failover could begin now."""
        return self.state is RecoveryState.PROTECTED and not self.problems

    def is_within(self, rpo_max_ns: int) -> bool:
        """Whether no more than this much time would be lost."""
        return self.rpo_ns is not None and self.rpo_ns <= rpo_max_ns


def look(origin: Connection | None, standby: Connection, stream: str) -> StreamStatus:
    """Inspect both sides as they are now. The standby is inspected first, so that a message
    reported as missing may have arrived meanwhile, and never the other way round.
    """
    status = StreamStatus(stream=stream)
    there = StreamSide(standby, stream)
    info = there.find()
    here = None if origin is None else StreamSide(origin, stream)
    try:
        origin_info = None if here is None else here.find()
    except AWAY as error:
        here, origin_info = None, None
        status.notes.append(f"the origin does not answer: {error}")
    records = Records(standby)
    _judge_standby(status, info)
    if here is None:
        status.state = RecoveryState.ORIGIN_AWAY
        status.problems.append("the origin does not answer, so only --origin-lost is possible")
    elif origin_info is None:
        status.problems.append(f"the origin has no stream {stream}")
    else:
        _judge_origin(status, origin_info)
        if info is not None:
            _measure_lag(status, here, origin_info, info)
            _judge_settings(status, origin_info.config, info.config)
            for subject, rival in there.rivals(origin_info.config.subjects).items():
                status.problems.append(f"stream {rival} at the standby stores {subject}")
    _judge_records(status, records, here if origin_info is not None else None, there, info)
    _judge_marks(status, origin_info, info)
    if status.problems and status.state is RecoveryState.PROTECTED:
        status.state = RecoveryState.UNPROTECTED
    return status


def mirror_problem(config: StreamConfig) -> str:
    """The reason why a stream is not a full mirror of the stream of its name; empty if it is
    one.
    """
    mirror = config.mirror
    if mirror is None:
        return "the standby is not a mirror"
    if mirror.name != config.name:
        return f"the standby mirrors {mirror.name}: names must be equal, as clients use them"
    if mirror.filter_subject or mirror.subject_transforms:
        return "the mirror has a filter or a transform: it is not a full copy"
    if mirror.consumer is not None:
        return "the mirror reads through a given consumer, which a change-over would pause"
    if mirror.opt_start_seq > 1 or mirror.opt_start_time:
        return "the mirror does not start with the first message: it is not a full copy"
    return ""


def _judge_standby(status: StreamStatus, info: StreamInfo | None) -> None:
    if info is None:
        status.problems.append(f"the standby has no stream {status.stream}")
        return
    status.standby_last_seq = info.state.last_seq
    problem = mirror_problem(info.config)
    if problem:
        status.problems.append(problem)
    if info.mirror is None:
        return
    active_ns = info.mirror.active
    status.last_seen_ns = None if active_ns < 0 else active_ns
    status.is_connected = info.mirror.error is None and 0 <= active_ns < SILENCE_NS_MAX
    if info.mirror.error is not None:
        status.problems.append(f"the mirror has an error: {info.mirror.error.description}")
    elif not status.is_connected:
        status.problems.append("the mirror is not connected to its origin")


def _judge_origin(status: StreamStatus, info: StreamInfo) -> None:
    config = info.config
    status.origin_last_seq = info.state.last_seq
    if config.retention != "limits":
        status.problems.append(
            f"the origin keeps messages by {config.retention}: a mirror keeps more than its origin"
        )
    for what, value in (
        ("is itself a mirror", config.mirror),
        ("has sources", config.sources),
        ("is sealed", config.sealed),
        ("is a counter", config.allow_msg_counter),
    ):
        if value:
            status.problems.append(f"the origin {what}")


def _measure_lag(
    status: StreamStatus, origin: StreamSide, origin_info: StreamInfo, info: StreamInfo
) -> None:
    """Measure the lag; sequences of removed messages do not count as lost."""
    standby_last = info.state.last_seq
    if standby_last > origin_info.state.last_seq:
        if info.config.mirror is not None:
            status.problems.append(
                f"the standby has sequence {standby_last}, the origin only "
                f"{origin_info.state.last_seq}: it is not the stream that was mirrored"
            )
        return
    oldest = origin.next_message(standby_last + 1)
    if oldest is None or oldest.seq > origin_info.state.last_seq:
        status.lag_messages, status.rpo_ns = 0, 0
        return
    status.lag_messages = origin_info.state.last_seq - oldest.seq + 1
    # By the clock of the origin, which has also stamped the message.
    status.rpo_ns = max(parse_time(origin_info.ts) - oldest.time_ns, 1)


def _judge_settings(status: StreamStatus, origin: StreamConfig, standby: StreamConfig) -> None:
    for name in _SHARED:
        ours, theirs = getattr(origin, name), getattr(standby, name)
        if _plain(ours) != _plain(theirs):
            status.notes.append(
                f"{name}: {_text(ours)} at the origin, {_text(theirs)} at the standby"
            )


def _judge_records(
    status: StreamStatus,
    records: Records,
    origin: StreamSide | None,
    standby: StreamSide,
    info: StreamInfo | None,
) -> None:
    record = records.stream(status.stream)
    known = records.consumers(status.stream)
    if record is None:
        status.notes.append("the origin is not recorded at the standby: run tradewind dr watch")
    else:
        status.recorded_ns = max(time.time_ns() - record.seen_ns, 0)
    if origin is None:
        status.consumers = [
            ConsumerProtection(
                name=each.name, floor=each.floor, pending=0, recorded_floor=each.floor
            )
            for each in known.values()
        ]
        return
    for each in origin.durables():
        recorded = known.get(each.name)
        status.consumers.append(
            ConsumerProtection(
                name=each.name,
                floor=each.ack_floor.stream_seq,
                pending=each.num_ack_pending,
                recorded_floor=None if recorded is None else recorded.floor,
            )
        )
    if info is None or info.config.mirror is None:
        return
    for name in standby.own_consumers({each.name for each in status.consumers}, MARK):
        status.problems.append(f"the standby has a consumer {name} of its own")


def _judge_marks(
    status: StreamStatus, origin: StreamInfo | None, standby: StreamInfo | None
) -> None:
    ours, theirs = _mark_of(origin), _mark_of(standby)
    if theirs is not None and theirs.role is Role.PROMOTED:
        takes = origin is not None and origin.config.mirror is None and ours is None
        status.state = RecoveryState.TWO_WRITERS if takes else RecoveryState.FAILED_OVER
        status.problems = [f"the standby was promoted by failover {theirs.id}"]
        if takes:
            status.problems.append(
                "the origin accepts messages too: tradewind dr failback fences it"
            )
        status.is_connected = False
        # Not a mirror any more: what it lacks is not a lag.
        status.lag_messages, status.rpo_ns = None, None
    elif any(mark is not None and mark.role is not Role.PROMOTED for mark in (ours, theirs)):
        status.state = RecoveryState.CHANGING
        mark = ours or theirs
        assert mark is not None
        status.problems.append(f"change {mark.id} is under way: resume it or roll it back")


def _mark_of(info: StreamInfo | None) -> RecoveryMark | None:
    return None if info is None else read_mark(info.config)


def _plain(value: Any) -> Any:
    """The same value for no limit, which servers write as 0 or as -1."""
    return -1 if value in (0, None) and not isinstance(value, bool) else value


def _text(value: Any) -> str:
    return "none" if value in (0, None, -1) and not isinstance(value, bool) else str(value)
