"""Restores the messages and consumers of an archive as they arrive.

Owns the order and the checks of the entries: those of nats-server, and additionally that subjects
are valid. It runs in worker threads, see `restore`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tradewind.api.times import parse_time
from tradewind.store.backup.archive import (
    CONSUMER_PREFIX,
    METADATA_BYTES_MAX,
    STATE_BYTES_MAX,
    STATE_NAME,
    ArchiveEntry,
    ArchiveError,
    ArchiveReader,
)
from tradewind.store.backup.archive_documents import (
    TIME_NS_MAX,
    DocumentPart,
    Numbers,
    consumer_state_from,
    decode_document,
)
from tradewind.store.backup.archive_messages import store_messages
from tradewind.store.backup.restore_types import NoRoomError, RestoredConsumer
from tradewind.store.contract import StoreLimits, limits_of
from tradewind.store.files.open_files import OpenFiles
from tradewind.store.folder.filestore import FileStore
from tradewind.store.format.layout import SEQUENCE_MAX
from tradewind.store.format.message_ttl import parse_ttl_ns
from tradewind.store.table.message_store import MessageStore
from tradewind.subjects import is_valid_literal

if TYPE_CHECKING:
    from tradewind.store.backup.restore_types import RestorePlan

CONSUMERS_MAX: Final = 100_000
# Messages that all consumers together have delivered, and that wait for acknowledgements.
ENTRIES_MAX: Final = 1_000_000
# This much is stored between two syncs.
COMMIT_BYTES: Final = 8 * 1024 * 1024
# A worker lets the event loop go first after this many messages.
BREATH_MESSAGES: Final = 256
_SUBJECT_BYTES_MAX: Final = 65535
_REMOVED_SUBJECT: Final = b"removed"
_TTL_FIELD: Final = b"\r\nNats-TTL:"


class ArchiveRestore:
    """The restore of an archive's messages and consumers."""

    def __init__(self, plan: RestorePlan) -> None:
        self.claimed_bytes = 0
        self.consumers: list[RestoredConsumer] = []
        self._plan = plan
        self._reader = ArchiveReader(plan.message_bytes_max)
        self._reader.metadata_bytes_max = STATE_BYTES_MAX  # until that is read
        self._store: MessageStore | None = None
        self._files: FileStore | None = None  # with the store, unless that is in memory
        self._consumers_left = 0
        self._metadata_bytes = 0
        self._consumer_entries = 0
        self._last_seq = self._last_ns = 0
        self._committed_bytes = 0
        self._keeps_ttl = bool(plan.meta.config.get("allow_msg_ttl"))
        self._message_bytes_max = int(plan.meta.config.get("max_msg_size") or -1)

    @property
    def stored_bytes(self) -> int:
        """See `Restore`."""
        return self._store.bytes if self._store is not None else 0

    def take(self, plain: bytes, bytes_allowed: int) -> None:
        """See `Restore`."""
        if self._reader.is_ended:
            return
        self._reader.feed(plain)
        while self._store_plain(bytes_allowed) or self._take_entry(bytes_allowed):
            time.sleep(0)

    def _take_entry(self, bytes_allowed: int) -> bool:
        """Restore one entry of any kind; false if there is none, or it was the last."""
        entry = self._reader.next_entry()
        if entry is None or self._reader.is_ended:
            return False
        if self._store is None:
            self._read_state(entry, bytes_allowed)
        elif self._consumers_left:
            self._read_consumer(entry)
        else:
            self._store_message(self._store, entry)
            self._stored(self._store, bytes_allowed)
        return True

    def _store_plain(self, bytes_allowed: int) -> bool:
        """Store some plain messages in one call; false if the next entry needs a closer look."""
        store, reader = self._store, self._reader
        if store is None or self._consumers_left:
            return False
        start = reader.offset
        maximum = reader.message_bytes_max
        if self._message_bytes_max >= 0:
            maximum = min(maximum, self._message_bytes_max)
        reader.offset = store_messages(
            store,
            reader.data,
            start,
            maximum,
            BREATH_MESSAGES,
            bytes_allowed,
            self._keeps_ttl,
        )
        self._stored(store, bytes_allowed)
        return reader.offset > start

    def _stored(self, store: MessageStore, bytes_allowed: int) -> None:
        if store.bytes > bytes_allowed:
            raise NoRoomError(f"message sequence {store.last_seq} no longer fits")
        if store.bytes - self._committed_bytes >= COMMIT_BYTES and self._files is not None:
            self._files.commit()
            self._committed_bytes = store.bytes

    def _read_state(self, entry: ArchiveEntry, bytes_allowed: int) -> None:
        if entry.name != STATE_NAME:
            raise ArchiveError("expected state.json first")
        state = decode_document(entry.payload, "state.json")
        number = Numbers(state, "state.json")
        first_seq, last_seq = number("first_seq"), number("last_seq")
        messages, consumers = number("messages"), number("consumer_count")
        claimed_bytes = number("bytes")
        if last_seq > SEQUENCE_MAX or first_seq > last_seq + 1:
            raise ArchiveError(f"state.json: messages {first_seq} to {last_seq} cannot be")
        if messages > last_seq - max(first_seq, 1) + 1:
            raise ArchiveError(f"state.json: {messages} messages are more than there are sequences")
        if consumers > CONSUMERS_MAX:
            raise ArchiveError(f"state.json: more than {CONSUMERS_MAX} consumers")
        if claimed_bytes > bytes_allowed:
            raise NoRoomError(f"the backup needs {claimed_bytes} bytes")
        # Only now: it counts as used, and the room of others is what is left.
        self.claimed_bytes = claimed_bytes
        self._consumers_left = consumers
        self._last_seq = last_seq
        self._reader.metadata_bytes_max = METADATA_BYTES_MAX
        self._store = self._new_store()
        self._last_ns = _time_ns(state.get("last_ts"))
        if first_seq > 1 and messages:
            self._store.skip(first_seq - 1, 0)
        elif first_seq == 1 and not last_seq:
            self._store.purge()  # as it was, before it had a message

    def _new_store(self) -> MessageStore:
        meta, folder = self._plan.meta, self._plan.staging
        if self._plan.is_in_memory or folder is None:
            return MessageStore(str(meta.config["name"]), limits_of(meta.config))
        folder.create(meta)
        self._files = folder.open(self._plan.now_ns, files=OpenFiles(folder.disk))[1]
        return self._files.table

    def _read_consumer(self, entry: ArchiveEntry) -> None:
        if not entry.name.startswith(CONSUMER_PREFIX):
            raise ArchiveError(f"expected consumer, found {entry.name[:64]!r}")
        self._metadata_bytes += len(entry.payload)
        if self._metadata_bytes > METADATA_BYTES_MAX:
            raise ArchiveError(f"its consumers take more than {METADATA_BYTES_MAX} bytes")
        name = entry.name.removeprefix(CONSUMER_PREFIX).decode("utf-8", "replace")
        what = f"consumer {name!r}"
        document = DocumentPart(entry.payload, 0, len(entry.payload)).fields(what)
        config, state = document.get("config"), document.get("state")
        if config is None or not config.is_object():
            raise ArchiveError(f"{what} is missing config")
        if state is None or not state.is_object():
            raise ArchiveError(f"{what} is missing state")
        found = consumer_state_from(state, what, ENTRIES_MAX - self._consumer_entries)
        self._consumer_entries += found.entry_count
        self.consumers.append(RestoredConsumer(name, config.decoded(what), found))
        self._consumers_left -= 1

    def _store_message(self, store: MessageStore, entry: ArchiveEntry) -> None:
        seq = entry.seq
        if not seq:
            raise ArchiveError("expected message sequence")
        if seq <= store.last_seq or seq > SEQUENCE_MAX:
            raise ArchiveError(f"message sequence {seq} out of order")
        subject = entry.name.decode("utf-8", "surrogateescape")
        if not is_valid_literal(subject) or len(entry.name) > _SUBJECT_BYTES_MAX:
            raise ArchiveError(f"message sequence {seq} has no valid subject")
        if 0 <= self._message_bytes_max < len(entry.header) + len(entry.payload):
            raise ArchiveError(f"message sequence {seq} exceeds maximum message size")
        ttl_ns = self._ttl_ns(entry)
        if ttl_ns > 0 and entry.timestamp_ns + ttl_ns <= self._plan.now_ns:
            return  # it would have expired meanwhile
        if seq > store.last_seq + 1:
            store.skip(seq - 1, store.last_timestamp)
        store.store(entry.name, entry.header, entry.payload, entry.timestamp_ns, ttl_ns)

    def _ttl_ns(self, entry: ArchiveEntry) -> int:
        start = entry.header.find(_TTL_FIELD) if self._keeps_ttl else -1
        if start < 0:
            return 0
        value = entry.header[start + len(_TTL_FIELD) :].partition(b"\r\n")[0].lstrip(b" ")
        try:
            return parse_ttl_ns(value)
        except ValueError as error:
            raise ArchiveError(f"failed to parse message TTL: {error}") from None

    def finish(self, bytes_allowed: int) -> MessageStore | None:  # noqa: ARG002 - see `Restore`
        """See `Restore`."""
        if not self._reader.is_ended or self._store is None or self._consumers_left:
            raise ArchiveError("the archive is cut off: it has no end marker")
        store = self._store
        if self._last_seq > store.last_seq:
            _use_up(store, self._last_seq, max(self._last_ns, store.last_timestamp))
        store.apply_limits(self._plan.now_ns)
        if self._files is None:
            return store
        self._files.close()
        return None

    def abandon(self) -> None:
        """See `Restore`."""
        if self._files is not None:
            self._files.abandon()


def _use_up(store: MessageStore, seq: int, time_ns: int) -> None:
    """Skip the last sequence, whose message no longer exists, at its known time."""
    if seq > store.last_seq + 1:
        store.skip(seq - 1, store.last_timestamp)
    limits = store.limits
    # Nothing has to go for it.
    store.set_limits(StoreLimits(message_ttl=limits.message_ttl))
    store.store(_REMOVED_SUBJECT, b"", b"", time_ns)
    store.remove(seq, erase=True)
    store.set_limits(limits)


def _time_ns(text: object) -> int:
    """The time of the last message; 0 if the backup does not have it."""
    try:
        time_ns = max(parse_time(text), 0) if isinstance(text, str) else 0
    except ValueError:
        raise ArchiveError("state.json: last_ts is not a time") from None
    if time_ns > TIME_NS_MAX:
        raise ArchiveError("state.json: no message is stored in last_ts, it is too late")
    return time_ns
