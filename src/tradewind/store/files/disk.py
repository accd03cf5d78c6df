"""The only module of the store that calls the operating system.

Owns the `Disk` and `DiskFile` contracts, their implementation on a real file system (`OsDisk`), and
the errors of a disk. It never knows about messages, blocks or formats, never decides what to sync,
and never hides a failure: every `OSError` becomes a `DiskError` with the path, the operation and
the reason.

Paths are plain strings, because thousands of them are made from names that were already checked.
Each disk has a root; every call refuses a path outside of it. Folders are created with mode 0700,
files with 0600.

When changes are durable (the promises of POSIX, nothing more):

- `DiskFile.sync` makes the bytes and the size of that file durable, not its name.
- `Disk.sync_directory` makes the names in that folder durable: files made, renamed or removed.
- A rename is atomic at all times, and durable after a sync of its folder.

A failed sync is never tried again. Linux marks the pages that it could not write as clean and
reports the fault once; a second fsync would then say that all is well while the data is gone (the
"fsyncgate" finding about PostgreSQL, 2018). So the file refuses further syncs, and the owner has to
treat everything since the last good sync as lost: the stream becomes read-only until it is
recovered from what is on the disk.

Threads: the event loop owns every file. Only `DiskFile.sync` and `Disk.sync_directory` may run in a
worker thread while the loop continues, also with writes to the same file; such a write may or may
not be covered by that sync. `read` and the bytes of a `map` may be used by any thread. A folder
without other users, one that is being made or removed or the files of a configuration, may be in
the hands of one worker. A file is never closed while a sync of it runs (its descriptor could be
given to another file meanwhile), and all else is for the owner only.
"""
# Paths are strings here, see above.
# ruff: noqa: PTH100, PTH102, PTH104, PTH108, PTH112, PTH116, PTH120, PTH208

from __future__ import annotations

import errno
import fcntl
import os
import resource
import stat
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Literal, Protocol, Self

from tradewind.errors import StoreError
from tradewind.platform_calls import O_DIRECTORY
from tradewind.private_files import sync_folder
from tradewind.store.files.file_mapping import FileMapping
from tradewind.store.files.file_sync import sync_descriptor
from tradewind.store.files.folder_names import FolderNames

if TYPE_CHECKING:
    from tradewind.store.files.side_threads import SideThreads

Buffer = bytes | bytearray | memoryview
Operation = Literal[
    "open",
    "create",
    "read",
    "map",
    "write",
    "truncate",
    "size",
    "sync",
    "close",
    "rename",
    "link",
    "remove",
    "remove_tree",
    "make_directory",
    "list_directory",
    "sync_directory",
    "exists",
    "lock",
]
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
# The official server's name for a file that is about to replace another one.
TEMPORARY_SUFFIX = ".tmp"
BLOCK_FILES_MAX = 16_384
# The errors for bytes that cannot be read from the disk, now or for ever.
UNREADABLE = (errno.EIO, errno.ENODATA, errno.EUCLEAN, errno.EBADMSG, errno.EREMOTEIO)
# The meaning of these errors of a sync, see `file_sync`.
NAME_LOST = {
    errno.ENOENT: "the file was removed or moved away",
    errno.ESTALE: "another file has taken its place",
}
# As many calls are made at once: the folders and files of one creation.
TOGETHER_MAX = 8
PAGE_BYTES = 4096
READ_BYTES = 128 * 1024
# A disk may take seconds to give a sector up: this many pages, and then this many larger parts of a
# file, are tried in vain before the rest of it counts as unreadable too.
FAILED_READS_MAX = 16


@cache
def _side_threads() -> SideThreads:
    """The threads of this process, made when the first calls run side by side."""
    from tradewind.store.files.side_threads import SideThreads

    return SideThreads()


class DiskError(StoreError):
    """A refusal by the operating system: `operation` on `path`, with `errno` as the reason."""

    def __init__(self, path: str, operation: Operation, number: int, target: str = "") -> None:
        self.path = path
        self.operation: Operation = operation
        self.errno = number
        name = errno.errorcode.get(number, f"errno {number}")
        reason = NAME_LOST.get(number) if operation == "sync" else None
        what = f"{operation} to {target}" if target else operation
        super().__init__(f"{path}: {what} failed: {reason or os.strerror(number)} ({name})")


class DiskFull(DiskError):  # noqa: N818 - it names the state of the disk
    """No space, quota or descriptor is left; the same call can succeed once there is room."""


class DiskFault(DiskError):  # noqa: N818 - it names the state of the disk
    """Any other fault, from a bad sector to missing rights."""


