"""The rules for what survives a power failure in a simulated file system.

Owns files and folders with two states, what programs see and what is durable, and the choice of
which differences survive. It never handles paths, errors or faults; `fake_disk.py` does.

The rules, none of them kinder than a real file system:

- A file's size is one number that the file system keeps in order: after a power failure it is one
  of the sizes that the file had since its last sync, with every cut before that moment in effect.
- Written bytes arrive in any selection and order, torn at sectors of 512 bytes, the last one to
  arrive even at a byte. Where the size arrived and the bytes did not, there are zeros.
- Changes of names survive independently, together with those they depend on: earlier changes of
  the same names, the folder that a file was moved to, the emptying of a removed folder.
  So a name never points to something that never existed, and a move loses nothing durable.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class Effect:
    """One write or cut of a file that no sync has made durable yet."""

    step: int  # its time, among all effects of the disk
    offset: int  # where the data goes; for a cut, the new size
    data: bytes | None  # None is a cut (or a growth without data)
    size_after: int


class _Mapping(bytearray):
    """The bytes of a mapping; a separate class, because only that can be weakly referenced."""


class FileNode:
    """A file: its bytes as programs see them, its durable bytes, and the effects in between. Both
    are immutable `bytes` until they change, so that the many possible disks after one power failure
    share them.

    Both faces are immutable `bytes` until they change, so that the many disks that may come out of
    one power failure share them.
    """

    __slots__ = ("_durable", "_mappings", "_visible", "links", "pending", "unreadable")

    def __init__(self, content: bytes = b"", links: int = 0) -> None:
        self._visible: bytes | bytearray = content
        self._durable: bytes | bytearray = content
        self.pending: list[Effect] = []
        self.links = links  # the number of its names
        self.unreadable: list[range] = []  # bad sectors
        self._mappings: list[weakref.ref[_Mapping]] = []

    @property
    def size(self) -> int:
        """The size that programs see."""
        return len(self._visible)

    def visible(self) -> bytes:
        """The content that programs see."""
        self._visible = bytes(self._visible)
        return self._visible

    def durable(self) -> bytes:
        """The content that no power failure can destroy, apart from pending effects on it."""
        self._durable = bytes(self._durable)
        return self._durable

    def read(self, offset: int, size: int) -> bytes:
        """The part of the content that programs see."""
        return bytes(memoryview(self._visible)[offset : offset + size])

    def is_unreadable(self, offset: int, size: int) -> bool:
        """Whether these bytes include a bad sector."""
        end = min(offset + size, self.size)
        return any(bad.start < end and offset < bad.stop for bad in self.unreadable)

    def map(self) -> memoryview:
        """A copy of the content that programs see now; bad sectors are zeros."""
        mapping = _Mapping(self._visible)
        for bad in self.unreadable:
            end = min(bad.stop, len(mapping))
            mapping[bad.start : end] = bytes(max(0, end - bad.start))
        self._mappings = [one for one in self._mappings if one() is not None]
        self._mappings.append(weakref.ref(mapping))
        return memoryview(mapping).toreadonly()

    def mapped_bytes(self) -> int:
        """The size of the largest mapping in use."""
        return max((len(one() or b"") for one in self._mappings), default=0)

    def write(self, step: int, offset: int, data: bytes) -> None:
        """Write bytes, at first only visible to programs."""
        size_after = max(self.size, offset + len(data))
        self._add(Effect(step, offset, data, size_after))

    def truncate(self, step: int, size: int) -> None:
        """Cut or lengthen the file, at first only visible to programs."""
        self._add(Effect(step, size, None, size))

    def _add(self, effect: Effect) -> None:
        if isinstance(self._visible, bytes):
            self._visible = bytearray(self._visible)
        _apply(self._visible, effect)
        self.pending.append(effect)

    def sync(self, count: int | None = None) -> None:
        """Make all effects durable, or the first `count`, if the sync began after these."""
        if not self.pending:
            return
        if isinstance(self._durable, bytes):
            self._durable = bytearray(self._durable)
        for effect in self.pending[:count]:
            _apply(self._durable, effect)
        del self.pending[:count]

    def forget(self, random: Random) -> None:
        """Apply a failed sync: some bytes arrived, and no later sync will write the others."""
        self._durable = scattered(self, random.random(), random)
        self.pending.clear()

    def make_durable(self, content: bytes) -> None:
        """Set the content, durable and visible."""
        self._visible = self._durable = content
        self.pending.clear()


class FolderNode:
    """A folder: its names as programs see them, and its durable names."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = FileNode | FolderNode


@dataclass(frozen=True, slots=True, eq=False)
class DiskChange:
    """One creation, removal or rename that no sync has made durable yet; survives completely or not
    at all.
    """

    step: int
    sets: tuple[tuple[FolderNode, str, Node | None], ...]  # names and their new nodes
    is_rename: bool = False
    gone: FolderNode | None = None  # the folder that was removed or replaced
    # A folder that moved to another folder: depends on all changes before, or folders could end in
    # a ring.
    is_move: bool = False


