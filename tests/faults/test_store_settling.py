"""Damage found while a store is in use: deletions stay, life goes on, files become whole."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from power_cuts import cut_off
from store_damage import (
    IN_PLACE,
    MESSAGES,
    DiskRecord,
    Harm,
    Store,
    damage_workload,
    delete_block,
    harmed,
    prepared,
    records_of,
    truncate,
)
from store_verdict import Content, content_of
from store_workloads import open_workload
from tradewind.store.contract import NotFoundError, StoreLimits
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.repair import damage_resolution
from tradewind.store.repair.damage import RecoveryReport
from tradewind.testing.disk_damage import DiskDamage
from tradewind.testing.fake_disk import SimulatedDisk

SEEDS = range(6)
CASES = 12
INDEX = f"{MESSAGES}/index.db"
FOLDER = "/disk/S"
every_store = pytest.mark.parametrize("seed", SEEDS)


@functools.cache
def closed(seed: int) -> Store:
    return prepared(damage_workload(seed), with_index=True)


def opened(store: Store, disk: SimulatedDisk) -> FileStore:
    return open_workload(disk, store.workload, store.run.ledger.now_ns)[0]


def read_all(store: FileStore, sequences: Content) -> None:
    for seq in sequences:
        with suppress(NotFoundError):
            store.table.get(seq)


def tombstones_in_sealed_blocks(store: Store) -> list[DiskRecord]:
    return [
        record
        for record in store.records
        if record.kind == "tombstone" and record.seq and record.path != store.paths[-1]
    ]


# --- deletions -----------------------------------------------------------------------------------


@every_store
@pytest.mark.parametrize("harm", [*IN_PLACE, truncate], ids=lambda harm: harm.__name__)
def test_what_was_deleted_stays_deleted_after_a_repair(harm: Harm, seed: int) -> None:
    """The index.db of a clean stop knew it; then it is gone, and the power fails."""
    store = closed(seed)
    for case in range(CASES):
        disk, what = harmed(store, harm, case)
        first = opened(store, disk)
        read_all(first, store.live)
        first.damage.resolve_all()
        found = content_of(first)
        if not set(found) & set(store.live):
            continue  # nothing is left that shows that index.db is of these blocks
        assert set(found) <= set(store.live), f"case {case}: {what}"
        first.table.store(b"new", b"", b"message", store.run.ledger.now_ns)
        first.commit()
        assert not disk.exists(INDEX)
        again = opened(store, disk.crash_losing_unsynced())
        back = set(content_of(again)) - {first.table.last_seq} - set(store.live)
        assert not back, f"case {case}: {what}: {back} are back"


@every_store
def test_what_was_deleted_stays_deleted_without_a_listed_block(seed: int) -> None:
    store = closed(seed)
    listed = {record.path for record in store.records if record.seq in store.live}
    for case in range(CASES):
        disk, what = harmed(store, delete_block, case)
        if what.split()[0] not in listed:
            continue  # nothing knows that it was there
        first = opened(store, disk)
        assert set(content_of(first)) <= set(store.live), f"case {case}: {what}"
        again = opened(store, disk.crash_losing_unsynced())
        assert set(content_of(again)) <= set(store.live), f"case {case}: {what}"


def test_deletions_survive_a_power_failure_at_every_step_of_the_settling() -> None:
    """With messages stored meanwhile: index.db, the tombstones or both tell it at any moment."""
    checked = 0
    for seed in range(9):
        store = closed(seed)
        hit = tombstones_in_sealed_blocks(store)
        for record in Random(seed).sample(hit, min(2, len(hit))):
            check_every_step(store, record)
            checked += 1
    assert checked >= 8


def check_every_step(store: Store, record: DiskRecord) -> None:
    harmed_disk = store.copy()
    DiskDamage(harmed_disk).flip_bits(record.path, [8 * record.offset + 100])
    for step, disk in cut_off(harmed_disk, lambda disk: settle_while_storing(store, disk)):
        found = content_of(opened(store, disk))
        back = {seq for seq in found if seq in store.run.ledger.gone}
        assert not back, f"step {step}, {record}: {back} are back"


def settle_while_storing(store: Store, disk: SimulatedDisk) -> None:
    found = opened(store, disk)
    read_all(found, store.live)
    found.table.store(b"new", b"", b"first", store.run.ledger.now_ns)
    found.flush()
    found.table.store(b"new", b"", b"second", store.run.ledger.now_ns)
    found.commit()
    assert not found.table.has_open_damage


@every_store
def test_known_deletions_are_only_said_again_where_nothing_says_them(seed: int) -> None:
    store = closed(seed)
    message = next(r for r in store.records if r.kind == "message" and r.seq in store.live)
    disk = store.copy()
    DiskDamage(disk).flip_bits(message.path, [8 * message.offset + 100])
    found = opened(store, disk)
    read_all(found, store.live)
    found.damage.resolve_all()
    after = disk.crash_losing_unsynced().file_contents()
    for path in store.paths:
        if path == store.paths[-1] or path not in after:
            continue
        tombstones = [r.seq for r in records_of(path, after[path]) if r.kind == "tombstone"]
        assert tombstones == [
            r.seq for r in store.records if r.kind == "tombstone" and r.path == path
        ]


# --- in steps ------------------------------------------------------------------------------------

Fill = Callable[[FileStore], None]


def made(count: int = 60, limits: StoreLimits | None = None) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER, sync=True)
    store = small(disk, limits)
    for number in range(1, count + 1):
        store.table.store(b"s.%d" % (number % 5), b"", b"payload %03d" % number, number)
    store.close()
    return disk


def small(disk: SimulatedDisk, limits: StoreLimits | None = None) -> FileStore:
    return open_store(disk, FOLDER, "S", limits, now_ns=1, block_bytes_max=400)[0]


def hit(disk: SimulatedDisk, seq: int) -> str:
    text = b"payload %03d" % seq
    for path, content in disk.file_contents().items():
        if path.endswith(".blk") and text in content:
            DiskDamage(disk).flip_bits(path, [8 * content.index(text)])
            return path
    raise AssertionError(f"message {seq} is not on the disk")


def test_no_commit_reads_more_than_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage_resolution, "STEP_BYTES", 1)
    disk = made()
    hit(disk, 7)
    store = small(disk)
    with suppress(NotFoundError):
        store.table.get(7)
    counted = [store.table.recount.below]
    while (commit := store.begin_commit()) is not None:
        counted.append(store.table.recount.below)
        commit.run()
        store.finish_commit(commit)
    numbers = [block.number for block in store.table.blocks]
    steps = counted[1 : counted.index(0, 1)]
    assert steps == [number + 1 for number in numbers[: len(steps)]]
    assert len(steps) >= len(numbers) - 3
    assert not store.table.has_open_damage
    store.verify()


@pytest.mark.parametrize("seed", range(30))
def test_store_may_change_in_every_way_while_damage_is_settled(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a plain list of what is there; totals of subjects are right at the end."""
    monkeypatch.setattr(damage_resolution, "STEP_BYTES", 1)
    random = Random(seed)
    disk = made(120)
    lost = set(random.sample(range(1, 110), 3))
    for seq in lost:
        hit(disk, seq)
    store = small(disk)
    live = {seq: b"s.%d" % (seq % 5) for seq in range(1, 121)}
    with suppress(NotFoundError):
        store.table.get(min(lost))
    assert store.table.has_open_damage
    while (commit := store.begin_commit()) is not None:
        commit.run()
        if random.random() < 0.5:
            change(store, live, random)
        store.finish_commit(commit)
        if random.random() < 0.5:
            change(store, live, random)
    store.verify()
    wanted = {seq: subject for seq, subject in live.items() if seq not in lost}
    assert {message.seq: message.subject for message in store.table.messages()} == wanted
    again = small(disk.crash_losing_unsynced())
    assert {message.seq: message.subject for message in again.table.messages()} == wanted
    again.verify()