class MissingFile(DiskFault):
    """No such file or folder: a class apart, because absence is often an answer, not a fault."""


class FolderInUse(StoreError):  # noqa: N818 - it names the state of the folder
    """Another server has this folder open; `pid` is its process id, 0 when that is not known."""

    def __init__(self, folder: str, pid: int) -> None:
        self.folder = folder
        self.pid = pid
        who = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{folder}: the folder is in use by {who}; stop that server or use another folder"
        )


def disk_error(path: str, operation: Operation, number: int | None, target: str = "") -> DiskError:
    """The error for an errno, EIO if there is none; `target` is the new path of a rename."""
    # EFBIG is a limit of the process (RLIMIT_FSIZE) or of the file system: a quota too. And so are
    # descriptors: the file was not even touched.
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE):
        return DiskFull(path, operation, number, target)
    if number == errno.ENOENT:
        return MissingFile(path, operation, number, target)
    return DiskFault(path, operation, number or errno.EIO, target)


@lru_cache(maxsize=1024)
def path_within(root: str, path: str) -> str:
    """`path` in its plain form, or a `StoreError` if it leads out of `root`."""
    is_plain = not path.endswith("/") and "/." not in path and "//" not in path
    plain = path if is_plain else os.path.normpath(path)
    inside = plain == root or plain.startswith(root if root == "/" else root + "/")
    if not inside or "\0" in path:
        raise StoreError(f"{path!r} is not inside the store folder {root}")
    return plain


def path_below(root: str, path: str) -> str:
    """Like `path_within`, but the root itself is refused too: it is never moved or removed."""
    plain = path_within(root, path)
    if plain == root:
        raise StoreError(f"{path!r} is the store folder itself, which is never moved or removed")
    return plain


