"""Creations that only the operating system has, of streams that do not wait for the disk.

Owns the files and names to be synced so that the creations of such a stream survive a power
failure. No client waits for it: it is part of the next commit of the stream's messages, which comes
within the sync interval, at a shutdown, or when something else needs one. So no message counts as
synced before its folder is.

All of it is for the loop, except `CreationSyncs.save`, which is for the worker of the commit.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tradewind.store.files.disk import MissingFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from tradewind.store.files.creation import Creation
    from tradewind.store.files.disk import Disk


class UnsettledCreations:
    """The creations of one stream, of itself or its consumers, that are on their way to the
    disk.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        # Creations to be synced, by path. Every publish reads this table directly, without a call.
        self.waiting: dict[str, Creation] = {}
        self._settling: CreationSyncs | None = None

    def add(self, creation: Creation) -> None:
        """Add a creation that is complete in the operating system."""
        self.waiting[creation.path] = creation

    def forget(self, path: str) -> None:
        """Forget a creation whose folder is being removed."""
        self.waiting.pop(path, None)
        if self._settling is not None:
            self._settling.given_up.add(path)

    def take(self) -> CreationSyncs:
        """Take the waiting creations, for a commit to sync them."""
        creations, self.waiting = list(self.waiting.values()), {}
        self._settling = CreationSyncs(self._disk, creations)
        return self._settling


class CreationSyncs:
    """The syncs for one commit. `given_up`: folders that may be missing, because they are
    removed.
    """

    def __init__(self, disk: Disk, creations: list[Creation]) -> None:
        self._disk = disk
        self._creations = creations
        self.given_up: set[str] = set()

    def save(self) -> None:
        """Sync contents and names; called in a worker thread."""
        calls: dict[str, Callable[[], None]] = {}
        for creation in self._creations:
            for path in creation.placed_files():
                calls[path] = partial(self._sync, creation.path, partial(self._sync_file, path))
            for path in creation.folders():
                sync = partial(self._disk.sync_directory, path)
                calls[path] = partial(self._sync, creation.path, sync)
            for path, _ in creation.names:
                calls.setdefault(path, partial(self._disk.sync_directory, path))
        self._disk.together(list(calls.values()))
        for creation in self._creations:
            creation.names_are_durable()

    def _sync_file(self, path: str) -> None:
        """Sync a file. If another file takes its name meanwhile, the code that renames syncs that
        one.
        """
        with self._disk.open(path) as file:
            file.sync(is_named=False)

    def _sync(self, owner: str, sync: Callable[[], None]) -> None:
        try:
            sync()
        except MissingFile:
            if owner not in self.given_up:
                raise
