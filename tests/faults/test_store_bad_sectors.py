"""Sectors that cannot be read, files that are cut or removed: damage like any other, never the end
of the process, and nothing that may be readable another day is destroyed.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from store_workloads import plain_files, vault_of
from tradewind.errors import StoreError
from tradewind.store.contract import NotFoundError
from tradewind.store.files.disk import OsDisk
from tradewind.store.files.file_mapping import FileMapping
from tradewind.store.folder.filestore import FileStore, ReadOnlyError
from tradewind.store.folder.recover import RecoveryReport, open_store
from tradewind.store.format.layout import block_file_name
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

BLOCK_BYTES = 64 * 1024
COUNT = 300
PAGE = 4096


def payload(seq: int) -> bytes:
    return b"%08d" % seq * 125


def opened(disk: Any, cipher: str = "", **settings: Any) -> tuple[FileStore, RecoveryReport]:
    disk.make_directory(f"{disk.root}/S")
    settings = {"block_bytes_max": BLOCK_BYTES, **settings}
    vault = vault_of(disk, cipher)
    return open_store(disk, f"{disk.root}/S", "S", now_ns=0, vault=vault, **settings)


def filled(disk: Any, cipher: str = "", **settings: Any) -> FileStore:
    store, _ = opened(disk, cipher, **settings)
    for seq in range(1, COUNT + 1):
        assert store.table.store(b"a.%d" % (seq % 7), b"", payload(seq), seq) == seq
    store.commit()
    return store


def path_of(disk: Any, number: int) -> str:
    return f"{disk.root}/S/msgs/{block_file_name(number)}"


def found(store: FileStore) -> set[int]:
    """All that can be had, each as it was stored."""
    result = set()
    for seq in range(1, COUNT + 1):
        with suppress(NotFoundError):
            assert store.table.get(seq).payload == payload(seq)
            result.add(seq)
    return result


def touching(content: bytes, start: int, end: int) -> set[int]:
    """The sequences whose records lie in a part of a block, be it with one byte."""
    result, position = set(), 0
    while position < len(content):
        size = int.from_bytes(content[position : position + 4], "little")
        number = int.from_bytes(content[position + 4 : position + 12], "little")
        if number < 1 << 62 and position < end and start < position + size:
            result.add(number)
        position += size
    return result


def everything() -> set[int]:
    return set(range(1, COUNT + 1))


# --- files that are cut under a mapping: the SIGBUS that is always available ---


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("is_read_before", [False, True])
def test_a_block_that_is_cut_while_it_is_in_use_costs_what_was_cut(
    tmp_path: Path, number: int, is_read_before: bool
) -> None:
    disk = OsDisk(str(tmp_path))
    store = filled(disk)
    told: list[RecoveryReport] = []
    store.damage.on_report = told.append
    if is_read_before:
        assert found(store) == everything()
    content = Path(path_of(disk, number)).read_bytes()
    os.truncate(path_of(disk, number), 5 * PAGE)
    lost = touching(content, 5 * PAGE, len(content))
    assert found(store) == everything() - lost
    store.commit()
    assert store.lost is not None
    assert set(store.lost.sequences) == lost
    assert {seq for report in told for seq in report.lost} == lost
    assert store.table.store(b"a.1", b"", b"new", 1) == COUNT + 1
    store.verify()
    store.close()
    again, report = opened(disk)
    assert report.is_clean
    assert found(again) == everything() - lost


def test_the_block_that_is_written_may_be_cut_too(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    store = filled(disk)
    assert found(store) == everything()
    number = store.table.last.number
    content = Path(path_of(disk, number)).read_bytes()
    os.truncate(path_of(disk, number), PAGE)
    lost = touching(content, PAGE, len(content))
    assert lost
    assert found(store) == everything() - lost
    assert store.table.store(b"a.1", b"", b"new", 1) == COUNT + 1
    store.commit()
    assert found(store) == everything() - lost
    assert store.lost is not None
    assert set(store.lost.sequences) == lost
    store.close()
    again, _ = opened(disk)
    assert found(again) == everything() - lost
    assert again.table.last_seq == COUNT + 1


def test_a_block_file_that_is_gone_costs_its_messages_and_no_others(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    filled(disk).close()
    store, _ = opened(disk)
    content = Path(path_of(disk, 2)).read_bytes()
    Path(path_of(disk, 2)).unlink()
    lost = touching(content, 0, len(content))
    assert found(store) == everything() - lost
    store.commit()
    assert store.lost is not None
    assert set(store.lost.sequences) == lost
    store.close()
    again, report = opened(disk)
    assert report.is_clean
    assert found(again) == everything() - lost


def test_nothing_is_promised_that_lies_in_a_file_which_somebody_has_removed(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    store = filled(disk)
    Path(path_of(disk, store.table.last.number)).unlink()
    store.table.store(b"a.1", b"", b"into the void", 1)
    with pytest.raises(StoreError, match=r"sync failed: the file was removed"):
        store.commit()
    assert store.table.synced_seq == COUNT
    with pytest.raises(ReadOnlyError):
        store.table.store(b"a.1", b"", b"more", 1)


def test_a_copy_of_a_block_that_could_not_be_read_takes_the_place_of_nothing(
    tmp_path: Path,
) -> None:
    """Compression and compaction read mappings in a worker: zeros must not become the file."""
    disk = OsDisk(str(tmp_path))
    store = filled(disk, compresses=True)
    content = Path(path_of(disk, 2)).read_bytes()
    store.close()
    store, _ = opened(disk, compresses=True, compact_bytes_min=60)
    store.table.load_index(store.table.blocks[1])
    lost = touching(content, 0, len(content))
    for seq in sorted(lost)[:-5]:
        store.table.remove(seq)
    store.commit()
    store.close()
    again, report = opened(disk, compresses=True)
    assert report.is_clean
    assert found(again) == everything() - set(sorted(lost)[:-5])


# --- sectors that cannot be read ---

# Of an encrypted block the zeros of a page that is not there become noise.
ciphers = pytest.mark.parametrize("cipher", ["", "chacha", "aes"])
PLACES = [(1, 0, PAGE), (2, 3 * PAGE, PAGE), (3, 2 * PAGE, 5 * PAGE), (4, 0, BLOCK_BYTES)]


@ciphers
@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize(("number", "start", "size"), PLACES)
def test_bad_sectors_cost_the_messages_in_them(
    number: int, start: int, size: int, has_index: bool, cipher: str
) -> None:
    disk = SimulatedDisk()
    filled(disk, cipher).close()
    path = path_of(disk, number)
    if not has_index:
        disk.remove(f"{disk.root}/S/msgs/index.db")
    content, plain = disk.content_of(path), plain_files(disk, cipher)[path]
    disk.spoil(path, start, size)
    lost = touching(plain, start, start + size)
    told: list[RecoveryReport] = []
    store, report = opened(disk, cipher)
    store.damage.on_report = told.append
    assert found(store) == everything() - lost
    store.verify()
    assert store.lost is not None
    assert set(store.lost.sequences) == lost
    assert {seq for each in (report, *told) for seq in each.lost} == lost
    assert store.table.store(b"a.1", b"", b"new", 1) == COUNT + 1
    store.close()
    # The file with the bad sectors is kept as it is, whatever comes.
    kept = [name for name in disk.list_directory(f"{disk.root}/S/damage") if name.endswith(".blk")]
    assert len(kept) == 1
    assert disk.content_of(f"{disk.root}/S/damage/{kept[0]}") == content
    again, report = opened(disk, cipher)
    assert report.is_clean
    assert found(again) == everything() - lost
    assert again.lost is not None
    assert set(again.lost.sequences) == lost


@ciphers
@pytest.mark.parametrize(("number", "start", "size"), PLACES)
def test_bad_sectors_under_a_store_in_use_cost_the_messages_in_them(
    number: int, start: int, size: int, cipher: str
) -> None:
    disk = SimulatedDisk()
    filled(disk, cipher).close()
    store, _ = opened(disk, cipher)
    path = path_of(disk, number)
    plain = plain_files(disk, cipher)[path]
    disk.spoil(path, start, size)
    lost = touching(plain, start, start + size)
    assert found(store) == everything() - lost
    store.commit()
    store.verify()
    assert store.lost is not None
    assert set(store.lost.sequences) == lost
    store.close()
    again, report = opened(disk, cipher)
    assert report.is_clean
    assert found(again) == everything() - lost


@ciphers
def test_bad_sectors_behind_the_last_mark_are_no_write_that_was_cut_off(cipher: str) -> None:
    """Zeros there would be; but what cannot be read may well have been promised."""
    disk = SimulatedDisk()
    store = filled(disk, cipher)
    path = path_of(disk, store.table.last.number)
    content = plain_files(disk, cipher)[path]
    start = len(content) // PAGE * PAGE
    disk.spoil(path, start, PAGE)
    lost = touching(content, start, len(content))
    again, report = opened(disk.crash_keeping_unsynced(), cipher)
    # The first of them is cut in two; how many were behind it nobody can know.
    assert report.lost == [min(lost)]
    assert found(again) == everything() - lost
    assert again.table.store(b"a.1", b"", b"new", 1) > COUNT


@ciphers
def test_a_file_that_can_be_read_again_gives_its_messages_back(cipher: str) -> None:
    """The original under its second name, put in its place by hand, with its key."""
    disk = SimulatedDisk()
    filled(disk, cipher).close()
    path = path_of(disk, 2)
    disk.spoil(path, PAGE, PAGE)
    disk.remove(f"{disk.root}/S/msgs/index.db")
    store, _ = opened(disk, cipher)
    assert found(store) != everything()
    store.close()
    disk.remove(f"{disk.root}/S/msgs/index.db")
    disk.heal(f"{disk.root}/S/damage/1-2.blk")
    disk.rename(f"{disk.root}/S/damage/1-2.blk", path)
    if cipher:
        disk.rename(f"{disk.root}/S/damage/1-2.key", f"{disk.root}/S/msgs/2.key")
    again, report = opened(disk, cipher)
    assert report.is_clean
    assert found(again) == everything()
    assert again.lost is None


def test_a_disk_that_recovers_costs_nothing(tmp_path: Path) -> None:
    """A mapping shows zeros and the file has everything: it was a moment, not damage."""
    disk = OsDisk(str(tmp_path))
    store = filled(disk)
    assert found(store) == everything()
    told: list[RecoveryReport] = []
    store.damage.on_report = told.append
    for number in (1, 2, store.table.last.number):
        content = Path(path_of(disk, number)).read_bytes()
        os.truncate(path_of(disk, number), 0)
        block = next(block for block in store.table.blocks if block.number == number)
        assert block.plain_view(PAGE)[0] == 0
        Path(path_of(disk, number)).write_bytes(content)
        assert block.has_faulted()
    assert found(store) == everything()
    assert not store.table.has_open_damage
    store.commit()
    assert (told, store.lost) == ([], None)
    assert not Path(disk.root, "S/damage").exists()
    store.verify()


def test_many_unreadable_blocks_at_the_start_leave_the_stream_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That is a disk that is away, or memory that nobody has: nothing is decided then."""
    monkeypatch.setattr("tradewind.store.folder.recover.PATCHED_BYTES_MAX", 2 * BLOCK_BYTES)
    disk = SimulatedDisk()
    filled(disk).close()
    disk.remove(f"{disk.root}/S/msgs/index.db")
    for number in (1, 2, 3):
        disk.spoil(path_of(disk, number), 0, BLOCK_BYTES)
    before = disk.snapshot_tree()
    with pytest.raises(StoreError, match=r"3\.blk: \d+ bytes of it and parts of other blocks"):
        opened(disk)
    assert disk.snapshot_tree() == before
    for number in (1, 2, 3):
        disk.heal(path_of(disk, number))
    store, report = opened(disk)
    assert report.is_clean
    assert found(store) == everything()


