"""The block files of all streams share a few descriptors.

Owns which of them are open. A block file is known by its path and opened when it is written, read
or synced; a stream at rest holds no descriptor, and ten thousand streams do not need ten thousand.
Never decides what is to be synced when.

- A file with bytes that are not synced stays open if possible: the system tells a failed write to
  those who had the file open. If it has to be closed it is synced first, and a failure is kept for
  the next sync of its owner.
- A pinned file stays open: a worker thread is syncing it.
"""

from __future__ import annotations

import errno
import weakref
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tradewind.errors import StoreError
from tradewind.store.disk import Buffer, DiskFile, disk_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tradewind.store.disk import Disk


class BlockFile(DiskFile):
    """A file that is opened when it is needed. Made by `OpenFiles`."""

    def __init__(self, files: OpenFiles, path: str) -> None:
        self.path = path
        self._files = files
        self._held: DiskFile | None = None
        self._pins = 0
        self._unsynced = False
        self._sync_failed = False

    # -------------------------------------------------------------- the DiskFile contract

    @property
    def size(self) -> int:
        """See `DiskFile.size`."""
        with self._briefly() as file:
            return file.size

    def write(self, data: Buffer, offset: int) -> None:
        """See `DiskFile.write`; the file stays open until it is synced."""
        file = self._files.hold(self)
        self._unsynced = True
        file.write(data, offset)

    def read(self, offset: int, size: int) -> bytes:
        """See `DiskFile.read`."""
        with self._briefly() as file:
            return file.read(offset, size)

    def map(self) -> memoryview:
        """See `DiskFile.map`; it does not keep the file open."""
        with self._briefly() as file:
            return file.map()

    def truncate(self, size: int) -> None:
        """See `DiskFile.truncate`."""
        file = self._files.hold(self)
        self._unsynced = True
        file.truncate(size)

    def sync(self) -> None:
        """See `DiskFile.sync`; from a worker thread only while the file is pinned."""
        if self._sync_failed:
            raise disk_error(self.path, "sync", errno.EIO)
        try:
            (self._held or self._files.hold(self)).sync()
        except StoreError:
            self._sync_failed = True
            raise

    def fileno(self) -> int:
        """None that could be kept."""
        return -1

    def close(self) -> None:
        """Let go of the descriptor; the file can be used again."""
        self._unsynced = False
        self._files.let_go(self)

    # -------------------------------------------------------------- for the owner of the store

    def pin(self) -> None:
        """A worker is about to sync all that was written so far."""
        self._files.hold(self)
        self._pins += 1
        self._unsynced = False

    def sync_all(self) -> None:
        """Sync what was written so far, in this thread."""
        self._unsynced = False
        self.sync()

    def unpin(self) -> None:
        """The worker is done."""
        self._pins -= 1

    def rest(self) -> None:
        """Nothing more will be written soon: close it, unless somebody needs it open."""
        if not self._pins and not self._unsynced:
            self._files.let_go(self)

    def adopt(self, file: DiskFile) -> None:
        """`file` has got our name by a rename, with bytes that may not be synced."""
        self._files.let_go(self)
        file.path = self.path
        self._files.adopt(self, file)
        self._unsynced = True

    # -------------------------------------------------------------- for OpenFiles

    @contextmanager
    def _briefly(self) -> Iterator[DiskFile]:
        if self._held is not None:
            yield self._held
            return
        with self._files.disk.open(self.path) as file:
            yield file

    @property
    def held(self) -> DiskFile | None:
        """The open file, if it is open."""
        return self._held

    @held.setter
    def held(self, file: DiskFile | None) -> None:
        self._held = file

    @property
    def is_pinned(self) -> bool:
        """Whether it must stay open."""
        return self._pins > 0

    @property
    def is_unsynced(self) -> bool:
        """Whether closing it could hide a failure."""
        return self._unsynced

    @property
    def needs_sync(self) -> bool:
        """Whether a commit has to sync it: not if that was done before it was closed."""
        return self._unsynced or self._sync_failed

    def sync_before_closing(self) -> None:
        """The bytes are safe, or the owner will hear of it at its next sync."""
        try:
            self.sync()
        except StoreError:
            self._sync_failed = True
        self._unsynced = False


class OpenFiles:
    """The open block files of one disk, the least recently used first."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._held: OrderedDict[BlockFile, None] = OrderedDict()

    def file(self, path: str) -> BlockFile:
        """An existing block file; it is not opened yet."""
        return BlockFile(self, path)

    def create(self, path: str) -> BlockFile:
        """A new, empty block file; whatever had this name is emptied."""
        file = BlockFile(self, path)
        self.adopt(file, self.disk.create(path, replace=True))
        return file

    def hold(self, file: BlockFile) -> DiskFile:
        """The open file behind it; another one may be closed for that."""
        held = file.held
        if held is None:
            held = self.disk.open(file.path)
            self.adopt(file, held)
        else:
            self._held.move_to_end(file)
        return held

    def adopt(self, file: BlockFile, held: DiskFile) -> None:
        """`held` is open and belongs to `file` from now on."""
        file.held = held
        self._held[file] = None
        if len(self._held) > self.disk.block_files_max:
            self._close_one(file)

    def let_go(self, file: BlockFile) -> None:
        """Close it, if it is open."""
        held, file.held = file.held, None
        if held is not None:
            del self._held[file]
            held.close()

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._held)

    def _close_one(self, kept: BlockFile) -> None:
        """The oldest one that is synced; if there is none, the oldest that no worker uses."""
        free = [file for file in self._held if not file.is_pinned and file is not kept]
        for file in free:
            if not file.is_unsynced:
                self.let_go(file)
                return
        if free:
            free[0].sync_before_closing()
            self.let_go(free[0])


_pools: weakref.WeakKeyDictionary[Disk, OpenFiles] = weakref.WeakKeyDictionary()


def open_files(disk: Disk) -> OpenFiles:
    """The one for this disk: all streams share it."""
    pool = _pools.get(disk)
    if pool is None:
        pool = _pools[disk] = OpenFiles(disk)
    return pool
