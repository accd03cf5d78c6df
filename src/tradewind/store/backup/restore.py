"""Creates a stream from an uploaded backup.

Owns the upload from its first piece to a complete stream, in a separate folder or in memory, that
is not visible to others yet. All of it runs in worker threads, one call at a time: the store has
its own descriptors, and nothing here ever touches what the event loop owns. The caller checks the
configuration, and decides when the stream takes its place.

There are two formats: the archive of `archive`, and before nats-server 2.15 a tar of the folder,
see `tar_restore`. The first bytes distinguish them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.store.backup.archive import MAGIC, ArchiveError
from tradewind.store.backup.archive_restore import ArchiveRestore
from tradewind.store.format.s2 import Decompressor

if TYPE_CHECKING:
    from tradewind.store.backup.restore_types import Restore, RestoredConsumer, RestorePlan
    from tradewind.store.table.message_store import MessageStore

_PLAIN_BYTES_MAX: Final = 1 << 62


class BackupRestore:
    """The upload of a backup, in pieces of any size."""

    def __init__(self, plan: RestorePlan) -> None:
        self._plan = plan
        self._decompressor = Decompressor(_PLAIN_BYTES_MAX)
        self._head = b""
        self._format: Restore | None = None
        self.store: MessageStore | None = None

    @property
    def has_more(self) -> bool:
        """Whether `feed(b"")` has something to do."""
        return self._decompressor.pending

    @property
    def used_bytes(self) -> int:
        """The bytes stored so far, or those that the backup claims to need."""
        if self._format is None:
            return 0
        return max(self._format.claimed_bytes, self._format.stored_bytes)

    @property
    def consumers(self) -> list[RestoredConsumer]:
        """The consumers of the backup, once it has ended."""
        return self._format.consumers if self._format is not None else []

    def feed(self, data: bytes, bytes_allowed: int) -> None:
        """Take a piece, or a part of the waiting ones; StoreError if the backup cannot be
        restored.
        """
        plain = self._decompressor.feed(data)
        if self._format is None:
            self._head += plain
            if len(self._head) < len(MAGIC):
                return
            is_archive = self._head.startswith(MAGIC)
            self._format = ArchiveRestore(self._plan) if is_archive else _tar_restore(self._plan)
            plain, self._head = self._head, b""
        self._format.take(plain, bytes_allowed)

    def finish(self, bytes_allowed: int) -> None:
        """Complete the upload."""
        self._decompressor.finish()
        if self._format is None:
            raise ArchiveError("the archive is empty")
        self.store = self._format.finish(bytes_allowed)

    def abandon(self) -> None:
        """Remove everything."""
        if self._format is not None:
            self._format.abandon()
        if self._plan.staging is not None:
            self._plan.staging.discard()


def _tar_restore(plan: RestorePlan) -> Restore:
    # Loaded when it is needed: few backups are that old, and a server starts sooner without it.
    from tradewind.store.backup.tar_restore import TarRestore

    return TarRestore(plan)
