"""The block files of all streams share a limited number of descriptors.

Owns which of them are open. A block file is known by its path and opened when it is written, read
or synced; an idle stream holds at most one, and there may be more streams than descriptors. It
never decides what is synced when.

- A file with unsynced bytes stays open if possible: the system reports a failed write to those who
  had the file open. If it has to be closed it is synced first, and a failure is kept for the next
  sync of its owner.
- A pinned file stays open: a worker thread is syncing it.

A file may have a cipher: then the bytes written and read here are plain, and those on disk are not.

Compiled, because every turn of every stream that is published to writes: bytes in C memory go to
the descriptor of a real file without an object in between.
"""

import errno
import os
import weakref
from collections import OrderedDict
from contextlib import contextmanager, suppress

from posix.unistd cimport pwrite

from tradewind.errors import StoreError
from tradewind.store.files.disk import disk_error, read_readable
from tradewind.store.files.file_mapping import PlainCopy

cdef enum:
    # The number of files among which one that needs no sync is chosen to be closed.
    LOOKED_AT_MAX = 64
    # Up to this size a write takes less time than letting other threads run meanwhile.
    SHORT_BYTES = 65536


cdef class BlockFile:
    """A file that is opened when it is needed; a `DiskFile`. Created by `OpenFiles`."""

    def __init__(self, OpenFiles files not None, str path not None, cipher=None):
        self.path = path
        self.cipher = cipher
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
        if type(data) is bytes and self.cipher is None:
            self.write_from(<bytes>data, len(<bytes>data), offset)
            return
        file = self._files.hold(self)
        self._unsynced = True
        file.write(self.stored(data, offset), offset)

    def stored(self, data, uint64_t offset=0):
        """The bytes for the file if `data` is written at `offset`; may be called from any
        thread.
        """
        return data if self.cipher is None else self.cipher.encrypt(data, offset)

    cdef int write_from(self, const char* data, size_t size, uint64_t offset) except -1:
        """`write` for bytes in C memory."""
        cdef ssize_t written = -1
        cdef bytes encrypted
        if self.cipher is not None:
            encrypted = self.cipher.append(
                <const unsigned char[:size]><const unsigned char*>data, offset)
            data = encrypted
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
            # A failed call fails again here, where its error is raised.
            self._held.write(<const unsigned char[:size]><const unsigned char*>data, offset)
        return 0

    def read(self, offset, size):
        """See `DiskFile.read`."""
        with self._briefly() as file:
            data = file.read(offset, size)
        return data if self.cipher is None else self.cipher.decrypt(data, offset)

    def map(self):
        """See `DiskFile.map`; it does not keep the file open. An encrypted one is a `PlainCopy`."""
        if self.cipher is None:
            with self._briefly() as file:
                return file.map()
        content, unreadable = self.read_plain(0)
        copy = PlainCopy(content)
        copy.unreadable = unreadable
        return memoryview(copy)

    def read_plain(self, uint64_t start):
        """Read all bytes from `start` on, with zeros for unreadable ones; returns also their
        number.
        """
        content, unreadable = self.read_stored(start)
        return (content if self.cipher is None else self.cipher.decrypt(content, start)), unreadable

    def read_stored(self, uint64_t start=0):
        """Read the bytes as they are stored on disk."""
        with self._briefly() as file:
            return read_readable(file, start)

    def truncate(self, size):
        """See `DiskFile.truncate`."""
        file = self._files.hold(self)
        self._unsynced = True
        file.truncate(size)

    def sync(self, *, bint is_named=True):
        """See `DiskFile.sync`; from a worker thread only while the file is pinned."""
        if self._sync_failed:
            raise disk_error(self.path, "sync", errno.EIO)
        try:
            (self._held or self._files.hold(self)).sync(is_named=is_named)
        except StoreError:
            self._sync_failed = True
            raise

    def fileno(self):
        """-1, because the descriptor is not stable."""
        return -1

    def close(self):
        """Release the descriptor; the file can be used again."""
        self._unsynced = False
        self._files.let_go(self)

    # -------------------------------------------------------------- for the owner of the store

    cpdef bint pin(self) except -1:
        """Pin the file for a worker that syncs everything written so far; false if that was synced
        already, before the file was closed.
        """
        if not self._unsynced and not self._sync_failed:
            return False
        if self._files._latest is not self:
            self._files.hold(self)
        self._pins += 1
        self._unsynced = False
        return True

    cdef int pinned_descriptor(self) noexcept:
        """The descriptor that a thread may sync while the file is pinned; -1: `sync` has to be
        called.
        """
        return self._descriptor if self._pins and not self._sync_failed else -1

    cdef const char* system_path(self) except NULL:
        """The path for C, valid as long as this object; it never changes."""
        if self._system_path is None:
            self._system_path = os.fsencode(self.path)
        return self._system_path

    cdef void note_failed_sync(self) noexcept:
        """Note a failed sync by a thread: every further sync fails."""
        self._sync_failed = True

    def sync_all(self):
        """Sync what was written so far, in this thread."""
        self._unsynced = False
        self.sync()

    cpdef int unpin(self) except -1:
        """Called when the worker is done."""
        assert self._pins
        self._pins -= 1
        return 0

    cpdef int rest(self) except -1:
        """Close the file, unless it must stay open; called when no write is expected soon."""
        if not self._pins and not self._unsynced:
            self._files.let_synced_go(self)
        return 0

    def adopt(self, file):
        """Take over `file`, which was renamed to this path, with bytes that may not be synced."""
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
        """Whether the file must stay open."""
        return self._pins > 0

    @property
    def is_unsynced(self):
        """Whether closing the file could hide a failure."""
        return self._unsynced

    def sync_before_closing(self):
        """Sync before closing; a failure is reported at the owner's next sync."""
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

    def file(self, str path not None, cipher=None):
        """An existing block file, not yet opened."""
        return BlockFile(self, path, cipher)

    def create(self, str path not None, cipher=None):
        """A new, empty block file; an existing file of this name is truncated."""
        file = BlockFile(self, path, cipher)
        self.adopt(file, self.disk.create(path, replace=True))
        return file

    cdef object hold(self, BlockFile file):
        """Open a block file if necessary; another one may be closed for that."""
        if self._joined is not None:
            file._files = self._joined
            return self._joined.hold(file)
        if file._held is None:
            self.adopt(file, self.disk.open(file.path, writes=True))
        elif self._latest is not file:
            self._held.move_to_end(file)
            self._latest = file
        return file._held

    def adopt(self, BlockFile file not None, held not None):
        """Register the open file `held` as that of `file`."""
        if self._joined is not None:
            file._files = self._joined
            self._joined.adopt(file, held)
            return
        file._held = held
        file._descriptor = held.fileno()
        self._held[file] = None
        self._latest = file
        if len(self._held) > self.disk.block_files_max:
            self._close_one(file)

    def let_go(self, BlockFile file not None):
        """Close a block file, if it is open."""
        held = file._held
        assert not file._pins, "a file is not closed while a thread syncs it"
        if self._joined is not None:
            file._files = self._joined
            self._joined.let_go(file)
            return
        file._held = None
        file._descriptor = -1
        if self._latest is file:
            self._latest = None
        if held is not None:
            del self._held[file]
            held.close()

    def let_synced_go(self, BlockFile file not None):
        """Close a file whose bytes are durable, or whose owner will get the error.

        A late error of the system adds nothing, and might be raised to someone other than the
        owner.
        """
        with suppress(StoreError):
            self.let_go(file)

    def join(self, OpenFiles others not None):
        """Hand all files over to `others`, because a worker is done with them. Files that are not
        open follow when they are used.
        """
        cdef BlockFile file
        held, self._held = self._held, OrderedDict()
        self._latest = None
        self._joined = others
        for file in held:
            file._files = others
            others.adopt(file, file._held)

    @property
    def count(self):
        """Number of open files."""
        return len(self._held)

    def _close_one(self, kept):
        """Close one of the oldest synced files; if there is none, the oldest that no worker
        uses.
        """
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
    """The instance for this disk: all streams share it."""
    pool = _pools.get(disk)
    if pool is None:
        pool = _pools[disk] = OpenFiles(disk)
    return pool