class DiskFile(Protocol):
    """An open file, read and written at offsets; there is no file position."""

    path: str

    @property
    def size(self) -> int:
        """Bytes in the file now, however they were written."""

    def write(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`; after an error any part of it may be in the file.

        Beyond the end the file grows, and a gap reads as zeros.
        """

    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes from `offset`; fewer only where the file ends."""

    def map(self) -> memoryview:
        """Map the file as it is now, read-only; readable even after `close`, `rename` and `remove`.

        Later writes may or may not show: map again. Unreadable parts, because the sector is bad or
        the file was cut since, read as zeros; then `mapping.is_unreadable` is true and any part of
        it may be zeros. Use `read` to get an error instead. A mapping holds no descriptor.
        """

    def truncate(self, size: int) -> None:
        """Make the file exactly this long; growth reads as zeros."""

    def sync(self, *, is_named: bool = True) -> None:
        """Wait until everything written before this call is durable (not the file's name).

        Fails if the name no longer leads to this file, because then the bytes are lost; unless
        `is_named` is false, for a file to which a rename is yet to give its name. After one failure
        every further call fails, see the module's text.
        """

    def fileno(self) -> int:
        """The descriptor for positioned writes from C, or -1 if the file is simulated."""

    def close(self) -> None:
        """Close the file without a sync. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Lock(Protocol):
    """An exclusive lock on a folder."""

    path: str

    def release(self) -> None:
        """Release the lock; the lock file stays, empty. A second call does nothing."""


class Disk(Protocol):
    """A file system below one root folder."""

    root: str
    # How many block files may be open at a time, see `store.files.open_files`.
    block_files_max: int = BLOCK_FILES_MAX

    def open(self, path: str, *, writes: bool = False) -> DiskFile:
        """Open an existing file, to read and sync it; with `writes` to change it too.

        Only files to be changed are opened for writing: reading goes on when the disk takes no
        changes.
        """

    def create(self, path: str, *, replace: bool = False) -> DiskFile:
        """Create an empty file. An existing one is an error, or is emptied with `replace`."""

    def rename(self, source: str, target: str) -> None:
        """Rename atomically; a file or an empty folder at `target` is replaced."""

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; DiskError if the name exists already."""

    def remove(self, path: str) -> None:
        """Remove one file."""

    def remove_tree(self, path: str) -> None:
        """Remove a file or a folder with its content, if it exists.

        Symbolic links are removed and never followed; a path that leads through one is refused.
        """

    def make_directory(self, path: str, *, sync: bool = False) -> None:
        """Create the folder and its missing parents; `sync` makes the names of the new ones
        durable.
        """

    def list_directory(self, path: str) -> list[str]:
        """The names in a folder, sorted."""

    def exists(self, path: str) -> bool:
        """Whether the path exists. Raises if that cannot be determined: absence is never
        guessed.
        """

    def is_directory(self, path: str) -> bool:
        """Whether the path is a folder."""

    def remembering(self) -> AbstractContextManager[None]:
        """Allow the disk to list each folder once inside a `with` block.

        Only this process changes the store meanwhile, and one thread at a time.
        """
        return nullcontext()

    def sync_directory(self, path: str) -> None:
        """Wait until the names in this folder are durable."""

    def together(self, calls: Sequence[Callable[[], object]]) -> None:
        """Run independent calls: a real disk has all of them at once, so that one flush of it
        serves many. All have ended when this returns, or raises the first error.
        """
        _raise_first([_error_of(call) for call in calls])

    def read_file(self, path: str) -> bytes:
        """Read a whole file."""

    def lock(self, path: str) -> Lock:
        """Lock the folder of this lock file, or raise `FolderInUse` at once."""

    def write_file_atomically(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        """Replace a file: readers, and with `sync` also a power failure, see the old or the new.

        Without `sync` a power failure may leave an empty or partial file under the new name.
        """
        aside = path + TEMPORARY_SUFFIX
        try:
            with self.create(aside, replace=True) as file:
                file.write(data, 0)
                if sync:
                    file.sync()
            self.rename(aside, path)
        except StoreError:
            # The rest of the file would take the very room that was missing.
            with suppress(StoreError):
                self.remove(aside)
            raise
        if sync:
            self.sync_directory(os.path.dirname(path))


def _error_of(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except BaseException as error:  # for the thread that waits for it
        return error
    return None


def _raise_first(errors: Sequence[BaseException | None]) -> None:
    for error in errors:
        if error is not None:
            raise error


def is_unreadable(error: StoreError) -> bool:
    """Whether the disk failed to read existing bytes, which may be readable another time."""
    return isinstance(error, DiskFault) and error.errno in UNREADABLE


def read_readable(file: DiskFile, first: int = 0) -> tuple[bytes, int]:
    """Read a file from `first` on with zeros in place of unreadable parts; returns also their size.

    The time is bounded: what surrounds many unreadable places may count as one of them.
    """
    size = file.size
    content = bytearray(max(size - first, 0))
    unreadable = failed_pages = failed_parts = 0
    for start in range(first, size, READ_BYTES):
        end = min(start + READ_BYTES, size)
        if failed_parts > FAILED_READS_MAX:
            unreadable += size - start
            break
        if (part := _read_or_none(file, start, end)) is not None:
            content[start - first : start - first + len(part)] = part
            continue
        failed_parts += 1
        for place in range(start, end, PAGE_BYTES):
            stop = min(place + PAGE_BYTES, end)
            page = None
            if failed_pages < FAILED_READS_MAX:
                page = _read_or_none(file, place, stop)
                failed_pages += page is None
            if page is None:
                unreadable += stop - place
            else:
                content[place - first : place - first + len(page)] = page
    return bytes(content), unreadable


def _read_or_none(file: DiskFile, start: int, end: int) -> bytes | None:
    try:
        return file.read(start, end - start)
    except DiskFault as error:
        if not is_unreadable(error):
            raise
        return None


def _read_all(descriptor: int) -> bytes:
    """Read a small file."""
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, size, 0)
    while len(data) < size and (more := os.pread(descriptor, size - len(data), len(data))):
        data += more
    return data


class OsFile(DiskFile):
    """A file of the operating system."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._sync_failed = False
        # Only to find our own mistakes: cutting a file under a mapping that is still in use.
        self._mappings: weakref.WeakSet[FileMapping] | None = None

    @property
    def size(self) -> int:
        """The size according to the system, because C code may have written through the
        descriptor.
        """
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise disk_error(self.path, "size", error.errno) from error

    def write(self, data: Buffer, offset: int) -> None:
        """Write in a loop, because one call may take only a part (a signal, the limit of 2 GiB)."""
        rest = memoryview(data).cast("B")
        try:
            while rest:
                written = os.pwrite(self._descriptor, rest, offset)
                if written <= 0:
                    raise OSError(errno.EIO, "nothing was written")  # noqa: TRY301
                rest = rest[written:]
                offset += written
        except OSError as error:
            raise disk_error(self.path, "write", error.errno) from error

    def read(self, offset: int, size: int) -> bytes:
        """Read no more than the file holds, so that a wrong `size` costs no memory."""
        try:
            size = max(0, min(size, os.fstat(self._descriptor).st_size - offset))
            data = os.pread(self._descriptor, size, offset)
            while len(data) < size:
                more = os.pread(self._descriptor, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise disk_error(self.path, "read", error.errno) from error
        return data

    def map(self) -> memoryview:
        """Map the file; the view of an empty file, which cannot be mapped, is empty.

        Where the system allows no more mappings, the bytes are read instead.
        """
        try:
            size = os.fstat(self._descriptor).st_size
            if not size:
                return memoryview(b"")
            mapping = self._mapping(size)
        except OSError as error:
            if error.errno == errno.ENOMEM:
                return memoryview(self.read(0, size))
            raise disk_error(self.path, "map", error.errno) from error
        if self._mappings is None:
            self._mappings = weakref.WeakSet()
        self._mappings.add(mapping)
        return memoryview(mapping)

    def _mapping(self, size: int) -> FileMapping:
        """Map the file, reopened read-only if needed: an ext4 that has stopped itself requires
        that.
        """
        try:
            return FileMapping(self._descriptor, size)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            if not os.path.samestat(os.fstat(descriptor), os.fstat(self._descriptor)):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return FileMapping(descriptor, size)
        finally:
            os.close(descriptor)

    def truncate(self, size: int) -> None:
        """See `DiskFile.truncate`."""
        assert all(len(each) <= size for each in self._mappings or ()), "cut under a mapping"
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise disk_error(self.path, "truncate", error.errno) from error

    def sync(self, *, is_named: bool = True) -> None:
        """Sync by fdatasync: the times of the file are not worth a second write, its size is
        included. `file_sync` decides.
        """
        if self._sync_failed or self._descriptor < 0:
            number = errno.EIO if self._sync_failed else errno.EBADF
            raise disk_error(self.path, "sync", number)
        try:
            sync_descriptor(self._descriptor, self.path if is_named else None)
        except OSError as error:
            self._sync_failed = True
            raise disk_error(self.path, "sync", error.errno) from error

    def fileno(self) -> int:
        """See `DiskFile.fileno`."""
        return self._descriptor

    def close(self) -> None:
        """Close the descriptor, which is released even if closing reports a late write error."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            os.close(descriptor)
        except OSError as error:
            raise disk_error(self.path, "close", error.errno) from error


class OsLock(Lock):
    """An flock on a lock file: the kernel drops it with the process, however that ends."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def release(self) -> None:
        """Empty the file without removing it: a second server may already wait on this very
        file.
        """
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)


class OsDisk(Disk):
    """The file system of the machine. EINTR is handled by Python itself (PEP 475)."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        # The other half of the descriptors is for clients.
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed != resource.RLIM_INFINITY:
            self.block_files_max = max(8, min(BLOCK_FILES_MAX, allowed // 2))
        self._names: FolderNames | None = None

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """See `Disk.remembering`."""
        before, self._names = self._names, FolderNames()
        try:
            yield
        finally:
            self._names = before
            self._changes()

    def _changes(self) -> None:
        """Called before names change."""
        if self._names is not None:
            self._names.drop()

    def open(self, path: str, *, writes: bool = False) -> OsFile:
        """See `Disk.open`."""
        return self._opened(path, "open", os.O_RDWR if writes else os.O_RDONLY)

    def create(self, path: str, *, replace: bool = False) -> OsFile:
        """See `Disk.create`."""
        how = os.O_TRUNC if replace else os.O_EXCL
        self._changes()
        return self._opened(path, "create", os.O_RDWR | os.O_CREAT | how)

    def _opened(self, path: str, operation: Operation, flags: int) -> OsFile:
        path = path_within(self.root, path)
        try:
            return OsFile(path, os.open(path, flags, FILE_MODE))
        except OSError as error:
            raise disk_error(path, operation, error.errno) from error

    def rename(self, source: str, target: str) -> None:
        """See `Disk.rename`."""
        source, target = path_below(self.root, source), path_below(self.root, target)
        self._changes()
        try:
            os.rename(source, target)
        except OSError as error:
            raise disk_error(source, "rename", error.errno, target) from error

    def link(self, source: str, target: str) -> None:
        """See `Disk.link`."""
        source, target = path_below(self.root, source), path_below(self.root, target)
        self._changes()
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            raise disk_error(source, "link", error.errno, target) from error

    def remove(self, path: str) -> None:
        """See `Disk.remove`."""
        path = path_below(self.root, path)
        self._changes()
        try:
            os.unlink(path)
        except OSError as error:
            raise disk_error(path, "remove", error.errno) from error

    def remove_tree(self, path: str) -> None:
        """Remove a tree by descriptors, so that no link can be slipped in between a check and a
        removal.
        """
        path = path_below(self.root, path)
        folder, name = os.path.split(path)
        self._changes()
        try:
            descriptor = self._folder_without_links(folder)
            try:
                if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                    import shutil  # with its compressions: a start needs none of it

                    shutil.rmtree(name, dir_fd=descriptor)
                else:
                    os.unlink(name, dir_fd=descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk_error(path, "remove_tree", error.errno) from error

    def _folder_without_links(self, path: str) -> int:
        """A descriptor of a folder that is reached from the root without a symbolic link."""
        descriptor = os.open(self.root, os.O_RDONLY | O_DIRECTORY)
        for name in path[len(self.root) :].split("/"):
            if not name:
                continue
            outer = descriptor
            try:
                if stat.S_ISLNK(os.stat(name, dir_fd=outer, follow_symlinks=False).st_mode):
                    raise StoreError(
                        f"{path}: {name!r} is a symbolic link; nothing is removed through a link,"
                        " mount the other disk there instead"
                    )
                flags = os.O_RDONLY | O_DIRECTORY | os.O_NOFOLLOW
                descriptor = os.open(name, flags, dir_fd=outer)
            finally:
                os.close(outer)
        return descriptor

    def make_directory(self, path: str, *, sync: bool = False) -> None:
        """See `Disk.make_directory`; the root's own parents are made too."""
        path = path_within(self.root, path)
        self._changes()
        missing: list[str] = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            try:
                os.mkdir(folder, DIRECTORY_MODE)
            except OSError as error:
                raise disk_error(folder, "make_directory", error.errno) from error
            if sync:
                _sync_folder(os.path.dirname(folder))

    def list_directory(self, path: str) -> list[str]:
        """See `Disk.list_directory`."""
        path = path_within(self.root, path)
        try:
            return sorted(os.listdir(path)) if self._names is None else self._names.names(path)
        except OSError as error:
            raise disk_error(path, "list_directory", error.errno) from error

    def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        if self._names is not None:
            known = self._names.is_there(path_within(self.root, path))
            if known is not None:
                return known
        return self._mode(path) != 0

    def is_directory(self, path: str) -> bool:
        """See `Disk.is_directory`."""
        if self._names is not None:
            known = self._names.is_folder(path_within(self.root, path))
            if known is not None:
                return known
        return stat.S_ISDIR(self._mode(path))

    def _mode(self, path: str) -> int:
        path = path_within(self.root, path)
        try:
            return os.stat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except OSError as error:
            raise disk_error(path, "exists", error.errno) from error

    def sync_directory(self, path: str) -> None:
        """See `Disk.sync_directory`."""
        _sync_folder(path_within(self.root, path))

    def together(self, calls: Sequence[Callable[[], object]]) -> None:
        """Run calls in threads that never hold up the end of the process; in this one if the
        system gives no more of them.
        """
        if not calls:
            return
        errors: list[BaseException | None] = [None] * len(calls)

        def run(first: int) -> None:
            for index in range(first, len(calls), TOGETHER_MAX):
                errors[index] = _error_of(calls[index])

        count = min(len(calls), TOGETHER_MAX)
        if count == 1:
            run(0)
        else:
            _side_threads().run([partial(run, first) for first in range(count)])
        _raise_first(errors)

    def read_file(self, path: str) -> bytes:
        """See `Disk.read_file`; a file without the right to write is good enough."""
        path = path_within(self.root, path)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise disk_error(path, "open", error.errno) from error
        try:
            return _read_all(descriptor)
        except OSError as error:
            raise disk_error(path, "read", error.errno) from error
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> OsLock:
        """Lock the file and write the process id into it, for the error that the next server
        gets.
        """
        path = path_below(self.root, path)
        self._changes()
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        except OSError as error:
            raise disk_error(path, "lock", error.errno) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except BlockingIOError:
            pid = lock_owner(descriptor)
            os.close(descriptor)
            raise FolderInUse(os.path.dirname(path), pid) from None
        except OSError as error:
            os.close(descriptor)
            raise disk_error(path, "lock", error.errno) from error
        return OsLock(path, descriptor)


def lock_owner(descriptor: int) -> int:
    """The process that has the lock of this file; 0: it cannot be determined.

    The note in the file may be that of an earlier owner: readers take a shared lock and write none.
    Nor is it believed if there is no such process, for the owner may be in another container or on
    another machine.
    """
    text = os.pread(descriptor, 20, 0).strip()
    pid = int(text) if text.isdigit() and len(text) < 10 else 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        pass
    else:
        return 0  # all who have it only read
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return 0
    except PermissionError:
        pass  # it belongs to another process
    return pid


def _sync_folder(path: str) -> None:
    try:
        sync_folder(path)
    except OSError as error:
        raise disk_error(path, "sync_directory", error.errno) from error
