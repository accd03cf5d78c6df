"""Writes and finds meta.inf and meta.sum of one folder as a pair.

Owns the order in which the two files change. One of them alone is useless, so an interrupted update
could lose a stream. Both new files are therefore durable under temporary names before the first of
them takes its place, and `find_meta` handles every state that a crash can leave. It never
interprets the files, which is up to `store.format.meta`.

nats-server uses the same names, and also writes the sum last. It never looks at temporary files, so
it would skip the stream only in the moment between the two renames.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import msgspec

from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.files.disk import MissingFile
from tradewind.store.files.joint_step import Calls, JointStep, make, sync_shared
from tradewind.store.format.layout import META_FILE, META_SUM_FILE, TEMPORARY_SUFFIX
from tradewind.store.format.meta import check_meta_sum, meta_sum

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk, DiskFile

_UNFINISHED_FILE: Final = META_FILE + TEMPORARY_SUFFIX
_UNFINISHED_SUM: Final = META_SUM_FILE + TEMPORARY_SUFFIX


class FoundMeta(msgspec.Struct, frozen=True):
    """The content of a meta.inf.

    `problem` is not empty if no sum fits it. `unfinished` names the file that an interrupted write
    left under its temporary name; the folder is complete once that is renamed.
    """

    data: bytes
    problem: str = ""
    unfinished: str = ""


def write_meta(disk: Disk, folder: str, data: bytes, key_text: str) -> None:
    """Replace both files, durably; see `MetaRewrite`."""
    make(MetaRewrite(disk, folder, data, key_text))


class MetaRewrite(JointStep):
    """The replacement of both files in the folder at `path`; a crash leaves the old pair or the
    new one.

    The folder's own name must be durable already: with the sum the stream or consumer exists.
    """

    def __init__(self, disk: Disk, path: str, data: bytes, key_text: str) -> None:
        self._disk = disk
        self._path = path
        self._data = data
        self._key_text = key_text
        self._open: list[DiskFile] = []
        self._is_aside = True

    @classmethod
    def together(cls, steps: Sequence[Self]) -> Iterator[Calls]:
        """See `JointStep`."""
        yield [partial(cls._rewrite_all, steps)]

    @classmethod
    def _rewrite_all(cls, steps: Sequence[Self]) -> None:
        disk = steps[0]._disk
        for step in steps:
            step.attempt(step._write)
        disk.together([partial(step.attempt, sync) for step in steps for sync in step._syncs()])
        for step in steps:
            step.attempt(step._place)
            step._close()
        sync_shared(disk, [(step._path, step) for step in steps])

    def _write(self) -> None:
        """Write both files under temporary names."""
        disk, folder = self._disk, self._path
        names = disk.list_directory(folder)
        # Files of an interrupted write may be the only good ones.
        if _is_unfinished(names) and _has_meta(names):
            finish_meta(disk, folder, find_meta(disk, folder, self._key_text))
        total = meta_sum(self._data, self._key_text)
        for name, content in ((META_SUM_FILE, total), (META_FILE, self._data)):
            self._open.append(disk.create(_aside(folder, name), replace=True))
            self._open[-1].write(content, 0)

    def _syncs(self) -> Calls:
        """The syncs that end before the files take their places."""
        if self.error is not None:
            return []
        return [
            *(file.sync for file in self._open),
            partial(self._disk.sync_directory, self._path),
        ]

    def _place(self) -> None:
        self._close()
        self._is_aside = False
        for name in (META_FILE, META_SUM_FILE):
            self._disk.rename(_aside(self._path, name), f"{self._path}/{name}")

    def fail(self, error: StoreError) -> None:
        """Record the failure, and remove the temporary files: the rest of them would take the very
        room that was missing. A sync that runs beside this keeps its file open.
        """
        is_first = self.error is None
        super().fail(error)
        if is_first and self._is_aside:
            for name in (META_SUM_FILE, META_FILE):
                with suppress(StoreError):
                    self._disk.remove(_aside(self._path, name))

    def _close(self) -> None:
        while self._open:
            self._open.pop().close()


def has_meta(disk: Disk, folder: str) -> bool:
    """Whether the folder has a stream or consumer: a sum, or a pair that only lacks a rename."""
    return _has_meta(disk.list_directory(folder))


def _has_meta(names: Collection[str]) -> bool:
    return META_SUM_FILE in names or (META_FILE in names and _UNFINISHED_SUM in names)


def _is_unfinished(names: Collection[str]) -> bool:
    return _UNFINISHED_FILE in names or _UNFINISHED_SUM in names


def find_meta(disk: Disk, folder: str, key_text: str) -> FoundMeta:
    """Find the meta.inf that a sum confirms; changes nothing. MissingFile if there is no such
    pair.
    """
    path = f"{folder}/{META_FILE}"
    information, stored_sum = _read(disk, path), _read(disk, f"{folder}/{META_SUM_FILE}")
    problem = ""
    if information is not None and stored_sum is not None:
        problem = _mismatch(information, stored_sum, key_text, path)
        if not problem:
            return FoundMeta(information)
    for name in (META_SUM_FILE, META_FILE):
        aside = _read(disk, _aside(folder, name))
        if aside is None:
            continue
        data, candidate = (aside, stored_sum) if name == META_FILE else (information, aside)
        if data is None or candidate is None or _mismatch(data, candidate, key_text, path):
            continue
        return FoundMeta(data, unfinished=name)
    if information is None or stored_sum is None:
        # One more read, for the error that names the missing file.
        disk.read_file(path if information is None else f"{folder}/{META_SUM_FILE}")
    assert information is not None
    return FoundMeta(information, problem)


def finish_meta(disk: Disk, folder: str, found: FoundMeta) -> None:
    """Do the rename that an interrupted write has left."""
    if found.unfinished:
        disk.rename(_aside(folder, found.unfinished), f"{folder}/{found.unfinished}")
        disk.sync_directory(folder)


def _aside(folder: str, name: str) -> str:
    return f"{folder}/{name}{TEMPORARY_SUFFIX}"


def _read(disk: Disk, path: str) -> bytes | None:
    try:
        return disk.read_file(path)
    except MissingFile:
        return None


def _mismatch(data: bytes, stored_sum: bytes, key_text: str, path: str) -> str:
    try:
        check_meta_sum(data, stored_sum, key_text, path)
    except CorruptRecord as error:
        return error.reason
    return ""
