"""Streams and blocks share a few descriptors, whatever their number is."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from descriptors import descriptors
from tradewind.errors import StoreError
from tradewind.store.files.disk import OsDisk, disk_error
from tradewind.store.files.file_mapping import mappings_alive
from tradewind.store.files.open_files import open_files
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.table.adoption import forget_recovered
from tradewind.testing.fake_disk import SimulatedDisk, SimulatedFile


def opened(disk: SimulatedDisk | OsDisk, name: str, block_bytes_max: int = 8 << 20) -> FileStore:
    folder = f"{disk.root}/{name}"
    disk.make_directory(folder, sync=True)
    store, report = open_store(disk, folder, name, now_ns=1, block_bytes_max=block_bytes_max)
    assert report.is_clean
    return store


def test_a_stream_with_many_blocks_at_rest_holds_one_descriptor(tmp_path: Path) -> None:
    before = descriptors(tmp_path)
    store = opened(OsDisk(str(tmp_path)), "S", 500)
    for index in range(300):
        store.table.store(b"a", b"", b"%0100d" % index, index)
        if index % 7 == 0:
            store.commit()
    store.commit()
    assert len(store.table.blocks) > 50
    assert [message.seq for message in store.table.messages()] == list(range(1, 301))
    assert descriptors(tmp_path) <= before + 1
    store.close()
    assert descriptors(tmp_path) == before


@pytest.mark.slow
def test_mapped_blocks_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(OsDisk(str(tmp_path)), "S", 300)
    for index in range(1500):
        store.table.store(b"a", b"", b"%0200d" % index, index)
    store.commit()
    assert len(store.table.blocks) > 1000
    before = mappings_alive()
    monkeypatch.setattr("tradewind.store.table.residency.MAPPINGS_MAX", before + 100)
    for seq in range(1, 1501):
        assert store.table.get(seq).payload == b"%0200d" % (seq - 1)
        assert mappings_alive() <= before + 100 + 256
    store.close()


def test_streams_beyond_the_allowed_number_of_files_take_turns() -> None:
    disk = SimulatedDisk()
    disk.block_files_max = 8
    stores = [opened(disk, f"S{number}") for number in range(40)]
    for turn in range(3):
        for store in stores:
            store.table.store(b"a", b"", b"%d" % turn, turn)
            store.flush()
        assert disk.open_files <= 8
        for store in stores:
            store.commit()
            assert disk.open_files <= 8
    for store in stores:
        assert [m.payload for m in store.table.messages()] == [b"0", b"1", b"2"]
    crashed = disk.crash_losing_unsynced()
    for number in range(40):
        assert opened(crashed, f"S{number}").table.msgs == 3
    for store in stores:
        store.close()
    assert disk.open_files == open_files(disk).count == 0


def test_a_file_that_a_worker_syncs_is_not_closed() -> None:
    disk = SimulatedDisk()
    disk.block_files_max = 2
    stores = [opened(disk, f"S{number}") for number in range(6)]
    commits = []
    for store in stores:
        store.table.store(b"a", b"", b"x", 1)
        commits.append(store.begin_commit())
    assert disk.open_files == 6
    for store, commit in zip(stores, commits, strict=True):
        assert commit is not None
        commit.run()
        store.finish_commit(commit)
        assert store.table.synced_seq == 1


def test_a_sync_that_fails_when_a_file_has_to_be_closed_is_told_to_its_owner() -> None:
    disk = SimulatedDisk()
    disk.block_files_max = 1
    first, second = opened(disk, "A"), opened(disk, "B")
    first.table.store(b"a", b"", b"x", 1)
    first.flush()
    disk.fail("sync", "*/A/*", error=errno.EIO)
    second.table.store(b"a", b"", b"x", 1)
    second.commit()
    assert second.failure is None
    with pytest.raises(StoreError, match="sync"):
        first.commit()
    assert first.failure is not None
    assert first.table.synced_seq == 0


@pytest.mark.parametrize("tombstone", [True, False], ids=["removed", "by a limit"])
def test_removal_that_cannot_read_the_next_message_changes_nothing(*, tombstone: bool) -> None:
    """The file has grown since it was mapped: to know the first time it is mapped again."""
    disk = SimulatedDisk()
    store = opened(disk, "S")
    for number in (1, 2):
        store.table.store(b"a", b"", b"x", number)
        store.commit()
        assert store.table.get(1).seq == 1
    fault = disk.fail("map", error=errno.EMFILE)
    with pytest.raises(StoreError, match="EMFILE"):
        store.table.remove(1) if tombstone else forget_recovered(store.table, 1)
    assert fault.hits == 1
    assert (store.table.msgs, store.table.first_seq, store.table.subjects()) == (2, 1, {b"a": 2})
    store.verify()
    assert store.table.remove(1)
    assert (store.table.msgs, store.table.first_seq, store.table.subjects()) == (1, 2, {b"a": 1})
    store.verify()


def test_stream_goes_on_when_there_are_descriptors_again() -> None:
    disk = SimulatedDisk()
    store = opened(disk, "S")
    store.table.store(b"a", b"", b"x", 1)
    store.commit()
    store.table.last.file.close()
    disk.fail("open", "*.blk", error=errno.EMFILE)
    store.table.store(b"a", b"", b"x", 2)
    with pytest.raises(StoreError, match="EMFILE"):
        store.commit()
    assert store.table.read_only
    assert store.resume()
    store.commit()
    assert store.table.synced_seq == 2
    assert opened(disk.crash_losing_unsynced(), "S").table.msgs == 2


class LateFile(SimulatedFile):
    """Closing it reports a failure, as on a network file system."""

    def close(self) -> None:
        was_open = self._is_open
        super().close()
        if was_open:
            raise disk_error(self.path, "close", errno.EIO)


class LateDisk(SimulatedDisk):
    def open(self, path: str, *, writes: bool = False) -> SimulatedFile:
        return self._late(super().open(path, writes=writes))

    def create(self, path: str, *, replace: bool = False) -> SimulatedFile:
        return self._late(super().create(path, replace=replace))

    def _late(self, file: SimulatedFile) -> SimulatedFile:
        if self.is_late and file.path.endswith(".blk"):
            file.__class__ = LateFile
        return file

    is_late = False


def test_failure_to_close_what_is_synced_is_nobodys_business() -> None:
    disk = LateDisk()
    disk.block_files_max = 1
    first, second = opened(disk, "A", 300), opened(disk, "B")
    disk.is_late = True
    for number in range(1, 10):
        first.table.store(b"a", b"", bytes(100), number)
        first.commit()
        assert first.table.synced_seq == number
        second.table.store(b"a", b"", b"x", number)
        second.flush()
    assert len(first.table.blocks) > 2
    assert first.failure is second.failure is None


CROWD = """
import resource, sys
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.recover import open_store
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
disk = OsDisk(sys.argv[1])
def opened(name, **settings):
    disk.make_directory(f"{disk.root}/{name}")
    return open_store(disk, f"{disk.root}/{name}", name, now_ns=1, **settings)[0]
stores = [opened(f"S{number}") for number in range(300)]
for store in stores:
    store.table.store(b"a", b"", b"x", 1)
    store.commit()
large = opened("LARGE", block_bytes_max=300)
for seq in range(500):
    large.table.store(b"a", b"", b"y" * 150, 1)
large.commit()
assert sum(len(m.payload) for m in large.table.messages()) == 75000
for store in [*stores, large]:
    store.close()
assert all(opened(f"S{number}").table.msgs == 1 for number in range(300))
assert len(opened("LARGE").table.blocks) >= 250
print("done")
"""


@pytest.mark.slow
def test_hundreds_of_streams_and_blocks_live_on_64_descriptors(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CROWD, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_the_number_of_block_files_follows_what_the_system_allows(tmp_path: Path) -> None:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = OsDisk(str(tmp_path)).block_files_max
    assert 8 <= files <= 16_384
    assert files <= max(8, allowed // 2)