@pytest.mark.parametrize("cipher", ["", "chacha"])
def test_a_power_failure_at_any_step_of_the_repair_costs_nothing_more(cipher: str) -> None:
    origin = SimulatedDisk()
    filled(origin, cipher).close()
    origin.remove(f"{origin.root}/S/msgs/index.db")
    path = path_of(origin, 2)
    content, plain = origin.content_of(path), plain_files(origin, cipher)[path]
    origin.spoil(path, 2 * PAGE, PAGE)
    lost = touching(plain, 2 * PAGE, 3 * PAGE)
    step = 0
    while True:
        step += 1
        disk = origin.crash_keeping_unsynced()
        disk.stop_at = disk.steps + step
        try:
            opened(disk, cipher)[0].commit()
        except PowerLoss:
            for seed in range(3 if cipher else 6):
                crashed = disk.crash(seed)
                store, _ = opened(crashed, cipher)
                assert found(store) == everything() - lost
                assert store.lost is not None
                assert set(store.lost.sequences) == lost
                folder = f"{crashed.root}/S/damage"
                kept = [name for name in crashed.list_directory(folder) if name.endswith(".blk")]
                assert any(crashed.content_of(f"{folder}/{name}") == content for name in kept)
            continue
        break
    assert step > 3


@pytest.mark.parametrize("name", ["index.db", "thw.db"])
def test_a_summary_that_cannot_be_read_is_made_from_the_blocks(name: str) -> None:
    disk = SimulatedDisk()
    filled(disk).close()
    path = f"{disk.root}/S/msgs/{name}"
    if not disk.exists(path):
        disk.put_durable_file(path, bytes(100))
    disk.spoil(path, 0, 16)
    store, report = opened(disk)
    assert report.is_clean
    assert found(store) == everything()
    store.table.store(b"a.1", b"", b"new", 1)
    store.commit()
    assert not disk.exists(f"{disk.root}/S/msgs/index.db")


