"""A disk in memory that can lose power: the `Disk` contract for tests of crashes and faults.

Owns the simulated calls, the injected faults, the count of steps and the capacity. Names and their
nodes are in `disk_tree.py`, the rules for what survives a power failure in `disk_state.py`, and bit
rot in `disk_damage.py`. It never reads a clock, and all randomness comes from seeds, so that every
run can be repeated.

    disk = SimulatedDisk(seed=1)
    disk.stop_at = 17                     # the 17th step does not happen, PowerLoss is raised
    with suppress(PowerLoss):
        work(disk)
    for seed in range(1000):
        recovered = recover(disk.crash(seed))

A step is a call that can change what a power failure leaves: between two steps nothing changes, so
reading calls are not steps. `calls` counts every call by its name, and `open_files` the files that
have not been closed.
"""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from posixpath import dirname, normpath
from random import Random
from typing import Final, Literal

from tradewind.store.files.disk import (
    DIRECTORY_MODE,
    FILE_MODE,
    Buffer,
    Disk,
    DiskError,
    DiskFile,
    FolderInUse,
    Lock,
    MissingFile,
    Operation,
    disk_error,
    path_below,
    path_within,
)
from tradewind.testing.disk_state import (
    DiskChange,
    FileNode,
    FolderNode,
    scattered,
    tree_after,
    up_to_step,
    with_causes,
)
from tradewind.testing.disk_tree import NameTree, rename_obstacle

ENDLESS_BYTES = 1 << 60
# The operations that a read-only file system refuses.
CHANGES: Final = frozenset[Operation](
    {"create", "rename", "link", "remove", "remove_tree", "make_directory", "lock"}
)


class PowerLoss(BaseException):
    """Raised when the power fails; not an `Exception`, so that no error handler of the product
    catches it.
    """


@dataclass(slots=True)
class Fault:
    """A planned failure; `hits` counts how often it happened."""

    operation: Operation | Literal["*"]
    path_pattern: str
    nth: int
    error: int
    times: int
    after_bytes: int
    seen: int = 0
    hits: int = 0

    def meets(self, operation: Operation, path: str) -> bool:
        """Whether this call must fail."""
        if self.operation not in ("*", operation) or not fnmatchcase(path, self.path_pattern):
            return False
        self.seen += 1
        if not self.nth <= self.seen < self.nth + self.times:
            return False
        self.hits += 1
        return True


