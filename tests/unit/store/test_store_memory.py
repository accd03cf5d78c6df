"""What was read of a stream does not stay in the memory of the process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tradewind.store.contract import NotFoundError
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store

MIB = 1024 * 1024
MESSAGES = 40_000
STATUS = Path("/proc/self/status")


def file_memory_bytes() -> int:
    """Pages of files that count as memory of this process."""
    found = re.search(r"RssFile:\s+(\d+) kB", STATUS.read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """40 MiB in blocks of 1 MiB."""
    disk = OsDisk(str(tmp_path))
    disk.make_directory(f"{tmp_path}/S")
    store, _ = open_store(disk, f"{tmp_path}/S", "S", now_ns=0, block_bytes_max=MIB)
    for number in range(MESSAGES):
        store.table.store(b"a", b"", b"%-1000d" % number, number)
    store.flush()
    return store


@pytest.mark.skipif(not STATUS.exists(), reason="the system does not tell")
def test_reading_a_stream_leaves_its_pages_to_the_system(store: FileStore) -> None:
    before = file_memory_bytes()
    highest = 0
    for seq in range(1, MESSAGES + 1):
        assert store.table.get(seq).payload == b"%-1000d" % (seq - 1)
        if seq % 1000 == 0:
            highest = max(highest, file_memory_bytes() - before)
    assert highest < 10 * MIB
    store.close()


def test_store_that_was_given_up_is_empty_for_whoever_still_reads_it(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    disk.make_directory(f"{tmp_path}/S")
    files, _ = open_store(disk, f"{tmp_path}/S", "S", now_ns=0, block_bytes_max=1000)
    store = files.table
    for number in range(100):
        store.store(b"a.%d" % (number % 7), b"", b"x" * 50, number)
    files.commit()
    search = store.search_last(store.filter((b"a.*", b">")))
    walk = store.find_lasts(1)
    for _ in store.free_steps():
        pass
    while search.step(1):
        pass
    list(walk)
    for seq in (1, 50, 100):
        with pytest.raises(NotFoundError):
            store.get(seq)
    assert store.next_sequence(0, ()) == store.next_sequence(0, (b"a.3",)) == 0
    assert store.last_sequence((b"a.3",)) == store.last_sequence((b"a.*",)) == 0
    assert list(store.messages()) == []
    assert store.state.msgs == store.state.bytes == 0
    assert store.expire(2**62) == 0
    files.abandon()
