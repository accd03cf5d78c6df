"""Restores streams from backups that clients upload.

Owns every restore from the response to its request to the response to its last chunk. Workers
unpack the upload into a hidden stream (`tradewind.store.backup.restore`). Only when it is complete
and durable does the stream take its place, in order with the other requests of the account. A
restore that fails, stalls or is interrupted never leaves anything behind.

Chunks are requests, each answered with an empty message when it has been processed. After a failure
the rest of the upload is answered and dropped; the error is the response to the final empty chunk.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from tradewind.api import errors
from tradewind.api.base import encode
from tradewind.api.configs import (
    consumer_config_from_dict,
    consumer_config_to_dict,
    stream_config_to_dict,
)
from tradewind.api.consumer_configs import ConsumerConfigs
from tradewind.api.consumer_rules import check_consumer_create
from tradewind.api.errors import ApiError
from tradewind.api.event_types import EventClient
from tradewind.api.limits import check_resources
from tradewind.api.responses import StreamCreateResponse, encode_error
from tradewind.api.stream_rules import check_overlap
from tradewind.api.stream_types import StorageType, StreamConfig
from tradewind.chain.chain_folder import FOLDER as CHAIN_FOLDER
from tradewind.durations import format_duration
from tradewind.errors import StoreError
from tradewind.faults import INTERNAL_ERROR
from tradewind.jetstream.consumer_catalog import open_consumer
from tradewind.jetstream.hosted import HostedStream
from tradewind.jetstream.infos import fields_of, stream_info
from tradewind.jetstream.jetstream_account import stream_usage
from tradewind.jetstream.lanes import let_others_go_first
from tradewind.jetstream.stream_catalog import reserved, stream_context
from tradewind.store.backup.restore import BackupRestore
from tradewind.store.backup.restore_types import NoRoomError, RestorePlan
from tradewind.store.folder.stream_folder import StoredConsumer
from tradewind.store.format.layout import name_problem
from tradewind.store.format.meta import ConsumerMeta, StreamMeta
from tradewind.stream.stream import Stream
from tradewind.stream.stream_opening import StreamOpening

if TYPE_CHECKING:
    from tradewind.broker.accounts import InternalMessage
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.jetstream_account import JetStreamAccount
    from tradewind.jetstream.lanes import Steps
    from tradewind.store.folder.stream_folder import StreamFolder

RESTORES_MAX: Final = 16
# A client waits for the answer to a chunk before it sends the next; this many bytes may be ahead.
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
STALL_NS: Final = 5_000_000_000
# After this many, other work has its turn.
CONSUMERS_PER_STEP: Final = 50
# The error that publishers get while they are opened.
CLOSED: Final = "the stream is closed until its restore has ended; publish again"


class Restores:
    """All restores in progress."""

    def __init__(self, engine: JetStreamEngine) -> None:
        self._engine = engine
        self._running: set[RunningRestore] = set()
        self._numbers = count(1)

    def begin(self, tenant: JetStreamAccount, config: StreamConfig, client: EventClient) -> str:
        """Begin to restore a stream with a checked configuration; returns the subject for chunks.

        ApiError if there are too many.
        """
        if len(self._running) >= RESTORES_MAX:
            raise errors.STREAM_RESTORE(err=f"{RESTORES_MAX} others are in progress")
        engine = self._engine
        if engine.root is None and config.storage is StorageType.FILE:
            raise errors.STREAM_RESTORE(err="file storage is not available: no store directory")
        staging = None
        if engine.root is not None:
            staging = engine.root.staging(tenant.name, config.name, next(self._numbers))
        restore = RunningRestore(engine, tenant, config, staging, client, self._running)
        self._running.add(restore)
        return restore.subject

    def stop(self) -> None:
        """Abandon all restores and remove their files: the server stops."""
        for restore in list(self._running):
            restore.stop()


class RunningRestore:
    """One restore. `running` is the set it belongs to until it has ended."""

    def __init__(
        self,
        engine: JetStreamEngine,
        tenant: JetStreamAccount,
        config: StreamConfig,
        staging: StreamFolder | None,
        client: EventClient,
        running: set[RunningRestore],
    ) -> None:
        self._engine = engine
        self._tenant = tenant
        self._config = config
        self._staging = staging
        self._client = client
        self._running = running
        self._start_ns = engine.turn.now_ns
        self._meta = StreamMeta(stream_config_to_dict(config), self._start_ns)
        plan = RestorePlan(
            self._meta,
            staging,
            config.storage is StorageType.MEMORY,
            engine.broker.options.max_payload_bytes,
            self._start_ns,
        )
        self._backup = BackupRestore(plan)
        self._chunks: deque[tuple[bytes, str]] = deque()
        self._waiting_bytes = self._counted_bytes = self._total_bytes = 0
        self._last_reply: str | None = None
        self._error: ApiError | None = None
        self._is_busy = self._is_over = False
        self._active_ns = engine.turn.monotonic_ns
        self.subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{engine.names.event_id()}"
        engine.log.notice(f"Starting restore for stream {self._label}")
        engine.advisories.restore_create(tenant.account, config.name, client)
        self._token = tenant.account.subscribe(self.subject, self._chunk)
        engine.timers.set(self, self.next_deadline_ns)

    @property
    def _label(self) -> str:
        return f"'{self._tenant.name} > {self._config.name}'"

    # ---------------------------------------------------------------- time and end

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has to check whether chunks still arrive; 0: never."""
        return 0 if self._is_over else self._active_ns + STALL_NS

    def tick(self) -> None:
        """Abandon a restore whose chunks have stopped arriving."""
        is_waiting = not self._is_busy and self._last_reply is None and not self._is_over
        if is_waiting and self._engine.turn.monotonic_ns >= self.next_deadline_ns:
            self._engine.log.warn(f"restore for stream {self._label} is stalled")
            self.stop()
        elif not self._is_over and not is_waiting:
            self._active_ns = self._engine.turn.monotonic_ns

    def stop(self) -> None:
        """Take no more chunks, and remove all files."""
        if self._is_over:
            return
        self._is_over = True
        self._running.discard(self)
        self._engine.timers.forget(self)
        self._tenant.account.unsubscribe(self._token)
        self._count(0)
        self._chunks.clear()
        # A job under way ends first: then this one, in `_done`.
        if not self._is_busy:
            self._engine.workers.submit(self._backup.abandon, self._abandoned)

    def _abandoned(self, error: Exception | None) -> None:
        if error is not None:
            self._engine.log.error(f"JetStream cannot remove a restore of {self._label}: {error}")

    def _count(self, size: int) -> None:
        """Set the bytes that the account uses for this restore while it is in progress."""
        more = size - self._counted_bytes
        self._counted_bytes = size
        nothing, added = stream_usage(self._config, 0), stream_usage(self._config, more)
        for usage in (self._tenant.usage, self._engine.usage):
            usage.replace(nothing, added)

    # ---------------------------------------------------------------- chunks

    def _chunk(self, message: InternalMessage) -> None:
        self._engine.set_time()
        self._active_ns = self._engine.turn.monotonic_ns
        if self._is_over or self._last_reply is not None:
            return
        if not message.reply:
            self._break_off("requires reply subject for each chunk")
            return
        if not message.payload:
            self._last_reply = message.reply
        else:
            self._waiting_bytes += len(message.payload)
            if self._waiting_bytes > WAITING_BYTES_MAX:
                self._last_reply = message.reply
                self._break_off(f"has more than {WAITING_BYTES_MAX} bytes of chunks unanswered")
                return
            self._chunks.append((message.payload, message.reply))
        self._feed_next_chunk()

    def _break_off(self, reason: str) -> None:
        text = f"restore for stream {self._label} {reason}"
        self._engine.log.warn(text)
        self._finish(errors.STREAM_RESTORE(err=text))

    def _feed_next_chunk(self) -> None:
        if self._is_busy or self._is_over:
            return
        while self._chunks:
            data, reply = self._chunks[0]
            if self._error is not None:
                self._answer(data, reply)
                continue
            self._submit(partial(self._backup.feed, data, self._allowed_bytes))
            return
        if self._last_reply is None:
            return
        if self._error is not None:
            self._finish(self._error)
        else:
            self._submit(partial(self._backup.finish, self._allowed_bytes))

    @property
    def _allowed_bytes(self) -> int:
        room = self._engine.room_bytes(self._tenant, self._config.storage)
        return room + self._counted_bytes

    def _submit(self, work: partial[None]) -> None:
        self._is_busy = True
        try:
            self._engine.workers.submit(work, self._done)
        except Exception as error:
            # The sender of the chunks is notified with the next answer.
            self._is_busy = False
            self._error = self._as_api_error(error)
            self._feed_next_chunk()

    def _done(self, error: Exception | None) -> None:
        """Called when a worker has processed a chunk, a part of it, or the end."""
        self._engine.set_time()
        self._is_busy = False
        self._active_ns = self._engine.turn.monotonic_ns
        if self._is_over:
            self._engine.workers.submit(self._backup.abandon, self._abandoned)
            return
        self._engine.timers.set(self, self.next_deadline_ns)
        if error is not None:
            self._error = self._as_api_error(error)
        self._count(self._backup.used_bytes)
        if error is None and not self._chunks:
            self._tenant.lane.add(self._install(), "", "end of a restore", self._label)
            return
        if error is None and self._backup.has_more:
            self._submit(partial(self._backup.feed, b"", self._allowed_bytes))
            return
        if self._chunks:
            self._answer(*self._chunks[0])
        self._feed_next_chunk()

    def _as_api_error(self, error: Exception) -> ApiError:
        if isinstance(error, ApiError):
            return error
        if isinstance(error, NoRoomError):
            if self._config.storage is StorageType.MEMORY:
                return errors.MEMORY_RESOURCES_EXCEEDED()
            return errors.STORAGE_RESOURCES_EXCEEDED()
        if not isinstance(error, StoreError | ValueError):
            self._engine.faults.contain("restore", error, self._label)
            return errors.STREAM_RESTORE(err=INTERNAL_ERROR)
        return errors.STREAM_RESTORE(err=str(error))

    def _answer(self, data: bytes, reply: str) -> None:
        self._chunks.popleft()
        self._waiting_bytes -= len(data)
        self._total_bytes += len(data)
        self._tenant.account.publish(reply, b"")

    # ---------------------------------------------------------------- the end of it

    def _install(self) -> Steps[None]:
        """Move the complete stream to its place."""
        if self._is_over:
            return
        self._is_busy = True
        try:
            hosted = yield from self._install_stream()
        except Exception as error:  # the client is notified
            self._is_busy = False
            self._finish(self._as_api_error(error))
            return
        self._is_busy = False
        self._finish(None, hosted)

    def _install_stream(self) -> Steps[HostedStream]:
        engine, tenant, config = self._engine, self._tenant, self._config
        if config.name in tenant.streams:
            raise errors.STREAM_NAME_EXISTS_RESTORE_FAILED()
        if config.name in tenant.problems:
            raise errors.STREAM_OFFLINE_REASON(err=tenant.problems[config.name])
        check_resources(config, reserved(engine, tenant), tenant.limits, engine.server_limits)
        check_overlap(config, tenant.owners)
        consumers = yield from self._checked_consumers()
        context = stream_context(engine, tenant, config.name)
        if (store := self._backup.store) is not None:
            stream = Stream(context, self._meta, store)
            yield from _load(stream, engine.turn.now_ns)
        else:
            assert self._staging is not None
            assert engine.root is not None
            folder = engine.root.stream(tenant.name, config.name)
            yield partial(_move, self._staging, folder, consumers, engine.turn.now_ns)
            opening = StreamOpening(context, folder, engine.turn.now_ns)
            try:
                yield opening.read
                stream, _ = opening.finish()
                yield from _load(stream, engine.turn.now_ns)
            except StoreError:
                yield folder.delete
                raise
        hosted = HostedStream(engine, tenant, stream)
        hosted.attach()
        yield from self._open_consumers(hosted, consumers)
        hosted.recovered()
        self._count(0)
        engine.advisories.stream_action(tenant.account, config.name, "create")
        return hosted

    def _open_consumers(self, hosted: HostedStream, consumers: list[StoredConsumer]) -> Steps[None]:
        # No message comes before all who may want it are there; a mirror takes its own anyway.
        is_closed = len(consumers) > CONSUMERS_PER_STEP and hosted.config.mirror is None
        closed = hosted.stream.refuse_all(CLOSED) if is_closed else None
        try:
            for number, stored in enumerate(consumers, 1):
                open_consumer(self._engine, hosted, stored)
                if number % CONSUMERS_PER_STEP == 0:
                    yield let_others_go_first
        finally:
            # Even if one of them fails: nothing else ends the restore.
            if closed is not None:
                closed.end()
                if hosted.is_attached:
                    hosted.stream.activate()

    def _checked_consumers(self) -> Steps[list[StoredConsumer]]:
        """The consumers of the backup; ApiError or ValueError if this server would have refused to
        create one of them.
        """
        configs = ConsumerConfigs()
        found: list[StoredConsumer] = []
        for restored in self._backup.consumers:
            if len(found) % CONSUMERS_PER_STEP == CONSUMERS_PER_STEP - 1:
                yield let_others_go_first
            name = restored.name
            if problem := name_problem(name):
                raise errors.STREAM_RESTORE(err=f"consumer name {name[:64]!r} {problem}")
            if name in configs:
                raise errors.STREAM_RESTORE(err=f"the backup has two consumers {name!r}")
            wanted = consumer_config_from_dict({**restored.config, "name": name})
            try:
                config = check_consumer_create(
                    wanted,
                    stream=self._config,
                    consumers=configs,
                    server=self._engine.server_limits,
                    account=self._tenant.limits,
                    has_interest=lambda _subject: True,
                )
            except ApiError as error:
                text = f"failed to add consumer {name!r}: {error.description}"
                raise errors.STREAM_RESTORE(err=text) from None
            configs[name] = config
            meta = ConsumerMeta(name, consumer_config_to_dict(config), self._engine.turn.now_ns)
            found.append(StoredConsumer(meta, restored.state))
        return found

    def _finish(self, error: ApiError | None, hosted: HostedStream | None = None) -> None:
        engine, account = self._engine, self._tenant.account
        engine.advisories.restore_complete(
            account, self._config.name, self._start_ns, self._total_bytes, self._client
        )
        took = format_duration(engine.broker.now_ns() - self._start_ns)
        size = f"{self._total_bytes:,} bytes"
        if error is None:
            assert hosted is not None
            info = stream_info(engine, hosted, domain=False)
            body = encode(StreamCreateResponse(**fields_of(info)))
            engine.log.notice(f"Completed restore of {size} for stream {self._label} in {took}")
        else:
            body = encode_error(StreamCreateResponse, error)
            engine.log.warn(
                f"Restore failed for {size} for stream {self._label} in {took}: {error.description}"
            )
        if self._last_reply:
            account.publish(self._last_reply, body)
        self.stop()


def _load(stream: Stream, now_ns: int) -> Steps[None]:
    """Restore the message ids (in steps) and times that the stream knew when the backup was
    made.
    """
    for _ in stream.load_some_ids(stream.config.duplicate_window, now_ns):
        yield let_others_go_first
    stream.load_times(now_ns)


def _move(
    staging: StreamFolder, folder: StreamFolder, consumers: list[StoredConsumer], now_ns: int
) -> None:
    """Write the consumers' files, then rename the folder; runs in a worker."""
    for stored in consumers:
        if not stored.meta.config.get("mem_storage"):
            staging.create_consumer(stored.meta, stored.state, now_ns)
    if folder.chain_settings(staging.read_meta()) is not None:
        # The chain begins here: an empty folder shows that no entry is missing.
        staging.disk.make_directory(f"{staging.path}/{CHAIN_FOLDER}", sync=True)
    staging.move_to(folder)