class SimulatedFile(DiskFile):
    """A file of a simulated disk."""

    def __init__(
        self, disk: SimulatedDisk, path: str, node: FileNode, *, writes: bool = True
    ) -> None:
        self.path = path
        self._writes = writes
        self._disk = disk
        self._node = node
        self._is_open = True
        self._sync_failed = False
        disk.open_files += 1

    def _begin(self, operation: Operation, *, is_step: bool = False) -> Fault | None:
        if not self._is_open:
            raise disk_error(self.path, operation, errno.EBADF)
        return self._disk.begin(operation, self.path, is_step=is_step)

    def _enter(self, operation: Operation, *, is_step: bool = False) -> None:
        if fault := self._begin(operation, is_step=is_step):
            raise disk_error(self.path, operation, fault.error)

    def _refusal(self) -> int:
        """The error number if the file cannot be written; 0 if it can."""
        if not self._writes:
            return errno.EBADF
        return errno.EROFS if self._disk.is_read_only else 0

    @property
    def size(self) -> int:
        """See `DiskFile.size`."""
        self._enter("size")
        return self._node.size

    def write(self, data: Buffer, offset: int) -> None:
        """Write data: one step, or one per part if the disk makes short writes."""
        rest = bytes(data)
        part_bytes = self._disk.short_write_bytes or len(rest)
        while rest:
            self._write_part(rest[:part_bytes], offset)
            offset, rest = offset + part_bytes, rest[part_bytes:]

    def _write_part(self, data: bytes, offset: int) -> None:
        with self._disk.mutex:
            fault = self._begin("write", is_step=True)
            number = errno.EINVAL if offset < 0 else fault.error if fault else self._refusal()
            room = self._disk.room_for(self._node, offset + len(data)) - offset
            if not number and room < len(data):
                number, data = errno.ENOSPC, data[: max(0, room)]
            elif number:
                data = data[: fault.after_bytes if fault else 0]
            if data:
                self._disk.tree.write(self._node, self._disk.steps, offset, data)
            if number:
                raise disk_error(self.path, "write", number)

    def read(self, offset: int, size: int) -> bytes:
        """See `DiskFile.read`."""
        self._enter("read")
        if offset < 0:
            raise disk_error(self.path, "read", errno.EINVAL)
        if self._node.is_unreadable(offset, size):
            raise disk_error(self.path, "read", errno.EIO)
        return self._node.read(offset, max(0, size))

    def map(self) -> memoryview:
        """A copy of the current content: never shows a later write, since no program may rely on
        that.
        """
        self._enter("map")
        return self._node.map()

    def truncate(self, size: int) -> None:
        """See `DiskFile.truncate`."""
        with self._disk.mutex:
            self._enter("truncate", is_step=True)
            if number := errno.EINVAL if size < 0 else self._refusal():
                raise disk_error(self.path, "truncate", number)
            assert self._node.mapped_bytes() <= size, "cut under a mapping"
            if self._disk.room_for(self._node, size) < size:
                raise disk_error(self.path, "truncate", errno.ENOSPC)
            self._disk.tree.cut(self._node, self._disk.steps, size)

    def sync(self, *, is_named: bool = True) -> None:
        """Sync the file; a failing sync loses some of the data permanently, as on Linux."""
        if self._sync_failed:
            raise disk_error(self.path, "sync", errno.EIO)
        with self._disk.mutex:
            if fault := self._begin("sync", is_step=True):
                self._sync_failed = True
                self._node.forget(self._disk.random)
                raise disk_error(self.path, "sync", fault.error)
            self._node.sync()
            if is_named and (number := self._disk.tree.name_lost(self.path, self._node)):
                self._sync_failed = True
                raise disk_error(self.path, "sync", number)
            if self._disk.sync_persists_names:
                self._disk.tree.persist_names_of(self._node)

    def fileno(self) -> int:
        """The descriptor -1: there is no real file."""
        return -1

    def close(self) -> None:
        """Close the file, which is always allowed, even after a power failure: it does not change
        the disk.
        """
        if self._is_open:
            self._is_open = False
            self._disk.open_files -= 1


class SimulatedLock(Lock):
    """A lock that is held as long as the simulated disk has power. @216.2 |`capacity_bytes`: the
    maximum sum of all file sizes; None is endless. May change at any time. |`sync_persists_names`:
    a sync of a file makes its name durable too, as ext4 does for new files. |`short_write_bytes`:
    writes take at most this much at a time, each part being a step; 0 is all. |`is_read_only`:
    every change is refused, as after a file system has found an error in itself. |`stop_at`: the
    step that does not happen, because the power fails; None for never.
    """

    def __init__(self, path: str, locks: set[str]) -> None:
        self.path = path
        self._locks = locks

    def release(self) -> None:
        """See `Lock.release`."""
        self._locks.discard(self.path)


