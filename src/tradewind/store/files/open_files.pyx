"""The block files of all streams share a limited number of descriptors.

Owns which of them are open. A block file is known by its path and opened when it is written, read
or synced; a stream at rest holds one at most, and there may be more streams than descriptors.
Never decides what is to be synced when.

- A file with bytes that are not synced stays open if possible: the system tells a failed write to
  those who had the file open. If it has to be closed it is synced first, and a failure is kept for
  the next sync of its owner.
- A pinned file stays open: a worker thread is syncing it.

Compiled, because every turn of every stream that is published to writes: bytes in C memory go to
the descriptor of a real file without an object in between.
"""

import errno
import weakref
from collections import OrderedDict
from contextlib import contextmanager, suppress

from posix.unistd cimport pwrite

from tradewind.errors import StoreError
from tradewind.store.files.disk import disk_error

cdef enum:
    # Of so many files one is chosen that need not be synced to be closed.
    LOOKED_AT_MAX = 64
    # Up to here a write takes less time than to let other threads run meanwhile.
    SHORT_BYTES = 65536


cdef class BlockFile:
    """A file that is opened when it is needed; a `DiskFile`. Made by `OpenFiles`."""

    def __init__(self, OpenFiles files not None, str path not None):
        self.path = path
        self._files = files
        self._descriptor = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -------------------------------------------------------------- the DiskFile contract

    @property
    def size(self):
        """See `DiskFile.size`."""
        with self._briefly() as file:
            return file.size

    def write(self, data, offset):
        """See `DiskFile.write`; the file stays open until it is synced."""
        file = self._files.hold(self)
        self._unsynced = True
        file.write(data, offset)

    cdef int write_from(self, const char* data, size_t size, uint64_t offset) except -1:
        """The same for bytes in C memory."""
        cdef ssize_t written = -1
        if self._files._latest is not self:
            self._files.hold(self)
        self._unsynced = True
        if self._descriptor >= 0:
            if size <= SHORT_BYTES:
                written = pwrite(self._descriptor, data, size, offset)
            else:
                with nogil:
                    written = pwrite(self._descriptor, data, size, offset)
        if written != <ssize_t>size:
            # Whatever went wrong goes wrong again here, where it gets its error.
            self._held.write(<const unsigned char[:size]><const unsigned char*>data, offset)
        return 0

    def read(self, offset, size):
        """See `DiskFile.read`."""
        with self._briefly() as file:
            return file.read(offset, size)

    def map(self):
        """See `DiskFile.map`; it does not keep the file open."""
        with self._briefly() as file:
            return file.map()

    def truncate(self, size):
        """See `DiskFile.truncate`."""
        file = self._files.hold(self)
        self._unsynced = True
        file.truncate(size)

    def sync(self):
        """See `DiskFile.sync`; from a worker thread only while the file is pinned."""
        if self._sync_failed:
            raise disk_error(self.path, "sync", errno.EIO)
        try:
            (self._held or self._files.hold(self)).sync()
        except StoreError:
            self._sync_failed = True
            raise

    def fileno(self):
        """None that could be kept."""
        return -1

    def close(self):
        """Let go of the descriptor; the file can be used again."""
        self._unsynced = False
        self._files.let_go(self)

    # -------------------------------------------------------------- for the owner of the store

    cpdef bint pin(self) except -1:
        """A worker is about to sync all that was written so far; false if there is nothing to sync,
        because that was done before the file was closed.
        """
        if not self._unsynced and not self._sync_failed:
            return False
        if self._files._latest is not self:
            self._files.hold(self)
        self._pins += 1
        self._unsynced = False
        return True

    cdef int pinned_descriptor(self) noexcept:
        """The descriptor that a thread may sync while it is pinned; -1: `sync` has to be called."""
        return self._descriptor if self._pins and not self._sync_failed else -1

    cdef void note_failed_sync(self) noexcept:
        """A thread has got an error for the descriptor: every further sync fails."""
        self._sync_failed = True

    def sync_all(self):
        """Sync what was written so far, in this thread."""
        self._unsynced = False
        self.sync()

    cpdef int unpin(self) except -1:
        """That worker is done."""
        assert self._pins
        self._pins -= 1
        return 0

    cpdef int rest(self) except -1:
        """Nothing more will be written soon: close it, unless somebody needs it open."""
        if not self._pins and not self._unsynced:
            self._files.let_synced_go(self)
        return 0

    def adopt(self, file):
        """`file` has got our name by a rename, with bytes that may not be synced."""
        self._files.let_go(self)
        file.path = self.path
        self._files.adopt(self, file)
        self._unsynced = True

    # -------------------------------------------------------------- for OpenFiles

    @contextmanager
    def _briefly(self):
        if self._held is not None:
            yield self._held
            return
        with self._files.disk.open(self.path) as file:
            yield file

    @property
    def is_pinned(self):
        """Whether it must stay open."""
        return self._pins > 0

    @property
    def is_unsynced(self):
        """Whether closing it could hide a failure."""
        return self._unsynced

    def sync_before_closing(self):
        """The bytes are safe, or the owner will hear of it at its next sync."""
        try:
            self.sync()
        except StoreError:
            self._sync_failed = True
        self._unsynced = False


cdef class OpenFiles:
    """The open block files of one disk, the least recently used first."""

    def __init__(self, disk):
        self.disk = disk
        self._held = OrderedDict()

    def file(self, str path not None):
        """An existing block file; it is not opened yet."""
        return BlockFile(self, path)

    def create(self, str path not None):
        """A new, empty block file; whatever had this name is emptied."""
        file = BlockFile(self, path)
        self.adopt(file, self.disk.create(path, replace=True))
        return file

    cdef object hold(self, BlockFile file):
        """The open file behind it; another one may be closed for that."""
        if file._held is None:
            self.adopt(file, self.disk.open(file.path))
        elif self._latest is not file:
            self._held.move_to_end(file)
            self._latest = file
        return file._held

    def adopt(self, BlockFile file not None, held not None):
        """`held` is open and belongs to `file` from now on."""
        file._held = held
        file._descriptor = held.fileno()
        self._held[file] = None
        self._latest = file
        if len(self._held) > self.disk.block_files_max:
            self._close_one(file)

    def let_go(self, BlockFile file not None):
        """Close it, if it is open."""
        held = file._held
        assert not file._pins, "a file is not closed while a thread syncs it"
        file._held = None
        file._descriptor = -1
        if self._latest is file:
            self._latest = None
        if held is not None:
            del self._held[file]
            held.close()

    def let_synced_go(self, BlockFile file not None):
        """The same for one whose bytes are safe, or whose owner will hear that they are not.

        A late failure of the system says nothing new, and may come to somebody else than the owner.
        """
        with suppress(StoreError):
            self.let_go(file)

    @property
    def count(self):
        """How many are open."""
        return len(self._held)

    def _close_one(self, kept):
        """One of the oldest that is synced; if there is none, the oldest that no worker uses."""
        oldest = None
        for looked_at, file in enumerate(self._held):
            if looked_at >= LOOKED_AT_MAX and oldest is not None:
                break
            if file.is_pinned or file is kept:
                continue
            if not file.is_unsynced:
                self.let_synced_go(file)
                return
            if oldest is None:
                oldest = file
        if oldest is not None:
            oldest.sync_before_closing()
            self.let_synced_go(oldest)


_pools = weakref.WeakKeyDictionary()


def open_files(disk):
    """The one for this disk: all streams share it."""
    pool = _pools.get(disk)
    if pool is None:
        pool = _pools[disk] = OpenFiles(disk)
    return pool
