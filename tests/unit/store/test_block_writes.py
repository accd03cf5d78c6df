"""What the system does not take at once is written all the same, or refused as a whole."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tradewind.errors import StoreError
from tradewind.store.files.disk import Buffer, DiskFull, OsDisk, OsFile
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store

# Below and above what is written without letting other threads run.
SIZES = (1_000, 200_000)
every_size = pytest.mark.parametrize("size", SIZES)


def opened(root: Path) -> FileStore:
    disk = OsDisk(str(root))
    disk.make_directory(f"{root}/S", sync=True)
    store, report = open_store(disk, f"{root}/S", "S", now_ns=1)
    assert report.is_clean
    return store


def payload(number: int, size: int) -> bytes:
    return (b"%d " % number * size)[:size]


def filled(root: Path, size: int) -> FileStore:
    """Five messages that are synced, and five that nobody has written yet."""
    store = opened(root)
    for number in range(1, 11):
        store.table.store(b"a", b"", payload(number, size), number)
        if number == 5:
            store.commit()
    return store


def check_all(root: Path, store: FileStore, size: int) -> None:
    """All ten are there now, and after the end of the process."""
    for found in (store, opened(root)):
        assert [m.payload for m in found.table.messages()] == [
            payload(n, size) for n in range(1, 11)
        ]
        found.verify()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Files of the process may have so many bytes: a write up to there is cut short."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@every_size
def test_write_that_the_system_cuts_short_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    store = filled(tmp_path, size)
    seen: list[tuple[int, int, int]] = []
    write = OsFile.write

    def write_without_limit(self: OsFile, data: Buffer, offset: int) -> None:
        seen.append((self.size, len(memoryview(data)), offset))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (before[1], before[1]))
        write(self, data, offset)

    monkeypatch.setattr(OsFile, "write", write_without_limit)
    written, whole = store.table.last.written, store.table.last.size
    with largest_file(written + size):
        store.flush()
    assert seen == [(written + size, whole - written, written)]
    store.commit()
    assert store.table.synced_seq == 10
    check_all(tmp_path, store, size)


@every_size
def test_write_that_ends_at_a_full_disk_is_tried_again_from_its_beginning(
    tmp_path: Path, size: int
) -> None:
    store = filled(tmp_path, size)
    written = store.table.last.written
    with largest_file(written + 2 * size):
        with pytest.raises(DiskFull, match="EFBIG"):
            store.flush()
        assert os.path.getsize(store.table.last.path) == written + 2 * size
        assert not store.resume()
        with pytest.raises(StoreError, match="read-only"):
            store.table.store(b"a", b"", b"x", 11)
        assert [m.seq for m in store.table.messages()] == list(range(1, 11))
    assert store.table.last.written == written
    assert store.resume()
    store.commit()
    check_all(tmp_path, store, size)


@every_size
def test_descriptor_that_refuses_is_not_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """As after a signal: nothing was written, and the same bytes are written once more."""
    with open(os.devnull, "rb") as closed_to_writes:
        monkeypatch.setattr(OsFile, "fileno", lambda _: closed_to_writes.fileno())
        store = filled(tmp_path, size)
        store.commit()
        assert store.table.synced_seq == 10
        store.table.last.file.close()
    monkeypatch.undo()
    check_all(tmp_path, store, size)


def test_parts_that_the_system_takes_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    pwrite = os.pwrite

    def in_parts(descriptor: int, data: memoryview, offset: int) -> int:
        calls.append(len(data))
        return pwrite(descriptor, data[:37], offset)

    disk = OsDisk(str(tmp_path))
    monkeypatch.setattr(os, "pwrite", in_parts)
    with disk.create(f"{tmp_path}/file") as file:
        file.write(bytes(range(100)), 5)
    assert calls == [100, 63, 26]
    assert (tmp_path / "file").read_bytes() == bytes(5) + bytes(range(100))


def test_system_that_takes_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(str(tmp_path))
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with disk.create(f"{tmp_path}/file") as file, pytest.raises(StoreError, match="EIO"):
        file.write(b"x", 0)


def test_disk_that_is_full_in_the_middle_leaves_the_stream_read_only_with_all_it_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path, 1_000)
    taken: list[int] = []
    pwrite = os.pwrite

    def full_soon(descriptor: int, data: memoryview, offset: int) -> int:
        if taken:
            raise OSError(errno.ENOSPC, "no room")
        taken.append(pwrite(descriptor, data[:1_500], offset))
        return taken[0]

    monkeypatch.setattr(OsFile, "fileno", lambda _: -1)
    monkeypatch.setattr(os, "pwrite", full_soon)
    store.table.last.file.close()
    with pytest.raises(DiskFull, match="ENOSPC"):
        store.commit()
    assert taken == [1_500]
    assert store.table.synced_seq == 5
    monkeypatch.undo()
    assert store.resume()
    store.commit()
    check_all(tmp_path, store, 1_000)


def test_reading_what_was_just_written_seldom_maps_the_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = 0
    real_map = OsFile.map

    def counted(file: OsFile) -> memoryview:
        nonlocal maps
        maps += 1
        return real_map(file)

    monkeypatch.setattr(OsFile, "map", counted)
    store = opened(tmp_path)
    for number in range(1, 501):
        seq = store.table.store(b"a", b"", payload(number, 1_000), number)
        store.flush()
        assert store.table.get(seq).payload == payload(number, 1_000)
    assert maps < 20
    assert [m.payload[:4] for m in store.table.messages()] == [
        payload(number, 4) for number in range(1, 501)
    ]
