"""Blocks that are written anew: compressed when sealed, erased, compacted."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from tradewind.errors import StoreError
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.folder.rewrite import PAUSE_COMMITS
from tradewind.store.format import s2
from tradewind.testing.fake_disk import SimulatedDisk

FOLDER = "/disk/S"
TEXT = b"the same words again and again, " * 4


def opened(disk: SimulatedDisk, **settings: Any) -> FileStore:
    disk.make_directory(FOLDER, sync=True)
    settings = {"block_bytes_max": 1500, "compact_bytes_min": 200, **settings}
    store, report = open_store(disk, FOLDER, "S", now_ns=1, **settings)
    assert report.is_clean
    return store


def filled(disk: SimulatedDisk, count: int = 60, **settings: Any) -> FileStore:
    """Messages whose payloads are all different and easy to find."""
    store = opened(disk, **settings)
    for seq in range(1, count + 1):
        store.table.store(b"a.%d" % (seq % 5), b"", secret(seq) + TEXT, seq)
    store.commit()
    return store


def secret(seq: int) -> bytes:
    return b"<secret %06d>" % seq


def files(disk: SimulatedDisk) -> dict[str, bytes]:
    """The block files by name, uncompressed."""
    found = {}
    for name in disk.list_directory(f"{FOLDER}/msgs"):
        data = disk.read_file(f"{FOLDER}/msgs/{name}")
        found[name] = s2.decode_block(data) if s2.is_compressed(data[:24]) else data
    return found


def compressed(disk: SimulatedDisk) -> set[str]:
    names = disk.list_directory(f"{FOLDER}/msgs")
    return {n for n in names if s2.is_compressed(disk.read_file(f"{FOLDER}/msgs/{n}")[:24])}


def contents(store: FileStore) -> dict[int, bytes]:
    return {message.seq: message.payload for message in store.table.messages()}


def check_everywhere(disk: SimulatedDisk, store: FileStore, **settings: Any) -> None:
    """Now, after a power failure, and closed and opened, the store shows the same."""
    store.verify()
    expected = contents(store)
    for crashed in (disk.crash_losing_unsynced(), disk.crash_keeping_unsynced()):
        assert contents(opened(crashed, **settings)) == expected
    store.close()
    again = opened(disk, **settings)
    assert contents(again) == expected
    again.verify()


# --- compression ----------------------------------------------------------------------------------


def test_every_block_but_the_last_is_compressed() -> None:
    plain, packed = SimulatedDisk(), SimulatedDisk()
    filled(plain)
    store = filled(packed, compresses=True)
    names = {f"{block.number}.blk" for block in store.table.blocks}
    assert compressed(packed) == names - {f"{store.table.last.number}.blk"}
    assert len(names) > 4
    assert {**files(packed), f"{store.table.last.number}.blk": b""} == {
        **files(plain),
        f"{store.table.last.number}.blk": b"",
    }
    check_everywhere(packed, store, compresses=True)


def test_blocks_of_both_kinds_live_together() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    store.close()
    store = opened(disk, compresses=True)
    for seq in range(61, 100):
        store.table.store(b"b", b"", secret(seq) + TEXT, seq)
    store.commit()
    kinds = {name in compressed(disk) for name in disk.list_directory(f"{FOLDER}/msgs")}
    assert kinds == {True, False}
    store.rewriter.compresses = False
    for seq in range(100, 140):
        store.table.store(b"c", b"", secret(seq) + TEXT, seq)
    store.commit()
    assert len(contents(store)) == 139
    check_everywhere(disk, store)


def test_a_block_that_does_not_become_smaller_stays_as_it_is() -> None:
    disk, random = SimulatedDisk(), Random(1)
    store = opened(disk, compresses=True)
    for seq in range(30):
        store.table.store(random.randbytes(40).hex()[:20].encode(), b"", random.randbytes(400), seq)
    store.commit()
    assert len(store.table.blocks) > 3
    assert not compressed(disk)
    assert not [name for name in files(disk) if name.endswith(".tmp")]


def test_only_the_worker_makes_the_copy_and_only_the_loop_names_it() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 5, compresses=True)
    for seq in range(20):
        store.table.store(b"a", b"", TEXT, seq)
    before = disk.calls["create"]
    commit = store.begin_commit()
    assert commit is not None
    assert disk.calls["create"] == before
    commit.run()
    assert disk.calls["create"] > before
    assert compressed(disk) == {n for n in files(disk) if n.endswith(".tmp")}
    store.finish_commit(commit)
    assert compressed(disk)
    assert not [name for name in files(disk) if name.endswith(".tmp")]


def test_inflated_blocks_stay_within_the_memory_of_indexes() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 400, compresses=True, index_bytes_max=10_000)
    for seq in range(1, 400, 3):
        assert store.table.get(seq).payload.startswith(secret(seq))
        assert sum(block.memory_bytes for block in store.table.blocks[:-1]) < 10_000 + 2 * 3000


# --- erasing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("compresses", [False, True])
@pytest.mark.parametrize(
    ("victims", "is_written"),
    [((2, 3), True), ((58, 60), True), ((1, 30, 59), True), ((60,), False)],
    ids=["sealed", "last block", "everywhere", "not written yet"],
)
def test_an_erased_message_is_on_no_disk(
    compresses: bool, victims: tuple[int, ...], is_written: bool
) -> None:
    disk = SimulatedDisk()
    store = filled(disk, 59, compresses=compresses)
    store.table.store(b"a.0", b"", secret(60) + TEXT, 60)
    if is_written:
        store.commit()
    sizes = {block.number: block.size for block in store.table.blocks[:-1]}
    for seq in victims:
        assert store.table.remove(seq, erase=True)
    store.commit()
    for crashed in (disk, disk.crash_losing_unsynced(), disk.crash_keeping_unsynced()):
        everything = b"".join(files(crashed).values())
        assert [seq for seq in range(1, 61) if secret(seq) not in everything] == list(victims)
    assert {block.number: block.size for block in store.table.blocks[:-1]} == sizes
    check_everywhere(disk, store, compresses=compresses)


def test_a_message_that_is_not_to_be_erased_stays_in_its_file() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    store.table.remove(3)
    store.commit()
    assert secret(3) in b"".join(files(disk).values())


def test_what_is_appended_while_the_last_block_is_copied_is_not_lost() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 3)
    store.table.remove(2, erase=True)
    commit = store.begin_commit()
    assert commit is not None
    store.table.store(b"a", b"", b"written meanwhile", 9)
    store.flush()
    commit.run()
    store.table.store(b"a", b"", b"and not written yet", 9)
    store.finish_commit(commit)
    assert {1, 3} <= set(contents(opened(disk.crash_losing_unsynced())))
    store.commit()
    assert secret(2) not in b"".join(files(disk).values())
    assert list(contents(store)) == [1, 3, 4, 5]
    check_everywhere(disk, store)


def test_a_block_that_is_sealed_while_it_is_copied_keeps_everything() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 3, compresses=True)
    store.table.remove(2, erase=True)
    commit = store.begin_commit()
    assert commit is not None
    for seq in range(30):
        store.table.store(b"a", b"", b"%d" % seq + TEXT, 9)
    commit.run()
    store.finish_commit(commit)
    store.commit()
    assert secret(2) not in b"".join(files(disk).values())
    assert "1.blk" in compressed(disk)
    check_everywhere(disk, store, compresses=True)


def test_a_copy_that_was_cut_off_is_removed_at_the_next_start() -> None:
    disk = SimulatedDisk()
    store = filled(disk)
    store.table.remove(3, erase=True)
    commit = store.begin_commit()
    assert commit is not None
    commit.run()
    crashed = disk.crash_keeping_unsynced()
    assert [name for name in files(crashed) if name.endswith(".tmp")]
    opened(crashed)
    assert not [name for name in files(crashed) if name.endswith(".tmp")]


# --- compaction -----------------------------------------------------------------------------------


def disk_bytes(disk: SimulatedDisk) -> int:
    return sum(len(data) for data in files(disk).values())


@pytest.mark.parametrize("compresses", [False, True])
def test_space_of_messages_removed_out_of_order_comes_back(compresses: bool) -> None:
    disk, random = SimulatedDisk(), Random(3)
    store = filled(disk, 600, compresses=compresses)
    full = disk_bytes(disk)
    waiting = list(range(1, 601))
    random.shuffle(waiting)
    for count, seq in enumerate(waiting[:570]):
        assert store.table.remove(seq)
        if count % 10 == 0:
            store.commit()
    store.commit()
    assert disk_bytes(disk) < full / 3
    assert sorted(contents(store)) == sorted(waiting[570:])
    check_everywhere(disk, store, compresses=compresses)


def test_one_old_message_does_not_keep_the_tombstones_of_all_others() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 1)
    for seq in range(2, 3000):
        store.table.store(b"work", b"", b"job", seq)
        if seq > 20:
            assert store.table.remove(seq - 10)
        if seq % 20 == 0:
            store.commit()
    store.commit()
    assert store.table.first_seq == 1
    assert disk_bytes(disk) < 10_000
    check_everywhere(disk, store)


def test_nothing_is_written_when_nothing_happens() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 300)
    for seq in range(1, 290):
        store.table.remove(seq)
    store.commit()
    steps = disk.steps
    assert not store.has_changes()
    assert store.begin_commit() is None
    store.commit()
    assert disk.steps == steps


def test_removals_while_a_block_is_compacted_count() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 60)
    for seq in range(1, 50):
        if seq % 7:
            store.table.remove(seq)
    while (commit := store.begin_commit()) is not None:
        commit.run()
        for rewrite in commit.rewrites:
            for seq in rewrite.block.live_sequences()[:1]:
                store.table.remove(seq)
        store.finish_commit(commit)
        store.verify()
    check_everywhere(disk, store)


def test_the_last_sequence_survives_the_compaction_of_its_block() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 60)
    store.table.add_block()
    for seq in range(60, 20, -1):
        store.table.remove(seq)
    store.commit()
    assert opened(disk.crash_losing_unsynced()).table.last_seq == 60


# --- failures -------------------------------------------------------------------------------------


def test_a_full_disk_puts_rewriting_off() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 60)
    store.table.remove(3, erase=True)
    disk.fail("write", "*.blk.tmp", error=errno.ENOSPC, after_bytes=50)
    store.commit()
    assert store.failure is None
    assert not [name for name in files(disk) if name.endswith(".tmp")]
    assert secret(3) in b"".join(files(disk).values())
    for _ in range(70):
        store.table.store(b"a", b"", b"x", 1)
        store.commit()
    assert secret(3) not in b"".join(files(disk).values())
    check_everywhere(disk, store)


def test_commits_of_one_message_each_count_in_the_pause_after_a_full_disk() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 60, block_bytes_max=8000)
    store.table.remove(3, erase=True)
    disk.fail("write", "*.blk.tmp", error=errno.ENOSPC, after_bytes=50)
    store.commit()
    alone = 0
    while not store.wants_commit():
        store.table.store(b"a", b"", b"x", 1)
        commit = store.begin_commit()
        assert commit is not None
        assert not commit.has_chores
        commit.run()
        store.finish_commit(commit)
        alone += 1
        assert alone <= PAUSE_COMMITS
    store.commit()
    assert secret(3) not in b"".join(files(disk).values())
    check_everywhere(disk, store)


def test_rewriting_goes_on_as_soon_as_a_full_disk_has_room() -> None:
    disk = SimulatedDisk()
    store = filled(disk, 60)
    store.table.remove(3, erase=True)
    disk.fail("write", "*.blk.tmp", error=errno.ENOSPC, after_bytes=50)
    store.commit()
    disk.fail("write", "*.blk", error=errno.ENOSPC)
    store.table.store(b"a", b"", b"x", 1)
    with pytest.raises(StoreError, match="ENOSPC"):
        store.commit()
    assert store.resume()
    store.commit()
    assert secret(3) not in b"".join(files(disk).values())
    check_everywhere(disk, store)


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_a_failing_disk_makes_the_store_read_only_and_loses_nothing(operation: Any) -> None:
    disk = SimulatedDisk()
    store = filled(disk, 60)
    store.table.remove(3, erase=True)
    disk.fail(operation, "*.blk.tmp")
    with pytest.raises(StoreError, match=r"\.blk\.tmp"):
        store.commit()
    assert store.failure is not None
    assert len(contents(store)) == 59
    assert len(contents(opened(disk.crash_keeping_unsynced()))) == 59
