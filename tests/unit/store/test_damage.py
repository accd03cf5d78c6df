"""Damage that is found while a store is in use, and the evidence of it."""

from __future__ import annotations

import errno
import json

import pytest

from tradewind.store.contract import NotFoundError
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.repair.damage import DamageFolder, RecoveryReport
from tradewind.testing.disk_damage import DiskDamage
from tradewind.testing.fake_disk import SimulatedDisk

FOLDER = "/disk/S"
COUNT = 30


def opened(disk: SimulatedDisk) -> tuple[FileStore, RecoveryReport]:
    return open_store(disk, FOLDER, "S", now_ns=1, block_bytes_max=400)


def closed_disk() -> SimulatedDisk:
    """Messages 1 to 30 over several blocks, subjects in turn, closed with an index.db."""
    disk = SimulatedDisk()
    disk.make_directory(FOLDER, sync=True)
    store, _ = opened(disk)
    for number in range(1, COUNT + 1):
        store.table.store(b"s.%d" % (number % 5), b"", b"payload %02d" % number, number)
    store.close()
    return disk


def hit(disk: SimulatedDisk, seq: int) -> None:
    """Flip a bit in the payload of a message."""
    text = b"payload %02d" % seq
    for path, content in disk.file_contents().items():
        if path.endswith(".blk") and text in content:
            DiskDamage(disk).flip_bits(path, [8 * content.index(text)])
            return
    raise AssertionError(f"message {seq} is not on the disk")


def reports(disk: SimulatedDisk) -> dict[str, dict[str, object]]:
    return {
        path.rpartition("/")[2]: json.loads(content)
        for path, content in disk.file_contents().items()
        if path.startswith(f"{FOLDER}/damage/") and path.endswith(".json")
    }


def check_all_but(store: FileStore, lost: set[int]) -> None:
    for seq in range(1, COUNT + 1):
        if seq in lost:
            with pytest.raises(NotFoundError, match=f"no message {seq}: it was lost by damage"):
                store.table.get(seq)
        else:
            assert store.table.get(seq).payload == b"payload %02d" % seq
    assert store.table.state.lost is not None
    assert set(store.table.state.lost.sequences) == lost
    assert store.table.msgs == COUNT - len(lost)
    store.verify()


@pytest.mark.parametrize("seq", [1, 7, 12])
def test_damage_behind_a_good_summary_costs_only_what_was_hit(seq: int) -> None:
    disk = closed_disk()
    hit(disk, seq)
    store, report = opened(disk)
    assert report.is_clean
    told: list[RecoveryReport] = []
    store.damage.on_report = told.append
    check_all_but(store, {seq})
    assert [found.lost for found in told] == [[seq]]
    assert f"1 messages are lost: {seq}" in told[0].lines()[0]
    assert [found["lost"] for found in reports(disk).values()] == [[seq]]


def test_one_damage_found_leads_to_all_others() -> None:
    disk = closed_disk()
    for seq in (3, 11, 17):
        hit(disk, seq)
    store, _ = opened(disk)
    told: list[RecoveryReport] = []
    store.damage.on_report = told.append
    assert store.table.get(4).seq == 4
    assert told == []
    store.commit()
    assert [found.lost for found in told] == [[3, 11, 17]]
    check_all_but(store, {3, 11, 17})


@pytest.mark.parametrize("end", ["closed", "killed", "power failure"])
def test_loss_is_remembered_over_restarts(end: str) -> None:
    disk = closed_disk()
    hit(disk, 7)
    store, _ = opened(disk)
    with pytest.raises(NotFoundError):
        store.table.get(7)
    if end == "closed":
        store.close()
    elif end == "power failure":
        disk = disk.crash_losing_unsynced()
    for _ in range(2):
        store, report = opened(disk)
        assert report.is_clean
        check_all_but(store, {7})
        store.close()


def test_loss_is_told_until_its_place_is_purged() -> None:
    disk = closed_disk()
    for seq in (1, 12):
        hit(disk, seq)
    store, _ = opened(disk)
    assert store.table.get(20)
    check_all_but(store, {1, 12})
    store.table.remove(2)
    assert store.table.state.lost is not None
    assert store.table.state.lost.sequences == (12,)
    store.table.purge()
    assert store.table.state.lost is None
    store.close()
    store, _ = opened(disk)
    assert store.table.state.lost is None


def test_totals_of_subjects_are_right_again() -> None:
    disk = closed_disk()
    for seq in (5, 10, 15, 20, 25, 30):
        hit(disk, seq)
    store, _ = opened(disk)
    assert store.table.subject_state(b"s.0") is None
    assert store.table.subjects() == {b"s.1": 6, b"s.2": 6, b"s.3": 6, b"s.4": 6}
    assert store.table.count_matching((b"s.0",)) == 0


def test_limit_of_a_subject_never_takes_a_good_message_for_a_lost_one() -> None:
    disk = closed_disk()
    hit(disk, 2)
    store, _ = opened(disk)
    store.table.set_limits(store.table.limits.__class__(subject_msgs_max=6))
    seq = store.table.store(b"s.2", b"", b"new", 99)
    assert store.table.get(seq).payload == b"new"
    store.commit()
    assert store.table.get(7).seq == 7
    assert store.table.subjects()[b"s.2"] == 6
    store.verify()


