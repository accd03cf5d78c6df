"""Removes backups by rules, and then every object that no backup needs.

Owns the order: the files of backups first, so that none of them ever lacks an object. If any backup
that stays cannot be read, no object is removed. After a crash, the next prune continues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tradewind.backups.backup_documents import (
    OBJECTS,
    BackupRecord,
    RangePage,
    SavedStream,
    backup_name,
    object_name,
)

if TYPE_CHECKING:
    from tradewind.backups.backup_repository import BackupRepository
    from tradewind.backups.keep_rules import KeepRules
    from tradewind.backups.repository_locks import RepositoryLock

# Called with the number of objects that were looked at.
PruneProgress = Callable[[int], None]


class PruneReport(msgspec.Struct):
    """The backups and objects that were removed, or would be."""

    kept: list[str]
    removed: list[str]
    objects: int = 0
    bytes: int = 0
    kept_objects: int = 0
    kept_bytes: int = 0


class BackupPruning:
    """One prune of a place. Without a lock it only finds out what it would do."""

    def __init__(
        self,
        repository: BackupRepository,
        rules: KeepRules,
        lock: RepositoryLock | None,
        progress: PruneProgress = lambda _count: None,
    ) -> None:
        self._repository = repository
        self._rules = rules
        self._lock = lock
        self._progress = progress
        self._needed: set[str] = set()

    def run(self) -> PruneReport:
        """Remove what the rules do not keep; BackupError before anything is removed if a backup
        cannot be read.
        """
        repository, place = self._repository, self._repository.place
        records = [repository.load(backup_id) for backup_id in repository.ids()]
        kept = self._rules.kept([(record.id, record.cut_at) for record in records])
        report = PruneReport(
            [record.id for record in records if record.id in kept],
            [record.id for record in records if record.id not in kept],
        )
        for record in records:
            if record.id in kept:
                self._need(record)
        if self._lock is not None:
            for backup_id in report.removed:
                self._lock.renew()
                place.remove(backup_name(backup_id))
        for number, (name, size) in enumerate(sorted(place.sizes(OBJECTS).items())):
            self._progress(number)
            if name in self._needed:
                report.kept_objects += 1
                report.kept_bytes += size
                continue
            report.objects += 1
            report.bytes += size
            if self._lock is not None:
                self._lock.renew()
                place.remove(name)
        if self._lock is not None:
            place.remove_unfinished()
        return report

    def _need(self, record: BackupRecord) -> None:
        """Keep all objects of a backup."""
        if record.templates:
            self._needed.add(object_name(record.templates))
        for link in record.streams:
            if not self._is_new(link.object):
                continue
            stream: SavedStream = self._repository.stream(link)
            if stream.consumers:
                self._needed.add(object_name(stream.consumers))
            for page in stream.pages:
                if not self._is_new(page.object):
                    continue
                if self._lock is not None:
                    self._lock.renew()
                content: RangePage = self._repository.get_document(
                    page.object, RangePage, f"messages of stream {link.name}"
                )
                self._needed.update(object_name(each.object) for each in content.ranges)

    def _is_new(self, digest: str) -> bool:
        """Whether an object was not seen; it is needed in any case."""
        name = object_name(digest)
        if name in self._needed:
            return False
        self._needed.add(name)
        return True
