"""The checks of the headers of scheduled messages, in the order of nats-server.

Owns the order and the errors. It looks only at the message, the configuration, and the last message
of a schedule that is to be ended. It never schedules anything, which is up to `schedules`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.api import errors
from tradewind.broker.authority import Authority
from tradewind.store.contract import NotFoundError
from tradewind.store.format.message_ttl import parse_ttl_ns
from tradewind.stream import header_fields, stream_queries
from tradewind.subjects import is_subset_of_any, is_valid_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tradewind.api.stream_types import StreamConfig
    from tradewind.api.timings import Timing
    from tradewind.broker.accounts import Account
    from tradewind.broker.session import Session
    from tradewind.store.table.message_store import MessageStore

PURGE = b"purge"
ROLLUP_SUBJECT = b"sub"


def check_schedule(
    subject: bytes, fields: Mapping[bytes, bytes], config: StreamConfig, now_ns: int
) -> Timing | None:
    """When a message is to be published; None if it is an ordinary one, ApiError if it is
    invalid.
    """
    timing = _timing_of(fields, config, now_ns)
    if timing is None:
        return None
    if not config.allow_msg_schedules:
        raise errors.MESSAGE_SCHEDULES_DISABLED()
    ttl = fields.get(header_fields.SCHEDULE_TTL)
    if ttl:
        try:
            parse_ttl_ns(ttl)
        except ValueError:
            raise errors.MESSAGE_SCHEDULES_TTL_INVALID() from None
    if fields.get(header_fields.SCHEDULE_ROLLUP, b"") not in (b"", ROLLUP_SUBJECT):
        raise errors.MESSAGE_SCHEDULES_ROLLUP_INVALID()
    if ttl and not config.allow_msg_ttl:
        raise errors.MESSAGE_TTL_DISABLED()
    _check_places(subject, fields, config)
    rollup = fields.get(header_fields.ROLLUP)
    if rollup and rollup.lower() != ROLLUP_SUBJECT:
        raise errors.MESSAGE_SCHEDULES_ROLLUP_INVALID()
    return timing


def _timing_of(fields: Mapping[bytes, bytes], config: StreamConfig, now_ns: int) -> Timing | None:
    """Parse the timing. An unreadable one is refused even without schedules, but with another
    error.
    """
    pattern = fields.get(header_fields.SCHEDULE, b"")
    zone = fields.get(header_fields.SCHEDULE_TIME_ZONE)
    if not pattern and zone is None:
        return None
    from tradewind.api.timings import ZoneError, parse_timing

    try:
        # Without a pattern only the zone is looked at.
        timing = parse_timing(pattern or b"@daily", zone, now_ns)
    except ValueError as error:
        if not config.allow_msg_schedules:
            raise errors.MESSAGE_SCHEDULES_DISABLED() from None
        if isinstance(error, ZoneError):
            raise errors.MESSAGE_SCHEDULES_TIME_ZONE_INVALID() from None
        raise errors.MESSAGE_SCHEDULES_PATTERN_INVALID() from None
    return timing if pattern else None


def _check_places(subject: bytes, fields: Mapping[bytes, bytes], config: StreamConfig) -> None:
    """ApiError if the target or the source of a schedule is invalid."""
    target = fields.get(header_fields.SCHEDULE_TARGET, b"")
    source = fields.get(header_fields.SCHEDULE_SOURCE, b"")
    if not is_literal(target) or target == subject:
        raise errors.MESSAGE_SCHEDULES_TARGET_INVALID()
    if source and (not is_literal(source) or source in (subject, target)):
        raise errors.MESSAGE_SCHEDULES_SOURCE_INVALID()
    if not _is_taken(target, config):
        raise errors.MESSAGE_SCHEDULES_TARGET_INVALID()
    if source and not _is_taken(source, config):
        raise errors.MESSAGE_SCHEDULES_SOURCE_INVALID()


def _is_taken(subject: bytes, config: StreamConfig) -> bool:
    text = stream_queries.to_text(subject)
    return is_subset_of_any(text, config.subjects)


def is_literal(subject: bytes) -> bool:
    """Whether it is a subject without wildcards."""
    text = stream_queries.to_text(subject)
    return is_valid_subject(text) and not {"*", ">"} & set(text.split("."))


def check_next(
    subject: bytes, fields: Mapping[bytes, bytes], config: StreamConfig, store: MessageStore
) -> bytes:
    """The schedule that a message ends, or nothing; ApiError if its headers are reserved for
    servers.
    """
    following = fields.get(header_fields.SCHEDULE_NEXT)
    scheduler = fields.get(header_fields.SCHEDULER, b"")
    if not following:
        if scheduler:
            raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()
        return b""
    if following != PURGE or not is_literal(scheduler) or scheduler == subject:
        raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()
    if not config.allow_msg_schedules:
        raise errors.MESSAGE_SCHEDULES_DISABLED()
    try:
        last = stream_queries.last_message(store, scheduler, store.last_seq)
    except NotFoundError:
        return scheduler
    if not header_fields.special_fields(last.header).get(header_fields.SCHEDULE):
        raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()
    return scheduler


def may_direct(session: Session, account: Account, header: bytes) -> bool:
    """Whether a publisher may itself publish to the subjects to which its headers direct a stream
    of an account: the target of a schedule, and the schedule that a message ends.
    """
    fields = header_fields.special_fields(header)
    authority = Authority(account, session)
    return all(
        authority.may(subject.decode("utf-8", "surrogateescape"))
        for name in (header_fields.SCHEDULE_TARGET, header_fields.SCHEDULER)
        if (subject := fields.get(name))
    )
