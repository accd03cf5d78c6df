"""Backups of an account: points in time in a folder or an object store, and back from there.

`AccountBackups` makes, lists, checks, restores and prunes them, with any NATS server; `tradewind
backup` is the command line.
"""

from __future__ import annotations

from tradewind.backups.account_backups import AccountBackups
from tradewind.backups.backup_errors import BackupError
from tradewind.backups.backup_places import BackupPlace, open_backup_place
from tradewind.backups.keep_rules import KeepRules
from tradewind.backups.restore_choice import RestoreChoice

__all__ = [
    "AccountBackups",
    "BackupError",
    "BackupPlace",
    "KeepRules",
    "RestoreChoice",
    "open_backup_place",
]
