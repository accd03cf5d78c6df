"""Creates the folders of streams and consumers durably.

Owns the order in which a new folder reaches the disk. Several folders are created together and
share the waiting: all are written before the first is synced, so that one transaction of the file
system covers all of them, and a common parent folder is synced once.

1. The files are written, those of the configuration under temporary names, and synced with the
   names of the new folder.
2. The names that lead to the folder are synced.
3. The configuration takes its place, the sum last: from then on the stream or consumer exists.

A failure affects only its own creation, except for a folder that several have in common. The
contents of a creation are up to `stream_folder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from tradewind.errors import StoreError
from tradewind.store.format.layout import META_FILE, META_SUM_FILE, TEMPORARY_SUFFIX
from tradewind.store.format.meta import meta_sum

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk, DiskFile

# Of how many creations at once the disk can make one; each has up to three files open.
TOGETHER_MAX: Final = 64
# Parts of a group that are written and synced side by side.
LOTS: Final = 4


class Creation:
    """One new folder at `path`.

    `check` raises if something is there already. `files` are the contents beside the configuration
    `meta`, by path; `hints` are contents that nothing depends on: they are written, and reach the
    disk when the system likes. `names` are the folders to sync so that the new one is found, each
    with the folder whose name is durable then; `durable` remembers those. `error` says why it
    failed.
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
    ) -> None:
        self.disk = disk
        self.path = path
        self.names = names
        self.durable = durable
        self.error: StoreError | None = None
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

    def attempt(self, step: Callable[[], None]) -> None:
        """Do a part of it, unless it has failed; a failure leaves nothing that takes room."""
        if self.error is not None:
            return
        try:
            step()
        except StoreError as error:
            self.fail(error)

    def fail(self, error: StoreError) -> None:
        """It cannot be made."""
        self.error = error
        self._close()
        # The sum goes first: without it nothing is there, and the next attempt may succeed.
        for path in (*reversed(self._placed), *map(self._aside, (META_SUM_FILE, META_FILE))):
            with suppress(StoreError):
                self.disk.remove(path)

    def write(self) -> None:
        """Make the folders and write all files."""
        self._check()
        for folder in self._folders():
            self.disk.make_directory(folder)
        for path, content in self._contents.items():
            file = self.disk.create(path, replace=True)
            self._open.append(file)
            file.write(content, 0)
        for path, content in self._hints.items():
            with self.disk.create(path, replace=True) as file:
                file.write(content, 0)

    def sync(self) -> None:
        """Have the files and their names on disk."""
        for file in self._open:
            file.sync()
        self._close()
        for folder in self._folders():
            self.disk.sync_directory(folder)

    def place(self) -> None:
        """Give the configuration its names; `sync_place` makes it durable."""
        for name in (META_FILE, META_SUM_FILE):
            path = f"{self.path}/{name}"
            self.disk.rename(self._aside(name), path)
            self._placed.append(path)

    def sync_place(self) -> None:
        """The stream or consumer is there for good."""
        self.disk.sync_directory(self.path)

    def _folders(self) -> list[str]:
        """The new folder and those in it."""
        return list(dict.fromkeys((self.path, *(_parent(path) for path in self._contents))))

    def _close(self) -> None:
        while self._open:
            with suppress(StoreError):
                self._open.pop().close()


def make_together(creations: Sequence[Creation]) -> Iterator[list[Callable[[], None]]]:
    """The steps: calls that may run side by side, in any thread; the next follow when all are done.

    Each creation has its `error` afterwards, or is on disk.
    """
    if not creations:
        return
    lots = [creations[start::LOTS] for start in range(min(LOTS, len(creations)))]
    yield [partial(_write, lot) for lot in lots]
    yield [partial(_sync_names, creations)]
    yield [partial(_place, lot) for lot in lots]


def make(creation: Creation) -> None:
    """Make one, in this thread; raises its error."""
    for step in make_together([creation]):
        for call in step:
            call()
    if creation.error is not None:
        raise creation.error


def _write(lot: Sequence[Creation]) -> None:
    for creation in lot:
        creation.attempt(creation.write)
    for creation in lot:
        creation.attempt(creation.sync)


def _sync_names(creations: Sequence[Creation]) -> None:
    """Each folder once; who needs one that cannot be synced has failed."""
    failures: dict[str, StoreError | None] = {}
    for creation in creations:
        if creation.error is not None:
            continue
        for folder, named in creation.names:
            if folder not in failures:
                failures[folder] = None
                try:
                    creation.disk.sync_directory(folder)
                except StoreError as error:
                    failures[folder] = error
            if (failure := failures[folder]) is not None:
                creation.fail(failure)
                break
            if named:
                creation.durable.add(named)


def _place(lot: Sequence[Creation]) -> None:
    for creation in lot:
        creation.attempt(creation.place)
    for creation in lot:
        creation.attempt(creation.sync_place)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
