"""The power fails while we write to a folder of the official server for the first time."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from store_damage import records_of
from tradewind.errors import StoreError
from tradewind.store.contract import StoreLimits
from tradewind.store.files.disk import Operation
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import RecoveryReport, open_store
from tradewind.store.format.index_file import decode_index, encode_index
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

FOLDER = "/disk/S"
COUNT = 40
NEW = 12
LIMITS = {
    "none": StoreLimits(),
    "messages": StoreLimits(msgs_max=45),
    "subject": StoreLimits(subject_msgs_max=12),
}


def opened(disk: SimulatedDisk, limits: StoreLimits) -> tuple[FileStore, RecoveryReport]:
    return open_store(disk, FOLDER, "S", limits, now_ns=1, block_bytes_max=700)


def foreign(*, with_index: bool) -> SimulatedDisk:
    """Blocks without a mark, as nats-server leaves them; its index.db ends in the same record."""
    disk = SimulatedDisk()
    disk.make_directory(FOLDER, sync=True)
    store, _ = opened(disk, StoreLimits())
    for number in range(1, COUNT + 1):
        store.table.store(b"s.%d" % (number % 4), b"", b"payload %03d" % number, number)
        if number in (11, 31):
            store.table.remove(number - 1)
    store.close()
    for path, content in disk.file_contents().items():
        if path.endswith(".blk"):
            kept = [r for r in records_of(path, content) if r.kind != "tombstone" or r.seq]
            plain = b"".join(content[r.offset : r.offset + r.size] for r in kept)
            disk.put_durable_file(path, plain)
            checksum = plain[-8:]
    index = f"{FOLDER}/msgs/index.db"
    if with_index:
        rebuilt, _ = opened(disk, StoreLimits())
        assert rebuilt.table.last.last_checksum() != checksum  # our mark waits in memory
        settle_index(disk, index, checksum)
    else:
        disk.remove(index)
        disk.sync_directory(f"{FOLDER}/msgs")
    return disk


def settle_index(disk: SimulatedDisk, path: str, checksum: bytes) -> None:
    """The index.db of our close, with the record that the last block ends with now."""
    index = decode_index(disk.content_of(path), "S", path)
    index.last_checksum = checksum
    disk.put_durable_file(path, encode_index(index, "S"))


def work(disk: SimulatedDisk, limits: StoreLimits, promise: Callable[[int], None]) -> None:
    store, report = opened(disk, limits)
    assert report.is_clean
    for number in range(NEW):
        store.table.store(b"s.%d" % (number % 4), b"", b"n" * (10 + 97 * number % 300), number)
        if number % 3 == 0:
            store.flush()
        if number % 5 == 4:
            store.commit()
            promise(store.table.synced_seq)
    store.commit()
    promise(store.table.synced_seq)


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_cut_off_write_is_never_taken_for_damage(limits: StoreLimits, with_index: bool) -> None:
    start = foreign(with_index=with_index)
    before, _ = opened(start.crash_keeping_unsynced(), StoreLimits())
    theirs = {message.seq: message for message in before.table.messages()}
    whole = start.crash_keeping_unsynced()
    work(whole, limits, lambda _: None)
    judged = 0
    for stop_at in range(1, whole.steps + 1):
        promised: list[int] = [0]
        disk = start.crash_keeping_unsynced()
        disk.stop_at = stop_at
        with suppress(PowerLoss):
            work(disk, limits, promised.append)
        for after in (
            disk.crash_losing_unsynced(),
            disk.crash_keeping_unsynced(),
            *(disk.crash(seed) for seed in range(12)),
        ):
            store, report = opened(after, limits)
            rotten = [entry for entry in report.damage if not entry.torn]
            assert not rotten, f"step {stop_at}: {rotten}"
            assert not report.lost
            assert store.table.last_seq >= max(promised)
            found = {message.seq: message for message in store.table.messages()}
            for seq in range(store.table.first_seq, max(promised) + 1):
                assert seq in found or seq in (10, 30) or limits.subject_msgs_max
            if not limits.removes_for_others:
                assert found.items() >= theirs.items()
            judged += 1
    assert judged > 300


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_full_disk_at_the_first_mark_is_resumed_only_if_nothing_was_written(
    operation: Operation,
) -> None:
    disk = foreign(with_index=False)
    store, _ = opened(disk, StoreLimits())
    disk.fail(operation, "*.blk", error=errno.ENOSPC)
    seq = store.table.store(b"s.1", b"", b"new", 1)
    with pytest.raises(StoreError, match="ENOSPC"):
        store.flush()
    assert store.resume() == (operation == "write")
    if operation == "write":
        store.commit()
    again, report = opened(disk.crash_losing_unsynced(), StoreLimits())
    assert report.is_clean
    assert again.table.is_live(seq) == (operation == "write")
