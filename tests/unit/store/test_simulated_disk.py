"""The simulated disk: power failures, injected faults, capacity, damage, copies of real folders."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tradewind.store.files.disk import (
    DiskError,
    DiskFault,
    DiskFull,
    FolderInUse,
    MissingFile,
    OsDisk,
)
from tradewind.testing.disk_damage import DiskDamage
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

ROOT = "/disk"
SEEDS = range(1000)


def outcomes(disk: SimulatedDisk) -> list[dict[str, bytes | None]]:
    """What many power failures leave, all different."""
    found = {repr(tree): tree for tree in (disk.crash(seed).snapshot_tree() for seed in SEEDS)}
    return list(found.values())


def with_file(content: bytes = b"") -> SimulatedDisk:
    """A disk with one durable file."""
    disk = SimulatedDisk(7)
    disk.put_durable_file(f"{ROOT}/f", content)
    return disk


# --- power failures: bytes -----------------------------------------------------------------------


def test_a_new_file_is_lost_until_its_folder_is_synced() -> None:
    disk = SimulatedDisk()
    with disk.create(f"{ROOT}/f") as file:
        file.write(b"data", 0)
        file.sync()
        assert disk.crash_losing_unsynced().snapshot_tree() == {}
        assert {str(tree) for tree in outcomes(disk)} == {"{}", "{'f': b'data'}"}
        disk.sync_directory(ROOT)
        assert outcomes(disk) == [{"f": b"data"}]


def test_a_synced_name_without_synced_data_may_be_an_empty_file() -> None:
    disk = SimulatedDisk()
    with disk.create(f"{ROOT}/f") as file:
        file.write(b"data", 0)
    disk.sync_directory(ROOT)
    found = [tree["f"] for tree in outcomes(disk)]
    assert {b"", b"data", bytes(4)} <= set(found)
    assert disk.crash_losing_unsynced().snapshot_tree() == {"f": b""}


def test_ext4_keeps_the_name_of_a_synced_file_and_of_its_folders() -> None:
    disk = SimulatedDisk(sync_persists_names=True)
    disk.make_directory(f"{ROOT}/a/b")
    disk.make_directory(f"{ROOT}/other")
    with disk.create(f"{ROOT}/a/b/f") as file:
        file.write(b"data", 0)
        file.sync()
    tree = {"a": None, "a/b": None, "a/b/f": b"data"}
    assert disk.crash_losing_unsynced().snapshot_tree() == tree
    assert disk.crash(1).sync_persists_names


def test_unsynced_appends_survive_torn_reordered_or_as_holes() -> None:
    disk = with_file(b"durable!")
    file = disk.open(f"{ROOT}/f", writes=True)
    file.write(b"A" * 700, 8)
    file.write(b"B" * 700, 708)
    found = [tree["f"] for tree in outcomes(disk)]
    assert all(data is not None and data.startswith(b"durable!") for data in found)
    contents = [data for data in found if data is not None]
    assert {len(data) for data in contents} >= {8, 708, 1408}
    assert any(b"B" in data and b"A" not in data for data in contents), "reordered"
    assert any(data.endswith(b"\0" * 600) for data in contents), "size without data"
    assert any(0 < data.count(b"A") < 700 for data in contents), "torn"
    assert any(data.count(b"A") not in (0, 504, 512, 196, 700) for data in contents), "byte torn"
    assert any(data.count(b"A") == data.count(b"B") == 700 for data in contents), "all there"


def test_a_tear_between_sectors_lies_at_a_multiple_of_512() -> None:
    disk = with_file(bytes(100))
    file = disk.open(f"{ROOT}/f", writes=True)
    file.write(b"x" * 2000, 100)
    file.write(b"y", 2100)
    holes = set()
    for tree in outcomes(disk):
        data = tree["f"]
        assert data is not None
        places = [place for place in range(101, min(2099, len(data))) if data[place] == 0]
        holes.update(place for place in places if data[place - 1] == ord("x"))
    assert {512, 1024, 1536} & holes


def test_an_overwrite_leaves_old_or_new_bytes_and_never_zeros() -> None:
    disk = with_file(b"o" * 1500)
    disk.open(f"{ROOT}/f", writes=True).write(b"n" * 1000, 250)
    found = [tree["f"] for tree in outcomes(disk)]
    assert {b"o" * 1500, b"o" * 250 + b"n" * 1000 + b"o" * 250} <= set(found)
    assert all(data is not None and len(data) == 1500 and set(data) <= {110, 111} for data in found)


def test_an_unsynced_cut_survives_or_not_and_a_synced_one_does() -> None:
    disk = with_file(b"0123456789")
    file = disk.open(f"{ROOT}/f", writes=True)
    file.truncate(4)
    assert sorted(str(tree["f"]) for tree in outcomes(disk)) == ["b'0123'", "b'0123456789'"]
    file.sync()
    assert outcomes(disk) == [{"f": b"0123"}]


def test_bytes_behind_a_cut_do_not_come_back_when_the_file_grows() -> None:
    disk = with_file(b"0123456789")
    file = disk.open(f"{ROOT}/f", writes=True)
    file.truncate(4)
    file.truncate(12)
    possible = {b"0123456789", b"0123", b"0123\0\0\0\0\0\0\0\0"}
    assert {tree["f"] for tree in outcomes(disk)} == possible


def test_written_bytes_behind_a_cut_do_not_come_back_either() -> None:
    disk = with_file()
    file = disk.open(f"{ROOT}/f", writes=True)
    file.write(b"AAAAAA", 0)
    file.truncate(2)
    file.truncate(12)
    found = {tree["f"] for tree in outcomes(disk)}
    assert {b"", b"AAAAAA", b"AA", b"AA" + bytes(10), bytes(12)} <= found
    assert not any(b"AAA" in data for data in found if data and len(data) == 12)


def test_overlapping_writes_arrive_in_order_within_a_sector() -> None:
    disk = with_file(b"....")
    file = disk.open(f"{ROOT}/f", writes=True)
    file.write(b"AA", 0)
    file.write(b"BBBB", 0)
    found = {tree["f"] for tree in outcomes(disk)}
    assert {b"....", b"A...", b"AA..", b"BA..", b"BBB.", b"BBBB"} <= found
    assert b"AABB" not in found


def test_overlapping_writes_arrive_in_either_order_in_different_sectors() -> None:
    disk = with_file(b"." * 1024)
    file = disk.open(f"{ROOT}/f", writes=True)
    file.write(b"A" * 1024, 0)
    file.write(b"B" * 1024, 0)
    sectors = {(data[:512], data[512:]) for tree in outcomes(disk) if (data := tree["f"])}
    old, first, second = b"." * 512, b"A" * 512, b"B" * 512
    assert {(first, second), (second, first), (old, second), (second, old)} <= sectors


def test_sync_makes_all_writes_before_it_durable_and_none_after() -> None:
    disk = with_file()
    file = disk.open(f"{ROOT}/f", writes=True)
    file.write(b"before", 0)
    file.sync()
    file.write(b"after", 6)
    assert disk.crash_losing_unsynced().snapshot_tree() == {"f": b"before"}
    assert disk.crash_keeping_unsynced().snapshot_tree() == {"f": b"beforeafter"}


def test_a_sync_through_one_handle_covers_writes_through_another() -> None:
    disk = with_file()
    disk.open(f"{ROOT}/f", writes=True).write(b"data", 0)
    disk.open(f"{ROOT}/f", writes=True).sync()
    assert outcomes(disk) == [{"f": b"data"}]


def test_a_prefix_of_the_steps_can_be_kept() -> None:
    disk = with_file()
    file = disk.open(f"{ROOT}/f", writes=True)
    file.write(b"1", 0)
    disk.create(f"{ROOT}/g").close()
    file.write(b"2", 1)
    assert disk.unsynced_steps() == [1, 2, 3]
    kept = [disk.crash_keeping_steps(last).snapshot_tree() for last in range(4)]
    assert kept == [{"f": b""}, {"f": b"1"}, {"f": b"1", "g": b""}, {"f": b"12", "g": b""}]


# --- power failures: names -----------------------------------------------------------------------


def test_an_unsynced_rename_is_all_or_nothing() -> None:
    disk = with_file(b"x")
    disk.rename(f"{ROOT}/f", f"{ROOT}/g")
    assert sorted(map(str, outcomes(disk))) == ["{'f': b'x'}", "{'g': b'x'}"]
    disk.sync_directory(ROOT)
    assert outcomes(disk) == [{"g": b"x"}]


def test_a_rename_between_folders_is_all_or_nothing_and_durable_by_either_sync() -> None:
    for synced in ("a", "b"):
        disk = SimulatedDisk()
        disk.put_durable_file(f"{ROOT}/a/f", b"x")
        disk.put_durable_file(f"{ROOT}/b/other", b"")
        disk.rename(f"{ROOT}/a/f", f"{ROOT}/b/f")
        places = [sorted(name for name in tree if name.endswith("/f")) for tree in outcomes(disk)]
        assert sorted(places) == [["a/f"], ["b/f"]]
        disk.sync_directory(f"{ROOT}/{synced}")
        assert [[name for name in tree if "/f" in name] for tree in outcomes(disk)] == [["b/f"]]


def test_a_removed_file_may_come_back_until_its_folder_is_synced() -> None:
    disk = with_file(b"x")
    disk.remove(f"{ROOT}/f")
    assert {str(tree) for tree in outcomes(disk)} == {"{}", "{'f': b'x'}"}
    disk.sync_directory(ROOT)
    assert outcomes(disk) == [{}]


def test_a_replaced_file_is_old_or_new_and_never_gone() -> None:
    disk = with_file(b"old")
    disk.write_file_atomically(f"{ROOT}/f", b"new", sync=False)
    found = {tree.get("f") for tree in outcomes(disk)}
    assert {b"old", b"new", b""} <= found
    assert None not in found


@pytest.mark.parametrize("stop_at", range(1, 7))
def test_a_synced_atomic_write_is_old_or_new_at_every_step(stop_at: int) -> None:
    disk = with_file(b"old")
    disk.stop_at = stop_at
    finished = False
    try:
        disk.write_file_atomically(f"{ROOT}/f", b"new")
        finished = True
    except PowerLoss:
        pass
    assert finished == (stop_at == 6)
    found = {tree["f"] for tree in outcomes(disk)}
    assert found <= ({b"new"} if finished else {b"old", b"new"})


def test_names_survive_independently_of_each_other() -> None:
    disk = SimulatedDisk()
    for name in "abc":
        disk.create(f"{ROOT}/{name}").close()
    found = {"".join(sorted(tree)) for tree in outcomes(disk)}
    assert found == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


def test_a_new_folder_is_lost_with_its_synced_content_until_its_parent_is_synced() -> None:
    disk = SimulatedDisk()
    disk.make_directory(f"{ROOT}/a")
    with disk.create(f"{ROOT}/a/f") as file:
        file.sync()
    disk.sync_directory(f"{ROOT}/a")
    assert {} in outcomes(disk)
    disk.sync_directory(ROOT)
    assert outcomes(disk) == [{"a": None, "a/f": b""}]


def test_make_directory_with_sync_is_durable_at_once() -> None:
    disk = SimulatedDisk()
    disk.make_directory(f"{ROOT}/a/b", sync=True)
    assert outcomes(disk) == [{"a": None, "a/b": None}]


def test_a_durable_file_is_not_lost_in_a_move_to_a_folder_that_is() -> None:
    disk = with_file(b"x")
    disk.make_directory(f"{ROOT}/a/b")
    disk.rename(f"{ROOT}/f", f"{ROOT}/a/b/f")
    for tree in outcomes(disk):
        assert [data for data in tree.values() if data is not None] == [b"x"]
    disk.sync_directory(f"{ROOT}/a/b")
    assert [name for tree in outcomes(disk) for name in tree] == ["a", "a/b", "a/b/f"]


def test_a_durable_file_is_not_lost_with_the_folder_it_was_moved_out_of() -> None:
    disk = SimulatedDisk()
    disk.put_durable_file(f"{ROOT}/a/f", b"x")
    disk.rename(f"{ROOT}/a/f", f"{ROOT}/f")
    disk.remove_tree(f"{ROOT}/a")
    for tree in outcomes(disk):
        assert [data for data in tree.values() if data is not None] == [b"x"]


@pytest.mark.parametrize("inner", ["", "inner/", "inner/most/"])
def test_folders_that_move_into_each_other_are_not_lost_in_a_ring(inner: str) -> None:
    disk = SimulatedDisk()
    disk.put_durable_file(f"{ROOT}/x/{inner}1", b"1")
    disk.put_durable_file(f"{ROOT}/y/2", b"2")
    disk.rename(f"{ROOT}/x", f"{ROOT}/y/x")
    disk.rename(f"{ROOT}/y/x", f"{ROOT}/z")
    disk.rename(f"{ROOT}/y", f"{ROOT}/z/{inner}y")
    for tree in outcomes(disk):
        assert sorted(data for data in tree.values() if data is not None) == [b"1", b"2"]


def test_two_generations_of_one_name_keep_their_order() -> None:
    disk = with_file(b"first")
    disk.remove(f"{ROOT}/f")
    with disk.create(f"{ROOT}/f") as file:
        file.write(b"second", 0)
        file.sync()
    found = {tree.get("f", b"none") for tree in outcomes(disk)}
    assert found == {b"first", b"none", b"second"}


@pytest.mark.slow
def test_one_moment_gives_the_same_outcome_for_the_same_seed() -> None:
    def build() -> SimulatedDisk:
        disk = SimulatedDisk(3)
        for number in range(20):
            with disk.create(f"{ROOT}/{number}") as file:
                file.write(b"%d" % number * 300, 0)
                if number % 3 == 0:
                    file.sync()
        return disk

    first, second = build(), build()
    for seed in range(50):
        tree = first.crash(seed).snapshot_tree()
        assert tree == first.crash(seed).snapshot_tree() == second.crash(seed).snapshot_tree()
    assert len(outcomes(first)) > 100
    assert len(first.snapshot_tree()) == 20


def test_the_disk_after_a_crash_lives_its_own_life() -> None:
    disk = with_file(b"shared")
    after = disk.crash(1)
    with after.open(f"{ROOT}/f", writes=True) as file:
        file.write(b"X", 0)
        file.sync()
    with disk.open(f"{ROOT}/f", writes=True) as file:
        file.write(b"Y", 1)
    after.remove(f"{ROOT}/f")
    assert disk.read_file(f"{ROOT}/f") == b"sYared"
    assert after.crash_losing_unsynced().read_file(f"{ROOT}/f") == b"Xhared"
    assert disk.crash_losing_unsynced().read_file(f"{ROOT}/f") == b"shared"


# --- stopping at a step --------------------------------------------------------------------------


def test_the_power_fails_at_the_chosen_step_and_stays_away() -> None:
    disk = SimulatedDisk()
    disk.stop_at = 3
    file = disk.create(f"{ROOT}/f")
    file.write(b"one", 0)
    assert disk.steps == 2
    for call in (
        lambda: file.write(b"two", 3),
        lambda: file.read(0, 1),
        lambda: file.size,
        file.map,
        file.sync,
        lambda: disk.open(f"{ROOT}/f", writes=True),
        lambda: disk.exists(ROOT),
        lambda: disk.lock(f"{ROOT}/lock"),
        lambda: disk.rename(f"{ROOT}/f", f"{ROOT}/g"),
    ):
        with pytest.raises(PowerLoss):
            call()
    file.close()
    assert disk.snapshot_tree() == {"f": b"one"}
    assert disk.crash(1).exists(ROOT)


def test_only_calls_that_change_the_disk_are_steps_but_all_are_counted() -> None:
    disk = with_file(b"abc")
    file = disk.open(f"{ROOT}/f", writes=True)
    file.read(0, 3)
    file.map()
    disk.list_directory(ROOT)
    disk.exists(ROOT)
    assert disk.steps == 0
    file.write(b"x", 0)
    file.truncate(1)
    file.sync()
    disk.make_directory(f"{ROOT}/a/b", sync=True)
    disk.rename(f"{ROOT}/f", f"{ROOT}/a/f")
    disk.remove_tree(f"{ROOT}/a")
    assert disk.steps == 3 + 4 + 1 + 3
    assert disk.calls["read"] == disk.calls["map"] == disk.calls["write"] == 1
    assert disk.calls["sync_directory"] == 2
    assert disk.open_files == 1
    file.close()
    assert disk.open_files == 0


def test_short_writes_are_steps_of_their_own() -> None:
    disk = with_file()
    disk.short_write_bytes = 4
    disk.stop_at = 3
    with pytest.raises(PowerLoss):
        disk.open(f"{ROOT}/f", writes=True).write(b"0123456789", 0)
    assert disk.snapshot_tree() == {"f": b"01234567"}


# --- faults --------------------------------------------------------------------------------------


def failure(call: Callable[[], object]) -> DiskError:
    with pytest.raises(DiskError) as caught:
        call()
    return caught.value


def test_the_nth_matching_call_fails_and_the_others_do_not() -> None:
    disk = SimulatedDisk()
    fault = disk.fail("write", "*/b", nth=2, error=errno.ENOSPC, times=2, after_bytes=1)
    files = {name: disk.create(f"{ROOT}/{name}") for name in "ab"}
    for file in files.values():
        file.write(b"12", 0)
    for place in (2, 4):
        files["a"].write(b"34", place)
        assert isinstance(failure(lambda: files["b"].write(b"34", 2)), DiskFull)
    assert fault.hits == 2
    files["b"].write(b"5", 3)
    assert disk.snapshot_tree() == {"a": b"123434", "b": b"1235"}


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        ("open", lambda disk: disk.open(f"{ROOT}/f", writes=True)),
        ("open", lambda disk: disk.read_file(f"{ROOT}/f")),
        ("create", lambda disk: disk.create(f"{ROOT}/new")),
        ("read", lambda disk: disk.read_file(f"{ROOT}/f")),
        ("size", lambda disk: disk.open(f"{ROOT}/f", writes=True).size),
        ("map", lambda disk: disk.open(f"{ROOT}/f", writes=True).map()),
        ("write", lambda disk: disk.open(f"{ROOT}/f", writes=True).write(b"new", 0)),
        ("truncate", lambda disk: disk.open(f"{ROOT}/f", writes=True).truncate(1)),
        ("sync", lambda disk: disk.open(f"{ROOT}/f", writes=True).sync()),
        ("rename", lambda disk: disk.rename(f"{ROOT}/f", f"{ROOT}/g")),
        ("rename", lambda disk: disk.write_file_atomically(f"{ROOT}/f", b"new")),
        ("sync", lambda disk: disk.write_file_atomically(f"{ROOT}/f", b"new")),
        ("remove", lambda disk: disk.remove(f"{ROOT}/f")),
        ("remove_tree", lambda disk: disk.remove_tree(f"{ROOT}/f")),
        ("make_directory", lambda disk: disk.make_directory(f"{ROOT}/a/b")),
        ("list_directory", lambda disk: disk.list_directory(ROOT)),
        ("sync_directory", lambda disk: disk.sync_directory(ROOT)),
        ("exists", lambda disk: disk.exists(f"{ROOT}/f")),
        ("exists", lambda disk: disk.is_directory(f"{ROOT}/f")),
        ("lock", lambda disk: disk.lock(f"{ROOT}/lock")),
    ],
)
def test_every_call_can_be_made_to_fail_without_a_trace(
    operation: str, call: Callable[[SimulatedDisk], object]
) -> None:
    disk = with_file(b"old")
    fault = disk.fail(operation)  # type: ignore[arg-type]
    error = failure(lambda: call(disk))
    assert isinstance(error, DiskFault)
    assert (error.operation, error.errno, fault.hits) == (operation, errno.EIO, 1)
    assert disk.snapshot_tree() == {"f": b"old"}
    disk.clear_faults()
    call(disk)


def test_a_fault_for_all_operations_counts_them_all() -> None:
    disk = with_file(b"old")
    disk.fail("*", nth=2)
    file = disk.open(f"{ROOT}/f", writes=True)
    assert failure(lambda: file.read(0, 1)).operation == "read"


@pytest.mark.slow
def test_after_a_failed_sync_a_later_good_one_does_not_bring_the_data_back() -> None:
    lost = set()
    for seed in range(60):
        disk = SimulatedDisk(seed)
        disk.put_durable_file(f"{ROOT}/f", b"durable")
        disk.fail("sync")
        file = disk.open(f"{ROOT}/f", writes=True)
        file.write(b"A" * 1000, 7)
        failure(file.sync)
        assert failure(file.sync).errno == errno.EIO
        again = disk.open(f"{ROOT}/f", writes=True)
        again.write(b"B", 1007)
        again.sync()
        assert again.read(0, 2000) == b"durable" + b"A" * 1000 + b"B"
        (tree,) = outcomes(disk)
        data = tree["f"]
        assert data is not None
        assert data[:7] + data[1007:] == b"durableB"
        assert set(data[7:1007]) <= {0, ord("A")}
        lost.add(data.count(b"A"))
    assert {0, 1000} < lost


@pytest.mark.slow
def test_after_a_failed_sync_the_next_good_one_makes_the_size_durable_with_holes() -> None:
    for seed in range(20):
        disk = SimulatedDisk(seed)
        disk.put_durable_file(f"{ROOT}/f", b"durable")
        disk.fail("sync")
        file = disk.open(f"{ROOT}/f", writes=True)
        file.write(b"A" * 1000, 7)
        failure(file.sync)
        again = disk.open(f"{ROOT}/f", writes=True)
        again.write(b"D", 0)
        again.sync()
        (tree,) = outcomes(disk)
        data = tree["f"]
        assert data is not None
        assert data.startswith(b"Durable")
        assert len(data) == 1007


def test_a_failed_folder_sync_promises_nothing() -> None:
    disk = SimulatedDisk()
    disk.create(f"{ROOT}/f").close()
    disk.fail("sync_directory")
    failure(lambda: disk.sync_directory(ROOT))
    assert len(outcomes(disk)) == 2


def test_a_full_disk_takes_what_fits_and_room_comes_back() -> None:
    disk = SimulatedDisk(capacity_bytes=10)
    first, second = disk.create(f"{ROOT}/a"), disk.create(f"{ROOT}/b")
    first.write(b"123456", 0)
    assert disk.tree.used_bytes == 6
    assert isinstance(failure(lambda: second.write(b"abcdef", 0)), DiskFull)
    assert second.read(0, 9) == b"abcd"
    first.write(b"XX", 0)
    assert isinstance(failure(lambda: second.truncate(5)), DiskFull)
    assert isinstance(failure(lambda: second.write(b"e", 9)), DiskFull)
    first.truncate(5)
    second.write(b"e", 4)
    assert disk.tree.used_bytes == 10
    disk.remove(f"{ROOT}/a")
    assert disk.tree.used_bytes == 5
    first.write(b"no name, no space", 0)
    disk.create(f"{ROOT}/c").write(b"12345", 0)
    disk.rename(f"{ROOT}/c", f"{ROOT}/b")
    assert disk.tree.used_bytes == 5
    assert disk.crash_keeping_unsynced().tree.used_bytes == 5
    disk.make_directory(f"{ROOT}/d")
    disk.rename(f"{ROOT}/b", f"{ROOT}/d/b")
    disk.open(f"{ROOT}/d/b", writes=True).write(b"6", 5)
    assert disk.tree.used_bytes == 6
    disk.remove_tree(f"{ROOT}/d")
    assert disk.tree.used_bytes == 0


def test_an_atomic_write_on_a_full_disk_keeps_the_old_file() -> None:
    disk = SimulatedDisk(capacity_bytes=10)
    disk.put_durable_file(f"{ROOT}/f", b"old old")
    assert isinstance(
        failure(lambda: disk.write_file_atomically(f"{ROOT}/f", b"new new")), DiskFull
    )
    assert disk.snapshot_tree() == {"f": b"old old"}
    assert disk.open_files == 0


def test_a_lock_does_not_survive_the_power() -> None:
    disk = SimulatedDisk()
    disk.lock(f"{ROOT}/lock")
    with pytest.raises(FolderInUse):
        disk.lock(f"{ROOT}/lock")
    disk.crash(1).lock(f"{ROOT}/lock")


# --- damage --------------------------------------------------------------------------------------


def test_each_damage_is_exact_durable_and_no_step() -> None:
    disk = with_file(bytes(range(16)))
    damage, path = DiskDamage(disk), f"{ROOT}/f"
    stale = disk.file_contents()

    def check(expected: bytes) -> None:
        assert disk.content_of(path) == expected
        assert disk.crash_losing_unsynced().content_of(path) == expected
        damage.restore_file(path, stale)
        assert disk.content_of(path) == bytes(range(16))

    damage.flip_bits(path, [0, 15])
    check(bytes([1, 129, *range(2, 16)]))
    damage.truncate(path, 3)
    check(bytes(range(3)))
    damage.zero(path, 4, 3)
    check(bytes([*range(4), 0, 0, 0, *range(7, 16)]))
    damage.swap(path, 1, 10, 3)
    check(bytes([0, 10, 11, 12, *range(4, 10), 1, 2, 3, 13, 14, 15]))
    damage.overwrite(path, 14, b"zz")
    check(bytes(range(14)) + b"zz")
    disk.put_durable_file(path, b"n" * 16)
    damage.restore_chunk(path, stale, 5, 2)
    check(b"n" * 5 + bytes([5, 6]) + b"n" * 9)
    assert disk.steps == 0


def test_random_bits_are_different_ones_and_repeatable() -> None:
    first, second = with_file(bytes(100)), with_file(bytes(100))
    bits = DiskDamage(first).flip_random_bits(f"{ROOT}/f", 20, seed=5)
    assert bits == DiskDamage(second).flip_random_bits(f"{ROOT}/f", 20, seed=5)
    assert sum(byte.bit_count() for byte in first.content_of(f"{ROOT}/f")) == len(set(bits)) == 20


def test_a_duplicate_and_a_removed_file_can_be_made_to_appear() -> None:
    disk = with_file(b"x")
    stale = disk.file_contents()
    DiskDamage(disk).duplicate(f"{ROOT}/f", f"{ROOT}/a/g")
    disk.remove(f"{ROOT}/f")
    disk.sync_directory(ROOT)
    DiskDamage(disk).restore_file(f"{ROOT}/f", stale)
    assert outcomes(disk) == [{"a": None, "a/g": b"x", "f": b"x"}]


def test_damage_counts_unsynced_bytes_as_written() -> None:
    disk = SimulatedDisk()
    disk.create(f"{ROOT}/f").write(b"abc", 0)
    DiskDamage(disk).zero(f"{ROOT}/f", 1, 1)
    assert outcomes(disk) == [{"f": b"a\0c"}]


def test_damage_that_misses_the_file_is_a_wrong_test() -> None:
    disk = with_file(b"abc")
    damage, path = DiskDamage(disk), f"{ROOT}/f"
    for call in (
        lambda: damage.flip_bits(path, [24]),
        lambda: damage.flip_bits(path, [-1]),
        lambda: damage.zero(path, 2, 2),
        lambda: damage.zero(path, 1, 0),
        lambda: damage.truncate(path, 3),
        lambda: damage.swap(path, 0, 1, 2),
        lambda: damage.restore_chunk(path, {path: b"ab"}, 1, 2),
    ):
        with pytest.raises(AssertionError):
            call()
    with pytest.raises(MissingFile):
        damage.truncate(f"{ROOT}/nothing", 0)
    assert disk.content_of(path) == b"abc"


# --- real folders --------------------------------------------------------------------------------


def test_trees_move_between_real_folders_and_the_simulation(tmp_path: Path) -> None:
    source, target = OsDisk(str(tmp_path / "source")), tmp_path / "target"
    source.make_directory(f"{source.root}/jetstream/$G/empty")
    source.write_file_atomically(f"{source.root}/jetstream/$G/meta.inf", b"{}")
    disk = SimulatedDisk()
    disk.load_tree(source.root)
    tree = {
        "jetstream": None,
        "jetstream/$G": None,
        "jetstream/$G/empty": None,
        "jetstream/$G/meta.inf": b"{}",
    }
    assert disk.snapshot_tree() == disk.crash_losing_unsynced().snapshot_tree() == tree
    target.mkdir()
    disk.save_tree(target)
    again = SimulatedDisk()
    again.load_tree(target)
    assert again.snapshot_tree() == tree
    assert (target / "jetstream/$G/meta.inf").stat().st_mode & 0o777 == 0o600


def test_every_step_of_a_small_job_can_be_the_last() -> None:
    def work(disk: SimulatedDisk) -> None:
        disk.make_directory(f"{ROOT}/msgs", sync=True)
        with disk.create(f"{ROOT}/msgs/1.blk") as block:
            disk.sync_directory(f"{ROOT}/msgs")
            for number in range(3):
                block.write(b"%d" % number * 600, number * 600)
                block.sync()
                acked.append(number)

    complete = SimulatedDisk()
    acked: list[int] = []
    work(complete)
    lengths = set()
    for stop_at in itertools.count(1):
        disk = SimulatedDisk()
        disk.stop_at = stop_at
        acked = []
        try:
            work(disk)
        except PowerLoss:
            pass
        else:
            break
        for seed in range(40):
            content = disk.crash(seed).snapshot_tree().get("msgs/1.blk") or b""
            durable = b"".join(b"%d" % number * 600 for number in acked)
            assert content.startswith(durable)
            lengths.add(len(content))
    assert stop_at == complete.steps + 1
    assert lengths >= {0, 600, 1200, 1800}
