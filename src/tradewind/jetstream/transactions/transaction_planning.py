"""The changes of a transaction, completely checked before any of them is made.

Owns the checks of the members of a transaction among each other and the one moment at which all of
them happen in memory. All checks and `apply` run in one go of the loop, so what was checked holds.
Sequences and times are known before anything is stored: the journal records them (`journaled`).
Never touches the disk, and never waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tradewind.api import errors, own_errors
from tradewind.api.consumer_types import AckPolicy
from tradewind.durations import later
from tradewind.errors import StoreError
from tradewind.store.contract import NotFoundError
from tradewind.store.format.transaction_log import (
    JournaledAck,
    JournaledDelete,
    JournaledMessage,
    JournaledPart,
    JournaledTransaction,
)
from tradewind.stream import header_fields
from tradewind.stream.batch_checks import BatchCheck
from tradewind.stream.publish_checks import Accept, Publish

if TYPE_CHECKING:
    from tradewind.api.errors import ApiError
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.stream.storing import StoredPublish


class StreamPart:
    """The messages for one stream, in their order. `first_seq` is the sequence of the first one."""

    def __init__(self, hosted: HostedStream) -> None:
        self.hosted = hosted
        self.first_seq = hosted.stream.store.last_seq + 1
        self.messages: list[Publish] = []
        self.verdicts: list[Accept] = []
        self.size = 0
        self._counted_bytes = 0
        self._checks = BatchCheck(hosted.stream.checks, hosted.stream.turn)

    @property
    def last_seq(self) -> int:
        """The sequence of the last message."""
        return self.first_seq + len(self.messages) - 1

    def add(self, message: Publish) -> int:
        """Add a message; returns its sequence. ApiError if the stream does not accept it."""
        checks = self.hosted.stream.checks
        checks.admit_member(message, self._counted_bytes)
        verdict = self._checks.check(message)
        if verdict.timing is not None or verdict.ends:
            raise own_errors.TRANSACTION_INVALID(err="a transaction cannot schedule messages")
        self.messages.append(message)
        self.verdicts.append(verdict)
        self.size += verdict.stored_bytes(message)
        self._counted_bytes += checks.counted_size(message)
        return self.last_seq

    def add_checked(self, message: Publish, verdict: Accept) -> int:
        """Add a message that is stored regardless of limits; returns its sequence."""
        self.messages.append(message)
        self.verdicts.append(verdict)
        self.size += verdict.stored_bytes(message)
        return self.last_seq

    def journaled(self) -> JournaledPart:
        """The part as the journal records it."""
        timestamp = self.hosted.stream.ingest.next_stamp()
        messages = []
        for seq, (message, verdict) in enumerate(
            zip(self.messages, self.verdicts, strict=True), self.first_seq
        ):
            stored = verdict.stored_form(message)
            messages.append(
                JournaledMessage(
                    seq,
                    timestamp,
                    b"" if verdict.skip else stored.subject,
                    b"" if verdict.skip else stored.header,
                    b"" if verdict.skip else stored.payload,
                    verdict.message_id,
                    verdict.ttl_ns,
                    verdict.rollup,
                    verdict.skip,
                )
            )
            timestamp = later(timestamp, 1)
        return JournaledPart(self.hosted.name, self.hosted.stream.created_ns, messages)


class AckPart(msgspec.Struct, frozen=True):
    """A delivered message that a consumer no longer needs."""

    hosted: HostedStream
    consumer: ServerConsumer
    seq: int
    consumer_seq: int
    deliveries: int
    is_measured: bool = True

    def journaled(self) -> JournaledAck:
        """The acknowledgement as the journal records it."""
        return JournaledAck(
            self.hosted.name,
            self.hosted.stream.created_ns,
            self.consumer.name,
            self.consumer.created_ns,
            self.seq,
        )


class TransactionPlan:
    """The changes of a transaction: empty at first, extended by every `add_...` that succeeds."""

    def __init__(self) -> None:
        self.parts: dict[HostedStream, StreamPart] = {}
        self.acks: dict[tuple[str, str, int], AckPart] = {}
        # Messages that consumers are to deliver again, though they are done with them.
        self.revivals: dict[tuple[str, str, int], AckPart] = {}
        # Whether they could be removed is known when they are.
        self.deletes: dict[tuple[HostedStream, int], bool] = {}

    @property
    def hosts(self) -> list[HostedStream]:
        """All streams that change, or whose consumers do."""
        found = dict.fromkeys(self.parts)
        found.update(dict.fromkeys(ack.hosted for ack in self.acks.values()))
        found.update(dict.fromkeys(one.hosted for one in self.revivals.values()))
        found.update(dict.fromkeys(hosted for hosted, _ in self.deletes))
        return list(found)

    @property
    def outlives_server(self) -> bool:
        """Whether any change is stored on disk."""
        return any(hosted.stream.files is not None for hosted in self.hosts)

    def add_publish(self, hosted: HostedStream, message: Publish) -> int:
        """Add a message for a stream; returns its future sequence. ApiError if it is refused."""
        check_writable(hosted)
        if message.fields.get(header_fields.BATCH_ID):
            raise own_errors.TRANSACTION_INVALID(
                err="a transaction cannot contain messages of a batch"
            )
        part = self.parts.get(hosted)
        if part is None:
            part = StreamPart(hosted)
            seq = part.add(message)
            self.parts[hosted] = part
            return seq
        return part.add(message)

    def add_ack(self, ack: AckPart) -> None:
        """Add an acknowledgement. ApiError unless this delivery of the message awaits one."""
        hosted, consumer, seq = ack.hosted, ack.consumer, ack.seq
        check_writable(hosted)
        if hosted.files_entry is not None and hosted.files_entry.has_failed:
            raise errors.CONSUMER_STORE_FAILED(err="its state cannot be written")
        if consumer.config.ack_policy not in (AckPolicy.EXPLICIT, AckPolicy.ALL):
            raise own_errors.TRANSACTION_INVALID(
                err=f"consumer {consumer.name} accepts no acknowledgements"
            )
        key = (hosted.name, consumer.name, seq)
        if key in self.acks:
            raise own_errors.TRANSACTION_INVALID(err=f"message {seq} is acknowledged twice")
        if not consumer.acks.is_awaited(seq):
            raise own_errors.TRANSACTION_NOT_AWAITED(seq=seq)
        actual = consumer.acks.deliveries(seq)
        if ack.deliveries and actual != ack.deliveries:
            raise own_errors.TRANSACTION_REDELIVERED(seq=seq, given=ack.deliveries, last=actual)
        self.acks[key] = ack

    def add_revival(self, part: AckPart) -> None:
        """Add a message that a consumer is to deliver again. ApiError unless it was acknowledged,
        and the message still exists.
        """
        hosted, consumer, seq = part.hosted, part.consumer, part.seq
        check_writable(hosted)
        if hosted.files_entry is not None and hosted.files_entry.has_failed:
            raise errors.CONSUMER_STORE_FAILED(err="its state cannot be written")
        try:
            copy = hosted.stream.store.get(seq)
        except (NotFoundError, ValueError, OverflowError):
            raise not_done(seq, "the stream no longer has it") from None
        except StoreError as error:
            raise errors.STREAM_STORE_FAILED(err=str(error)) from None
        key = (hosted.name, consumer.name, seq)
        if key in self.revivals or key in self.acks:
            raise own_errors.TRANSACTION_INVALID(err=f"message {seq} is named twice")
        if consumer.config.ack_policy is not AckPolicy.EXPLICIT:
            raise not_done(seq, "the ack policy of the consumer must be explicit")
        if consumer.config.max_deliver == 1:
            raise not_done(seq, "the consumer delivers each message only once (max_deliver is 1)")
        if not consumer.cursor.accepts(copy.subject) or consumer.misses(seq, copy.subject):
            raise not_done(seq, "the consumer is not done with it, or its filter does not match")
        self.revivals[key] = part

    def add_expired(self, hosted: HostedStream, seq: int, subject: bytes) -> None:
        """Add the removal of an expired message, which may leave a marker."""
        check_writable(hosted)
        stream = hosted.stream
        marked = stream.checks.marker_of(subject) if stream.store.leaves_marker(seq) else None
        if marked is not None:
            self.parts.setdefault(hosted, StreamPart(hosted)).add_checked(*marked)
        self.deletes[hosted, seq] = False

    def add_delete(self, hosted: HostedStream, seq: int) -> None:
        """Add the removal of a message. ApiError unless it is visible and may be removed."""
        check_writable(hosted)
        config = hosted.config
        if config.sealed:
            raise errors.STREAM_SEALED()
        if config.deny_delete:
            raise errors.STREAM_MSG_DELETE_FAILED(err="message delete not permitted")
        if seq > hosted.stream.visible_seq or not hosted.stream.store.is_live(seq):
            raise errors.SEQUENCE_NOT_FOUND(seq=seq)
        if (hosted, seq) in self.deletes:
            raise own_errors.TRANSACTION_INVALID(err=f"message {seq} is deleted twice")
        self.deletes[hosted, seq] = False

    def journaled(self) -> JournaledTransaction:
        """The transaction as the journal records it; streams in memory have nothing to repeat."""
        return JournaledTransaction(
            [
                part.journaled()
                for part in self.parts.values()
                if part.hosted.stream.files is not None
            ],
            [ack.journaled() for ack in self.acks.values() if ack.hosted.stream.files is not None],
            [
                JournaledDelete(hosted.name, hosted.stream.created_ns, seq)
                for hosted, seq in self.deletes
                if hosted.stream.files is not None
            ],
            [
                one.journaled()
                for one in self.revivals.values()
                if one.hosted.stream.files is not None
            ],
        )

    def apply(self) -> None:
        """Make all changes in memory; StoreError if a stream cannot, in which case none is made."""
        followed: list[tuple[HostedStream, StoredPublish, Accept]] = []
        done: list[StreamPart] = []
        try:
            for part in self.parts.values():
                stream = part.hosted.stream
                assert stream.store.last_seq + 1 == part.first_seq
                for stored, verdict in stream.storing.store_unit(
                    part.messages, part.verdicts, part.size
                ):
                    followed.append((part.hosted, stored, verdict))
                done.append(part)
        except StoreError:
            for part in done:
                part.hosted.stream.upkeep.discard(part.first_seq, part.last_seq)
            raise
        for hosted, stored, verdict in followed:
            hosted.stream.storing.follow(stored, verdict)
        for ack in self.acks.values():
            ack.consumer.delivery.acknowledge(
                ack.seq, ack.consumer_seq, ack.deliveries, measures=ack.is_measured
            )
        for revival in self.revivals.values():
            revival.consumer.revive(revival.seq)
        for hosted, seq in self.deletes:
            self.deletes[hosted, seq] = remove(hosted, seq)


def not_done(seq: int, reason: str) -> ApiError:
    """The error for a message that cannot be delivered again."""
    return own_errors.TRANSACTION_NOT_DONE(seq=seq, err=reason)


def check_writable(hosted: HostedStream) -> None:
    """ApiError for a stream that takes no changes."""
    if not hosted.stream.is_active:
        raise errors.STREAM_STORE_FAILED(err="the stream is being closed")
    files = hosted.stream.files
    if files is not None and files.failure is not None:
        raise errors.STREAM_STORE_FAILED(err=str(files.failure))


def remove(hosted: HostedStream, seq: int) -> bool:
    """Remove a message, if it exists; false if the disk prevents it."""
    hosted.engine.turn.mark_dirty(hosted.stream.ingest)
    try:
        hosted.stream.store.remove(seq)
    except StoreError:
        return False
    return True