def change(store: FileStore, live: dict[int, bytes], random: Random) -> None:
    match random.randrange(8) if live else 0:
        case 0 | 1 | 2:
            subject = b"s.%d" % random.randrange(8)
            live[store.table.store(subject, b"", b"new", store.table.last_seq)] = subject
        case 3 | 4 | 5:
            seq = random.choice(list(live))
            store.table.remove(seq)
            live.pop(seq)
        case 6:
            subject = b"s.%d" % random.randrange(8)
            store.table.purge(subject)
            for seq in [seq for seq, name in live.items() if name == subject]:
                del live[seq]
        case _:
            if random.random() < 0.1:
                store.table.purge()
                live.clear()
            else:
                store.table.expire(store.table.last_seq)


def test_limit_of_a_subject_is_applied_when_all_is_counted() -> None:
    limits = StoreLimits(subject_msgs_max=12)
    disk = made(60, limits)
    hit(disk, 2)
    store = small(disk, limits)
    with suppress(NotFoundError):
        store.table.get(2)
    for _ in range(3):
        store.table.store(b"s.2", b"", b"new", 99)
    assert store.table.subjects()[b"s.2"] == 15
    woken: list[int] = []
    store.damage.on_work = lambda: woken.append(store.table.last_seq)
    store.commit()
    assert (store.table.has_open_damage, store.table.is_overdue, bool(woken)) == (False, True, True)
    while store.table.limit_step(1):
        pass
    assert store.table.subjects()[b"s.2"] == 12
    assert store.table.subjects()[b"s.1"] == 12
    store.verify()