class SimulatedDisk(Disk):
    """A file system in memory, with its root folder in place.

    `capacity_bytes`: the sum of all file sizes that fits; None is endless. May change at any time.
    `sync_persists_names`: a sync of a file makes its name durable too, as ext4 does for new files.
    `short_write_bytes`: writes take at most this much at a time, each part being a step; 0 is all.
    `is_read_only`: every change is refused, as after a file system has found an error in itself.
    `stop_at`: the step that will not happen, because the power fails; None for never.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        root: str = "/disk",
        capacity_bytes: int | None = None,
        sync_persists_names: bool = False,
    ) -> None:
        self.root = normpath(root)
        self.random = Random(seed)  # noqa: S311 - must be repeatable, keeps no secret
        self.capacity_bytes = capacity_bytes
        self.sync_persists_names = sync_persists_names
        self.short_write_bytes = 0
        self.is_read_only = False
        self.stop_at: int | None = None
        self.steps = 0
        self.calls: Counter[Operation] = Counter()
        self.open_files = 0
        # Guards against a sync in a worker thread; the simulation itself needs no threads.
        self.mutex = threading.RLock()
        self.tree = NameTree(self.root)
        self._faults: list[Fault] = []
        self._locks: set[str] = set()
        self._has_power = True

    # --- faults and power ----------------------------------------------------------------------

    def fail(
        self,
        operation: Operation | Literal["*"],
        path_pattern: str = "*",
        nth: int = 1,
        error: int = errno.EIO,
        *,
        times: int = 1,
        after_bytes: int = 0,
    ) -> Fault:
        """Let the nth matching call from now on fail, and the ones after it up to `times`.

        The pattern is a shell pattern for the whole path. A write that fails has written its first
        `after_bytes`; all other calls have done nothing, except that a failed sync loses data.
        """
        fault = Fault(operation, path_pattern, nth, error, times, after_bytes)
        self._faults.append(fault)
        return fault

    def clear_faults(self) -> None:
        """Remove all planned failures."""
        self._faults.clear()

    def begin(self, operation: Operation, path: str, *, is_step: bool = False) -> Fault | None:
        """Count a call, which may cut the power; returns the planned failure that the call meets,
        or None.
        """
        if not self._has_power:
            raise PowerLoss
        self.calls[operation] += 1
        if is_step:
            if self.stop_at is not None and self.steps + 1 >= self.stop_at:
                self._has_power = False
                raise PowerLoss
            self.steps += 1
        for fault in self._faults:
            if fault.meets(operation, path):
                return fault
        return None

    def _enter(self, operation: Operation, path: str, *, is_step: bool = False) -> None:
        if fault := self.begin(operation, path, is_step=is_step):
            raise disk_error(path, operation, fault.error)
        if self.is_read_only and operation in CHANGES:
            raise disk_error(path, operation, errno.EROFS)

    def unsynced_steps(self) -> list[int]:
        """The steps whose effects are not durable yet, in order."""
        return self.tree.unsynced_steps()

    def crash(self, seed: int) -> SimulatedDisk:
        """A copy of the disk as it may be after a power failure now; the same seed yields the same
        disk.

        This disk stays unchanged, so that one moment can have any number of outcomes.
        """
        random = Random(seed)  # noqa: S311 - must be repeatable, keeps no secret
        if random.random() < 0.3:
            step = random.choice([0, *self.unsynced_steps()])
            kept = with_causes(self.tree.changes, lambda change: change.step <= step)
            return self._outcome(seed, kept, lambda node: up_to_step(node, step, random))
        names = random.choice((0.0, 0.5, 0.9, 1.0))
        share = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        kept = with_causes(self.tree.changes, lambda _: random.random() < names)
        return self._outcome(seed, kept, lambda node: scattered(node, share, random))

    def crash_losing_unsynced(self) -> SimulatedDisk:
        """A copy of the disk after a power failure that destroys everything not durable."""
        return self._outcome(0, [], FileNode.durable)

    def crash_keeping_unsynced(self) -> SimulatedDisk:
        """A copy of the disk after a power failure that destroys nothing."""
        return self._outcome(0, self.tree.changes, FileNode.visible)

    def crash_keeping_steps(self, last: int) -> SimulatedDisk:
        """A copy of the disk after a power failure: all steps up to `last` are done, and no
        unsynced later one.
        """
        kept = with_causes(self.tree.changes, lambda change: change.step <= last)
        return self._outcome(0, kept, lambda node: up_to_step(node, last))

    def _outcome(
        self, seed: int, kept: list[DiskChange], content: Callable[[FileNode], bytes]
    ) -> SimulatedDisk:
        disk = SimulatedDisk(
            seed,
            root=self.root,
            capacity_bytes=self.capacity_bytes,
            sync_persists_names=self.sync_persists_names,
        )
        disk.tree = NameTree(self.root, tree_after(self.tree.top, kept, content))
        return disk

    # --- the Disk contract ---------------------------------------------------------------------

    def open(self, path: str, *, writes: bool = False) -> SimulatedFile:
        """See `Disk.open`."""
        path = path_within(self.root, path)
        self._enter("open", path)
        if writes and self.is_read_only:
            raise disk_error(path, "open", errno.EROFS)
        return SimulatedFile(self, path, self.tree.file(path, "open"), writes=writes)

    def create(self, path: str, *, replace: bool = False) -> SimulatedFile:
        """See `Disk.create`."""
        path = path_within(self.root, path)
        with self.mutex:
            self._enter("create", path, is_step=True)
            folder, name = self.tree.place(path, "create")
            node = folder.entries.get(name) if name else folder
            if node is None:
                node = FileNode()
                self.tree.change(DiskChange(self.steps, ((folder, name, node),)))
            elif not replace:
                raise disk_error(path, "create", errno.EEXIST)
            elif isinstance(node, FolderNode):
                raise disk_error(path, "create", errno.EISDIR)
            else:
                self.tree.cut(node, self.steps, 0)
        return SimulatedFile(self, path, node)

    def rename(self, source: str, target: str) -> None:
        """See `Disk.rename`."""
        source, target = path_below(self.root, source), path_below(self.root, target)
        with self.mutex:
            self._enter("rename", source, is_step=True)
            try:
                folder, name = self.tree.place(source, "rename")
                new_folder, new_name = self.tree.place(target, "rename")
            except DiskError as error:
                raise disk_error(source, "rename", error.errno, target) from None
            node, old = folder.entries.get(name), new_folder.entries.get(new_name)
            number = rename_obstacle(node, old, source, target)
            if number:
                raise disk_error(source, "rename", number, target)
            if node is old or node is None:
                return
            is_folder = isinstance(node, FolderNode)
            change = DiskChange(
                self.steps,
                ((folder, name, None), (new_folder, new_name, node)),
                is_rename=True,
                gone=old if isinstance(old, FolderNode) else None,
                is_move=is_folder and folder is not new_folder,
            )
            self.tree.change(change)

    def link(self, source: str, target: str) -> None:
        """See `Disk.link`."""
        source, target = path_below(self.root, source), path_below(self.root, target)
        with self.mutex:
            self._enter("link", source, is_step=True)
            node = self.tree.find(source)
            try:
                folder, name = self.tree.place(target, "link")
            except DiskError as error:
                raise disk_error(source, "link", error.errno, target) from None
            if not isinstance(node, FileNode):
                number = errno.EPERM if node else errno.ENOENT
                raise disk_error(source, "link", number, target)
            if name in folder.entries:
                raise disk_error(source, "link", errno.EEXIST, target)
            self.tree.change(DiskChange(self.steps, ((folder, name, node),)))

    def remove(self, path: str) -> None:
        """See `Disk.remove`."""
        path = path_below(self.root, path)
        with self.mutex:
            self._enter("remove", path, is_step=True)
            folder, name = self.tree.place(path, "remove")
            node = folder.entries.get(name)
            if not isinstance(node, FileNode):
                raise disk_error(path, "remove", errno.EISDIR if node else errno.ENOENT)
            self.tree.change(DiskChange(self.steps, ((folder, name, None),)))

    def remove_tree(self, path: str) -> None:
        """See `Disk.remove_tree`; each removal is a step."""
        path = path_below(self.root, path)
        with self.mutex:
            try:
                folder, name = self.tree.place(path, "remove_tree")
            except MissingFile:
                return
            if name in folder.entries:
                self._remove_all(folder, name, path)

    def _remove_all(self, folder: FolderNode, name: str, path: str) -> None:
        node = folder.entries[name]
        if isinstance(node, FolderNode):
            for inner in list(node.entries):
                self._remove_all(node, inner, f"{path}/{inner}")
        self._enter("remove_tree", path, is_step=True)
        gone = node if isinstance(node, FolderNode) else None
        self.tree.change(DiskChange(self.steps, ((folder, name, None),), gone=gone))

    def make_directory(self, path: str, *, sync: bool = False) -> None:
        """See `Disk.make_directory`; each folder is a step, and so is each sync."""
        path = path_within(self.root, path)
        missing: list[str] = []
        while not isinstance(self.tree.find(path), FolderNode):
            missing.append(path)
            path = dirname(path)
        for made in reversed(missing):
            with self.mutex:
                self._enter("make_directory", made, is_step=True)
                folder, name = self.tree.place(made, "make_directory")
                if name in folder.entries:
                    raise disk_error(made, "make_directory", errno.EEXIST)
                self.tree.change(DiskChange(self.steps, ((folder, name, FolderNode()),)))
            if sync:
                self.sync_directory(dirname(made))

    def list_directory(self, path: str) -> list[str]:
        """See `Disk.list_directory`."""
        path = path_within(self.root, path)
        self._enter("list_directory", path)
        return sorted(self.tree.folder(path, "list_directory").entries)

    def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        path = path_within(self.root, path)
        self._enter("exists", path)
        return self.tree.find(path) is not None

    def is_directory(self, path: str) -> bool:
        """See `Disk.is_directory`."""
        path = path_within(self.root, path)
        self._enter("exists", path)
        return isinstance(self.tree.find(path), FolderNode)

    def sync_directory(self, path: str) -> None:
        """See `Disk.sync_directory`."""
        path = path_within(self.root, path)
        with self.mutex:
            self._enter("sync_directory", path, is_step=True)
            folder = self.tree.folder(path, "sync_directory")
            self.tree.persist(lambda change: any(place is folder for place, *_ in change.sets))

    def read_file(self, path: str) -> bytes:
        """See `DiskFile.read`; Linux opens a folder for reading, too, and then cannot read it."""
        path = path_within(self.root, path)
        if isinstance(self.tree.find(path), FolderNode):
            raise disk_error(path, "read", errno.EISDIR)
        with self.open(path) as file:
            return file.read(0, file.size)

    def lock(self, path: str) -> SimulatedLock:
        """See `Disk.lock`; the lock file stays empty."""
        path = path_below(self.root, path)
        self._enter("lock", path)
        if path in self._locks:
            raise FolderInUse(dirname(path), 1)
        if self.tree.find(path) is None:
            self.create(path)
        self._locks.add(path)
        return SimulatedLock(path, self._locks)

    def _free_bytes(self) -> int:
        capacity_bytes = ENDLESS_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return max(0, capacity_bytes - self.tree.used_bytes)

    def room_for(self, node: FileNode, size: int) -> int:
        """The size, at most the given one, that this file may grow to."""
        return min(size, node.size + self._free_bytes()) if node.links else size

    # --- content for tests, without steps or faults -----------------------------------------

    def snapshot_tree(self) -> dict[str, bytes | None]:
        """The content that programs see, by path relative to the root, None for a folder."""
        return self.tree.snapshot()

    def load_tree(self, real_folder: str | Path) -> None:
        """Copy a real folder's content into the root, immediately durable."""
        for path in sorted(Path(real_folder).rglob("*")):
            place = f"{self.root}/{path.relative_to(real_folder)}"
            if path.is_dir():
                self.tree.put_durable_folder(place)
            else:
                self.tree.put_durable_file(place, path.read_bytes())

    def save_tree(self, real_folder: str | Path) -> None:
        """Copy the content that programs see into a real folder."""
        for name, content in self.snapshot_tree().items():
            path = Path(real_folder) / name
            if content is None:
                path.mkdir(DIRECTORY_MODE, exist_ok=True)
            else:
                path.write_bytes(content)
                path.chmod(FILE_MODE)

    def file_contents(self) -> dict[str, bytes]:
        """The content of all files by full path: the stale bytes for `DiskDamage.restore_chunk`."""
        tree = self.snapshot_tree()
        return {f"{self.root}/{name}": data for name, data in tree.items() if data is not None}

    def content_of(self, path: str) -> bytes:
        """The content of a file that programs see."""
        return self.tree.file(path_within(self.root, path), "read").visible()

    def spoil(self, path: str, start: int, size: int) -> None:
        """Create bad sectors: these bytes of a file cannot be read from now on. Writing does not
        repair them.
        """
        node = self.tree.file(path_within(self.root, path), "read")
        node.unreadable.append(range(start, start + size))

    def heal(self, path: str) -> None:
        """Remove the bad sectors of a file."""
        self.tree.file(path_within(self.root, path), "read").unreadable.clear()

    def put_durable_file(self, path: str, content: bytes) -> None:
        """Make this the durable content under a durable name; missing folders are created."""
        self.tree.put_durable_file(path_below(self.root, path), content)
