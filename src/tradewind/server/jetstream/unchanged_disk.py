"""A disk that reads real files and keeps all changes in memory.

Owns the overlay: a store opened on it can repair, rename and remove files, while not a byte or time
stamp of the real folder changes. `--check-store` uses it to run the same recovery as a server
start. Files are opened for reading only, so no write permission is needed. It never keeps a real
file open, except for memory mappings.
"""
# Paths are strings, as in `store.files.disk`.
# ruff: noqa: PTH112, PTH116, PTH120, PTH208, ARG002

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tradewind.store.files.disk import (
    Buffer,
    Disk,
    DiskFile,
    FolderInUse,
    Lock,
    Operation,
    disk_error,
    lock_owner,
    path_within,
)
from tradewind.store.files.file_mapping import FileMapping

READ_AT_ONCE_BYTES = 1024 * 1024


class _SharedLock(Lock):
    """A shared lock: while it is held, no server changes the folder. Nothing is written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = lock_owner(self._descriptor)
            self.release()
            raise FolderInUse(os.path.dirname(path), pid) from None
        except OSError:
            pass  # there is no lock file, or no right to read it: no server can hold the lock

    def release(self) -> None:
        """See `Lock.release`."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class _NoLock(Lock):
    """A lock of a folder that cannot be in use."""

    def __init__(self, path: str) -> None:
        self.path = path

    def release(self) -> None:
        """Do nothing: there is no lock to release."""


class _Content:
    """The content behind a name: bytes in memory, or a file of the real disk until changed."""

    def __init__(self, source: str = "") -> None:
        self.source = source
        self.memory = bytearray()

    def own(self) -> bytearray:
        """The bytes, which are in memory from now on."""
        if self.source:
            self.memory, self.source = bytearray(_read(self.source, 0, -1)), ""
        return self.memory


class UnchangedFile(DiskFile):
    """An open file of an `UnchangedDisk`."""

    def __init__(self, path: str, content: _Content, told: Callable[[int], None] | None) -> None:
        self.path = path
        self._content = content
        self._told = told

    @property
    def size(self) -> int:
        """See `DiskFile.size`."""
        content = self._content
        if not content.source:
            return len(content.memory)
        with _reading(self.path, "size"):
            return os.stat(content.source).st_size

    def write(self, data: Buffer, offset: int) -> None:
        """Write to the content in memory."""
        memory = self._content.own()
        memory.extend(bytes(max(0, offset - len(memory))))
        memory[offset : offset + len(data)] = data

    def read(self, offset: int, size: int) -> bytes:
        """See `DiskFile.read`."""
        if self._content.source:
            return _read(self._content.source, offset, size)
        return bytes(self._content.memory[offset : offset + size])

    def map(self) -> memoryview:
        """A mapping of the file; see `DiskFile.map`. If progress is reported, the whole file is
        read first.
        """
        content = self._content
        if not content.source:
            return memoryview(bytes(content.memory))
        with _reading(content.source, "map"):
            descriptor = os.open(content.source, os.O_RDONLY)
            try:
                size = os.fstat(descriptor).st_size
                for start in range(0, size if self._told else 0, READ_AT_ONCE_BYTES):
                    with suppress(OSError):  # the reader of the mapping will meet the error
                        os.pread(descriptor, READ_AT_ONCE_BYTES, start)
                    assert self._told is not None
                    self._told(min(READ_AT_ONCE_BYTES, size - start))
                return memoryview(FileMapping(descriptor, size)) if size else memoryview(b"")
            finally:
                os.close(descriptor)

    def truncate(self, size: int) -> None:
        """Shorten the content in memory."""
        memory = self._content.own()
        del memory[size:]
        memory.extend(bytes(size - len(memory)))

    def sync(self, *, is_named: bool = True) -> None:
        """Do nothing: changes stay in memory."""

    def fileno(self) -> int:
        """The descriptor -1: nothing may be written past this object."""
        return -1

    def close(self) -> None:
        """Do nothing: no file is open."""


