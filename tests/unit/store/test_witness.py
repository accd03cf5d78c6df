"""What is said outside of the blocks of a stream: no sequence is given out twice."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from power_cuts import cut_off
from tradewind.store.files.disk import DiskFull, OsDisk
from tradewind.store.files.witness import RESERVE_MAX, RESERVE_MIN, WITNESS_FILE, read_testimony
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import RecoveryReport, open_store
from tradewind.store.folder.stream_folder import StreamFolder
from tradewind.store.format.layout import block_file_name
from tradewind.store.format.meta import StreamMeta
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

BLOCK_BYTES = 4000


def opened(disk: Any, **settings: Any) -> tuple[FileStore, RecoveryReport]:
    disk.make_directory(f"{disk.root}/S")
    disk.sync_directory(disk.root)
    settings = {"block_bytes_max": BLOCK_BYTES, **settings}
    return open_store(disk, f"{disk.root}/S", "S", now_ns=0, **settings)


def put(store: FileStore, count: int, size: int = 100) -> None:
    for _ in range(count):
        store.table.store(b"a", b"", bytes(size), store.table.last_seq + 1)
        store.commit()


def paths(disk: Any) -> list[str]:
    """The block files, by number."""
    folder = f"{disk.root}/S/msgs"
    names = [name for name in disk.list_directory(folder) if name.endswith(".blk")]
    return [f"{folder}/{name}" for name in sorted(names, key=lambda name: int(name[:-4]))]


@pytest.mark.parametrize("gone", [1, 2, "all"])
@pytest.mark.parametrize("ending", ["killed", "closed"])
def test_blocks_that_are_gone_from_the_end_are_told_and_their_sequences_not_used_again(
    gone: Any, ending: str
) -> None:
    disk = SimulatedDisk()
    store, _ = opened(disk)
    put(store, 300)
    assert len(store.table.blocks) > 3
    if ending == "closed":
        store.close()
        disk.remove(f"{disk.root}/S/msgs/index.db")
    disk = disk.crash_keeping_unsynced()
    kept = 0 if gone == "all" else store.table.blocks[-gone - 1].last_seq
    for path in paths(disk) if gone == "all" else paths(disk)[-gone:]:
        disk.remove(path)
    again, report = opened(disk)
    assert report.lost[0] == kept + 1
    assert report.lost[-1] >= 300
    assert report.lost_total <= 300 - kept + RESERVE_MAX
    assert "may have been given out" in " ".join(report.notes)
    assert again.lost is not None
    assert set(again.lost.sequences) == set(report.lost)
    assert again.table.msgs == kept
    assert again.table.store(b"a", b"", b"new", 1) > 300
    again.commit()
    # Once told, it is not told again, and nothing more is used up.
    last_seq = again.table.last_seq
    third, report = opened(disk.crash_keeping_unsynced())
    assert report.is_clean
    assert third.table.last_seq == last_seq
    assert third.lost is not None


@pytest.mark.parametrize("gone", [2, "all"])
@pytest.mark.parametrize("has_index", [False, True])
def test_power_that_fails_while_missing_blocks_are_told_changes_nothing_of_it(
    gone: Any, has_index: bool
) -> None:
    disk = SimulatedDisk()
    store, _ = opened(disk)
    put(store, 150)
    store.table.remove(40)
    store.close()
    if not has_index:
        disk.remove(f"{disk.root}/S/msgs/index.db")
    for path in paths(disk) if gone == "all" else paths(disk)[-gone:]:
        disk.remove(path)
    whole = disk.crash_keeping_unsynced()
    expected, _ = opened(whole)
    assert expected.lost is not None
    for stop_at in range(1, whole.steps + 1):
        cut = disk.crash_keeping_unsynced()
        cut.stop_at = stop_at
        with suppress(PowerLoss):
            opened(cut)
        for seed in range(4):
            again, _ = opened(cut.crash(seed))
            assert again.table.last_seq == expected.table.last_seq
            assert again.table.msgs == expected.table.msgs
            assert again.lost is not None
            assert again.lost.sequences == expected.lost.sequences


def test_the_number_of_a_block_that_is_gone_is_not_used_again() -> None:
    disk = SimulatedDisk()
    store, _ = opened(disk)
    put(store, 150)
    last = store.table.last.number
    disk = disk.crash_keeping_unsynced()
    disk.remove(paths(disk)[-1])
    again, _ = opened(disk)
    assert again.table.last.number == last + 1
    said = read_testimony(disk, f"{disk.root}/S", "S")
    assert said is not None
    assert (said.block, said.last_seq) == (last + 1, again.table.last_seq)


def test_a_last_block_that_is_cut_below_what_was_said_is_told() -> None:
    disk = SimulatedDisk()
    store, _ = opened(disk, block_bytes_max=1 << 20)
    put(store, 300)
    said = read_testimony(disk, f"{disk.root}/S", "S")
    assert said is not None
    assert 300 - RESERVE_MAX < said.last_seq <= 300 <= said.reserved_seq
    content = disk.content_of(paths(disk)[0])
    end = content.find((said.last_seq - 5).to_bytes(8, "little")) - 4
    disk.put_durable_file(paths(disk)[0], content[:end])
    again, report = opened(disk)
    assert report.lost[0] == said.last_seq - 5
    assert again.table.last_seq == said.reserved_seq >= 300


def test_nothing_is_written_per_message_or_commit() -> None:
    disk = SimulatedDisk()
    store, _ = opened(disk, block_bytes_max=1 << 20)
    put(store, 1)
    before = read_testimony(disk, f"{disk.root}/S", "S")
    assert before is not None
    put(store, 3000, size=10)
    after = read_testimony(disk, f"{disk.root}/S", "S")
    assert after is not None
    # 64, 128, 256, ... sequences further each time.
    assert after.serial - before.serial <= 6
    assert after.reserved_seq >= store.table.last_seq


def test_a_stream_is_made_with_its_witness() -> None:
    disk = SimulatedDisk()
    folder = StreamFolder(disk, disk.root, "$G", "S")
    meta = StreamMeta({"name": "S", "subjects": ["s"]}, created_ns=1)
    folder.create(meta)
    store = folder.begin(meta)
    said = read_testimony(disk, folder.path, "S")
    assert said is not None
    assert (said.block, said.last_seq, said.reserved_seq) == (1, 0, RESERVE_MIN)
    store.table.store(b"s", b"", b"x", 1)
    syncs = disk.calls["sync"]
    store.commit()
    assert disk.calls["sync"] == syncs + 1
    disk = disk.crash_keeping_unsynced()
    disk.remove(f"{folder.path}/msgs/{block_file_name(1)}")
    _, again, report = StreamFolder(disk, disk.root, "$G", "S").open(0)
    assert report.lost == list(range(1, RESERVE_MIN + 1))
    assert again.table.store(b"s", b"", b"x", 1) == RESERVE_MIN + 1


def test_the_first_sequence_of_a_stream_is_no_loss() -> None:
    disk = SimulatedDisk()
    meta = StreamMeta({"name": "S", "subjects": ["s"], "first_seq": 5_000_000}, created_ns=1)
    folder = StreamFolder(disk, disk.root, "$G", "S")
    folder.create(meta)
    store = folder.begin(meta)
    store.table.store(b"s", b"", b"x", 1)
    store.commit()
    _, again, report = StreamFolder(disk.crash_keeping_unsynced(), disk.root, "$G", "S").open(0)
    assert report.is_clean
    assert again.table.last_seq == 5_000_000


@pytest.mark.parametrize("damage", ["missing", "empty", "zeros", "garbage", "unreadable"])
def test_a_witness_that_is_damaged_says_nothing_and_is_made_again(damage: str) -> None:
    disk = SimulatedDisk()
    store, _ = opened(disk)
    put(store, 50)
    path = f"{disk.root}/S/{WITNESS_FILE}"
    if damage == "missing":
        disk.remove(path)
    elif damage == "unreadable":
        disk.spoil(path, 0, 1024)
    else:
        kinds = {"empty": b"", "zeros": bytes(1024), "garbage": b"x" * 1024}
        disk.put_durable_file(path, kinds[damage])
    again, report = opened(disk)
    assert report.is_clean
    assert again.table.last_seq == 50
    if damage == "unreadable":
        disk.heal(path)
    put(again, 1)
    said = read_testimony(disk, f"{disk.root}/S", "S")
    assert said is not None
    assert said.last_seq == 51


def test_one_slot_that_is_torn_leaves_the_other(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    store, _ = opened(disk)
    put(store, 400)
    path = tmp_path / "S" / WITNESS_FILE
    said = read_testimony(disk, f"{disk.root}/S", "S")
    assert said is not None
    content = bytearray(path.read_bytes())
    content[512 * (said.serial % 2) + 20] ^= 1
    path.write_bytes(content)
    other = read_testimony(disk, f"{disk.root}/S", "S")
    assert other is not None
    assert other.serial == said.serial - 1


@pytest.mark.slow
def test_a_full_disk_leaves_the_witness_for_a_later_commit() -> None:
    disk = SimulatedDisk()
    store, _ = opened(disk)
    put(store, RESERVE_MIN)
    said = read_testimony(disk, f"{disk.root}/S", "S")
    disk.fail("write", "*/tradewind.seq", error=errno.ENOSPC)
    put(store, RESERVE_MAX)
    assert store.failure is None
    disk.clear_faults()
    put(store, 1)
    now = read_testimony(disk, f"{disk.root}/S", "S")
    assert said is not None
    assert now is not None
    assert now.serial > said.serial
    assert now.reserved_seq >= store.table.last_seq


def test_a_sync_of_the_witness_that_finds_no_room_makes_the_store_read_only() -> None:
    """After a failed sync nobody knows what is on the disk; a failed write has done nothing."""
    disk = SimulatedDisk()
    store, _ = opened(disk)
    put(store, RESERVE_MIN)
    disk.fail("sync", "*/tradewind.seq", error=errno.ENOSPC, times=RESERVE_MAX)
    with pytest.raises(DiskFull, match=r"tradewind\.seq: sync failed"):
        put(store, RESERVE_MAX)
    assert store.failure is not None
    told = store.table.synced_seq
    again, report = opened(disk.crash_losing_unsynced())
    assert not report.lost
    assert again.table.last_seq >= told


def cut_after(disk: SimulatedDisk, seq: int) -> SimulatedDisk:
    """A killed server's disk whose last block somebody has cut behind a message."""
    after = disk.crash_keeping_unsynced()
    path = paths(after)[-1]
    content = after.content_of(path)
    start = content.index((seq + 1).to_bytes(8, "little")) - 4
    after.put_durable_file(path, content[:start])
    return after


