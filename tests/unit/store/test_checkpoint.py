"""index.db: left by a clean end, trusted if it fits the blocks, and gone with the first commit."""

from __future__ import annotations

from typing import Any

import pytest
from store_kit import content, put, sequences

from tradewind.errors import StoreError
from tradewind.store.contract import StoreLimits
from tradewind.store.folder.commit_chores import FILES_REMOVED_MAX
from tradewind.store.folder.filestore import FileStore, ReadOnlyError
from tradewind.store.folder.recover import RecoveryReport, open_store
from tradewind.store.format.index_file import decode_index
from tradewind.store.format.layout import block_numbers
from tradewind.store.table.marks import write_floor
from tradewind.testing.fake_disk import SimulatedDisk

INDEX = "/disk/S/msgs/index.db"


def opened(disk: SimulatedDisk, **settings: Any) -> tuple[FileStore, RecoveryReport]:
    limits = settings.pop("limits", StoreLimits())
    return open_store(disk, "/disk/S", "S", limits, now_ns=0, block_bytes_max=500, **settings)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/disk/S", sync=True)
    return disk


def filled(disk: SimulatedDisk) -> FileStore:
    store, _ = opened(disk)
    put(store.table, *[b"s.%d" % (number % 7) for number in range(90)], payload=b"x" * 10)
    for seq in (1, 5, 50, 51, 52, 89):
        store.table.remove(seq)
    put(store.table, *[b"s.%d" % (number % 7) for number in range(10)], payload=b"x" * 10)
    return store


def closed(disk: SimulatedDisk) -> object:
    store = filled(disk)
    expected = content(store.table)
    store.close()
    return expected


def was_trusted(disk: SimulatedDisk, report: RecoveryReport) -> bool:
    """A rebuild counts the records that it reads; a start with index.db reads none."""
    return report.records == 0


def test_closed_store_opens_without_reading_messages(disk: SimulatedDisk) -> None:
    expected = closed(disk)
    disk.calls.clear()
    store, report = opened(disk)
    assert was_trusted(disk, report)
    assert disk.calls["map"] <= 1
    assert content(store.table) == expected
    store.verify()


def test_store_that_was_only_read_is_closed_without_a_change(disk: SimulatedDisk) -> None:
    expected = closed(disk)
    store, _ = opened(disk)
    assert content(store.table) == expected
    disk.calls.clear()
    before = disk.steps
    store.close()
    assert disk.steps == before
    assert disk.calls["sync"] == disk.calls["sync_directory"] == 0
    store, report = opened(disk)
    assert was_trusted(disk, report)
    assert content(store.table) == expected


def test_what_a_killed_process_left_is_synced_before_it_counts(disk: SimulatedDisk) -> None:
    store = filled(disk)
    store.flush()
    expected = content(store.table)
    # The process is gone, the system's memory is not.
    store, report = opened(disk, secures=False)
    assert not was_trusted(disk, report)
    assert store.chores.unsafe_files
    store.chores.secure()
    store.chores.secured()
    assert store.chores.unsafe_files == []
    store, _ = opened(disk.crash_losing_unsynced())
    assert content(store.table) == expected


def test_failed_sync_of_what_was_left_makes_the_store_read_only(disk: SimulatedDisk) -> None:
    filled(disk).flush()
    store, _ = opened(disk, secures=False)
    disk.fail("sync", "*.blk")
    store.chores.secure()
    with pytest.raises(StoreError, match="sync failed"):
        store.chores.secured()
    with pytest.raises(ReadOnlyError):
        put(store.table, b"s.1")


