"""The backups in one place: written and read with their digests checked.

Owns objects and the files of backups as a whole: what was read is what was written, or a
BackupError names the file. Locks are in `repository_locks`, and what is in a backup in
`backup_documents`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tradewind.backups.backup_documents import (
    BACKUPS,
    BackedUpStream,
    BackupRecord,
    RangePage,
    SavedConsumer,
    SavedStream,
    backup_name,
    decode_backup,
    digest_of,
    encode_backup,
    object_name,
    packed_document,
    unpacked_document,
)
from tradewind.backups.backup_errors import BackupError

if TYPE_CHECKING:
    from tradewind.backups.backup_places import BackupPlace


class BackupRepository:
    """All backups of a place. `written` are the objects that were new, of `written_bytes`."""

    def __init__(self, place: BackupPlace) -> None:
        self.place = place
        self.written_bytes = 0
        self.written: set[str] = set()

    # ---------------------------------------------------------------- objects

    def put(self, content: bytes) -> str:
        """Store an object, unless it is there; its digest."""
        digest = digest_of(content)
        name = object_name(digest)
        if digest in self.written:
            return digest
        # What an interrupted backup has left may be anything, even after a power failure.
        if self.place.size(name) == len(content) and self.place.read(name) == content:
            self.place.keep(name)
            return digest
        self.place.write_later(name, content)
        self.written_bytes += len(content)
        self.written.add(digest)
        return digest

    def get(self, digest: str, what: str) -> bytes:
        """The bytes of an object; `what` names it in errors."""
        name = object_name(digest)
        content = self.place.read(name)
        if content is None:
            raise BackupError(f"{name}: missing; it holds {what}")
        if digest_of(content) != digest:
            raise BackupError(f"{name}: damaged, its digest does not match; it holds {what}")
        return content

    def put_document(self, document: object) -> str:
        """Store a document as an object; its digest."""
        return self.put(packed_document(document))

    def get_document(self, digest: str, kind: Any, what: str) -> Any:
        """The document in an object."""
        name = f"{object_name(digest)}, which holds {what}"
        return unpacked_document(self.get(digest, what), kind, name)

    # ---------------------------------------------------------------- backups

    def ids(self) -> list[str]:
        """The backups, oldest first."""
        names = self.place.sizes(BACKUPS)
        suffix = ".json"
        return sorted(
            name.removeprefix(f"{BACKUPS}/").removesuffix(suffix)
            for name in names
            if name.endswith(suffix)
        )

    def load(self, backup_id: str) -> BackupRecord:
        """A backup by its id."""
        name = backup_name(backup_id)
        content = self.place.read(name)
        if content is None:
            raise BackupError(f"{self.place.text}: there is no backup {backup_id!r}")
        record = decode_backup(content, f"{self.place.text}/{name}")
        if record.id != backup_id:
            raise BackupError(f"{self.place.text}/{name}: it is the file of backup {record.id!r}")
        return record

    def save(self, record: BackupRecord) -> None:
        """Store the file of a backup, after everything that it needs is durable."""
        self.place.settle()
        self.place.write(backup_name(record.id), encode_backup(record))

    def stream(self, link: BackedUpStream) -> SavedStream:
        """The record of a stream of a backup."""
        what = f"stream {link.name}"
        record: SavedStream = self.get_document(link.object, SavedStream, what)
        if record.name != link.name:
            raise BackupError(f"{object_name(link.object)}: it is not the record of {what}")
        return record

    def pages(self, record: SavedStream) -> Iterator[RangePage]:
        """The pages of a stream, in order."""
        for link in record.pages:
            page: RangePage = self.get_document(
                link.object,
                RangePage,
                f"messages {link.first_seq} to {link.last_seq} of stream {record.name}",
            )
            yield page

    def consumers(self, record: SavedStream) -> list[SavedConsumer]:
        """The consumers of a stream."""
        if not record.consumers:
            return []
        found: list[SavedConsumer] = self.get_document(
            record.consumers, list[SavedConsumer], f"the consumers of stream {record.name}"
        )
        return found