def test_a_cut_that_a_consumer_knows_of_is_told_and_no_sequence_is_used_again() -> None:
    disk = SimulatedDisk()
    store, _ = opened(disk)
    put(store, 20)
    said = read_testimony(disk, f"{disk.root}/S", "S")
    assert said is not None
    disk = cut_after(disk, 12)
    again, report = opened(disk, seen_seq=17)
    assert report.lost == [*range(13, 18)]
    assert any("a consumer was given message 17" in note for note in report.notes)
    assert again.table.last_seq == said.reserved_seq
    for _ in range(2):
        disk = disk.crash_keeping_unsynced()
        again, report = opened(disk, seen_seq=17)
        assert not report.damage, "it is told once"
        assert again.lost is not None
        assert again.lost.sequences == (*range(13, 18),)
        assert again.table.last_seq >= said.reserved_seq


@pytest.mark.parametrize("seen_seq", [0, 20, 1 << 40])
def test_a_position_that_no_message_can_have_had_proves_nothing(seen_seq: int) -> None:
    disk = SimulatedDisk()
    store, _ = opened(disk)
    put(store, 20)
    again, report = opened(disk.crash_keeping_unsynced(), seen_seq=seen_seq)
    assert report.is_clean
    assert again.table.last_seq == 20


def test_power_that_fails_while_a_cut_is_told_loses_nothing_of_it() -> None:
    disk = SimulatedDisk()
    store, _ = opened(disk)
    put(store, 20)
    before = cut_after(disk, 12)
    for step, after in cut_off(before, lambda disk: opened(disk, seen_seq=17)):
        again, _ = opened(after, seen_seq=17)
        assert again.lost is not None, step
        assert again.lost.sequences == (*range(13, 18),), step
        assert again.table.last_seq > 20, step