# --- the block that is written, and blocks under way ---------------------------------------------


@pytest.mark.parametrize("is_committing", [False, True])
def test_damage_in_the_block_that_is_written_is_repaired_at_once(is_committing: bool) -> None:
    disk = made(0)
    store = small(disk)
    for number in range(1, 7):
        store.table.store(b"s", b"", b"payload %03d" % number, number)
    store.commit()
    number = store.table.last.number
    told: list[RecoveryReport] = []
    store.damage.on_report = told.append
    store.table.store(b"s", b"", b"under way", 7)
    commit = store.begin_commit() if is_committing else None
    path = hit(disk, 5)
    with pytest.raises(NotFoundError):
        store.table.get(5)
    assert store.table.get(4).seq == 4
    if commit is not None:
        commit.run()
        store.finish_commit(commit)
    store.commit()
    assert [report.lost for report in told] == [[5]]
    assert store.table.last.number > number
    with pytest.raises(NotFoundError, match="it was lost by damage"):
        store.table.get(5)
    store.table.store(b"s", b"", b"after", 8)
    store.commit()
    kinds = [record.kind for record in records_of(path, disk.content_of(path))]
    assert "skip" in kinds
    again, report = open_store(
        disk.crash_losing_unsynced(), FOLDER, "S", now_ns=1, block_bytes_max=400
    )
    assert report.is_clean
    assert [message.seq for message in again.table.messages()] == [1, 2, 3, 4, 6, 7, 8]


def test_removing_a_message_whose_record_is_damaged_loses_nothing_else() -> None:
    """Its length is wrong, so that nobody can tell its subject; in any block."""
    for seq in (3, 60):
        disk = made(0)
        store = small(disk)
        for number in range(1, 61):
            store.table.store(b"s.%d" % (number % 5), b"", b"payload %03d" % number, number)
        store.commit()
        text = b"payload %03d" % seq
        for path, content in disk.file_contents().items():
            if path.endswith(".blk") and text in content:
                DiskDamage(disk).flip_bits(path, [8 * (content.index(text) - 3 - 22) + 16])
        store.table.remove(seq)
        store.commit()
        assert [message.seq for message in store.table.messages()] == [
            number for number in range(1, 61) if number != seq
        ]
        store.verify()


