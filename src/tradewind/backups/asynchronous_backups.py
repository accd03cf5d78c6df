"""Backups of an account for programs with an event loop.

Owns running the blocking code of `AccountBackups` in a worker thread, over connections of the loop.
It never repeats any of its logic.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from tradewind.backups.account_backups import AccountBackups
from tradewind.backups.backup_check import CheckReport
from tradewind.backups.backup_documents import BackupRecord
from tradewind.backups.backup_places import BackupPlace
from tradewind.backups.backup_pruning import PruneReport
from tradewind.backups.backup_restore import RestoreReport
from tradewind.backups.keep_rules import KeepRules
from tradewind.backups.restore_choice import RestoreChoice
from tradewind.client.blocking import BlockingTwin, BorrowedLoop

if TYPE_CHECKING:
    from tradewind.client.connection import Connection


class AsyncAccountBackups:
    """`AccountBackups` for connections of `tradewind.connect`.

    A cancelled call continues in its thread until it ends or fails, as the connection does.
    """

    def __init__(self, place: str | BackupPlace) -> None:
        self._backups = AccountBackups(place)

    async def create(
        self,
        connection: Connection,
        *,
        comment: str = "",
        full: bool = False,
        checks: bool = True,
    ) -> BackupRecord:
        """See `AccountBackups.create`."""
        return await asyncio.to_thread(
            self._backups.create, _blocking(connection), comment=comment, full=full, checks=checks
        )

    async def list(self) -> tuple[list[BackupRecord], list[str]]:
        """See `AccountBackups.list`."""
        return await asyncio.to_thread(self._backups.list)

    async def find(self, backup_id: str = "", *, at_ns: int | None = None) -> BackupRecord:
        """See `AccountBackups.find`."""
        return await asyncio.to_thread(self._backups.find, backup_id, at_ns=at_ns)

    async def verify(self, backup_id: str = "") -> CheckReport:
        """See `AccountBackups.verify`."""
        return await asyncio.to_thread(self._backups.verify, backup_id)

    async def restore(
        self, connection: Connection, record: BackupRecord, choice: RestoreChoice | None = None
    ) -> RestoreReport:
        """See `AccountBackups.restore`."""
        return await asyncio.to_thread(self._backups.restore, _blocking(connection), record, choice)

    async def prune(self, rules: KeepRules, *, dry_run: bool = False) -> PruneReport:
        """See `AccountBackups.prune`."""
        return await asyncio.to_thread(self._backups.prune, rules, dry_run=dry_run)


def _blocking(connection: Connection) -> Any:
    return cast(Any, BlockingTwin(connection, BorrowedLoop(asyncio.get_running_loop())))
