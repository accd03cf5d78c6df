"""Deletions that damaged bytes have said are forgotten: what limits take for them is named."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from store_kit import put, sequences

from tradewind.store.contract import StoreLimits
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.repair.damage import RecoveryReport
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

BLOCK = "/disk/S/msgs/1.blk"
TOMBSTONE = 1 << 62
FIVE = StoreLimits(msgs_max=5)


def opened(disk: SimulatedDisk, limits: StoreLimits) -> tuple[FileStore, RecoveryReport]:
    return open_store(disk, "/disk/S", "S", limits, now_ns=0)


def store_with_deletion(limits: StoreLimits, count: int, deleted: int) -> SimulatedDisk:
    """A store at its limit that was killed; the tombstone of one message has rotten since."""
    disk = SimulatedDisk()
    disk.make_directory("/disk/S", sync=True)
    store, _ = opened(disk, limits)
    put(store.table, *[b"a"] * count)
    store.commit()
    store.table.remove(deleted)
    put(store.table, b"a")
    store.commit()
    store.mark_idle()
    data = bytearray(disk.content_of(BLOCK))
    tombstone = data.index((deleted | TOMBSTONE).to_bytes(8, "little"))
    data[tombstone + 10] ^= 1  # in its time
    disk.put_durable_file(BLOCK, bytes(data))
    return disk


@pytest.mark.parametrize(
    "limits", [FIVE, StoreLimits(subject_msgs_max=5), StoreLimits(bytes_max=5 * 31)]
)
def test_message_that_limits_take_for_a_forgotten_deletion_is_named(limits: StoreLimits) -> None:
    disk = store_with_deletion(limits, 5, deleted=3)
    store, report = opened(disk, limits)
    assert sequences(store.table) == [2, 3, 4, 5, 6]
    assert report.lost == [1]
    assert "took 1 of sequences 1 to 1" in report.notes[-1]
    assert store.lost is not None
    assert store.lost.sequences == (1,)
    again, second = opened(disk.crash_losing_unsynced(), limits)
    assert second.is_clean
    assert sequences(again.table) == sequences(store.table)
    assert again.lost == store.lost


def test_nothing_is_named_where_the_limits_have_room() -> None:
    disk = store_with_deletion(StoreLimits(msgs_max=7), 5, deleted=3)
    store, report = opened(disk, StoreLimits(msgs_max=7))
    assert sequences(store.table) == [1, 2, 3, 4, 5, 6]
    assert report.lost == []


def test_stream_that_refuses_new_messages_keeps_all() -> None:
    limits = StoreLimits(msgs_max=5, discard_new=True)
    store, report = opened(store_with_deletion(limits, 5, deleted=3), limits)
    assert sequences(store.table) == [1, 2, 3, 4, 5, 6]
    assert report.lost == []


def test_loss_is_named_once_wherever_the_start_is_cut_off() -> None:
    disk = store_with_deletion(FIVE, 5, deleted=3)
    whole = disk.crash_keeping_unsynced()
    opened(whole, FIVE)
    for step in range(1, whole.steps + 1):
        cut = disk.crash_keeping_unsynced()
        cut.stop_at = step
        with suppress(PowerLoss):
            opened(cut, FIVE)
        for after in (cut.crash_losing_unsynced(), cut.crash_keeping_unsynced(), cut.crash(step)):
            store, _ = opened(after, FIVE)
            assert sequences(store.table) == [2, 3, 4, 5, 6]
            assert told(after) == [1]


def told(disk: SimulatedDisk) -> list[int]:
    """The losses that all reports in the folder name."""
    names = [name for name in disk.list_directory("/disk/S/damage") if name.endswith(".json")]
    texts = [disk.content_of(f"/disk/S/damage/{name}") for name in names]
    return [seq for text in texts for seq in msgspec.json.decode(text)["lost"]]


def test_later_removals_are_not_taken_for_a_consequence() -> None:
    """What was stored since then pushes out messages by right."""
    disk = store_with_deletion(FIVE, 5, deleted=3)
    store, _ = opened(disk, FIVE)
    put(store.table, b"a")
    store.flush()  # without a commit, so the floor is not said
    again, report = opened(disk.crash_keeping_unsynced(), FIVE)
    assert sequences(again.table) == [3, 4, 5, 6, 7]
    assert report.is_clean
    assert told(disk) == [1]


def test_more_sequences_than_the_damage_had_room_for_are_not_lost() -> None:
    """A record that skips two sequences is hit: it held one at most."""
    disk = SimulatedDisk()
    disk.make_directory("/disk/S", sync=True)
    store, _ = opened(disk, StoreLimits())
    put(store.table, b"a")
    store.table.skip(3, 1)
    put(store.table, b"a")
    store.commit()
    store.mark_idle()
    data = bytearray(disk.content_of(BLOCK))
    data[data.index((3 | 1 << 63).to_bytes(8, "little")) + 10] ^= 1
    disk.put_durable_file(BLOCK, bytes(data))
    again, report = opened(disk, StoreLimits())
    assert len(report.lost) == 1
    assert sequences(again.table) == [1, 4]


def test_record_that_was_lost_behind_skipped_sequences_is_named_by_its_neighbour() -> None:
    """The records of a block have changed places; what is missing lay beside those left."""
    disk = SimulatedDisk()
    disk.make_directory("/disk/S", sync=True)
    store, _ = opened(disk, StoreLimits())
    put(store.table, b"a")
    store.table.skip(70_000, 1)
    put(store.table, b"a", b"a", b"a", b"a")
    store.commit()
    store.mark_idle()
    path = store.table.last.path
    data = bytearray(disk.content_of(path))
    places = [data.index(seq.to_bytes(8, "little")) - 4 for seq in range(70_001, 70_005)]
    first, second, third, fourth = places
    data[second:third], data[third:fourth] = data[third:fourth], data[second:third]
    data[data.index((70_000 | 1 << 63).to_bytes(8, "little")) + 10] ^= 1
    data[first + 14] ^= 1
    disk.put_durable_file(path, bytes(data))
    again, report = opened(disk, StoreLimits())
    assert report.lost == [70_000, 70_001]
    assert sequences(again.table) == [1, 70_002, 70_003, 70_004]


def test_deleted_neighbours_do_not_take_the_place_of_what_is_lost() -> None:
    """Of the sequences in a gap those that are known to be deleted were not in the damage."""
    disk = SimulatedDisk()
    disk.make_directory("/disk/S", sync=True)
    store, _ = opened(disk, StoreLimits())
    put(store.table, *[b"a"] * 8)
    for seq in (2, 3, 6, 7):
        store.table.remove(seq)
    store.commit()
    store.mark_idle()
    data = bytearray(disk.content_of(BLOCK))
    places = [data.index(seq.to_bytes(8, "little")) - 4 for seq in range(1, 9)]
    # The records of all between the first and the last, but only two of them are left.
    del data[places[1] : places[5]]
    data[places[1] + 14] ^= 1
    data[places[1] + 31 + 14] ^= 1
    disk.put_durable_file(BLOCK, bytes(data))
    again, report = opened(disk, StoreLimits())
    assert report.lost == [4, 5]
    assert sequences(again.table) == [1, 8]


def test_last_block_that_is_gone_does_not_take_the_others_along() -> None:
    """Its marks said that they are synced; the witness of the stream says so too."""
    disk = SimulatedDisk()
    disk.make_directory("/disk/S", sync=True)
    store, _ = open_store(disk, "/disk/S", "S", FIVE, now_ns=0, block_bytes_max=250)
    put(store.table, *[b"a"] * 20, payload=b"x" * 60)
    store.commit()
    store.mark_idle()
    assert not store.chores.unremoved_blocks
    kept = [seq for seq in sequences(store.table) if seq < store.table.last.first_seq]
    assert kept
    disk.remove(store.table.last.path)
    disk.sync_directory("/disk/S/msgs")
    again, report = opened(disk.crash_losing_unsynced(), FIVE)
    assert sequences(again.table) == kept
    assert set(report.lost).isdisjoint(kept)
    assert set(report.lost) >= {seq for seq in sequences(store.table) if seq not in kept}


def test_damaged_record_among_skipped_sequences_is_named_by_what_it_says() -> None:
    """Neither neighbour is near, but the sequence in the record itself is whole."""
    disk = SimulatedDisk()
    disk.make_directory("/disk/S", sync=True)
    store, _ = opened(disk, StoreLimits())
    store.table.skip(39, 1)
    put(store.table, b"a")
    store.table.skip(70_000, 1)
    put(store.table, b"a")
    store.commit()
    store.mark_idle()
    data = bytearray(disk.content_of(BLOCK))
    for number in (39 | 1 << 63, 40):
        data[data.index(number.to_bytes(8, "little")) + 10] ^= 1
    disk.put_durable_file(BLOCK, bytes(data))
    again, report = opened(disk, StoreLimits())
    assert 40 in report.lost
    assert sequences(again.table) == [70_001]