def test_a_report_of_damage_that_cannot_be_read_is_noted() -> None:
    disk = SimulatedDisk()
    filled(disk).close()
    disk.put_durable_file(f"{disk.root}/S/damage/1.json", b"{}")
    disk.spoil(f"{disk.root}/S/damage/1.json", 0, 2)
    store, report = opened(disk)
    assert found(store) == everything()
    assert "what was lost earlier cannot be read" in report.notes[0]


@pytest.mark.parametrize("cipher", ["", "aes"])
@pytest.mark.parametrize("operation", ["read", "map", "open"])
def test_a_disk_that_fails_for_a_moment_at_the_start_destroys_nothing(
    operation: Any, cipher: str
) -> None:
    origin = SimulatedDisk()
    filled(origin, cipher).close()
    origin.remove(f"{origin.root}/S/msgs/index.db")
    for nth in range(1, 40):
        disk = origin.crash_keeping_unsynced()
        fault = disk.fail(operation, "*.blk", nth, errno.EIO)
        with suppress(StoreError):  # it may say that it cannot be opened
            store, _ = opened(disk, cipher)
            assert found(store) == everything()
            store.close()
        if not fault.hits:
            return
        disk.clear_faults()
        again, report = opened(disk, cipher)
        assert report.is_clean
        assert found(again) == everything()


# --- the guard ---


def test_the_mapping_counts_what_it_could_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100 * PAGE)
    descriptor = os.open(path, os.O_RDWR)
    try:
        mapping = FileMapping(descriptor, 100 * PAGE)
        view = memoryview(mapping)
        os.ftruncate(descriptor, 50 * PAGE)
        assert (view[0], view[49 * PAGE], mapping.faults) == (120, 120, 0)
        assert (view[60 * PAGE], mapping.faults) == (0, 1)
        assert (view[60 * PAGE + 7], mapping.faults) == (0, 1)
        assert view[49 * PAGE] == 120
        # After some pages the rest is not worth the time that a dying disk takes for each.
        assert bytes(view[50 * PAGE :]) == bytes(50 * PAGE)
        assert mapping.faults == 17
        assert view[0] == 0
        mapping.forget_pages()
        assert view[0] == 0
        assert FileMapping(descriptor, 50 * PAGE).faults == 0
    finally:
        os.close(descriptor)