def test_summary_says_what_the_store_holds(disk: SimulatedDisk) -> None:
    closed(disk)
    index = decode_index(disk.content_of(INDEX), "S", INDEX)
    assert (index.messages, index.first_seq, index.last_seq) == (94, 2, 100)
    assert (index.first_time_ns, index.last_time_ns) == (2, 100)
    assert sum(index.subjects.totals) == 94
    assert len(index.subjects.totals) == 7
    deleted = [seq for block in index.blocks for seq in block.deleted]
    # Gaps at the edge of a block are seen from the first and last sequences of its neighbours.
    assert set(deleted) <= {5, 50, 51, 52, 89}
    assert sum(block.live_bytes for block in index.blocks) == index.live_bytes


def test_never_used_store_leaves_a_summary_too(disk: SimulatedDisk) -> None:
    store, _ = opened(disk)
    store.close()
    again, report = opened(disk)
    assert was_trusted(disk, report)
    assert (again.table.state.first_seq, again.table.state.last_seq) == (0, 0)
    assert put(again.table, b"a") == [1]


def test_emptied_store_keeps_its_last_sequence(disk: SimulatedDisk) -> None:
    store = filled(disk)
    store.table.purge()
    store.close()
    again, report = opened(disk)
    assert was_trusted(disk, report)
    assert (again.table.state.msgs, again.table.state.first_seq, again.table.state.last_seq) == (
        0,
        101,
        100,
    )


@pytest.mark.parametrize("change", ["store", "remove", "skip", "purge", "compact"])
def test_summary_is_gone_for_good_with_the_first_promise(disk: SimulatedDisk, change: str) -> None:
    closed(disk)
    store, _ = opened(disk)
    assert disk.exists(INDEX)
    {
        "store": lambda: store.table.store(b"a", b"", b"", 200),
        "remove": lambda: store.table.remove(20),
        "skip": lambda: store.table.skip(200, 200),
        "purge": lambda: store.table.purge(b"s.3"),
        "compact": lambda: store.table.compact(30),
    }[change]()
    expected = content(store.table)
    store.commit()
    assert not disk.exists(INDEX)
    after = disk.crash_losing_unsynced()
    assert not after.exists(INDEX)
    again, report = opened(after)
    assert not was_trusted(after, report)
    assert content(again.table) == expected


CHANGES = ("store", "remove", "skip", "purge", "purge all", "limit")


def changed(store: FileStore, change: str) -> None:
    match change:
        case "store":
            store.table.store(b"a", b"", b"", 200)
        case "remove":
            store.table.remove(20)
        case "skip":
            store.table.skip(200, 200)
        case "purge":
            store.table.purge(b"s.3")
        case "purge all":
            store.table.purge()
        case _:
            store.table.set_limits(StoreLimits(msgs_max=20))
            store.table.apply_limits(0)


@pytest.mark.parametrize("change", CHANGES)
def test_first_change_leaves_the_summary_to_the_thread_of_its_commit(
    disk: SimulatedDisk, change: str
) -> None:
    closed(disk)
    store, _ = opened(disk)
    disk.calls.clear()
    changed(store, change)
    store.flush()
    commit = store.begin_commit()
    assert commit is not None
    assert (disk.calls["remove"], disk.calls["sync_directory"]) == (0, 0)
    assert disk.exists(INDEX)
    commit.run()
    assert not disk.crash_losing_unsynced().exists(INDEX)
    store.finish_commit(commit)


@pytest.mark.parametrize("change", CHANGES)
def test_summary_beside_a_change_that_was_not_promised_is_not_trusted(
    disk: SimulatedDisk, change: str
) -> None:
    closed(disk)
    store, _ = opened(disk)
    changed(store, change)
    expected = content(store.table)
    write_floor(store.table)
    store.flush()
    killed = disk.crash_keeping_unsynced()
    assert killed.exists(INDEX)
    again, report = opened(killed)
    assert not was_trusted(killed, report)
    assert (content(again.table), report.lost) == (expected, [])


