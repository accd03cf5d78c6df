"""The slow path: messages that need a closer look, wherever they come from.

Owns the way of such a message from its arrival to the answer, and the batches that are open:

    publish       what the fast path of `ingest` leaves: unusual headers, limits that are reached
    part          ... of an atomic batch, kept until its last one comes; of a fast batch, at once
    copy          a message of another stream, for a mirror or a source
    run           what a schedule publishes when it is due
    marker        what takes the place of an expired message

`publish_checks` gives the verdict, `storing` carries it out. It never touches the store itself,
except for an expired message, which goes when its marker is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.api import errors
from tradewind.chain.chain_entries import EXPIRED
from tradewind.faults import INTERNAL_ERROR
from tradewind.store.files.disk import DiskError
from tradewind.stream import header_fields
from tradewind.stream.batch_checks import BatchCheck
from tradewind.stream.fast_batch_intake import FastBatches
from tradewind.stream.publish_checks import Accept, BusyVerdict, Duplicate, Publish
from tradewind.stream.reply_bodies import or_stored
from tradewind.stream.staging import OpenBatch, Staging

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamConfig
    from tradewind.errors import StoreError
    from tradewind.route.mapping import SubjectMapping
    from tradewind.store.contract import MessageCopy
    from tradewind.stream.ingest import Ingest
    from tradewind.stream.publish_checks import PublishChecks
    from tradewind.stream.reply_bodies import ReplyBodies
    from tradewind.stream.schedules import ScheduledRun
    from tradewind.stream.storing import MessageStorage
    from tradewind.stream.stream_context import StreamContext


# The last part of a batch that only ends it.
BATCH_END: Final = b"eob"


class SlowPath:
    """The slow path of one stream. `staging` and `fast_batches` are its open batches, of either
    kind; `transform` is applied to the subject of each message.
    """

    def __init__(
        self,
        name: str,
        context: StreamContext,
        ingest: Ingest,
        bodies: ReplyBodies,
        checks: PublishChecks,
        storing: MessageStorage,
    ) -> None:
        self._name = name
        self._context = context
        self._router = context.router
        self._turn = context.router.turn
        self._ingest = ingest
        self._bodies = bodies
        self._checks = checks
        self._storing = storing
        self.transform: SubjectMapping | None = None
        self.staging = Staging(
            context.batches, self._batch_abandoned, name.encode(), context.chance.getrandbits(64)
        )
        self.fast_batches = FastBatches(context.batches, ingest, self._check_fast, storing.store)

    def configure(self, config: StreamConfig, transform: SubjectMapping | None) -> None:
        """Apply a configuration; batches that it does not allow are dropped."""
        self.transform = transform
        if not config.allow_atomic:
            self.staging.clear()
        if not config.allow_batched:
            self.fast_batches.clear()

    # ---------------------------------------------------------------- publishers

    def publish(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Called by `ingest` for a message that it does not handle; StoreError."""
        message = self.incoming(subject, header, payload)
        if self.publish_part(message, reply):
            return
        try:
            verdict = self.check(message)
        except errors.ApiError as error:
            self.turn_away(message, reply, error)
        else:
            self.carry_out(message, verdict, reply)

    def incoming(self, subject: bytes, header: bytes, payload: bytes) -> Publish:
        """An incoming message with its transformed subject and cleaned header."""
        if self.transform is not None:  # a call less for most messages
            subject = self.own_subject(subject)
        header = header_fields.clean(header)
        return Publish(subject, header, payload, header_fields.special_fields(header))

    def own_subject(self, subject: bytes) -> bytes:
        """The subject under which the stream stores a message."""
        if self.transform is None:
            return subject
        return self.transform.apply_bytes(subject) or subject

    def check(self, message: Publish) -> Accept | Duplicate | BusyVerdict:
        """The verdict on a message; ApiError if it is refused."""
        return self._checks.checks(message, self._ingest.last_id, self._turn)

    def _check_fast(self, message: Publish) -> Accept | Duplicate | BusyVerdict:
        """The verdict on a message of a fast batch."""
        if not message.header:
            return self.check(message)
        return BatchCheck(self._checks, self._turn).check_alone(message, self._ingest.last_id)

    def carry_out(
        self, message: Publish, verdict: Accept | Duplicate | BusyVerdict, reply: bytes
    ) -> None:
        """Act on a verdict; StoreError."""
        if isinstance(verdict, Duplicate):
            self._ingest.acknowledge(reply, verdict.seq, duplicate=True)
        elif isinstance(verdict, BusyVerdict):
            self._ingest.refuse(reply)
        else:
            seq = self._storing.store(message, verdict)
            tail = b',"val":"%s"' % verdict.count.value if verdict.count is not None else b""
            self._ingest.acknowledge(reply, seq, tail=tail)

    def turn_away(self, message: Publish, reply: bytes, error: errors.ApiError) -> None:
        """Refuse a message, unless another stream takes it as a dead letter."""
        door = self._checks.door
        if door is None or not door.bury(message, reply, error):
            self.refuse(reply, error)

    def refuse(self, reply: bytes, error: errors.ApiError) -> None:
        """Send a publisher the error, and record it in a trace."""
        self._ingest.answer(reply, self._bodies.refused(error))
        if (trace := self._router.trace) is not None:
            trace.refusal = error

    def store_failed(self, error: StoreError, reply: bytes) -> None:
        """Send a publisher the error of a store that failed. Called inside a delivery.

        A call to the disk may have failed when the message was in the store already, while making
        room for it; a message that the store itself refuses is certainly not in it.
        """
        text = or_stored(error) if isinstance(error, DiskError) else str(error)
        refusal = errors.STREAM_STORE_FAILED(err=text)
        self._ingest.answer(reply, self._bodies.refused(refusal))

    def publish_failed(self, reply: bytes) -> None:
        """Notify a publisher that its message may be stored or not, after an internal error."""
        refusal = errors.STREAM_STORE_FAILED(err=or_stored(INTERNAL_ERROR))
        self._ingest.answer(reply, self._bodies.refused(refusal))

    # ---------------------------------------------------------------- batches

    def publish_part(self, message: Publish, reply: bytes) -> bool:
        """Take a message of a batch; false if it belongs to none."""
        if message.is_fast_part(reply):
            self._publish_fast(message, reply)
        elif message.fields.get(header_fields.BATCH_ID):
            self._publish_atomic(message, reply)
        else:
            return False
        return True

    def _publish_fast(self, message: Publish, reply: bytes) -> None:
        """Handle a message of a fast batch that is not simply the next one."""
        try:
            self._checks.admit_part(message, is_fast=True)
            self.fast_batches.take(message, reply, self._turn.monotonic_ns)
        except errors.ApiError as error:
            self.refuse(reply, error)
        self._ingest.deadline_changed()

    def _publish_atomic(self, message: Publish, reply: bytes) -> None:
        """Add a message to an atomic batch, and store the batch with its last message."""
        try:
            self._checks.admit_part(message)
            if self._checks.door is not None:
                self._check_part(message)
            batch = self.staging.add(message, self._turn.monotonic_ns)
        except errors.ApiError as error:
            self.refuse(reply, error)
            return
        finally:
            self._ingest.deadline_changed()
        if batch is None:
            self._ingest.answer(reply, b"")
        else:
            self._ingest.commit_batch(batch, reply)

    def _check_part(self, message: Publish) -> None:
        """Compare a message of an atomic batch with its schema as it comes, since all of them
        together would take too long; ApiError ends the batch.
        """
        if message.fields.get(header_fields.BATCH_COMMIT) == BATCH_END:
            return  # it is not stored
        try:
            self._checks.check_schema(message)
        except errors.ApiError:
            batch_id = message.fields[header_fields.BATCH_ID]
            if self.staging.drop(batch_id):
                self._batch_abandoned(batch_id, "incomplete")
            raise

    def commit_batch(self, batch: OpenBatch, reply: bytes) -> None:
        """Store a batch that needs a closer look, if all checks succeed; StoreError."""
        checks = BatchCheck(self._checks, self._turn, is_checked=True)
        verdicts = []
        size = 0
        try:
            for message in batch.messages():
                verdicts.append(checks.check(message))
                size += verdicts[-1].stored_bytes(message)
        except errors.ApiError as error:
            self.refuse(reply, error)
            return
        for stored, verdict in self._storing.store_unit(batch.messages(), verdicts, size):
            self._storing.follow(stored, verdict)
        self._ingest.acknowledge(reply, self._ingest.store.last_seq, tail=batch.tail)

    def _batch_abandoned(self, batch_id: bytes, reason: str) -> None:
        self._context.abandoned(self._name, batch_id.decode("utf-8", "surrogateescape"), reason)

    def drop_batches(self) -> None:
        """Drop all open batches silently."""
        self.staging.clear()
        self.fast_batches.clear()

    # ---------------------------------------------------------------- without a publisher

    def store_copy(
        self, subject: bytes, header: bytes, payload: bytes, place: tuple[int, int] | None
    ) -> None:
        """Store the copy of another stream's message; `place` is the sequence and time of a mirror.

        ApiError or StoreError if it cannot be stored now.
        """
        fields = header_fields.special_fields(header)
        message = Publish(self.own_subject(subject), header, payload, fields)
        verdict = self._checks.check_copy(message, self._turn, dedupes=place is None)
        if isinstance(verdict, Accept):
            self._storing.store(message, verdict, place)

    def publish_run(self, run: ScheduledRun) -> None:
        """Store a scheduled run; ApiError if it is refused."""
        fields = header_fields.special_fields(run.header)
        message = Publish(self.own_subject(run.target), run.header, run.payload, fields)
        verdict = self._checks.check_own(message)
        self._storing.store(message, verdict)
        if run.ends:
            self._storing.remove_schedule(run.ends)

    def mark_expired(self, expired: MessageCopy) -> bool:
        """Replace the last message of a subject by a marker; false if that is not possible now.

        The marker is stored regardless of limits, because it makes room. It is stored before the
        removal, so that even after a crash watchers of the subject learn that the message has gone.
        A sealed stream takes no markers: the message stays, as with nats-server, and does not hold
        up others.
        """
        store = self._ingest.store
        if self._checks.config.sealed:
            return store.spare(expired.seq)
        if (marked := self._checks.marker_of(expired.subject)) is not None:
            self._storing.store(*marked)
        store.remove(expired.seq, reason=EXPIRED)
        return True