@pytest.mark.parametrize("stage", ["syncing", "synced"])
def test_block_sealed_a_moment_ago_is_not_replaced_while_a_commit_syncs_it(stage: str) -> None:
    """The repair is a copy of a later commit; what this one syncs is the file that was written."""
    disk = made(0)
    store = small(disk)
    for number in range(1, 12):
        store.table.store(b"s", b"", b"payload %03d" % number, number)
    sealed = store.table.blocks[0]
    commit = store.begin_commit()
    assert commit is not None
    assert any(file.path == sealed.path for file in commit.files)
    if stage == "synced":
        commit.run()
    path = hit(disk, 2)
    before = disk.content_of(path)
    with pytest.raises(NotFoundError):
        store.table.get(2)
    assert sealed.patched
    assert disk.content_of(path) == before
    if stage == "syncing":
        commit.run()
    store.finish_commit(commit)
    assert disk.content_of(path) == before
    store.commit()
    assert not sealed.patched
    assert disk.content_of(path) != before
    again, report = open_store(disk.crash_losing_unsynced(), FOLDER, "S", now_ns=1)
    assert report.is_clean
    assert [message.seq for message in again.table.messages()] == [1, *range(3, 12)]


def test_copy_of_a_block_that_turns_out_to_be_damaged_is_given_up() -> None:
    """A compaction under way has copied the damaged bytes; the repair is not undone by it."""
    disk = SimulatedDisk()
    disk.make_directory(FOLDER, sync=True)
    store, _ = open_store(disk, FOLDER, "S", now_ns=1, block_bytes_max=1200, compact_bytes_min=100)
    for number in range(1, 41):
        store.table.store(b"s", b"", b"payload %03d" % number, number)
    store.commit()
    for seq in range(2, 19):
        store.table.remove(seq)
    while (commit := store.begin_commit()) is not None and not commit.rewrites:
        commit.run()
        store.finish_commit(commit)
    assert commit is not None
    (rewrite,) = commit.rewrites
    hit(disk, 20)
    commit.run()
    rewrite.block.unmap()
    with pytest.raises(NotFoundError):
        store.table.get(20)
    assert rewrite.block.patched
    store.finish_commit(commit)
    store.commit()
    assert not rewrite.block.patched
    assert [message.seq for message in store.table.messages()] == [1, 19, *range(21, 41)]
    store.verify()
    again, report = open_store(disk.crash_losing_unsynced(), FOLDER, "S", now_ns=1)
    assert report.is_clean
    assert [message.seq for message in again.table.messages()] == [1, 19, *range(21, 41)]


def test_more_damage_than_memory_is_repaired_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage_resolution, "PATCHED_BYTES_MAX", 500)
    disk = made(60)
    lost = list(range(2, 60, 3))
    for seq in lost:
        hit(disk, seq)
    store = small(disk)
    with suppress(NotFoundError):
        store.table.get(2)
    store.damage.resolve_all()
    assert not any(block.patched for block in store.table.blocks)
    wanted = [seq for seq in range(1, 61) if seq not in lost]
    assert [message.seq for message in store.table.messages()] == wanted
    store.verify()
    again, report = open_store(disk.crash_losing_unsynced(), FOLDER, "S", now_ns=1)
    assert report.is_clean
    assert [message.seq for message in again.table.messages()] == wanted


def test_file_that_cannot_be_read_ends_the_settling_and_nothing_else() -> None:
    disk = made()
    hit(disk, 7)
    store = small(disk)
    told: list[RecoveryReport] = []
    store.damage.on_report = told.append
    with suppress(NotFoundError):
        store.table.get(7)
    disk.fail("map", "*/5.blk", error=errno.EIO, times=1 << 30)
    assert store.table.store(b"s.1", b"", b"new", 1) == 61
    store.commit()
    assert store.failure is None
    assert "cannot be read" in told[0].notes[0]
    disk.clear_faults()
    store.close()
    again = small(disk)
    assert [message.seq for message in again.table.messages()] == [*range(1, 7), *range(8, 62)]
    again.verify()
