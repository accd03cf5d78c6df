"""Sends backups to clients: of a stream, of a part of it, or of what an account is like now.

Owns every backup from the response to its request to its last message. Its source gives the archive
in small steps in the event loop, which owns the store; a worker compresses them, and chunks are
sent as fast as the receiver acknowledges them. A backup of a stream holds only one step, one
compressed piece and one chunk in memory, however large the stream is. The archive format is in
`tradewind.store.backup.archive`.

The protocol is that of nats-server: full chunks have a reply subject that the receiver must answer,
the last short chunk has none, and an empty message ends the backup: with status 204 if there was a
full chunk, 408 if the receiver is gone or silent, 500 if the stream could not be read.

A receiver may subscribe only after it has the response to its request. Nothing is therefore sent
until there is a subscription to exactly the subject of the chunks: a wildcard subscription may
belong to a bystander, or be the inbox for all responses of a client that does not handle this one
yet. Wildcard subscriptions count as receivers only if there is no exact one after a while. A backup
is reported as failed unless a receiver stayed until the end and answered every full chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tradewind.api import errors
from tradewind.api.base import encode
from tradewind.api.event_types import EventClient
from tradewind.durations import format_duration
from tradewind.errors import StoreError
from tradewind.faults import INTERNAL_ERROR
from tradewind.store.backup.archive import CONSUMER_PREFIX, END, MAGIC, STATE_NAME, append_entry
from tradewind.store.backup.archive_documents import consumer_state_document
from tradewind.store.backup.archive_messages import pack_messages
from tradewind.store.format.s2 import Compressor

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamState
    from tradewind.broker.accounts import Account, InternalMessage
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream

SNAPSHOTS_MAX: Final = 16
CHUNK_BYTES_DEFAULT: Final = 128 * 1024
CHUNK_BYTES_MIN: Final = 1024
CHUNK_BYTES_MAX: Final = 1024 * 1024
WINDOW_BYTES_DEFAULT: Final = 8 * 1024 * 1024
WINDOW_BYTES_MAX: Final = 32 * 1024 * 1024
STEP_BYTES_MAX: Final = 512 * 1024
# More than that unread at the receiver: it gets the next chunk with its next answer.
RECEIVER_BYTES_MAX: Final = 1024 * 1024
INTEREST_NS: Final = 2_000_000_000
ACK_NS: Final = 5_000_000_000
DONE: Final = b"NATS/1.0 204\r\n\r\n"
NO_INTEREST: Final = b"NATS/1.0 408 No Interest\r\n\r\n"
NO_FLOW: Final = b"NATS/1.0 408 No Flow Response\r\n\r\n"


class ChunkDelivery(Protocol):
    """How the receiver wants a backup; a size of 0 is the default."""

    @property
    def deliver_subject(self) -> str:
        """The subject of the chunks."""
        ...

    @property
    def chunk_size(self) -> int:
        """The bytes of a chunk."""
        ...

    @property
    def window_size(self) -> int:
        """The bytes that may be unanswered."""
        ...


class SnapshotSource(Protocol):
    """The content of a backup. `name` and `label` are for subjects and for the log."""

    account: Account
    name: str
    label: str

    def steps(self, now_ns: int) -> Iterator[bytes]:
        """The uncompressed archive in pieces, each made without holding up the loop."""
        ...

    def gone(self) -> str:
        """The reason why nothing more can be sent; "" if there is none."""
        ...

    def damage(self) -> str:
        """The reason why the last piece may be wrong; "" if there is none."""
        ...

    def began(self) -> None:
        """Called when the backup begins."""
        ...

    def ended(self, start_ns: int, error: str) -> str:
        """Called when it has ended; returns its size for the log."""
        ...


class Snapshots:
    """All backups in progress."""

    def __init__(self, engine: JetStreamEngine) -> None:
        self._engine = engine
        self._running: set[Snapshot] = set()

    def prepare(
        self,
        source: SnapshotSource,
        request: ChunkDelivery,
    ) -> Callable[[], None]:
        """Prepare a backup of what its source has now; call the result to begin. ApiError if there
        are too many.
        """
        if len(self._running) >= SNAPSHOTS_MAX:
            raise errors.STREAM_SNAPSHOT(err=f"{SNAPSHOTS_MAX} others are in progress")
        return Snapshot(self._engine, source, request, self._running).begin

    def stop(self) -> None:
        """Stop all backups without a message, because the server stops."""
        for snapshot in list(self._running):
            snapshot.stop()


class Snapshot:
    """One backup. `running` is the set that it belongs to while it is in progress."""

    def __init__(
        self,
        engine: JetStreamEngine,
        source: SnapshotSource,
        request: ChunkDelivery,
        running: set[Snapshot],
    ) -> None:
        self._engine = engine
        self._source = source
        self._account = source.account
        self._subject = request.deliver_subject
        self._running = running
        chunk_bytes = request.chunk_size or CHUNK_BYTES_DEFAULT
        self._chunk_bytes = min(max(chunk_bytes, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)
        window_bytes = request.window_size or WINDOW_BYTES_DEFAULT
        window_bytes = min(max(window_bytes, self._chunk_bytes), WINDOW_BYTES_MAX)
        self._chunks_max = window_bytes // self._chunk_bytes
        self._unanswered: set[str] = set()  # numbers of chunks
        self._is_crowded = False  # much waits at the receiver, and some of it is ours
        self._ack_subject = f"$JS.SNAPSHOT.ACK.{source.name}.{engine.names.event_id()}"
        self._token = 0
        self._start_ns = engine.turn.now_ns
        self._steps = source.steps(self._start_ns)
        self._compressor = Compressor()
        self._piece = b""
        self._ready = bytearray()
        self._index = 0
        self._has_receiver = False
        self._receiver_is_exact = False  # it subscribes to just the subject of the chunks
        self._is_busy = self._is_read = self._is_sent = self._is_over = False
        self._waits_since_ns = 0

    # ---------------------------------------------------------------- life

    def begin(self) -> None:
        """Wait for a receiver, then send; called after the request was answered."""
        self._running.add(self)
        self._engine.log.notice(f"Starting snapshot for {self._source.label}")
        self._source.began()
        self._token = self._account.subscribe(f"{self._ack_subject}.>", self._acknowledged)
        self._account.watch(self._subject.encode(), b"", self._receivers_changed)
        self._waits_since_ns = self._engine.turn.monotonic_ns
        self._engine.timers.set(self, self.next_deadline_ns)
        self._receivers_changed()

    def _receivers_changed(self) -> None:
        """Called when a subscription to the subject of the chunks was added or removed."""
        if self._is_over or self._is_sent:
            return
        is_there = self._account.is_subscribed(self._subject)
        if is_there and not self._has_receiver:
            self._has_receiver = self._receiver_is_exact = True
            self._send_or_fail()
        elif self._receiver_is_exact and not is_there:
            self._end(NO_INTEREST, "no interest")

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has to look again; 0: never."""
        if self._is_over:
            return 0
        return self._waits_since_ns + (ACK_NS if self._has_receiver else INTEREST_NS)

    def tick(self) -> None:
        """Give up on a receiver that has not subscribed, or does not answer."""
        if self._is_over or self._engine.turn.monotonic_ns < self.next_deadline_ns:
            return
        if not self._has_receiver:
            if self._account.has_interest(self._subject):
                self._has_receiver = True
                self._send_or_fail()
            else:
                self._end(NO_INTEREST, "no interest")
        elif self._is_sent:
            self._report("no flow response")
        elif not self._may_send:
            self._end(NO_FLOW, "no flow response")
        self._waits_since_ns = self._engine.turn.monotonic_ns  # else it waits for the disk

    def stop(self) -> None:
        """Send nothing more."""
        if not self._is_over:
            self._is_over = True
            self._running.discard(self)
            self._engine.timers.forget(self)
            self._account.unsubscribe(self._token)
            self._account.unwatch(self._subject.encode(), b"", self._receivers_changed)

    def _end(self, header: bytes, error: str) -> None:
        """End with an error, which is sent to the receiver."""
        self._account.publish(self._subject, b"", header=header)
        self._report(error)

    def _report(self, error: str = "") -> None:
        """End and publish the result, which is a success unless there is an error."""
        self.stop()
        engine, label = self._engine, self._source.label
        size = self._source.ended(self._start_ns, error)
        took = format_duration(engine.broker.now_ns() - self._start_ns)
        if error:
            engine.log.warn(f"Snapshot for {label} failed after {took}: {error}")
        else:
            engine.log.notice(f"Completed snapshot of {size} for {label} in {took}")

    # ---------------------------------------------------------------- sending

    def _acknowledged(self, message: InternalMessage) -> None:
        self._unanswered.discard(message.subject.rpartition(".")[2])
        self._is_crowded = False
        self._engine.set_time()
        self._waits_since_ns = self._engine.turn.monotonic_ns
        if self._is_sent:
            self._finish()
        else:
            self._send_or_fail()

    def _send_or_fail(self) -> None:
        """Continue to send; on any failure the receiver gets an error."""
        try:
            self._send_more()
        except Exception as error:
            self._engine.faults.contain("backup", error, self._source.label)
            self._fail(INTERNAL_ERROR)

    def _send_more(self) -> None:
        """Send the data that is ready, then prepare more if there is a receiver for it."""
        if self._is_over or not self._has_receiver:
            return
        if gone := self._source.gone():
            self._fail(gone)
            return
        while self._may_send and len(self._ready) >= self._chunk_bytes:
            self._send_chunk()
        if self._is_over:
            return
        if self._is_read and self._may_send and len(self._ready) < self._chunk_bytes:
            self._send_rest()
        elif not self._is_busy and not self._is_read and len(self._ready) < self._chunk_bytes:
            self._read_more()

    @property
    def _may_send(self) -> bool:
        is_open = len(self._unanswered) < self._chunks_max
        return is_open and not self._is_crowded and not self._is_over

    def _send_chunk(self) -> None:
        """Send one full chunk, which has to be acknowledged."""
        chunk = bytes(self._ready[: self._chunk_bytes])
        del self._ready[: self._chunk_bytes]
        self._index += 1
        self._unanswered.add(str(self._index))
        self._waits_since_ns = self._engine.turn.monotonic_ns
        reply = f"{self._ack_subject}.{len(chunk)}.{self._index}"
        if not self._account.publish(self._subject, chunk, reply):
            self._end(NO_INTEREST, "no interest")
        self._is_crowded = self._engine.router.largest_pending > RECEIVER_BYTES_MAX

    def _send_rest(self) -> None:
        """Send the last chunk, which is not acknowledged, and the end."""
        if self._ready and not self._account.publish(self._subject, bytes(self._ready)):
            self._end(NO_INTEREST, "no interest")
            return
        self._account.publish(self._subject, b"", header=DONE if self._index else b"")
        self._is_sent = True
        self._waits_since_ns = self._engine.turn.monotonic_ns
        self._finish()

    def _finish(self) -> None:
        """Report success when everything is sent and acknowledged."""
        if not self._is_over and not self._unanswered:
            self._report()

    def _fail(self, reason: str) -> None:
        text = reason.encode("utf-8", "replace").translate(None, b"\r\n")
        self._end(b"NATS/1.0 500 " + text + b"\r\n\r\n", reason)

    # ---------------------------------------------------------------- reading

    def _read_more(self) -> None:
        """Have a worker compress the next step of the archive."""
        try:
            plain = next(self._steps, None)
        except StoreError as error:
            self._fail(str(error))
            return
        if damage := self._source.damage():
            self._fail(damage)
            return
        self._is_busy = True
        self._engine.workers.submit(
            partial(self._compress, plain), partial(self._compressed, plain is None)
        )

    def _compress(self, plain: bytes | None) -> None:
        """Compress a piece; runs in a worker."""
        if plain is None:
            self._piece = self._compressor.flush()
        else:
            self._piece = self._compressor.write(plain)

    def _compressed(self, is_last: bool, error: Exception | None) -> None:  # noqa: FBT001
        self._engine.set_time()
        self._is_busy = False
        self._is_read = is_last
        if self._is_over:
            return
        if error is not None:
            self._engine.faults.contain("backup", error, self._source.label)
            self._fail(INTERNAL_ERROR)
            return
        self._ready += self._piece
        self._piece = b""
        self._send_or_fail()


