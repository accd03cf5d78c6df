"""Backups from before nats-server 2.15: a tar of the folder of a stream.

Owns turning the upload into a folder that can be opened. Its members are written as they arrive
(`tar_reader`, `tar_folder`), apart from all streams, and at the end the folder is opened like any
folder of nats-server. It runs in worker threads, see `restore`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tradewind.store.backup.archive import ArchiveError
from tradewind.store.backup.restore_types import NoRoomError, RestoredConsumer
from tradewind.store.backup.tar_folder import TarFolder
from tradewind.store.backup.tar_reader import TarReader
from tradewind.store.contract import limits_of
from tradewind.store.files.open_files import OpenFiles
from tradewind.store.format.layout import META_SUM_FILE
from tradewind.store.format.meta import StreamMeta, decode_stream_meta
from tradewind.store.table.message_store import MessageStore

if TYPE_CHECKING:
    from tradewind.store.backup.restore_types import RestorePlan
    from tradewind.store.folder.filestore import FileStore

BREATH_MESSAGES: Final = 256


class TarRestore:
    """The upload of a tar, and the folder it becomes."""

    def __init__(self, plan: RestorePlan) -> None:
        self.claimed_bytes = 0
        self.consumers: list[RestoredConsumer] = []
        self._plan = plan
        if plan.staging is None:
            raise ArchiveError("a backup of this age needs a server with a store")
        self._folder = plan.staging
        self._disk = plan.staging.disk
        self._disk.make_directory(plan.staging.path)
        self._members = TarFolder(self._disk, plan.staging.path, 0, is_durable=True)
        self._reader = TarReader(self._members)
        self._store: FileStore | None = None

    @property
    def stored_bytes(self) -> int:
        """See `Restore`."""
        return self._members.bytes_counted

    def take(self, plain: bytes, bytes_allowed: int) -> None:
        """See `Restore`."""
        self._members.bytes_allowed = bytes_allowed
        # Skipped bytes count too: a client cannot send them without end.
        self._members.count(len(plain))
        self._reader.feed(plain)

    def finish(self, bytes_allowed: int) -> MessageStore | None:
        """See `Restore`."""
        self._reader.finish()
        folder, config = self._folder, self._plan.meta.config
        folder.update(StreamMeta(config, self._created_ns()))
        found, skipped = folder.consumers()
        if skipped:
            raise ArchiveError(skipped[0].reason)
        self.consumers = [
            RestoredConsumer(stored.meta.name, stored.meta.config, stored.state) for stored in found
        ]
        # They are rewritten when their configuration was checked.
        for stored in found:
            folder.delete_consumer(stored.meta.name)
        _, self._store, report = folder.open(self._plan.now_ns, files=OpenFiles(self._disk))
        if report.lost or any(not entry.torn for entry in report.damage):
            raise ArchiveError("the backup is damaged: messages in it do not match their checksums")
        if self._store.table.bytes > bytes_allowed:
            raise NoRoomError(f"the messages of the backup need {self._store.table.bytes} bytes")
        if self._plan.is_in_memory:
            return self._copied(self._store)
        self._store.close()
        return None

    def _created_ns(self) -> int | None:
        """When the stream was created, according to the backup."""
        if not self._members.has_sum:
            raise ArchiveError(f"the backup has no {META_SUM_FILE}: it is cut off")
        if self._members.meta is None:
            return None
        meta = decode_stream_meta(self._members.meta)
        if meta.config["name"] != self._folder.stream:
            raise ArchiveError("stream name may not be changed during restore")
        return meta.created_ns

    def _copied(self, store: FileStore) -> MessageStore:
        """Copy the messages into memory."""
        copy = MessageStore(store.name, limits_of(self._plan.meta.config))
        if store.table.first_seq > 0:
            copy.compact(store.table.first_seq)
        for count, message in enumerate(store.table.messages()):
            if message.seq > copy.last_seq + 1:
                copy.skip(message.seq - 1, copy.last_timestamp)
            copy.store(message.subject, message.header, message.payload, message.timestamp_ns)
            if count % BREATH_MESSAGES == 0:
                time.sleep(0)
        if store.table.last_seq > copy.last_seq:
            copy.skip(store.table.last_seq, copy.last_timestamp)
        copy.apply_limits(self._plan.now_ns)
        store.abandon()
        self._store = None
        self._folder.discard()
        return copy

    def abandon(self) -> None:
        """See `Restore`."""
        if self._store is not None:
            self._store.abandon()
        self._members.close()
