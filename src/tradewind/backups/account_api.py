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
from tradewind.backups.backup_errors import StreamReadError
from tradewind.client.api_errors import NoMessageFoundError
from tradewind.client.errors import OperationTimeoutError
from tradewind.client.streams.api_requests import check_answer
from tradewind.errors import StoreError
from tradewind.status_codes import NO_CONTENT
from tradewind.store.backup.archive import (
    CONSUMER_PREFIX,
    STATE_NAME,
    ArchiveEntry,
    ArchiveReader,
    append_entry,
)
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
            raise StreamReadError(f"stream {self.name}: the server says {member} {value!r:.40}")
        return value


class _StoredMessage(msgspec.Struct):
    subject: str
    seq: int
    time: str
    hdrs: bytes = b""
    data: bytes = b""


class _MessageAnswer(msgspec.Struct):
    message: _StoredMessage | None = None


class _ConsumerDocument(msgspec.Struct):
    config: dict[str, Any]
    state: dict[str, Any]


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
            page = decoded(answer, _StreamPage, "stream list")
            found += page.streams or []
            if not page.streams or len(found) >= page.total:
                return sorted(found, key=lambda each: each.name)

    def info(self, stream: str, *, deleted: bool = False) -> StreamFacts:
        """Configuration and state of a stream."""
        body = {"deleted_details": True} if deleted else None
        timeout = CHUNK_SECONDS if deleted else None
        answer = self.ask("stream_info", stream, body, timeout)
        found: StreamFacts = decoded(answer, StreamFacts, f"info of stream {stream}")
        return found

    def message_time(self, stream: str, seq: int) -> str:
        """When a message was stored; "" if it is not there."""
        try:
            answer = self.ask("stream_msg_get", stream, {"seq": seq})
        except NoMessageFoundError:
            return ""
        message = decoded(answer, _MessageAnswer, f"message {seq} of {stream}").message
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
                raise StreamReadError(
                    f"stream {stream}: no answer about a message for {CHUNK_SECONDS:g} s"
                ) from None
            if answer.status:
                raise StreamReadError(f"stream {stream}: {answer.status} {answer.description}")
            try:
                check_answer(answer.data)
            except NoMessageFoundError:
                continue
            message = decoded(answer.data, _MessageAnswer, f"a message of {stream}").message
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


def decoded(answer: bytes, kind: Any, what: str) -> Any:
    """The JSON of a server as a value of a type; StreamReadError names `what` if it is none."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StreamReadError(f"{what}: the answer of the server is not valid: {error}") from None


class ArchiveDownload:
    """An archive that a server sends in chunks; used in a `with`.

    Leaving it early ends the transfer at the server. `answer` is the response to the request.
    """

    def __init__(
        self, api: AccountApi, endpoint: str, stream: str, body: dict[str, Any], what: str
    ) -> None:
        self._api = api
        self._endpoint = endpoint
        self._stream = stream
        self._body = body
        self._what = what
        self._reader = ArchiveReader(MESSAGE_BYTES_MAX)
        self._reader.metadata_bytes_max = MESSAGE_BYTES_MAX
        self._decompressor = Decompressor(PLAIN_BYTES_MAX)
        self._is_over = False
        self.answer = b""

    def __enter__(self) -> Self:
        connection = self._api.connection
        inbox = connection.new_inbox()
        self._subscription = connection.subscribe(
            inbox, pending_messages_max=1 << 20, pending_bytes_max=1 << 30
        )
        self._subscription.__enter__()
        sizes = {"chunk_size": CHUNK_BYTES, "window_size": WINDOW_BYTES}
        body = {**self._body, **sizes, "deliver_subject": inbox}
        try:
            self.answer = self._api.ask(self._endpoint, self._stream, body)
        except BaseException:
            self._subscription.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._subscription.__exit__(kind, error, trace)

    def next_entry(self) -> ArchiveEntry:
        """The next entry; StreamReadError if there is none."""
        try:
            while (entry := self._reader.next_entry()) is None:
                self._reader.feed(self._next_plain())
        except StoreError as error:
            raise self._not_an_archive(error) from None
        return entry

    def rest(self) -> Iterator[bytes]:
        """Everything after the entries that were taken, as it arrives."""
        yield bytes(self._reader.data[self._reader.offset :])
        while not self._is_over or self._decompressor.pending:
            try:
                yield self._next_plain()
            except StoreError as error:
                raise self._not_an_archive(error) from None

    def _not_an_archive(self, error: StoreError) -> StreamReadError:
        return StreamReadError(
            f"{self._what}: what the server sends cannot be read: {error}",
            "backups need a tradewind-server, or nats-server 2.15 or later",
        )

    def _next_plain(self) -> bytes:
        if self._decompressor.pending:
            return self._decompressor.feed(b"")
        if self._is_over:
            raise StreamReadError(f"{self._what}: what the server sends ends early")
        try:
            message = self._subscription.next(CHUNK_SECONDS)
        except OperationTimeoutError:
            raise StreamReadError(f"{self._what}: no data for {CHUNK_SECONDS:g} s") from None
        if not message.data:
            if message.status and message.status != NO_CONTENT:
                raise StreamReadError(
                    f"{self._what}: the server stopped sending: {message.status}"
                    f" {message.description}"
                )
            self._is_over = True
            return b""
        if message.reply:
            self._api.connection.publish(message.reply)
        return self._decompressor.feed(message.data)


class StreamSnapshot(ArchiveDownload):
    """A stream as it is in one moment: consumers, which set `state`, then messages."""

    def __init__(
        self, api: AccountApi, stream: str, *, consumers: bool = True, first_seq: int = 0
    ) -> None:
        what = f"stream {stream}"
        if first_seq:
            super().__init__(api, "backup_read", stream, {"first_seq": first_seq}, what)
        else:
            body = {"no_consumers": not consumers}
            super().__init__(api, "stream_snapshot", stream, body, what)
        self.state: dict[str, Any] = {}

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the stream."""
        facts: StreamFacts = decoded(self.answer, StreamFacts, f"snapshot of {self._stream}")
        return facts.config

    def consumers(self) -> list[SavedConsumer]:
        """The consumers; before the messages. Sets `state`."""
        entry = self.next_entry()
        if entry.name != STATE_NAME:
            raise StreamReadError(f"stream {self._stream}: the snapshot has no state first")
        self.state = decoded(entry.payload, dict[str, Any], f"state of {self._stream}")
        count = self.state.get("consumer_count", 0)
        return [saved_consumer(self.next_entry(), self._stream) for _ in range(count)]

    def messages(self) -> Iterator[bytes]:
        """The entries of the messages, as they arrive, and the end mark after the last one."""
        return self.rest()


def saved_consumer(entry: ArchiveEntry, stream: str) -> SavedConsumer:
    """The consumer in an entry of an archive."""
    if not entry.name.startswith(CONSUMER_PREFIX):
        raise StreamReadError(f"stream {stream}: the server sent {entry.name[:40]!r} as a consumer")
    document = decoded(entry.payload, _ConsumerDocument, f"a consumer of {stream}")
    name = entry.name.removeprefix(CONSUMER_PREFIX).decode("utf-8", "replace")
    return SavedConsumer(name=name, config=document.config, state=document.state)
