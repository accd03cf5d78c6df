"""Replays the journal when a server starts: repeats what a crash has kept from the streams.

Owns how a part is recognised that was already applied. A message was applied if its stream has
assigned its sequence, whatever has happened to it since; one that was not is stored under the exact
sequence in the journal. An acknowledgement was applied if its consumer does not await the message;
a consumer whose state is so old that the message was not delivered yet is advanced to it, and the
messages that it passes are due again at once. A revival was applied if the consumer awaits the
message; one that was delivered and acknowledged since then, within the moment before a crash, is
delivered once more. A stream or consumer that was recreated meanwhile is left alone. Replaying a
journal twice changes nothing.

Nothing that was checked before is checked again: limits, expectations, permissions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.jetstream.transactions.account_transactions import NeededTransaction, transactions_of
from tradewind.jetstream.transactions.transaction_planning import remove
from tradewind.store.format.transaction_log import JournaledTransaction, JournaledVoid
from tradewind.stream import header_fields
from tradewind.stream.publish_checks import Accept, Publish

if TYPE_CHECKING:
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.jetstream_account import JetStreamAccount
    from tradewind.store.folder.transaction_journal import Segment
    from tradewind.store.format.transaction_log import JournaledAck, JournaledPart, JournalEntry


def replay(engine: JetStreamEngine, tenant: JetStreamAccount) -> None:
    """Replay the journal of an account, whose streams are open. StoreError if it cannot be read."""
    transactions = transactions_of(engine, tenant)
    assert transactions.journal is not None
    entries = transactions.journal.read()
    replayer = _Replayer(engine, tenant, entries)
    found: list[NeededTransaction] = []
    for index, (segment, entry) in enumerate(entries):
        if isinstance(entry, JournaledTransaction):
            segment.needed += 1
            found.append(replayer.repeat(index, segment, entry))
    transactions.adopt(found)
    if replayer.messages or replayer.acks:
        engine.log.notice(
            f"  Repeated transactions of account {tenant.name!r}: {replayer.messages:,} messages,"
            f" {replayer.acks:,} acknowledgements"
        )


class _Replayer:
    def __init__(
        self,
        engine: JetStreamEngine,
        tenant: JetStreamAccount,
        entries: list[tuple[Segment, JournalEntry]],
    ) -> None:
        self._engine = engine
        self._tenant = tenant
        # The last place at which the journal says that what is before does not count.
        self._voids = {
            (entry.stream, entry.consumer): index
            for index, (_, entry) in enumerate(entries)
            if isinstance(entry, JournaledVoid)
        }
        self.messages = 0
        self.acks = 0

    def repeat(
        self, index: int, segment: Segment, transaction: JournaledTransaction
    ) -> NeededTransaction:
        """Make all changes of a transaction in memory; returns what must be on disk before the
        journal can drop it.
        """
        needed = NeededTransaction(segment, [], [])
        for part in transaction.parts:
            hosted = self._hosted(index, part.stream, part.created_ns)
            if hosted is not None and part.messages:
                self._store(hosted, part)
                needed.parts.append((hosted, part.messages[-1].seq))
        for ack in (*transaction.acks, *transaction.revivals):
            hosted = self._hosted(index, ack.stream, ack.created_ns)
            consumer = hosted.consumers.get(ack.consumer) if hosted is not None else None
            if hosted is None or consumer is None or self._is_void(index, ack):
                continue
            if consumer.created_ns == ack.consumer_created_ns:
                if ack in transaction.revivals:
                    consumer.revive(ack.seq)
                else:
                    self._acknowledge(consumer, ack.seq)
                if hosted.files is not None and not consumer.config.mem_storage:
                    ticket = hosted.files.states.mark(
                        consumer.name, consumer.source, is_urgent=True
                    )
                    self._engine.syncer.mark_dirty(hosted.files, self._engine.turn.monotonic_ns)
                    needed.states.append((hosted, consumer.name, ticket))
        for delete in transaction.deletes:
            hosted = self._hosted(index, delete.stream, delete.created_ns)
            if hosted is not None:
                needed.add_removal(hosted, is_removed=remove(hosted, delete.seq))
        return needed

    def _hosted(self, index: int, name: str, created_ns: int) -> HostedStream | None:
        """The stream that a record refers to, unless it was recreated since."""
        hosted = self._tenant.streams.get(name)
        if hosted is None or hosted.stream.created_ns != created_ns:
            return None
        return hosted if self._voids.get((name, ""), -1) < index else None

    def _is_void(self, index: int, ack: JournaledAck) -> bool:
        return self._voids.get((ack.stream, ack.consumer), -1) > index

    def _store(self, hosted: HostedStream, part: JournaledPart) -> None:
        stream = hosted.stream
        for message in part.messages:
            if message.seq <= stream.store.last_seq:
                continue
            self.messages += 1
            if message.is_skip:
                stream.store.skip(message.seq, message.timestamp)
                stream.turn.mark_dirty(stream.ingest)
                continue
            publish = Publish(
                message.subject,
                message.header,
                message.payload,
                header_fields.special_fields(message.header),
            )
            accept = Accept(message.message_id, message.rollup, message.ttl_ns)
            stream.storing.store_again(publish, accept, message.seq, message.timestamp)

    def _acknowledge(self, consumer: ServerConsumer, seq: int) -> None:
        acks, cursor = consumer.acks, consumer.cursor
        now_ns = consumer.turn.monotonic_ns
        while seq >= cursor.limit():
            passed = cursor.peek(seq)
            if not passed:
                break
            consumer_seq = acks.deliver(passed, now_ns)
            cursor.advance(passed)
            if passed != seq:
                acks.nak(passed, consumer_seq, -1, now_ns)
        if acks.is_unsent(seq):  # it was sent after the saved state
            acks.deliver(seq, now_ns)
        if not acks.is_awaited(seq):
            return
        self.acks += 1
        consumer_seq = acks.pending()[seq].consumer_seq
        consumer.delivery.acknowledge(seq, consumer_seq, 1, measures=False)
