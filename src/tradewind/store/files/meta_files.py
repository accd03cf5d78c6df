"""Writes and finds meta.inf and meta.sum of one folder as a pair.

Owns the order in which the two files change. One of them alone is useless, so an interrupted update
could lose a stream. Both new files are therefore durable under temporary names before the first of
them takes its place, and `find_meta` handles every state that a crash can leave. It never
interprets the files, which is up to `store.format.meta`.

nats-server uses the same names, and also writes the sum last. It never looks at temporary files, so
it would skip the stream only in the moment between the two renames.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.files.disk import MissingFile
from tradewind.store.format.layout import META_FILE, META_SUM_FILE, TEMPORARY_SUFFIX
from tradewind.store.format.meta import check_meta_sum, meta_sum

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk, DiskFile


class FoundMeta(msgspec.Struct, frozen=True):
    """The content of a meta.inf.

    `problem` is not empty if no sum fits it. `unfinished` names the file that an interrupted write
    left under its temporary name; the folder is complete once that is renamed.
    """

    data: bytes
    problem: str = ""
    unfinished: str = ""


def write_meta(disk: Disk, folder: str, data: bytes, key_text: str) -> None:
    """Replace both files, durably; after a crash the folder has the old pair or the new one.

    The folder's own name must be durable already: with the sum the stream or consumer exists.
    """
    if has_meta(disk, folder):
        finish_meta(disk, folder, find_meta(disk, folder, key_text))
    files: list[DiskFile] = []
    try:
        for name, content in ((META_SUM_FILE, meta_sum(data, key_text)), (META_FILE, data)):
            files.append(disk.create(_aside(folder, name), replace=True))
            files[-1].write(content, 0)
        disk.together([*(file.sync for file in files), partial(disk.sync_directory, folder)])
    except StoreError:
        # The rest of the files would take the very room that was missing.
        for name in (META_SUM_FILE, META_FILE):
            with suppress(StoreError):
                disk.remove(_aside(folder, name))
        raise
    finally:
        for file in files:
            file.close()
    for name in (META_FILE, META_SUM_FILE):
        disk.rename(_aside(folder, name), f"{folder}/{name}")
    disk.sync_directory(folder)


def has_meta(disk: Disk, folder: str) -> bool:
    """Whether the folder has a stream or consumer: a sum, or a pair that only lacks a rename."""
    names = set(disk.list_directory(folder))
    return META_SUM_FILE in names or {META_FILE, META_SUM_FILE + TEMPORARY_SUFFIX} <= names


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
