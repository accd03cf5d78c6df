"""Backups of an account, for programs: make, list, check, restore and prune them.

Owns which backup is meant, and the locks. The work is done by the modules that it brings together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.api.times import format_time, parse_time
from tradewind.backups.account_api import AccountApi
from tradewind.backups.backup_check import BackupCheck, CheckProgress, CheckReport
from tradewind.backups.backup_creation import BackupCreation, Progress
from tradewind.backups.backup_documents import BackupRecord
from tradewind.backups.backup_errors import BackupError
from tradewind.backups.backup_places import BackupPlace, open_backup_place
from tradewind.backups.backup_pruning import BackupPruning, PruneProgress, PruneReport
from tradewind.backups.backup_repository import BackupRepository
from tradewind.backups.backup_restore import AccountRestore, RestoreProgress, RestoreReport
from tradewind.backups.keep_rules import KeepRules
from tradewind.backups.repository_locks import RepositoryLock
from tradewind.backups.restore_choice import RestoreChoice

if TYPE_CHECKING:
    from tradewind.sync import Connection


class AccountBackups:
    """The backups in one place: a folder, or a URL of fsspec such as `s3://bucket/nats`."""

    def __init__(self, place: str | BackupPlace) -> None:
        self.place = open_backup_place(place) if isinstance(place, str) else place

    def create(
        self,
        connection: Connection,
        *,
        comment: str = "",
        full: bool = False,
        checks: bool = True,
        progress: Progress = lambda _stream, _done, _total: None,
    ) -> BackupRecord:
        """Make a backup of all streams of the account; only what the last one lacks is read.

        `full` reads everything; objects that are there are not stored again. With `checks`, the
        objects that it has written are read back before it counts.
        """
        repository = BackupRepository(self.place)
        with RepositoryLock(self.place, "create") as lock:
            before = None if full else self._newest(repository)
            creation = BackupCreation(
                repository, AccountApi(connection), before, lock, progress, checks=checks
            )
            return creation.run(comment)

    @staticmethod
    def _newest(repository: BackupRepository) -> BackupRecord | None:
        """The newest backup that can be read: a damaged one must not prevent the next."""
        for backup_id in reversed(repository.ids()):
            try:
                return repository.load(backup_id)
            except BackupError:
                continue
        return None

    def list(self) -> tuple[list[BackupRecord], list[str]]:
        """All backups, oldest first, and a line for each that cannot be read."""
        repository = BackupRepository(self.place)
        records: list[BackupRecord] = []
        problems: list[str] = []
        for backup_id in repository.ids():
            try:
                records.append(repository.load(backup_id))
            except BackupError as error:
                problems.append(str(error))
        return records, problems

    def find(self, backup_id: str = "", *, at_ns: int | None = None) -> BackupRecord:
        """The backup of an id or the beginning of one; else the newest, at a time if one is given.

        BackupError if there is none, or more than one.
        """
        repository = BackupRepository(self.place)
        ids = repository.ids()
        if not ids:
            raise BackupError(f"{self.place.text}: there are no backups")
        if backup_id:
            found = [each for each in ids if each.startswith(backup_id)]
            if len(found) != 1:
                raise BackupError(
                    f"{self.place.text}: {len(found) or 'no'} backups have an id that begins with"
                    f" {backup_id!r}",
                    "see: tradewind backup ls",
                )
            return repository.load(found[0])
        for each in reversed(ids):
            record = repository.load(each)
            if at_ns is None or parse_time(record.cut_at) <= at_ns:
                return record
        raise BackupError(f"{self.place.text}: no backup is from before {format_time(at_ns or 0)}")

    def verify(
        self,
        backup_id: str = "",
        *,
        progress: CheckProgress = lambda _stream, _bytes: None,
    ) -> CheckReport:
        """Check one backup, or all of them, by reading every object and message."""
        repository = BackupRepository(self.place)
        check = BackupCheck(repository, progress)
        for each in [self.find(backup_id).id] if backup_id else repository.ids():
            check.check(each)
        return check.report

    def restore(
        self,
        connection: Connection,
        record: BackupRecord,
        choice: RestoreChoice | None = None,
        *,
        progress: RestoreProgress = lambda _stream, _done, _total: None,
    ) -> RestoreReport:
        """Restore streams of a backup; existing streams are never changed."""
        repository = BackupRepository(self.place)
        api = AccountApi(connection)
        return AccountRestore(repository, api, choice or RestoreChoice(), progress).run(record)

    def prune(
        self,
        rules: KeepRules,
        *,
        dry_run: bool = False,
        progress: PruneProgress = lambda _count: None,
    ) -> PruneReport:
        """Remove the backups that the rules do not keep, and all that only they need."""
        rules.check()
        repository = BackupRepository(self.place)
        if dry_run:
            return BackupPruning(repository, rules, None, progress).run()
        with RepositoryLock(self.place, "prune") as lock:
            return BackupPruning(repository, rules, lock, progress).run()
