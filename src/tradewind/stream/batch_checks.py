"""The checks of messages in batches: of an atomic one at its commit, of a fast one as they come.

Owns the order of these checks, which is that of nats-server, and the requirements that a message
may not have because of an earlier message in its batch. It reads the store and never changes it;
the checks of a single message are in `publish_checks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tradewind.api import errors
from tradewind.api.stream_types import DiscardPolicy, RetentionPolicy
from tradewind.store.contract import MessageCopy, NotFoundError
from tradewind.stream import header_fields, stream_queries
from tradewind.stream.counters import Count, check_increment, count
from tradewind.stream.markers import with_longer_ttl
from tradewind.stream.publish_checks import (
    HEADER_BYTES_MAX,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    Accept,
    BusyVerdict,
    Duplicate,
    Publish,
    PublishChecks,
    says_number,
    time_to_live,
    with_rollup,
)

if TYPE_CHECKING:
    from tradewind.broker.turn import Turn


class _SoFar(msgspec.Struct):
    """The running totals of the messages of a batch checked so far."""

    ids: set[bytes] = msgspec.field(default_factory=set)
    subjects: dict[bytes, int] = msgspec.field(default_factory=dict)
    sums: dict[bytes, MessageCopy] = msgspec.field(default_factory=dict)
    count: int = 0
    msgs: int = 0
    bytes: int = 0


class BatchCheck:
    """The checks of one batch, whose messages are passed in order."""

    def __init__(self, checks: PublishChecks, turn: Turn, *, is_checked: bool = False) -> None:
        """With `is_checked` the payloads were compared with their schemas as they came."""
        self._is_checked = is_checked
        self._checks = checks
        self._turn = turn
        self._so_far = _SoFar()

    def check(self, message: Publish) -> Accept:
        """The verdict on the next message; ApiError is the reply to the whole batch."""
        config, so_far = self._checks.config, self._so_far
        fields = message.fields
        if fields.get(header_fields.EXPECTED_LAST_MESSAGE_ID):
            name = header_fields.EXPECTED_LAST_MESSAGE_ID.decode()
            raise errors.ATOMIC_PUBLISH_UNSUPPORTED_HEADER(header=name)
        if len(message.header) > HEADER_BYTES_MAX:
            raise errors.STREAM_HEADER_EXCEEDS_MAXIMUM()
        check_increment(fields, message.payload, is_counter=config.allow_msg_counter)
        self._checks.check_stream(message)
        ttl_ns = self._time_to_live(message)
        message_id = fields.get(header_fields.MESSAGE_ID, b"")
        if message_id:
            if message_id in so_far.ids or self._checks.ids.lookup(
                message_id, self._turn.monotonic_ns
            ):
                raise errors.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE()
            if self._checks.ids.window_ns > 0 and not self._checks.ids.can_take(message_id):
                raise errors.STREAM_TOO_MANY_REQUESTS()
            so_far.ids.add(message_id)
        if fields.get(header_fields.STREAM_SOURCE):
            raise errors.STREAM_SOURCE_HEADER_NOT_ALLOWED()
        counted = self._count(message, so_far)
        self._check_expectations(message, so_far)
        timing, ends = self._checks.check_origin(message, self._turn.now_ns)
        rollup = self._rollup(message, so_far, is_schedule=timing is not None)
        self._check_room(message, counted, so_far, rollup)
        if self._checks.door is not None and not self._is_checked:
            self._checks.check_schema(message)
        so_far.subjects[message.subject] = so_far.subjects.get(message.subject, 0) + 1
        so_far.count += 1
        skip = config.retention is RetentionPolicy.INTEREST and not self._checks.wanted(
            message.subject
        )
        header, ttl_ns = with_longer_ttl(message.header, ttl_ns, config)
        if timing is not None:
            header = with_rollup(header, fields)
        return Accept(message_id, rollup, ttl_ns, skip, counted, header, timing, ends)

    def check_alone(self, message: Publish, last_id: bytes) -> Accept | Duplicate | BusyVerdict:
        """The verdict on a message of a fast batch, whose messages are independent of each other.
        Its errors have another order than those of a message without a batch.
        """
        checks, fields = self._checks, message.fields
        if len(message.header) > HEADER_BYTES_MAX:
            raise errors.STREAM_HEADER_EXCEEDS_MAXIMUM()
        check_increment(fields, message.payload, is_counter=checks.config.allow_msg_counter)
        checks.check_stream(message)
        self._time_to_live(message)
        message_id = fields.get(header_fields.MESSAGE_ID, b"")
        if message_id and (seq := checks.ids.lookup(message_id, self._turn.monotonic_ns)):
            return Duplicate(seq)
        if fields.get(header_fields.STREAM_SOURCE):
            raise errors.STREAM_SOURCE_HEADER_NOT_ALLOWED()
        self._check_expectations(message, self._so_far)
        checks.check_origin(message, self._turn.now_ns)
        checks.rollup(message)
        return checks.checks(message, last_id, self._turn)

    def _time_to_live(self, message: Publish) -> int:
        text = message.fields.get(header_fields.TTL, b"")
        if not text:
            return 0
        if not self._checks.config.allow_msg_ttl:
            raise errors.MESSAGE_TTL_DISABLED()
        ttl_ns = time_to_live(text)
        if not ttl_ns:
            raise errors.MESSAGE_TTL_INVALID()
        return ttl_ns

    def _count(self, message: Publish, so_far: _SoFar) -> Count | None:
        """The sum of a counter, including the increments of the batch before it."""
        if not self._checks.config.allow_msg_counter:
            return None
        previous = so_far.sums.get(message.subject)
        if previous is None:
            store = self._checks.store
            try:
                previous = stream_queries.last_message(store, message.subject, store.last_seq)
            except NotFoundError:
                previous = None
        counted = count(message.header, message.fields, previous)
        so_far.sums[message.subject] = MessageCopy(
            0, 0, message.subject, counted.header, counted.payload
        )
        return counted

    def _check_expectations(self, message: Publish, so_far: _SoFar) -> None:
        fields = message.fields
        before = so_far.count
        last_seq = self._checks.store.last_seq + before
        expected = fields.get(header_fields.EXPECTED_LAST_SEQUENCE)
        if expected:
            if not says_number(expected, last_seq):
                raise errors.STREAM_WRONG_LAST_SEQUENCE(seq=last_seq)
            if before:
                raise errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT()
        expected = fields.get(header_fields.EXPECTED_LAST_SUBJECT_SEQUENCE)
        subject = fields.get(header_fields.EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT)
        if expected:
            asked = subject or message.subject
            if asked in so_far.subjects:
                raise errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT()
            actual = self._checks.last_sequence_of(asked)
            if not says_number(expected, actual):
                raise errors.STREAM_WRONG_LAST_SEQUENCE(seq=actual)
        elif subject:
            raise errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID()

    def _rollup(self, message: Publish, so_far: _SoFar, *, is_schedule: bool) -> str:
        rollup = self._checks.rollup(message) or (ROLLUP_SUBJECT if is_schedule else "")
        if rollup == ROLLUP_ALL and so_far.subjects:
            raise errors.STREAM_ROLLUP_FAILED(err="batch rollup all invalid")
        if rollup and message.subject in so_far.subjects:
            raise errors.STREAM_ROLLUP_FAILED(err="batch rollup sub invalid")
        return rollup

    def _check_room(
        self, message: Publish, counted: Count | None, so_far: _SoFar, rollup: str
    ) -> None:
        """With discard new: ApiError if there is no room beside the earlier messages of the
        batch.
        """
        if self._checks.config.discard is not DiscardPolicy.NEW:
            return
        header, payload = message.header, message.payload
        if counted is not None:
            header, payload = counted.header, counted.payload
        self._checks.check_room(
            Publish(message.subject, header, payload, message.fields),
            rollup,
            msgs=so_far.msgs,
            size=so_far.bytes,
            subject_msgs=so_far.subjects.get(message.subject, 0),
        )
        so_far.msgs += 1
        so_far.bytes += self._checks.counted_size(message)
