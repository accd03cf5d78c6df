"""Creates the folders of streams and consumers durably.

Owns the order in which a new folder reaches the disk. Several folders are created together and
share the waiting: all are written before the first is synced, so that one transaction of the file
system covers all of them, and a common parent folder is synced once.

1. The files are written, those of the configuration under temporary names.
2. They are synced, side by side with the names in the new folder and the names that lead to it: in
   what order these reach the disk does not matter as long as there is no sum.
3. The configuration takes its place, the sum last: from then on the stream or consumer exists.

So a creation waits for the disk twice, however many files and folders it has.

A failure affects only its own creation, except for a folder that several have in common. The
contents of a creation are up to `stream_folder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from tradewind.errors import StoreError
from tradewind.store.files.joint_step import Calls, JointStep
from tradewind.store.format.layout import META_FILE, META_SUM_FILE, TEMPORARY_SUFFIX
from tradewind.store.format.meta import meta_sum

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk, DiskFile

# Parts of a group that are written and synced side by side.
LOTS: Final = 4


class Creation(JointStep):
    """One new folder at `path`.

    `check` raises if something exists there already. `files` are the contents beside the
    configuration `meta`, by path; `hints` are optional contents: they are written, but not synced.
    `names` are the folders to sync so that the new one is found, each with the folder whose name is
    durable then; `durable` remembers those. `error` is the reason of a failure. `is_lazy`: it waits
    for nothing; the owner has it synced later, see `unsettled`.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        meta: bytes,
        key_text: str,
        *,
        check: Callable[[], None],
        files: Mapping[str, bytes],
        names: Sequence[tuple[str, str]],
        durable: set[str],
        hints: Mapping[str, bytes] | None = None,
        is_lazy: bool = False,
    ) -> None:
        self.is_lazy = is_lazy
        self.disk = disk
        self.path = path
        self.names = names
        self.durable = durable
        self._check = check
        self._contents = {
            **files,
            self._aside(META_SUM_FILE): meta_sum(meta, key_text),
            self._aside(META_FILE): meta,
        }
        self._hints = hints or {}
        self._open: list[DiskFile] = []
        self._placed: list[str] = []

    def _aside(self, name: str) -> str:
        return f"{self.path}/{name}{TEMPORARY_SUFFIX}"

    @classmethod
    def together(cls, steps: Sequence[Self]) -> Iterator[Calls]:
        """See `JointStep`; a lazy creation is with the system afterwards."""
        return _make_together(steps)

    def fail(self, error: StoreError) -> None:
        """Record that the creation has failed, and remove its files."""
        super().fail(error)
        self._close()
        # The sum goes first: without it nothing is there, and the next attempt may succeed.
        for path in (*reversed(self._placed), *map(self._aside, (META_SUM_FILE, META_FILE))):
            with suppress(StoreError):
                self.disk.remove(path)

    def write(self) -> None:
        """Create the folders and write all files."""
        self._check()
        for folder in self.folders():
            self.disk.make_directory(folder)
        for path, content in self._contents.items():
            file = self.disk.create(path, replace=True)
            self._open.append(file)
            file.write(content, 0)
        for path, content in self._hints.items():
            with self.disk.create(path, replace=True) as file:
                file.write(content, 0)

    def sync(self) -> None:
        """Sync everything that must be on disk before `place`, in parallel."""
        names = [partial(self.disk.sync_directory, folder) for folder, _ in self.names]
        self.disk.together([*self._content_syncs(), *names])

    def sync_contents(self) -> None:
        """Sync the contents one after the other, without the folders of `names`; used for many
        creations.
        """
        for sync in self._content_syncs():
            sync()

    def _content_syncs(self) -> list[Callable[[], None]]:
        syncs: list[Callable[[], None]] = [file.sync for file in self._open]
        syncs += [partial(self.disk.sync_directory, folder) for folder in self.folders()]
        return syncs

    def placed_files(self) -> list[str]:
        """The files of the finished creation, except the hints."""
        return [path.removesuffix(TEMPORARY_SUFFIX) for path in self._contents]

    def names_are_durable(self) -> None:
        """Note that the folders of `names` are synced."""
        self.durable.update(named for _, named in self.names if named)

    def place(self) -> None:
        """Give the configuration its names; `sync_place` makes it durable."""
        self._close()
        for name in (META_FILE, META_SUM_FILE):
            path = f"{self.path}/{name}"
            self.disk.rename(self._aside(name), path)
            self._placed.append(path)

    def sync_place(self) -> None:
        """Make the stream or consumer durable."""
        self.names_are_durable()
        self.disk.sync_directory(self.path)

    def folders(self) -> list[str]:
        """The new folder and its subfolders."""
        return list(dict.fromkeys((self.path, *(_parent(path) for path in self._contents))))

    def _close(self) -> None:
        while self._open:
            with suppress(StoreError):
                self._open.pop().close()


def _make_together(creations: Sequence[Creation]) -> Iterator[Calls]:
    if lazy := [creation for creation in creations if creation.is_lazy]:
        yield [partial(_write_lazily, lazy)]
    creations = [creation for creation in creations if not creation.is_lazy]
    if len(creations) == 1:
        yield [partial(_make_alone, creations[0])]
    if len(creations) < 2:
        return
    lots = [creations[start::LOTS] for start in range(min(LOTS, len(creations)))]
    yield [partial(_write, lot) for lot in lots]
    failures: dict[str, StoreError] = {}
    yield [*(partial(_sync, lot) for lot in lots), partial(_sync_names, creations, failures)]
    yield [partial(_place, lot, failures) for lot in lots]


def _write(lot: Sequence[Creation]) -> None:
    for creation in lot:
        creation.attempt(creation.write)


def _make_alone(creation: Creation) -> None:
    """Run all steps of one creation in one call, its syncs in parallel."""
    for step in (creation.write, creation.sync, creation.place, creation.sync_place):
        creation.attempt(step)


def _write_lazily(creations: Sequence[Creation]) -> None:
    for creation in creations:
        creation.attempt(creation.write)
        creation.attempt(creation.place)


def _sync(lot: Sequence[Creation]) -> None:
    for creation in lot:
        creation.attempt(creation.sync_contents)


def _sync_names(creations: Sequence[Creation], failures: dict[str, StoreError]) -> None:
    """Sync each folder once; errors are added to `failures`."""
    folders = dict.fromkeys(folder for creation in creations for folder, _ in creation.names)
    disk = creations[0].disk

    def sync(folder: str) -> None:
        try:
            disk.sync_directory(folder)
        except StoreError as error:
            failures[folder] = error

    for folder in folders:
        sync(folder)


def _place(lot: Sequence[Creation], failures: Mapping[str, StoreError]) -> None:
    """Give the configurations their names, except where a needed folder could not be synced."""
    for creation in lot:
        for folder, _ in creation.names:
            if creation.error is None and folder in failures:
                creation.fail(failures[folder])
        creation.attempt(creation.place)
    for creation in lot:
        creation.attempt(creation.sync_place)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