class StreamArchive:
    """A stream as it is now, with `consumers`, from `first_seq` up to its last sequence."""

    def __init__(
        self,
        engine: JetStreamEngine,
        hosted: HostedStream,
        state: StreamState,
        client: EventClient,
        consumers: list[ServerConsumer],
        first_seq: int = 1,
    ) -> None:
        self.account = hosted.tenant.account
        self.name = hosted.name
        self.label = f"stream '{self.account.name} > {self.name}'"
        self._engine = engine
        self._hosted = hosted
        self._state = state
        self._client = client
        self._consumers = consumers
        self._first_seq = max(first_seq, state.first_seq, 1)
        self._lost = hosted.stream.store.lost

    def began(self) -> None:
        """See `SnapshotSource`."""
        self._engine.advisories.snapshot_create(self.account, self.name, self._state, self._client)

    def ended(self, start_ns: int, error: str) -> str:
        """See `SnapshotSource`."""
        self._engine.advisories.snapshot_complete(
            self.account, self.name, start_ns, self._client, error
        )
        return f"{self._state.bytes:,} bytes"

    def gone(self) -> str:
        """See `SnapshotSource`."""
        is_there = self._hosted.tenant.streams.get(self.name) is self._hosted
        return "" if is_there else "the stream was deleted"

    def damage(self) -> str:
        """See `SnapshotSource`."""
        store = self._hosted.stream.store
        is_damaged = store.has_open_damage or store.lost != self._lost
        return "the stream is damaged; see the log of the server" if is_damaged else ""

    def steps(self, now_ns: int) -> Iterator[bytes]:
        """See `SnapshotSource`."""
        state = msgspec.structs.replace(self._state, consumer_count=len(self._consumers))
        target = bytearray(MAGIC)
        append_entry(target, STATE_NAME, now_ns, 0, b"", encode(state))
        for consumer in self._consumers:
            document = encode(
                {
                    "config": consumer.config,
                    "state": consumer_state_document(consumer.state(), self._state.last_seq),
                }
            )
            append_entry(target, CONSUMER_PREFIX + consumer.name.encode(), now_ns, 0, b"", document)
            if len(target) >= STEP_BYTES_MAX:
                yield bytes(target)
                target.clear()
        store, seq = self._hosted.stream.store, self._first_seq
        everything = store.filter()
        while seq:
            packed, seq = pack_messages(
                store, everything, seq, self._state.last_seq, STEP_BYTES_MAX
            )
            target += packed
            yield bytes(target)
            target.clear()
        append_entry(target, *END)
        yield bytes(target)