class UnchangedDisk(Disk):
    """The folder `root` of the real disk, under changes that exist only here.

    `_changed` has the files that differ, `_gone` the files and folders that are hidden, `_made` the
    folders that are new, `_names` the names of all these by their folders. `told` is called with
    the number of bytes that were read of each mapped file; if it is None, only the needed parts are
    read.
    """

    def __init__(self, root: str, told: Callable[[int], None] | None = None) -> None:
        self.root = os.path.realpath(root)
        self._told = told
        self._changed: dict[str, _Content] = {}
        self._gone: set[str] = set()
        self._made: set[str] = set()
        self._names: dict[str, set[str]] = {}

    def open(self, path: str, *, writes: bool = False) -> UnchangedFile:
        """See `Disk.open`."""
        path = path_within(self.root, path)
        return UnchangedFile(path, self._content(path, "open"), self._told)

    def create(self, path: str, *, replace: bool = False) -> UnchangedFile:
        """See `Disk.create`."""
        path = path_within(self.root, path)
        if not self.is_directory(os.path.dirname(path)):
            raise disk_error(path, "create", errno.ENOENT)
        if self.exists(path) and not replace:
            raise disk_error(path, "create", errno.EEXIST)
        self._note(path, _Content())
        return UnchangedFile(path, self._changed[path], self._told)

    def rename(self, source: str, target: str) -> None:
        """See `Disk.rename`; a folder moves file by file."""
        source, target = path_within(self.root, source), path_within(self.root, target)
        if self.is_directory(source):
            self.make_directory(target)
            for name in self.list_directory(source):
                self.rename(f"{source}/{name}", f"{target}/{name}")
        else:
            self._note(target, self._content(source, "rename"))
        self._hide(source)

    def link(self, source: str, target: str) -> None:
        """See `Disk.link`."""
        source, target = path_within(self.root, source), path_within(self.root, target)
        if self.exists(target):
            raise disk_error(source, "link", errno.EEXIST, target)
        self._note(target, self._content(source, "link"))

    def remove(self, path: str) -> None:
        """See `Disk.remove`."""
        path = path_within(self.root, path)
        self._content(path, "remove")
        self._hide(path)

    def remove_tree(self, path: str) -> None:
        """See `Disk.remove_tree`."""
        path = path_within(self.root, path)
        if self.is_directory(path):
            for name in self.list_directory(path):
                self.remove_tree(f"{path}/{name}")
        self._hide(path)

    def _note(self, path: str, content: _Content | None = None) -> None:
        """Record the content of a name; without content it is a folder."""
        if content is None:
            self._made.add(path)
        else:
            self._changed[path] = content
        folder, name = os.path.split(path)
        self._names.setdefault(folder, set()).add(name)

    def _hide(self, path: str) -> None:
        self._changed.pop(path, None)
        self._made.discard(path)
        folder, name = os.path.split(path)
        self._names.get(folder, set()).discard(name)
        if os.path.lexists(path):
            self._gone.add(path)

    def make_directory(self, path: str, *, sync: bool = False) -> None:
        """See `Disk.make_directory`."""
        path = path_within(self.root, path)
        while not self.is_directory(path):
            self._note(path)
            path = os.path.dirname(path)

    def list_directory(self, path: str) -> list[str]:
        """See `Disk.list_directory`."""
        path = path_within(self.root, path)
        if not self.is_directory(path):
            raise disk_error(path, "list_directory", errno.ENOENT)
        names = set(self._names.get(path, ()))
        if self._is_real(path) and os.path.isdir(path):
            with _reading(path, "list_directory"):
                names.update(name for name in os.listdir(path) if self._is_real(f"{path}/{name}"))
        return sorted(names)

    def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        path = path_within(self.root, path)
        return path in self._changed or self.is_directory(path) or self._is_file(path)

    def is_directory(self, path: str) -> bool:
        """See `Disk.is_directory`."""
        path = path_within(self.root, path)
        return path in self._made or (self._is_real(path) and os.path.isdir(path))

    def _is_file(self, path: str) -> bool:
        return self._is_real(path) and os.path.lexists(path)

    def _is_real(self, path: str) -> bool:
        """Whether this path is looked up on the real disk: neither it nor a parent is hidden."""
        while path != self.root:
            if path in self._gone:
                return False
            path = os.path.dirname(path)
        return True

    def _content(self, path: str, operation: Operation) -> _Content:
        if path in self._changed:
            return self._changed[path]
        if self.is_directory(path):
            raise disk_error(path, operation, errno.EISDIR)
        if not self._is_file(path):
            raise disk_error(path, operation, errno.ENOENT)
        # Stored, so that all who open it see the same changes.
        self._note(path, _Content(path))
        return self._changed[path]

    def sync_directory(self, path: str) -> None:
        """Do nothing: changes stay in memory."""

    def read_file(self, path: str) -> bytes:
        """See `Disk.read_file`."""
        file = self.open(path)
        return file.read(0, file.size)

    def lock(self, path: str) -> Lock:
        """A lock, which is always free: no one else sees the changes."""
        return _NoLock(path)


class ServedDisk(UnchangedDisk):
    """A disk that a server serves for long: no other server may change the folder meanwhile."""

    def lock(self, path: str) -> Lock:
        """See `Disk.lock`; several servers that change nothing may share a folder."""
        return _SharedLock(path_within(self.root, path))


def _read(path: str, offset: int, size: int) -> bytes:
    with _reading(path, "read"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            end = os.fstat(descriptor).st_size
            end = end if size < 0 else min(end, offset + size)
            parts = []
            while offset < end and (part := os.pread(descriptor, end - offset, offset)):
                parts.append(part)
                offset += len(part)
        finally:
            os.close(descriptor)
    return b"".join(parts)


@contextmanager
def _reading(path: str, operation: Operation) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_error(path, operation, error.errno) from error