def test_numbers_of_reports_are_never_used_again() -> None:
    disk = closed_disk()
    kept: dict[str, bytes] = {}
    for number, seq in enumerate((7, 8, 9), 1):
        hit(disk, seq)
        store, _ = opened(disk)
        assert store.table.get(6).seq == 6
        assert store.table.get(10).seq == 10
        store.close()
        files = {p: c for p, c in disk.file_contents().items() if p.startswith(f"{FOLDER}/damage")}
        assert kept.items() <= files.items()
        assert len(reports(disk)) == number
        kept = files


def test_read_only_store_is_repaired_in_memory() -> None:
    disk = closed_disk()
    hit(disk, 7)
    store, _ = opened(disk)
    disk.fail("write", "*.blk", error=errno.EIO)
    store.table.store(b"s.1", b"", b"refused", 1)
    with pytest.raises(Exception, match="EIO"):
        store.flush()
    told: list[RecoveryReport] = []
    store.damage.on_report = told.append
    assert store.table.get(6).seq == 6
    assert store.table.get(8).seq == 8
    with pytest.raises(NotFoundError):
        store.table.get(7)
    assert [found.lost for found in told] == [[7]]
    assert "read-only" in told[0].notes[0]


@pytest.mark.parametrize("operation", ["create", "write", "rename", "sync"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_repair_that_fails_is_told_and_done_at_the_next_start(operation: str, error: int) -> None:
    for nth in range(1, 8):
        disk = closed_disk()
        hit(disk, 7)
        store, _ = opened(disk)
        fault = disk.fail(operation, nth=nth, error=error)  # type: ignore[arg-type]
        assert store.table.get(6).seq == 6
        with pytest.raises(NotFoundError):
            store.table.get(7)
        assert (store.failure is not None) == bool(fault.hits)
        disk.clear_faults()
        again, _ = opened(disk.crash_losing_unsynced())
        assert again.table.get(6).seq == 6
        check_all_but(again, {7})


def test_damage_at_a_place_where_another_one_was_repaired_is_told_too() -> None:
    """A compaction has put another message there meanwhile."""
    disk = SimulatedDisk()
    disk.make_directory(FOLDER, sync=True)
    settings: dict[str, int] = {"block_bytes_max": 3000, "compact_bytes_min": 60}
    store, _ = open_store(disk, FOLDER, "S", now_ns=1, **settings)
    told: list[RecoveryReport] = []
    store.damage.on_report = told.append
    for number in range(1, 121):
        store.table.store(b"s", b"", b"%029d" % number, number)
    store.commit()
    path = store.table.blocks[0].path
    place = disk.content_of(path).index(b"%029d" % 6)
    rot(disk, store, place)
    with pytest.raises(NotFoundError, match="lost by damage"):
        store.table.get(6)
    store.commit()
    for seq in range(10, 44):
        store.table.remove(seq)
    store.commit()
    moved = disk.content_of(path)
    seq = next(seq for seq in range(1, 50) if moved.find(b"%029d" % seq) == place)
    rot(disk, store, place)
    with pytest.raises(NotFoundError, match="lost by damage"):
        store.table.get(seq)
    store.commit()
    assert [found.lost for found in told] == [[6], [seq]]
    assert [found["lost"] for found in reports(disk).values()] == [[6], [seq]]
    again, report = open_store(disk.crash_losing_unsynced(), FOLDER, "S", now_ns=1, **settings)
    assert report.is_clean
    assert again.table.state.lost is not None
    assert set(again.table.state.lost.sequences) == {6, seq}
    again.verify()


def rot(disk: SimulatedDisk, store: FileStore, place: int) -> None:
    """Flip a bit of the first block, which has to be read again from the disk."""
    DiskDamage(disk).flip_bits(store.table.blocks[0].path, [8 * place])
    for block in store.table.blocks:
        block.release()


def test_report_that_cannot_be_read_is_named_and_kept() -> None:
    disk = closed_disk()
    disk.make_directory(f"{FOLDER}/damage", sync=True)
    disk.put_durable_file(f"{FOLDER}/damage/4.json", b"{broken")
    store, report = opened(disk)
    assert store.table.state.lost is None
    assert "damage/4.json: what was lost earlier cannot be read" in report.notes[0]
    DamageFolder(disk, FOLDER).save(RecoveryReport("S", lost=[1], lost_total=1))
    assert disk.content_of(f"{FOLDER}/damage/4.json") == b"{broken"
    assert disk.exists(f"{FOLDER}/damage/5.json")


def test_progress_of_a_rebuild_says_how_much_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.store.folder.recover.PROGRESS_BYTES", 500)
    disk = closed_disk()
    disk.remove(f"{FOLDER}/msgs/index.db")
    seen: list[tuple[int, int]] = []
    open_store(disk, FOLDER, "S", now_ns=1, progress=lambda *place: seen.append(place))
    size = sum(len(c) for p, c in disk.file_contents().items() if p.endswith(".blk"))
    assert len(seen) == 2
    assert all(0 < done <= whole == size for done, whole in seen)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
