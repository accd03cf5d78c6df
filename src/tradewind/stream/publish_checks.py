"""Every check of the slow path of a publish, in the order of nats-server.

Owns the order and the errors; the texts are in `api.errors`. It reads the store and the ids and
never changes them: it returns a verdict, and `slow_path` acts on it. Everything that the fast path
accepts is accepted here too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tradewind.api import errors
from tradewind.api.stream_types import DiscardPolicy, RetentionPolicy, StorageType
from tradewind.store.contract import (
    RECORD_BYTES_MAX,
    DiscardedError,
    MessageCopy,
    NotFoundError,
)
from tradewind.store.format.layout import record_bytes
from tradewind.store.format.message_ttl import parse_ttl_ns
from tradewind.stream import header_fields, stream_queries
from tradewind.stream.counters import Count, check_increment, count, count_copy
from tradewind.stream.markers import marker_header, marker_ttl_ns, with_longer_ttl
from tradewind.stream.schedule_checks import check_next, check_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tradewind.api.stream_types import StreamConfig
    from tradewind.api.timings import Timing
    from tradewind.broker.turn import Turn
    from tradewind.store.table.message_store import MessageStore
    from tradewind.stream.message_ids import MessageIds

HEADER_BYTES_MAX: Final = 65535
ROLLUP_SUBJECT: Final = "sub"
ROLLUP_ALL: Final = "all"
_KEY_OPERATION: Final = b"\r\nKV-Operation:"
_DIGITS: Final = re.compile(rb"0*([0-9]{1,19})")


class Publish(msgspec.Struct, frozen=True):
    """An incoming message: its subject after the transform, its header cleaned."""

    subject: bytes
    header: bytes
    payload: bytes
    # The fields of the header whose names begin with "Nats-".
    fields: Mapping[bytes, bytes]

    @staticmethod
    def is_fast_part(reply: bytes) -> bool:
        """Whether a message with this reply belongs to a fast batch."""
        return reply.endswith(b".$FI")


class Accept(msgspec.Struct, frozen=True):
    """The verdict to store a message. `rollup`: then remove older ones; `skip`: only skip a
    sequence.
    """

    message_id: bytes
    rollup: str = ""
    ttl_ns: int = 0
    skip: bool = False
    # For a counter: what is stored instead, and the sum.
    count: Count | None = None
    # The header to store instead of the message's own one, or None.
    header: bytes | None = None
    # The timing of a schedule.
    timing: Timing | None = None
    # The subject of a schedule that goes with it.
    ends: bytes = b""

    def stored_form(self, message: Publish) -> Publish:
        """A message in the form in which it is stored."""
        if (counted := self.count) is not None:
            return Publish(message.subject, counted.header, counted.payload, message.fields)
        if self.header is not None:
            return Publish(message.subject, self.header, message.payload, message.fields)
        return message

    def stored_bytes(self, message: Publish) -> int:
        """The size of a message in its block."""
        stored = self.stored_form(message)
        return record_bytes(len(stored.subject), len(stored.header), len(stored.payload))


class Duplicate(msgspec.Struct, frozen=True):
    """The verdict that a message was stored before, as `seq`."""

    seq: int


class BusyVerdict(msgspec.Struct, frozen=True):
    """The verdict that there is no room to remember an id; the message may be sent again later."""


class SchemaDoor(Protocol):
    """The check of payloads against the schemas of their subjects."""

    def check(self, subject: bytes, header: bytes, payload: bytes) -> None:
        """ApiError if the stream must not store a message."""

    def bury(self, message: Publish, reply: bytes, error: errors.ApiError) -> bool:
        """Store a message that was refused as a dead letter; false if it is to be refused."""


class PublishChecks(msgspec.Struct):
    """The checks of one stream.

    `resources` returns the error if the account may not store this many more bytes, and `wanted`
    whether a message of this subject would have a consumer (streams with interest retention).
    """

    config: StreamConfig
    store: MessageStore
    ids: MessageIds
    resources: Callable[[int], errors.ApiError | None]
    wanted: Callable[[bytes], bool]
    # None: payloads are not checked.
    door: SchemaDoor | None = None

    def marker_of(self, subject: bytes) -> tuple[Publish, Accept] | None:
        """The marker that replaces the last message of a subject when it expires; None if no
        consumer would get it.
        """
        config = self.config
        if config.retention is RetentionPolicy.INTEREST and not self.wanted(subject):
            return None
        marker = Publish(subject, marker_header(config), b"", {})
        return marker, Accept(b"", ttl_ns=marker_ttl_ns(config))

    def checks(
        self, message: Publish, last_id: bytes, turn: Turn
    ) -> Accept | Duplicate | BusyVerdict:
        """The verdict on a message; ApiError is the reply if it is refused."""
        config = self.config
        size = len(message.header) + len(message.payload)
        if self._is_too_large(message):
            raise errors.STREAM_STORE_FAILED(err="message too large")
        if config.sealed:
            raise errors.STREAM_SEALED()
        if 0 <= _limit(config.max_msg_size) < size:
            raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM()
        if not message.header:
            return self._admit(message, Accept(b"", count=self._count(message)))
        fields = message.fields
        self._check_features(message)
        ttl_ns = time_to_live(fields.get(header_fields.TTL, b""))
        self._check_expectations(message, ttl_ns)
        timing, ends = self.check_origin(message, turn.now_ns)
        message_id = fields.get(header_fields.MESSAGE_ID, b"")
        if message_id and (seq := self.ids.lookup(message_id, turn.monotonic_ns)):
            return Duplicate(seq)
        expected_id = fields.get(header_fields.EXPECTED_LAST_MESSAGE_ID)
        if expected_id and expected_id != last_id:
            raise errors.STREAM_WRONG_LAST_MSG_ID(id=last_id.decode("utf-8", "replace"))
        rollup = self.rollup(message) or (ROLLUP_SUBJECT if timing is not None else "")
        if message_id and self.ids.window_ns > 0 and not self.ids.can_take(message_id):
            return BusyVerdict()
        header, ttl_ns = with_longer_ttl(message.header, ttl_ns, config)
        if timing is not None:
            header = with_rollup(header, fields)
        accept = Accept(
            message_id,
            rollup,
            ttl_ns,
            count=self._count(message),
            header=header,
            timing=timing,
            ends=ends,
        )
        return self._admit(message, accept)

    def check_own(self, message: Publish) -> Accept:
        """The verdict on a message made by this server; ApiError if it is refused.

        Only its size and the limits are checked, since it has no requirements.
        """
        if self._is_too_large(message):
            raise errors.STREAM_STORE_FAILED(err="message too large")
        if len(message.header) > HEADER_BYTES_MAX:
            raise errors.STREAM_HEADER_EXCEEDS_MAXIMUM()
        if 0 <= _limit(self.config.max_msg_size) < len(message.header) + len(message.payload):
            raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM()
        ttl_ns = time_to_live(message.fields.get(header_fields.TTL, b""))
        header, ttl_ns = with_longer_ttl(message.header, ttl_ns, self.config)
        rollup = ROLLUP_SUBJECT if message.fields.get(header_fields.ROLLUP) else ""
        return self._admit(message, Accept(b"", rollup, ttl_ns, header=header))

    def check_copy(self, message: Publish, turn: Turn, *, dedupes: bool) -> Accept | Duplicate:
        """The verdict on the copy of another stream's message; ApiError if there is no room.

        The requirements of its publisher were checked by the origin. Here they may have no meaning:
        a stream that does not expire or roll up messages stores the fields as they are.
        """
        config, fields = self.config, message.fields
        size = len(message.header) + len(message.payload)
        if self._is_too_large(message):
            raise errors.STREAM_STORE_FAILED(err="message too large")
        if config.sealed:
            raise errors.STREAM_SEALED()
        if 0 <= _limit(config.max_msg_size) < size:
            raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM()
        if len(message.header) > HEADER_BYTES_MAX:
            raise errors.STREAM_HEADER_EXCEEDS_MAXIMUM()
        message_id = fields.get(header_fields.MESSAGE_ID, b"") if dedupes else b""
        if message_id and (seq := self.ids.lookup(message_id, turn.monotonic_ns)):
            return Duplicate(seq)
        if message_id and self.ids.window_ns > 0 and not self.ids.can_take(message_id):
            raise errors.STREAM_TOO_MANY_REQUESTS()
        rollup = ""
        if config.allow_rollup_hdrs and not config.deny_purge:
            value = fields.get(header_fields.ROLLUP, b"").decode("utf-8", "replace").lower()
            rollup = value if value in (ROLLUP_SUBJECT, ROLLUP_ALL) else ""
        ttl_ns = time_to_live(fields.get(header_fields.TTL, b"")) if config.allow_msg_ttl else 0
        counted = None
        if config.allow_msg_counter:
            previous = self._previous(message.subject)
            counted = count_copy(message.header, fields, message.payload, previous)
        if (error := self.resources(self.counted_size(message))) is not None:
            raise error
        if config.retention is RetentionPolicy.INTEREST and not self.wanted(message.subject):
            return Accept(message_id, skip=True)
        if config.discard is DiscardPolicy.NEW:
            self.check_room(message, rollup)
        return Accept(message_id, rollup, ttl_ns, count=counted)

    def _previous(self, subject: bytes) -> MessageCopy | None:
        """The last message of a subject, durable or not."""
        try:
            return stream_queries.last_message(self.store, subject, self.store.last_seq)
        except NotFoundError:
            return None

    def _count(self, message: Publish) -> Count | None:
        """The sum, if this is a counter; its size replaces that of the message."""
        if not self.config.allow_msg_counter:
            return None
        result = count(message.header, message.fields, self._previous(message.subject))
        if 0 <= _limit(self.config.max_msg_size) < len(result.header) + len(result.payload):
            raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM()
        return result

    def _check_features(self, message: Publish) -> None:
        """ApiError if the message uses features that the stream lacks, or its header is too
        large.
        """
        if len(message.header) > HEADER_BYTES_MAX:
            raise errors.STREAM_HEADER_EXCEEDS_MAXIMUM()
        check_increment(message.fields, message.payload, is_counter=self.config.allow_msg_counter)

    def _check_expectations(self, message: Publish, ttl_ns: int) -> None:
        fields = message.fields
        self.check_stream(message)
        if ttl_ns and not self.config.allow_msg_ttl:
            raise errors.MESSAGE_TTL_DISABLED()
        expected = fields.get(header_fields.EXPECTED_LAST_SUBJECT_SEQUENCE)
        subject = fields.get(header_fields.EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT)
        if expected:
            actual = self.last_sequence_of(subject or message.subject)
            if not says_number(expected, actual):
                raise errors.STREAM_WRONG_LAST_SEQUENCE(seq=actual)
        elif subject:
            raise errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID()
        expected = fields.get(header_fields.EXPECTED_LAST_SEQUENCE)
        if expected and not says_number(expected, self.store.last_seq):
            raise errors.STREAM_WRONG_LAST_SEQUENCE(seq=self.store.last_seq)

    def check_stream(self, message: Publish) -> None:
        """ApiError if the message expects another stream."""
        expected = message.fields.get(header_fields.EXPECTED_STREAM)
        if expected and expected != self.config.name.encode():
            raise errors.STREAM_NOT_MATCH()

    def last_sequence_of(self, subject: bytes) -> int:
        """The last sequence of a subject, or of all that match a pattern; 0: there is none."""
        if (state := self.store.subject_state(subject)) is not None:
            return state.last_seq
        try:
            return stream_queries.last_message(self.store, subject, self.store.last_seq).seq
        except NotFoundError:
            return 0

    def check_origin(self, message: Publish, now_ns: int) -> tuple[Timing | None, bytes]:
        """Check schedules, and headers that only a server may send.

        Returns the timing of a schedule, and the schedule that the message ends.
        """
        timing = check_schedule(message.subject, message.fields, self.config, now_ns)
        ends = check_next(message.subject, message.fields, self.config, self.store)
        if message.fields.get(header_fields.STREAM_SOURCE):
            raise errors.STREAM_SOURCE_HEADER_NOT_ALLOWED()
        return timing, ends

    def rollup(self, message: Publish) -> str:
        """The scope of what the message replaces: "sub", "all" or nothing."""
        value = message.fields.get(header_fields.ROLLUP, b"").decode("utf-8", "replace")
        if not value:
            return ""
        if not self.config.allow_rollup_hdrs or self.config.deny_purge:
            raise errors.STREAM_ROLLUP_FAILED(err="rollup not permitted")
        rollup = value.lower()
        if rollup not in (ROLLUP_SUBJECT, ROLLUP_ALL):
            raise errors.STREAM_ROLLUP_FAILED(err=f'rollup value invalid: "{rollup}"')
        return rollup

    def _is_too_large(self, message: Publish) -> bool:
        """Whether the message is too large for any file."""
        return (
            self.config.storage is StorageType.FILE
            and self.counted_size(message) > RECORD_BYTES_MAX
        )

    def counted_size(self, message: Publish) -> int:
        """The size of the message in the bytes of the stream."""
        stored = MessageCopy(0, 0, message.subject, message.header, message.payload)
        return self.store.counted_size(stored)

    def _admit(self, message: Publish, accept: Accept) -> Accept:
        """Check the payload and the limits, which come last."""
        if self.door is not None:
            self.check_schema(message)
        if (error := self.resources(self.counted_size(message))) is not None:
            raise error
        if self.config.retention is RetentionPolicy.INTEREST and not self.wanted(message.subject):
            return Accept(accept.message_id, skip=True)
        if message.fields.get(header_fields.TTL) and not accept.ttl_ns:
            raise errors.MESSAGE_TTL_INVALID()
        if self.config.discard is DiscardPolicy.NEW:
            self.check_room(message, accept.rollup)
        return accept

    def check_schema(self, message: Publish) -> None:
        """ApiError if the payload does not obey the schema of its subject.

        A schedule must obey that of its target too, under which it will be published.
        """
        door, fields = self.door, message.fields
        if door is None or (not message.payload and _KEY_OPERATION in message.header):
            return  # the marker of a deleted key
        door.check(message.subject, message.header, message.payload)
        target = fields.get(header_fields.SCHEDULE_TARGET)
        if target and not fields.get(header_fields.SCHEDULE_SOURCE):
            door.check(target, message.header, message.payload)

    def check_room(
        self, message: Publish, rollup: str, *, msgs: int = 0, size: int = 0, subject_msgs: int = 0
    ) -> None:
        """With discard new: ApiError if there is no room for the message after `msgs` and `size`
        others.
        """
        per_subject = self.config.discard_new_per_subject and not rollup
        try:
            self.store.check_room(
                message.subject,
                len(message.header),
                len(message.payload),
                per_subject,
                msgs,
                size,
                subject_msgs,
            )
        except DiscardedError as error:
            raise errors.STREAM_STORE_FAILED(err=str(error)) from None

    def admit_member(self, message: Publish, before_bytes: int = 0) -> None:
        """The checks of a message of a batch or transaction before it is stored; ApiError if it is
        refused. `before_bytes` is the size of those before it.
        """
        if self.config.sealed:
            raise errors.STREAM_SEALED()
        if (error := self.resources(self.counted_size(message) + before_bytes)) is not None:
            raise error
        size = len(message.header) + len(message.payload)
        if 0 <= _limit(self.config.max_msg_size) < size:
            raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM()

    def admit_part(self, message: Publish, *, is_fast: bool = False) -> None:
        """The checks of a message of a batch before it is stored; ApiError if it is refused."""
        self.admit_member(message)
        if is_fast and not self.config.allow_batched:
            raise errors.BATCH_PUBLISH_DISABLED()
        if not is_fast and not self.config.allow_atomic:
            raise errors.ATOMIC_PUBLISH_DISABLED()


def _limit(value: int) -> int:
    """A limit as the store expects it: -1 if there is none, which 0 means too."""
    return value if value > 0 else -1


def with_rollup(header: bytes, fields: Mapping[bytes, bytes]) -> bytes:
    """The header of a schedule, which replaces the previous one of its subject."""
    if fields.get(header_fields.ROLLUP):
        return header
    return header_fields.add_fields(header, b"%s: sub\r\n" % header_fields.ROLLUP)


def time_to_live(value: bytes) -> int:
    """Parse a time to live in nanoseconds, negative for ever; 0 if it is missing or invalid."""
    digits = value.lstrip(b"0")
    if digits.isdigit() and (len(digits) > 19 or int(digits) >= 2**63):
        return 0  # a stored one would be as long as possible
    try:
        return parse_ttl_ns(value)
    except ValueError:
        return 0


def whole_number(text: bytes) -> int | None:
    """Parse a number in a header; None if it is not one."""
    match = _DIGITS.fullmatch(text)
    return int(match[1]) if match is not None else None


def says_number(text: bytes, value: int) -> bool:
    """Whether a header has this number."""
    return whole_number(text) == value
