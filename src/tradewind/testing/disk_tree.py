"""The names of the simulated disk: paths to files and folders, and which of them are durable.

Owns the tree of nodes, the name changes that are not durable yet, and the sum of all file sizes. It
never counts steps or injects faults (`fake_disk.py`), and never decides what survives a power
failure (`disk_state.py`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import lru_cache
from posixpath import split

from tradewind.store.files.disk import Operation, disk_error
from tradewind.testing.disk_state import (
    DiskChange,
    FileNode,
    FolderNode,
    Node,
    make_durable,
    with_causes,
)


class NameTree:
    """Folders and files below a root path.

    `changes` are in the order in which they happened; `used_bytes` is the size of all files that
    have a name: removing the last name of a file frees its space.
    """

    def __init__(self, root: str, top: FolderNode | None = None) -> None:
        self.top = FolderNode() if top is None else top
        self.changes: list[DiskChange] = []
        self.used_bytes = _bytes_below(self.top)
        self._root = root

    # --- looking up ----------------------------------------------------------------------------

    def find(self, path: str) -> Node | None:
        """The node at a path, or None."""
        node: Node | None = self.top
        for name in _names(self._root, path):
            node = node.entries.get(name) if isinstance(node, FolderNode) else None
        return node

    def place(self, path: str, operation: Operation) -> tuple[FolderNode, str]:
        """The folder that holds (or would hold) the last name of a path; an empty name for the
        root.
        """
        folder = self.top
        names = _names(self._root, path)
        for name in names[:-1]:
            node = folder.entries.get(name)
            if not isinstance(node, FolderNode):
                raise disk_error(path, operation, errno.ENOTDIR if node else errno.ENOENT)
            folder = node
        return folder, names[-1] if names else ""

    def node(self, path: str, operation: Operation) -> Node:
        """The node at a path; raises the error of Linux if there is none."""
        folder, name = self.place(path, operation)
        node = folder.entries.get(name) if name else folder
        if node is None:
            raise disk_error(path, operation, errno.ENOENT)
        return node

    def file(self, path: str, operation: Operation) -> FileNode:
        """The file at a path."""
        node = self.node(path, operation)
        if not isinstance(node, FileNode):
            raise disk_error(path, operation, errno.EISDIR)
        return node

    def folder(self, path: str, operation: Operation) -> FolderNode:
        """The folder at a path."""
        node = self.node(path, operation)
        if not isinstance(node, FolderNode):
            raise disk_error(path, operation, errno.ENOTDIR)
        return node

    def name_lost(self, path: str, node: FileNode) -> int:
        """The error number if this path does not lead to the file; 0 if it does."""
        found = self.find(path)
        return 0 if found is node else errno.ESTALE if found is not None else errno.ENOENT

    def snapshot(self) -> dict[str, bytes | None]:
        """The content by path relative to the root, None for a folder."""
        found: dict[str, bytes | None] = {}
        _note_all(self.top, "", found)
        return found

    # --- changing ------------------------------------------------------------------------------

    def change(self, change: DiskChange) -> None:
        """Make a change of names visible to programs."""
        for folder, name, node in change.sets:
            old = folder.entries.pop(name, None)
            if isinstance(old, FileNode):
                old.links -= 1
                self.used_bytes -= 0 if old.links else old.size
            if node is not None:
                folder.entries[name] = node
            if isinstance(node, FileNode):
                self.used_bytes += 0 if node.links else node.size
                node.links += 1
        self.changes.append(change)

    def write(self, node: FileNode, step: int, offset: int, data: bytes) -> None:
        """Make written bytes visible to programs."""
        self._resize(node, max(node.size, offset + len(data)))
        node.write(step, offset, data)

    def cut(self, node: FileNode, step: int, size: int) -> None:
        """Make another size of a file visible to programs."""
        self._resize(node, size)
        node.truncate(step, size)

    def _resize(self, node: FileNode, size: int) -> None:
        if node.links:
            self.used_bytes += size - node.size

    # --- durability ----------------------------------------------------------------------------

    def persist(self, chosen: Callable[[DiskChange], bool]) -> None:
        """Make the chosen changes durable, with all changes that they depend on."""
        durable = with_causes(self.changes, chosen)
        make_durable(durable)
        done = set(durable)
        self.changes = [change for change in self.changes if change not in done]

    def persist_names_of(self, node: Node) -> None:
        """Make every name on the way from the root to this node durable."""
        wanted: set[Node] = {node}

        def leads_there(change: DiskChange) -> bool:
            # Checked from the newest to the oldest, so a folder is wanted before it was made.
            folders = [folder for folder, _, new in change.sets if new in wanted]
            wanted.update(folders)
            return bool(folders)

        self.persist(leads_there)

    def put_durable_file(self, path: str, content: bytes) -> None:
        """Make this the durable content under a durable name; missing folders are created."""
        place, name = split(path)
        folder = self.put_durable_folder(place)
        node = folder.entries.get(name)
        if not isinstance(node, FileNode):
            node = FileNode()
            self.change(DiskChange(0, ((folder, name, node),)))
        self._resize(node, len(content))
        node.make_durable(content)
        self.persist_names_of(node)

    def put_durable_folder(self, path: str) -> FolderNode:
        """Create a folder under a durable name, with its parents."""
        folder = self.top
        for name in _names(self._root, path):
            node = folder.entries.get(name)
            if not isinstance(node, FolderNode):
                node = FolderNode()
                self.change(DiskChange(0, ((folder, name, node),)))
            folder = node
        self.persist_names_of(folder)
        return folder

    def unsynced_steps(self) -> list[int]:
        """The steps whose effects are not durable yet, in order."""
        steps = {change.step for change in self.changes}
        todo: list[Node | None] = [self.top]
        todo += [node for change in self.changes for *_, node in change.sets]
        seen: set[Node] = set()
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if isinstance(node, FileNode):
                steps.update(effect.step for effect in node.pending)
            else:
                todo += [*node.entries.values(), *node.durable.values()]
        return sorted(steps)


@lru_cache(maxsize=1024)
def _names(root: str, path: str) -> tuple[str, ...]:
    return tuple(name for name in path[len(root) :].split("/") if name)


def _note_all(folder: FolderNode, prefix: str, found: dict[str, bytes | None]) -> None:
    """Add everything that programs see, a folder before its content."""
    for name in sorted(folder.entries):
        node = folder.entries[name]
        if isinstance(node, FileNode):
            found[prefix + name] = node.visible()
        else:
            found[prefix + name] = None
            _note_all(node, f"{prefix}{name}/", found)


def _bytes_below(folder: FolderNode) -> int:
    nodes = folder.entries.values()
    return sum(node.size if isinstance(node, FileNode) else _bytes_below(node) for node in nodes)


def rename_obstacle(node: Node | None, old: Node | None, source: str, target: str) -> int:
    """The error number with which Linux would refuse this rename; 0 if it would not."""
    if node is None:
        return errno.ENOENT
    if target.startswith(source + "/"):
        return errno.EINVAL
    if source.startswith(target + "/"):
        return errno.ENOTEMPTY
    if old is None or old is node:
        return 0
    if isinstance(node, FileNode):
        return errno.EISDIR if isinstance(old, FolderNode) else 0
    if isinstance(old, FileNode):
        return errno.ENOTDIR
    return errno.ENOTEMPTY if old.entries else 0