@dataclass(slots=True)
class _Causes:
    """The causes of the changes chosen so far, while walking back in time."""

    names: set[tuple[FolderNode, str]] = field(default_factory=set)
    reachable: set[Node] = field(default_factory=set)
    emptied: set[FolderNode] = field(default_factory=set)
    everything: bool = False

    def need(self, change: DiskChange) -> bool:
        return self.everything or any(
            (folder, name) in self.names or folder in self.emptied or node in self.reachable
            for folder, name, node in change.sets
        )

    def add(self, change: DiskChange) -> None:
        # A name that changes inside its folder says nothing about the name of the folder.
        folders = {id(folder) for folder, _, _ in change.sets}
        is_move = change.is_rename and len(folders) > 1
        for folder, name, node in change.sets:
            self.names.add((folder, name))
            if node is not None and (is_move or node in self.reachable):
                self.reachable.add(folder)
        if change.gone is not None:
            self.emptied.add(change.gone)
        self.everything = self.everything or change.is_move


def with_causes(
    changes: list[DiskChange], chosen: Callable[[DiskChange], bool]
) -> list[DiskChange]:
    """The chosen changes and all that they depend on, in their order."""
    causes = _Causes()
    kept: list[DiskChange] = []
    for change in reversed(changes):
        if chosen(change) or causes.need(change):
            kept.append(change)
            causes.add(change)
    kept.reverse()
    return kept


def make_durable(changes: list[DiskChange]) -> None:
    """Apply these changes to the durable names."""
    for change in changes:
        for folder, name, node in change.sets:
            if node is None:
                folder.durable.pop(name, None)
            else:
                folder.durable[name] = node


def tree_after(
    root: FolderNode, survivors: list[DiskChange], content: Callable[[FileNode], bytes]
) -> FolderNode:
    """A new, completely durable tree: the durable names with these changes, each file with the
    content that `content` returns.
    """
    names: dict[FolderNode, dict[str, Node]] = {}
    for change in survivors:
        for folder, name, node in change.sets:
            if folder not in names:
                names[folder] = dict(folder.durable)
            if node is None:
                names[folder].pop(name, None)
            else:
                names[folder][name] = node

    def copied(folder: FolderNode) -> FolderNode:
        copy = FolderNode()
        for name, node in names.get(folder, folder.durable).items():
            if isinstance(node, FileNode):
                bytes_left = content(node) if node.pending else node.durable()
                copy.entries[name] = file = FileNode(bytes_left, links=1)
                file.unreadable = list(node.unreadable)
            else:
                copy.entries[name] = copied(node)
        copy.durable = dict(copy.entries)
        return copy

    return copied(root)


def up_to_step(node: FileNode, step: int, random: Random | None = None) -> bytes:
    """The content if the effects arrived in order up to this step; with `random`, the last write is
    torn at a byte.
    """
    content = bytearray(node.durable())
    kept = [effect for effect in node.pending if effect.step <= step]
    for effect in kept:
        if random is not None and effect is kept[-1] and effect.data:
            part = effect.data[: random.randint(0, len(effect.data))]
            size_after = random.choice((0, effect.size_after))
            _apply(content, Effect(effect.step, effect.offset, part, size_after))
        else:
            _apply(content, effect)
    return bytes(content)


def scattered(node: FileNode, share: float, random: Random) -> bytes:
    """The content if any selection of the written sectors arrived, in any order.

    A sector is as it was at some moment: the writes to it arrive in order, since the system has one
    copy of it, and the last one may be cut off at a byte. `share` is the fraction of sectors that
    arrive with all writes to them.
    """
    pending = node.pending
    moment = random.choice((0, len(pending), random.randint(0, len(pending))))
    durable = node.durable()
    size = pending[moment - 1].size_after if moment else len(durable)
    cuts = [
        (place, effect.offset)
        for place, effect in enumerate(pending[:moment])
        if effect.data is None
    ]
    content = bytearray(durable[: min([size, *(cut for _, cut in cuts)])])
    content.extend(bytes(size - len(content)))
    sectors: dict[int, list[tuple[int, int, bytes]]] = {}
    for place, effect in enumerate(pending):
        for start, piece in _pieces(effect.offset, effect.data or b""):
            sectors.setdefault(start // SECTOR_BYTES, []).append((place, start, piece))
    tears = random.random() < 0.6
    for written in sectors.values():
        is_whole = random.random() < share
        arrived = written if is_whole else written[: random.randrange(len(written))]
        for count, (place, start, piece) in enumerate(arrived, 1):
            if tears and count == len(arrived) and random.random() < 0.3:
                piece = piece[: random.randint(0, len(piece))]
            end = min([size, *(cut for when, cut in cuts if when > place)])
            piece = piece[: max(0, end - start)]
            content[start : start + len(piece)] = piece
    assert len(content) == size
    return bytes(content)


def _pieces(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """The data cut at the sector boundaries of the file."""
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
        yield offset + start, data[start:end]
        start = end


def _apply(content: bytearray, effect: Effect) -> None:
    """Apply an effect to a file's bytes."""
    if effect.data is None:
        del content[effect.offset :]
        content.extend(bytes(effect.offset - len(content)))
        return
    if effect.data:
        content.extend(bytes(max(0, effect.offset - len(content))))
        content[effect.offset : effect.offset + len(effect.data)] = effect.data
    # Only after a failed sync is the durable content shorter than the size that programs saw.
    content.extend(bytes(max(0, effect.size_after - len(content))))