def test_blocks_that_go_together_are_removed_a_few_with_each_commit(disk: SimulatedDisk) -> None:
    store = filled(disk)
    store.commit()
    store.table.purge()
    before = len(block_numbers(disk.list_directory("/disk/S/msgs")))
    assert before > 2 * FILES_REMOVED_MAX
    while (commit := store.begin_commit()) is not None:
        commit.run()
        disk.calls.clear()
        store.finish_commit(commit)
        assert disk.calls["remove"] <= FILES_REMOVED_MAX
    assert len(block_numbers(disk.list_directory("/disk/S/msgs"))) == 1


def test_store_that_was_only_read_leaves_the_summary(disk: SimulatedDisk) -> None:
    expected = closed(disk)
    store, _ = opened(disk)
    assert sequences(store.table)[0] == 2
    store.table.next_message((b"s.3",), 0)
    assert store.begin_commit() is None
    assert disk.exists(INDEX)
    store.close()
    again, report = opened(disk)
    assert was_trusted(disk, report)
    assert content(again.table) == expected


def test_opening_alone_changes_nothing(disk: SimulatedDisk) -> None:
    store, _ = opened(disk)
    put(store.table, *[b"a"] * 40)
    for seq in range(40, 25, -1):
        store.table.remove(seq)
    assert store.table.last.live_msgs == 0
    store.close()
    before = disk.snapshot_tree()
    store, report = opened(disk)
    assert was_trusted(disk, report)
    assert disk.snapshot_tree() == before


@pytest.mark.parametrize("offset", [0, 1, 20, -1, -9])
def test_damaged_summary_is_not_trusted(disk: SimulatedDisk, offset: int) -> None:
    expected = closed(disk)
    data = bytearray(disk.content_of(INDEX))
    data[offset] ^= 1
    disk.put_durable_file(INDEX, bytes(data))
    store, report = opened(disk)
    assert not was_trusted(disk, report)
    assert content(store.table) == expected


def test_cut_and_empty_summaries_are_not_trusted(disk: SimulatedDisk) -> None:
    expected = closed(disk)
    whole = disk.content_of(INDEX)
    for size in (0, 1, 8, 20, len(whole) // 2, len(whole) - 1):
        disk.put_durable_file(INDEX, whole[:size])
        store, report = opened(disk)
        assert not was_trusted(disk, report)
        assert content(store.table) == expected


def test_summary_of_another_stream_is_not_trusted(disk: SimulatedDisk) -> None:
    expected = closed(disk)
    other = SimulatedDisk()
    other.make_directory("/disk/S", sync=True)
    stranger, _ = open_store(other, "/disk/S", "T", now_ns=0)
    put(stranger.table, b"a")
    stranger.close()
    disk.put_durable_file(INDEX, other.content_of(INDEX))
    store, report = opened(disk)
    assert not was_trusted(disk, report)
    assert content(store.table) == expected


def test_stale_summary_is_not_trusted(disk: SimulatedDisk) -> None:
    closed(disk)
    stale = disk.content_of(INDEX)
    store, _ = opened(disk)
    put(store.table, b"new")
    store.table.remove(40)
    store.commit()
    expected = content(store.table)
    disk.put_durable_file(INDEX, stale)
    again, report = opened(disk)
    assert not was_trusted(disk, report)
    assert content(again.table) == expected


def test_summary_without_its_last_block_is_not_trusted(disk: SimulatedDisk) -> None:
    closed(disk)
    store, _ = opened(disk)
    last = store.table.last
    gone = last.live_sequences()
    disk.remove(last.path)
    again, report = opened(disk)
    assert not was_trusted(disk, report)
    assert again.table.msgs == 94 - len(gone)
    assert again.table.last_seq == 100
    assert report.lost == gone != []


def test_wrong_summary_never_deletes_a_block(disk: SimulatedDisk) -> None:
    closed(disk)
    blocks = [name for name in disk.list_directory("/disk/S/msgs") if name.endswith(".blk")]
    disk.put_durable_file(INDEX, b"nonsense" * 10)
    opened(disk)
    assert set(disk.list_directory("/disk/S/msgs")) >= set(blocks)
