"""The questions of a backup to a server: streams, their states, and their messages.

Owns the requests of the JetStream API that any server answers. A snapshot gives a stream with its
consumers as they are in one moment; single gets give messages from a sequence on. Answers are
bounded in memory. It never changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

import msgspec

from tradewind.api.times import parse_time
from tradewind.backups.backup_documents import SavedConsumer
from tradewind.backups.backup_errors import BackupError
from tradewind.client.api_errors import NoMessageFoundError
from tradewind.client.errors import OperationTimeoutError
from tradewind.client.streams.api_requests import check_answer
from tradewind.errors import StoreError
from tradewind.status_codes import NO_CONTENT
from tradewind.store.backup.archive import CONSUMER_PREFIX, STATE_NAME, ArchiveReader, append_entry
from tradewind.store.format.s2 import Decompressor

if TYPE_CHECKING:
    from tradewind.sync import Connection, Subscription

# A server gives up after 5 s without an answer; a large memory stream may take a while.
CHUNK_SECONDS: Final = 60.0
PLAIN_BYTES_MAX: Final = 1 << 62
MESSAGE_BYTES_MAX: Final = 1 << 28
# What is asked for at a time, in messages and, by the size of those before, in bytes.
GETS_MAX: Final = 128
GETS_BYTES: Final = 4 << 20
# A small window: a snapshot of which only the beginning is wanted sends no more than that.
CHUNK_BYTES: Final = 128 << 10
WINDOW_BYTES: Final = 8 << 20


class StreamFacts(msgspec.Struct):
    """The answer of STREAM.INFO, and a part of STREAM.LIST, with every setting of the server."""

    config: dict[str, Any]
    state: dict[str, Any]
    created: str = ""

    @property
    def name(self) -> str:
        """The name of the stream."""
        return str(self.config.get("name", ""))

    def number(self, member: str) -> int:
        """A number of the state."""
        value = self.state.get(member, 0)
        if type(value) is not int or value < 0:
            raise BackupError(f"stream {self.name}: the server says {member} {value!r:.40}")
        return value


class _StoredMessage(msgspec.Struct):
    subject: str
    seq: int
    time: str
    hdrs: bytes = b""
    data: bytes = b""


class _MessageAnswer(msgspec.Struct):
    message: _StoredMessage | None = None


class _StreamPage(msgspec.Struct):
    total: int = 0
    streams: list[StreamFacts] | None = None


class AccountApi:
    """The JetStream API of the account of a connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        # `api` is not among the types of the blocking client, as programs have no use for it.
        self._api = cast(Any, connection.jetstream_manager()).api

    @property
    def server(self) -> str:
        """The name of the server, for people."""
        info = self.connection.info
        return f"{info.server_name} {info.version}".strip()

    def ask(
        self, endpoint: str, stream: str = "", body: object = None, timeout: float | None = None
    ) -> bytes:
        """The JSON of an answer; JetStreamApiError if the request is refused."""
        answer: bytes = self._api.call_raw(endpoint, stream, body=body, timeout=timeout)
        check_answer(answer)
        return answer

    def streams(self) -> list[StreamFacts]:
        """All streams of the account, by name."""
        found: list[StreamFacts] = []
        while True:
            answer = self.ask("stream_list", body={"offset": len(found)})
            page = _decoded(answer, _StreamPage, "stream list")
            found += page.streams or []
            if not page.streams or len(found) >= page.total:
                return sorted(found, key=lambda each: each.name)

    def info(self, stream: str, *, deleted: bool = False) -> StreamFacts:
        """Configuration and state of a stream."""
        body = {"deleted_details": True} if deleted else None
        timeout = CHUNK_SECONDS if deleted else None
        answer = self.ask("stream_info", stream, body, timeout)
        found: StreamFacts = _decoded(answer, StreamFacts, f"info of stream {stream}")
        return found

    def message_time(self, stream: str, seq: int) -> str:
        """When a message was stored; "" if it is not there."""
        try:
            answer = self.ask("stream_msg_get", stream, {"seq": seq})
        except NoMessageFoundError:
            return ""
        message = _decoded(answer, _MessageAnswer, f"message {seq} of {stream}").message
        return message.time if message is not None else ""

    def messages(self, stream: str, sequences: Iterable[int]) -> Iterator[bytes]:
        """The entries of messages by sequence, some at a time; without those that are not there."""
        subject = self._api.subject("stream_msg_get", stream)
        inbox = self.connection.new_inbox()
        wanted = iter(sequences)
        count = 16
        with self.connection.subscribe(
            f"{inbox}.*", pending_messages_max=1 << 20, pending_bytes_max=1 << 30
        ) as subscription:
            while batch := list(islice(wanted, count)):
                for seq in batch:
                    body = msgspec.json.encode({"seq": seq})
                    self.connection.publish(subject, body, reply=f"{inbox}.{seq}")
                packed = _packed(self._answers(subscription, stream, len(batch)))
                if packed:
                    yield packed
                count = max(min(len(batch) * GETS_BYTES // max(len(packed), 1), GETS_MAX), 1)

    def _answers(
        self, subscription: Subscription, stream: str, count: int
    ) -> Iterator[_StoredMessage]:
        for _ in range(count):
            try:
                answer = subscription.next(CHUNK_SECONDS)
            except OperationTimeoutError:
                raise BackupError(
                    f"stream {stream}: no answer about a message for {CHUNK_SECONDS:g} s"
                ) from None
            if answer.status:
                raise BackupError(f"stream {stream}: {answer.status} {answer.description}")
            try:
                check_answer(answer.data)
            except NoMessageFoundError:
                continue
            message = _decoded(answer.data, _MessageAnswer, f"a message of {stream}").message
            if message is not None:
                yield message


def _packed(messages: Iterable[_StoredMessage]) -> bytes:
    target = bytearray()
    for message in sorted(messages, key=lambda each: each.seq):
        append_entry(
            target,
            message.subject.encode(),
            parse_time(message.time),
            message.seq,
            message.hdrs,
            message.data,
        )
    return bytes(target)


def _decoded(answer: bytes, kind: Any, what: str) -> Any:
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BackupError(f"{what}: the answer of the server is not valid: {error}") from None


class StreamSnapshot:
    """A stream as it is in one moment: state, consumers, then messages; used in a `with`.

    Leaving it early ends the snapshot at the server.
    """

    def __init__(self, api: AccountApi, stream: str, *, consumers: bool = True) -> None:
        self._api = api
        self._stream = stream
        self._has_consumers = consumers
        self._reader = ArchiveReader(MESSAGE_BYTES_MAX)
        self._decompressor = Decompressor(PLAIN_BYTES_MAX)
        self._is_over = False
        self.state: dict[str, Any] = {}
        self.config: dict[str, Any] = {}
        self.received_bytes = 0

    def __enter__(self) -> Self:
        connection = self._api.connection
        inbox = connection.new_inbox()
        self._subscription = connection.subscribe(
            inbox, pending_messages_max=1 << 20, pending_bytes_max=1 << 30
        )
        self._subscription.__enter__()
        body = {
            "deliver_subject": inbox,
            "no_consumers": not self._has_consumers,
            "chunk_size": CHUNK_BYTES,
            "window_size": WINDOW_BYTES,
        }
        try:
            answer = self._api.ask("stream_snapshot", self._stream, body)
        except BaseException:
            self._subscription.__exit__(None, None, None)
            raise
        self.config = _decoded(answer, StreamFacts, f"snapshot of {self._stream}").config
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._subscription.__exit__(kind, error, trace)

    def consumers(self) -> list[SavedConsumer]:
        """The consumers; before the messages. Sets `state`."""
        try:
            entry = self._next_entry()
            if entry.name != STATE_NAME:
                raise BackupError(f"stream {self._stream}: the snapshot has no state first")
            self.state = _decoded(entry.payload, dict[str, Any], f"state of {self._stream}")
            count = self.state.get("consumer_count", 0)
            return [self._consumer() for _ in range(count)]
        except StoreError as error:
            raise self._not_an_archive(error) from None

    def _consumer(self) -> SavedConsumer:
        entry = self._next_entry()
        document = _decoded(entry.payload, dict[str, Any], f"a consumer of {self._stream}")
        name = entry.name.removeprefix(CONSUMER_PREFIX).decode("utf-8", "replace")
        return SavedConsumer(name=name, config=document["config"], state=document["state"])

    def _next_entry(self) -> Any:
        while (entry := self._reader.next_entry()) is None:
            self._reader.feed(self._next_plain())
        return entry

    def messages(self) -> Iterator[bytes]:
        """The entries of the messages, as they arrive, and the end mark after the last one."""
        yield bytes(self._reader.data[self._reader.offset :])
        while not self._is_over:
            try:
                yield self._next_plain()
            except StoreError as error:
                raise self._not_an_archive(error) from None

    def _not_an_archive(self, error: StoreError) -> BackupError:
        return BackupError(
            f"stream {self._stream}: the snapshot of the server cannot be read: {error}",
            "backups need a tradewind-server, or nats-server 2.15 or later",
        )

    def _next_plain(self) -> bytes:
        if self._decompressor.pending:
            return self._decompressor.feed(b"")
        if self._is_over:
            raise BackupError(f"stream {self._stream}: the snapshot ends early")
        try:
            message = self._subscription.next(CHUNK_SECONDS)
        except OperationTimeoutError:
            raise BackupError(f"stream {self._stream}: no data for {CHUNK_SECONDS:g} s") from None
        if not message.data:
            if message.status and message.status != NO_CONTENT:
                raise BackupError(
                    f"stream {self._stream}: the server ended the snapshot: {message.status}"
                    f" {message.description}"
                )
            self._is_over = True
            return b""
        if message.reply:
            self._api.connection.publish(message.reply)
        self.received_bytes += len(message.data)
        return self._decompressor.feed(message.data)
