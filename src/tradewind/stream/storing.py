"""Stores a message by its verdict, with all consequences.

Owns what follows a message that is not plain: older ones are removed, a schedule begins or ends, a
copy is published. Its callers have a verdict: the slow path, a transaction with all of its
messages, and a start that repeats one. It never checks anything, and never answers a publisher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from tradewind.api.times import format_time
from tradewind.errors import StoreError
from tradewind.store.table.schedule_times import forget_schedule
from tradewind.stream import header_fields
from tradewind.stream.publish_checks import ROLLUP_ALL, Accept, Publish
from tradewind.stream.schedules import begin_schedule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tradewind.broker.turn import Turn
    from tradewind.route.mapping import SubjectMapping
    from tradewind.stream.ingest import Ingest
    from tradewind.stream.upkeep import Upkeep


class StoringOwner(Protocol):
    """A stream, as its storing sees it."""

    @property
    def name(self) -> str:
        """The name of the stream, for the copies of its messages."""

    @property
    def upkeep(self) -> Upkeep:
        """Removes replaced messages, and the rest of a unit that failed."""


class StoredPublish(msgspec.Struct, frozen=True):
    """A message as it was stored, and the sequence before it on its subject; 0: none."""

    message: Publish
    seq: int
    previous_seq: int


class MessageStorage:
    """The storing of one stream, its `owner`."""

    def __init__(self, owner: StoringOwner, ingest: Ingest, turn: Turn) -> None:
        self._owner = owner
        self._ingest = ingest
        self._store = ingest.store
        self._turn = turn
        self._republish: SubjectMapping | None = None
        self._sends_headers_only = False

    def set_republish(self, mapping: SubjectMapping | None, *, headers_only: bool) -> None:
        """Set where copies of messages are published; None: nowhere."""
        self._republish = mapping
        self._sends_headers_only = headers_only

    def store(self, message: Publish, verdict: Accept, place: tuple[int, int] | None = None) -> int:
        """Store a message, with all consequences; returns its sequence. StoreError.

        `place` is a given sequence and time.
        """
        stored = self._append(message, verdict, place)
        self.follow(stored, verdict)
        return stored.seq

    def store_again(self, message: Publish, verdict: Accept, seq: int, timestamp: int) -> None:
        """Store a message under its sequence again, after a crash; StoreError."""
        stored = self._append(message, verdict, (seq, timestamp))
        self._ingest.remember_id(verdict.message_id, seq)
        if verdict.rollup:
            self.follow(stored, verdict)

    def store_unit(
        self, messages: Iterable[Publish], verdicts: list[Accept], size: int
    ) -> list[tuple[StoredPublish, Accept]]:
        """Store messages, or none of them; returns those that need `follow`."""
        first_seq = self._store.last_seq + 1
        # A batch may be large: only those messages are kept that bring something about.
        followed = []
        try:
            self._ingest.begin_unit(size, len(verdicts))
            for message, verdict in zip(messages, verdicts, strict=True):
                stored = self._append(message, replace(verdict, message_id=b""))
                if self._is_followed(verdict):
                    followed.append((stored, verdict))
        except StoreError:
            self._owner.upkeep.discard(first_seq, self._store.last_seq)
            raise
        finally:
            self._store.end_unit()
        for seq, verdict in enumerate(verdicts, first_seq):
            self._ingest.remember_id(verdict.message_id, seq)
        return followed

    def _append(
        self, message: Publish, verdict: Accept, place: tuple[int, int] | None = None
    ) -> StoredPublish:
        """Store a message, or skip a sequence. Either may have a given place."""
        seq, timestamp = place or (0, 0)
        if verdict.skip and seq:
            self._store.skip(seq, timestamp)
            self._turn.mark_dirty(self._ingest)
            return StoredPublish(message, seq, 0)
        if verdict.skip:
            return StoredPublish(message, self._ingest.skip(verdict.message_id), 0)
        message = verdict.stored_form(message)
        if self._store.schedules.count:
            self._end_schedule(message)
        previous = self._store.subject_state(message.subject) if self._republish else None
        seq = self._ingest.append(
            message.subject,
            message.header,
            message.payload,
            verdict.message_id,
            verdict.ttl_ns,
            seq=seq,
            timestamp=timestamp,
        )
        return StoredPublish(message, seq, previous.last_seq if previous else 0)

    def _end_schedule(self, message: Publish) -> None:
        """End the schedule of the subject, unless the message is a run of another schedule."""
        if not message.fields.get(header_fields.SCHEDULER):
            forget_schedule(self._store, message.subject)
        elif self._store.subject_state(message.subject) is not None:
            self._store.shadows_schedules = True

    # ---------------------------------------------------------------- what follows

    def _is_followed(self, verdict: Accept) -> bool:
        """Whether a message needs `follow`."""
        return bool(
            self._republish is not None
            or verdict.rollup
            or verdict.ends
            or verdict.timing is not None
        )

    def follow(self, stored: StoredPublish, verdict: Accept) -> None:
        """Carry out the consequences of a stored message: remove others, and publish a copy."""
        if verdict.skip:
            return
        upkeep = self._owner.upkeep
        if verdict.rollup:
            subject = b"" if verdict.rollup == ROLLUP_ALL else stored.message.subject
            upkeep.roll_up(subject, stored.seq)
        if verdict.ends:
            upkeep.roll_up(verdict.ends, stored.seq)
        if verdict.timing is not None:
            begin_schedule(self._store, stored.seq, verdict.timing, self._turn.steady_ns())
            self._ingest.deadline_changed()
        if self._republish is not None:
            self._publish_again(self._republish, stored)

    def remove_schedule(self, subject: bytes) -> None:
        """Remove the schedule of this subject, whose last run was just stored."""
        self._owner.upkeep.roll_up(subject, self._store.last_seq)

    def _publish_again(self, mapping: SubjectMapping, stored: StoredPublish) -> None:
        """Publish a copy for subscribers that have no consumer."""
        message = stored.message
        target = mapping.apply_bytes(message.subject)
        if target is None:
            return
        fields = (
            b"Nats-Stream: %s\r\nNats-Subject: %s\r\nNats-Sequence: %d\r\n"
            b"Nats-Time-Stamp: %s\r\nNats-Last-Sequence: %d\r\n"
            % (
                self._owner.name.encode(),
                message.subject,
                stored.seq,
                format_time(self._store.last_timestamp).encode(),
                stored.previous_seq,
            )
        )
        payload = message.payload
        if self._sends_headers_only:
            fields += b"Nats-Msg-Size: %d\r\n" % len(payload)
            payload = b""
        header = header_fields.add_fields(message.header, fields)
        self._ingest.send_copy(stored.seq, target, b"", header, payload)
