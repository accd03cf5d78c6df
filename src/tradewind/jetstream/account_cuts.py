"""One moment of a whole account: the states of all streams and consumers in one turn of the loop.

Owns taking a cut, and its form as an archive. A cut has everything that would be different
later: last sequences, consumers, which messages are removed, and the newest messages, if they
are few. A client reads all others before, and asks again, until little is left. After TURN_NS,
the rest is left out, and the cut says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.account_backup_types import (
    CUT_BYTES_MAX,
    CUT_HEAD,
    CUT_MESSAGES,
    CUT_REMOVED,
    CUT_STREAM_PREFIX,
    SEQUENCE_BYTES,
    CutHead,
    CutStream,
)
from tradewind.api.base import encode
from tradewind.api.request_types import BackupCutRequest, KnownPart
from tradewind.api.times import format_time
from tradewind.errors import StoreError
from tradewind.jetstream.lanes import let_others_go_first
from tradewind.store.backup.archive import (
    CONSUMER_PREFIX,
    END,
    MAGIC,
    ArchiveEntry,
    append_entry,
)
from tradewind.store.backup.archive_documents import consumer_state_document
from tradewind.store.backup.archive_messages import pack_messages
from tradewind.stream.stream_queries import state_document

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerConfig
    from tradewind.broker.accounts import Account
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.jetstream_account import JetStreamAccount
    from tradewind.jetstream.lanes import Steps
    from tradewind.store.contract import StoreState
    from tradewind.store.format.consumer_file import ConsumerState
    from tradewind.store.table.message_store import MessageStore

# Others wait for a cut; what would take it longer is left out.
TURN_NS: Final = 25_000_000
# With fewer messages in flight, all consumers are looked at in the turn of the cut.
IN_FLIGHT_MAX: Final = 10_000
CONSUMERS_PER_STEP: Final = 100
STEP_BYTES: Final = 512 * 1024

ConsumersBefore = dict[str, list["ConsumerPart"]]


class ConsumerPart(msgspec.Struct):
    """A consumer as it was in a cut, or a little before."""

    name: str
    config: ConsumerConfig
    state: ConsumerState


class StreamMoment(msgspec.Struct):
    """A stream in a cut. `removed` are the first and last sequence of each block with the set of
    those without a message; None if they are left out.
    """

    hosted: HostedStream
    state: StoreState
    after: int
    has_all: bool
    messages: bytes
    consumers: list[ConsumerPart]
    removed: list[tuple[int, int, bytes]] | None = None


def take_cut(
    engine: JetStreamEngine,
    tenant: JetStreamAccount,
    request: BackupCutRequest,
) -> Steps[AccountCut]:
    """Take a cut in one turn. If very many messages are in flight, consumers are looked at in the
    turns before, so that they may be a little older than their streams.
    """
    hosts = list(tenant.streams.values())
    in_flight = sum(
        1 + consumer.acks.count for hosted in hosts for consumer in hosted.consumers.values()
    )
    before: ConsumersBefore | None = None
    if in_flight > IN_FLIGHT_MAX:
        before = {}
        seen = 0
        for hosted in hosts:
            parts = before.setdefault(hosted.name, [])
            for consumer in list(hosted.consumers.values()):
                parts.append(_consumer_part(consumer))
                seen += 1
                if seen % CONSUMERS_PER_STEP == 0 or consumer.acks.count > CONSUMERS_PER_STEP:
                    yield let_others_go_first
    # No step from here on: this is the moment.
    return AccountCut(engine, tenant, request, before)


class AccountCut:
    """A cut of an account. A `SnapshotSource`."""

    name = "account"

    def __init__(
        self,
        engine: JetStreamEngine,
        tenant: JetStreamAccount,
        request: BackupCutRequest,
        before: ConsumersBefore | None,
    ) -> None:
        self.account: Account = tenant.account
        self.label = f"account '{tenant.name}'"
        self.time = format_time(engine.turn.now_ns)
        self._clock = engine.broker.clock
        self._until_ns = self._clock.monotonic_ns() + TURN_NS
        self._room = CUT_BYTES_MAX
        self._known = request.known
        self._named_only = request.named_only
        self.parts = [self._part(hosted) for hosted in tenant.streams.values()]
        self.is_complete = request.final or all(part.has_all for part in self.parts)
        if self.is_complete:
            for part in self.parts:
                self._complete(part, before)

    def unsettled(self) -> list[HostedStream]:
        """The streams with messages that are not durable yet: they must not leave the server."""
        return [
            part.hosted
            for part in self.parts
            if part.hosted.stream.store.synced_seq < part.hosted.stream.store.last_seq
        ]

    def _is_late(self) -> bool:
        return self._clock.monotonic_ns() > self._until_ns

    def _known_part(self, hosted: HostedStream) -> KnownPart | None:
        """The part of this stream that the client has, if it is the stream that it means."""
        known = self._known.get(hosted.name)
        if known is None or known.created != format_time(hosted.stream.created_ns):
            return None
        return known if known.last_seq <= hosted.stream.store.last_seq else None

    def _is_expected(self, hosted: HostedStream) -> bool:
        """Whether the client expects that the stream has not changed."""
        return self._named_only and hosted.name not in self._known

    def _part(self, hosted: HostedStream) -> StreamMoment:
        store = hosted.stream.store
        if self._is_expected(hosted):
            return StreamMoment(hosted, store.state, store.last_seq, True, b"", [])
        known = self._known_part(hosted)
        after = known.last_seq if known is not None else 0
        messages, has_all = b"", after >= store.last_seq or not store.msgs
        # About how much it is: most of what is too much is not even begun.
        size = (store.last_seq - after) * store.bytes // max(store.msgs, 1)
        if not has_all and size // 2 <= self._room and not self._is_late():
            try:
                first = max(after + 1, store.first_seq)
                found = pack_messages(store, store.filter(), first, store.last_seq, self._room)
            except StoreError:
                pass  # a request for these messages is answered with the reason
            else:
                if not found[1]:
                    messages, has_all = found[0], True
                    self._room -= len(messages)
        return StreamMoment(hosted, store.state, after, has_all, messages, [])

    def _complete(self, part: StreamMoment, before: ConsumersBefore | None) -> None:
        """Add what only the last cut of a backup needs."""
        hosted, state = part.hosted, part.state
        if before is not None:
            part.consumers = before.get(hosted.name, [])
        else:
            part.consumers = [_consumer_part(each) for each in hosted.consumers.values()]
        known = self._known_part(hosted)
        if state.deleted == 0:
            part.removed = []
        elif self._is_expected(hosted):
            part.removed = None
        elif known is not None and (known.first_seq, known.last_seq, known.messages) == (
            state.first_seq,
            state.last_seq,
            state.msgs,
        ):
            part.removed = []  # as the client knows it
        else:
            part.removed = self._removed(hosted.stream.store)

    def _removed(self, store: MessageStore) -> list[tuple[int, int, bytes]] | None:
        found: list[tuple[int, int, bytes]] = []
        for block in store.blocks:
            if self._is_late():
                return None
            if block.live_msgs:
                found.append((block.first_seq, block.last_seq, block.deleted.encode()))
        return found

    # ---------------------------------------------------------------- sending

    def began(self) -> None:
        """See `SnapshotSource`."""

    def ended(self, _start_ns: int, _error: str) -> str:
        """See `SnapshotSource`."""
        return f"{len(self.parts):,} streams"

    def gone(self) -> str:
        """See `SnapshotSource`: a stream that was deleted since was there in the cut."""
        return ""

    def damage(self) -> str:
        """See `SnapshotSource`: its messages were read when it was taken."""
        return ""

    def steps(self, now_ns: int) -> Iterator[bytes]:
        """See `SnapshotSource`."""
        target = bytearray(MAGIC)
        head = CutHead(time=self.time, streams=len(self.parts), complete=self.is_complete)
        append_entry(target, CUT_HEAD, now_ns, 0, b"", encode(head))
        for part in self.parts:
            append_entry(target, *_stream_entry(part, now_ns))
            for consumer in part.consumers:
                append_entry(target, *_consumer_entry(consumer, part.state.last_seq, now_ns))
                if len(target) >= STEP_BYTES:
                    yield bytes(target)
                    target.clear()
            for first, last, packed in part.removed or ():
                head_bytes = first.to_bytes(SEQUENCE_BYTES, "little") + last.to_bytes(
                    SEQUENCE_BYTES, "little"
                )
                append_entry(target, CUT_REMOVED, now_ns, 0, b"", head_bytes + packed)
                if len(target) >= STEP_BYTES:
                    yield bytes(target)
                    target.clear()
            append_entry(target, CUT_MESSAGES, now_ns, 0, b"", part.messages)
            if len(target) >= STEP_BYTES:
                yield bytes(target)
                target.clear()
        append_entry(target, *END)
        yield bytes(target)


def _consumer_part(consumer: ServerConsumer) -> ConsumerPart:
    return ConsumerPart(consumer.name, consumer.config, consumer.state())


def _stream_entry(part: StreamMoment, now_ns: int) -> ArchiveEntry:
    stream = part.hosted.stream
    header = CutStream(
        created=format_time(stream.created_ns),
        config=part.hosted.config,
        state=state_document(part.state, len(part.consumers)),
        after=part.after,
        consumers=len(part.consumers),
        removed=len(part.removed or ()),
        has_removed=part.removed is not None,
        has_all=part.has_all,
    )
    name = CUT_STREAM_PREFIX + part.hosted.name.encode()
    return ArchiveEntry(name, now_ns, 0, b"", encode(header))


def _consumer_entry(consumer: ConsumerPart, last_seq: int, now_ns: int) -> ArchiveEntry:
    document = {
        "config": consumer.config,
        "state": consumer_state_document(consumer.state, last_seq),
    }
    name = CONSUMER_PREFIX + consumer.name.encode()
    return ArchiveEntry(name, now_ns, 0, b"", encode(document))
