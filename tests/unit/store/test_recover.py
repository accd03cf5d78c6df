"""Opening a folder without index.db: everything is read, verified and there again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from store_kit import content, put, sequences

from tradewind.errors import StoreError
from tradewind.store.contract import NotFoundError, StoreLimits, StoreState
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import RecoveryReport, open_store
from tradewind.store.format.layout import record_bytes
from tradewind.store.table.block import Block
from tradewind.store.table.scan import BlockReport, recover_block
from tradewind.store.table.subject_index import SubjectIndex
from tradewind.testing.fake_disk import SimulatedDisk

BLOCKS = "/disk/S/msgs"
SIZE = record_bytes(1, 0, 40)


def opened(disk: SimulatedDisk, **settings: Any) -> tuple[FileStore, RecoveryReport]:
    limits = settings.pop("limits", StoreLimits())
    now_ns = settings.pop("now_ns", 0)
    return open_store(disk, "/disk/S", "S", limits, now_ns=now_ns, **settings)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/disk/S", sync=True)
    return disk


def written(disk: SimulatedDisk, count: int = 30) -> FileStore:
    """A committed store with some blocks, whose owner is then forgotten.

    `mark_idle` lets the disk know what was synced: without it the last commit counts as unproven.
    """
    store, _ = opened(disk, block_bytes_max=500)
    put(store.table, *[b"%d" % (number % 3) for number in range(count)], payload=b"x" * 40)
    store.commit()
    store.mark_idle()
    return store


def record_position(disk: SimulatedDisk, path: str, seq: int) -> int:
    """Where the record of a message begins."""
    data, position = disk.content_of(path), 0
    while data[position + 4 : position + 12] != seq.to_bytes(8, "little"):
        position += int.from_bytes(data[position : position + 4], "little") & 0x7FFFFFFF
    return position


def damage(disk: SimulatedDisk, path: str, position: int) -> None:
    data = bytearray(disk.content_of(path))
    data[position] ^= 0x10
    disk.put_durable_file(path, bytes(data))


def test_missing_folders_are_made(disk: SimulatedDisk) -> None:
    store, report = opened(disk)
    assert disk.is_directory(BLOCKS)
    assert report.is_clean
    assert store.table.state == StoreState(0, 0, 0, 0, 0, 0, 0, 0)


def test_everything_committed_is_there_again(disk: SimulatedDisk) -> None:
    store = written(disk)
    for seq in (2, 3, 15, 30):
        store.table.remove(seq)
    store.table.skip(40, 31)
    store.commit()
    again, report = opened(disk.crash_losing_unsynced())
    assert content(again.table) == content(store.table)
    again.verify()
    assert report.is_clean
    assert report.messages == 26
    assert report.blocks == len(store.table.blocks)
    assert report.bytes == sum(block.size for block in again.table.blocks)
    assert again.table.synced_seq == again.table.last_seq == 40


def test_rebuilt_store_goes_on_where_it_was(disk: SimulatedDisk) -> None:
    written(disk)
    again, _ = opened(disk)
    assert put(again.table, b"new") == [31]
    again.commit()
    third, _ = opened(disk)
    assert third.table.get(31).subject == b"new"


def test_what_was_not_committed_is_not_promised(disk: SimulatedDisk) -> None:
    store = written(disk)
    put(store.table, b"lost")
    assert store.table.synced_seq == 30
    store.flush()
    assert store.table.synced_seq == 30
    again, report = opened(disk.crash_losing_unsynced())
    assert again.table.last_seq == 30
    assert not report.lost


def test_block_numbers_may_have_gaps(disk: SimulatedDisk) -> None:
    store = written(disk)
    middle = store.table.blocks[2]
    for seq in range(middle.first_seq, middle.last_seq + 1):
        store.table.remove(seq)
    store.commit()
    assert not disk.exists(f"{BLOCKS}/3.blk")
    again, report = opened(disk)
    assert report.is_clean
    assert content(again.table) == content(store.table)


def test_empty_block_in_between_is_no_damage(disk: SimulatedDisk) -> None:
    store = written(disk)
    disk.put_durable_file(f"{BLOCKS}/{store.table.last.number + 1}.blk", b"")
    again, report = opened(disk)
    assert report.is_clean
    assert sequences(again.table) == list(range(1, 31))
    assert put(again.table, b"a") == [31]


@pytest.mark.parametrize("name", ["7.blk.tmp", "07.blk", "notes.txt", "3.new", "index.db.tmp"])
def test_files_that_are_no_blocks_are_left_alone(disk: SimulatedDisk, name: str) -> None:
    written(disk)
    disk.put_durable_file(f"{BLOCKS}/{name}", b"whatever")
    again, report = opened(disk)
    assert report.is_clean
    assert again.table.msgs == 30
    assert disk.content_of(f"{BLOCKS}/{name}") == b"whatever"


@pytest.mark.parametrize("name", ["/disk/S/meta.key", f"{BLOCKS}/1.key"])
def test_encrypted_stream_is_refused_and_left_as_it_is(disk: SimulatedDisk, name: str) -> None:
    written(disk)
    disk.put_durable_file(name, bytes(64))
    before = disk.snapshot_tree()
    with pytest.raises(StoreError, match="encrypted"):
        opened(disk)
    assert disk.snapshot_tree() == before


def test_interrupted_purge_of_the_official_server_is_finished(disk: SimulatedDisk) -> None:
    store = written(disk)
    store.table.purge()
    put(store.table, b"kept")
    store.commit()
    number = store.table.last.number
    fresh = disk.content_of(store.table.last.path)
    old = SimulatedDisk()
    old.make_directory("/disk/S", sync=True)
    written(old)
    old.put_durable_file(f"/disk/S/__new_msgs__/{number}.blk", fresh)
    old.put_durable_file("/disk/S/__msgs__/1.blk", b"old")
    again, report = opened(old)
    assert report.is_clean
    assert (sequences(again.table), again.table.last_seq) == ([31], 31)
    assert not old.exists("/disk/S/__new_msgs__")
    assert not old.exists("/disk/S/__msgs__")


def test_purge_that_had_not_begun_is_forgotten(disk: SimulatedDisk) -> None:
    written(disk)
    disk.make_directory("/disk/S/__new_msgs__", sync=True)
    again, _ = opened(disk)
    assert again.table.msgs == 30
    assert not disk.exists("/disk/S/__new_msgs__")


def test_limits_of_the_start_are_applied(disk: SimulatedDisk) -> None:
    written(disk)
    again, _ = opened(disk, limits=StoreLimits(msgs_max=7))
    assert sequences(again.table) == list(range(24, 31))
    again.close()
    again, _ = opened(disk, limits=StoreLimits(age_max_ns=5), now_ns=33)
    assert sequences(again.table) == [29, 30]


@pytest.mark.parametrize("seq", [1, 2, 13, 29])
@pytest.mark.parametrize("part", ["length", "sequence", "time", "subject", "payload", "hash"])
def test_damaged_record_is_lost_alone_and_named(disk: SimulatedDisk, seq: int, part: str) -> None:
    store = written(disk)
    block = next(block for block in store.table.blocks if block.first_seq <= seq <= block.last_seq)
    path = block.path
    start = record_position(disk, path, seq)
    offsets = {"length": 1, "sequence": 5, "time": 13, "subject": 22, "payload": 40}
    damage(disk, path, start + offsets.get(part, SIZE - 3))
    again, report = opened(disk)
    assert sequences(again.table) == [number for number in range(1, 31) if number != seq]
    assert report.lost == [seq]
    assert not report.is_clean
    assert again.table.state.lost is not None
    assert again.table.state.lost.sequences == (seq,)
    with pytest.raises(NotFoundError):
        again.table.get(seq)
    assert put(again.table, b"next") == [31]
    again.verify()


def test_damage_is_kept_aside_and_reported(disk: SimulatedDisk) -> None:
    store = written(disk)
    path = store.table.blocks[1].path
    before = disk.content_of(path)
    start = record_position(disk, path, store.table.blocks[1].first_seq + 1)
    damage(disk, path, start + 30)
    _, report = opened(disk)
    (entry,) = report.damage
    assert (entry.block, entry.offset, entry.size, entry.torn) == (2, start, SIZE, False)
    saved = disk.content_of(f"/disk/S/damage/{entry.saved_as}")
    assert [a == b for a, b in zip(saved, before[start : start + SIZE], strict=True)].count(
        False
    ) == 1
    reports = [name for name in disk.list_directory("/disk/S/damage") if name.endswith(".json")]
    written_report = msgspec.json.decode(disk.content_of(f"/disk/S/damage/{reports[0]}"))
    assert written_report["lost"] == report.lost
    again, second = opened(disk)
    assert second.is_clean
    assert again.table.msgs == 29


@pytest.mark.parametrize("cut", [1, 8, 30, SIZE - 1])
def test_torn_end_is_cut_and_nothing_is_lost(disk: SimulatedDisk, cut: int) -> None:
    store = written(disk)
    put(store.table, b"torn", payload=b"x" * 40)
    store.flush()
    path = store.table.last.path
    whole = disk.content_of(path)
    start = record_position(disk, path, 31)
    disk.put_durable_file(path, whole[: start + SIZE + 3 - cut])
    again, report = opened(disk)
    assert not report.lost
    assert sequences(again.table) == list(range(1, 31))
    assert put(again.table, b"new") == [31]
    again.commit()
    third, _ = opened(disk)
    assert third.table.get(31).subject == b"new"


@pytest.mark.parametrize("limits", [StoreLimits(), StoreLimits(msgs_max=100)], ids=["no", "msgs"])
@pytest.mark.parametrize("other", [8, 10, 12])
def test_nothing_behind_a_write_that_was_cut_off_is_taken_for_rot(
    disk: SimulatedDisk, limits: StoreLimits, other: int
) -> None:
    """Nobody was promised any of it, whatever it looks like."""
    store, _ = opened(disk, limits=limits)
    put(store.table, *[b"a"] * 6, payload=b"x" * 40)
    store.commit()
    put(store.table, *[b"a"] * 6, payload=b"y" * 40)
    store.flush()
    path = store.table.last.path
    hole, rotten = (record_position(disk, path, seq) for seq in (7, other))
    data = bytearray(disk.content_of(path))
    data[hole + 20 : hole + SIZE] = bytes(SIZE - 20)
    data[rotten + SIZE - 20] ^= 0x10
    disk.put_durable_file(path, bytes(data))
    again, report = opened(disk, limits=limits)
    assert (report.lost, again.lost) == ([], None)
    assert all(entry.torn for entry in report.damage)
    assert sequences(again.table)[:6] == [1, 2, 3, 4, 5, 6]
    assert set(sequences(again.table)) <= {*range(1, 13)} - {7, other}
    assert len(sequences(again.table)) == (6 if limits.msgs_max else 10)
    again.verify()
    put(again.table, b"a")
    again.commit()
    last, report = opened(disk.crash_losing_unsynced(), limits=limits)
    assert report.is_clean
    assert sequences(last.table) == sequences(again.table)


def test_progress_is_told_while_much_is_read(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(disk)
    monkeypatch.setattr("tradewind.store.folder.recover.PROGRESS_BYTES", 600)
    told: list[int] = []
    opened(disk, progress=lambda done, _: told.append(done))
    assert len(told) >= 2
    assert told == sorted(told)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_rebuild_keeps_the_memory_limit_of_the_indexes(
    disk: SimulatedDisk, is_damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = written(disk, 400)
    for seq in range(3, 400, 7):
        store.table.remove(seq)
    store.commit()
    store.mark_idle()
    expected = list(store.table.messages())
    if is_damaged:
        path = store.table.blocks[20].path
        seq = store.table.blocks[20].first_seq
        damage(disk, path, record_position(disk, path, seq) + 30)
        expected = [message for message in expected if message.seq != seq]
    seen: list[Block] = []
    highest = 0

    def watched(block: Block, index: SubjectIndex, after_seq: int) -> BlockReport:
        nonlocal highest
        report = recover_block(block, index, after_seq)
        seen.append(block)
        highest = max(highest, sum(block.memory_bytes for block in seen))
        return report

    monkeypatch.setattr("tradewind.store.folder.recover.recover_block", watched)
    limit = 8 * max(block.memory_bytes for block in store.table.blocks)
    again, report = opened(disk, block_bytes_max=500, index_bytes_max=limit)
    assert len(seen) > 40
    assert highest <= limit * 5 // 4
    assert report.is_clean != is_damaged
    assert list(again.table.messages()) == expected
    again.verify()


@pytest.mark.parametrize("is_closed", [True, False])
def test_purge_of_a_store_without_messages_is_remembered(
    disk: SimulatedDisk, is_closed: bool
) -> None:
    """Its first sequence is 1 from then on, and the first message gets it."""
    store, _ = opened(disk)
    assert store.table.first_seq == 0
    store.table.purge()
    store.commit()
    assert (store.table.first_seq, store.table.last_seq) == (1, 0)
    if is_closed:
        store.close()
    again, report = opened(disk.crash_losing_unsynced())
    assert report.is_clean
    assert (again.table.first_seq, again.table.last_seq) == (1, 0)
    assert put(again.table, b"a") == [1]
    again.table.verify()


@pytest.mark.parametrize("end", [b"", b"x\r\n\r\n"], ids=["plain", "odd"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_unit_is_in_one_block_whatever_marks_are_between_its_messages(
    disk: SimulatedDisk, end: bytes, is_restarted: bool
) -> None:
    """Marks prove lengths: behind each message with an odd header, and after a start."""
    store = written(disk)
    if is_restarted:
        store, _ = opened(disk, block_bytes_max=500)
    header, count = b"NATS/1.0\r\nA: b\r\n\r\n" + end, 100
    store.table.begin_unit(count * record_bytes(1, len(header), 10), count)
    blocks = len(store.table.blocks)
    for number in range(count):
        store.table.store(b"a", header, b"x" * 10, 1000 + number)
    store.table.end_unit()
    assert len(store.table.blocks) == blocks
    assert store.table.blocks[-1].live_msgs >= count
