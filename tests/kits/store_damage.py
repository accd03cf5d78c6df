"""Damaged stores and what must be left of them: the oracle of the corruption tests.

Owns a plain parser of block files, the ways to damage a file by a seed, and the comparison of a
recovered store with what the damage has hit. A record is hit when one of its bytes changed; all
others have to be there afterwards, byte for byte.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from power_cuts import cut_off
from store_verdict import Content, consistency_problems, content_of
from store_workloads import (
    FOLDER,
    Run,
    Workload,
    encrypted,
    open_workload,
    plain_files,
    random_workload,
)
from tradewind.store.contract import StoreLimits
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import RecoveryReport
from tradewind.store.table.marks import MARK_SYNCED_KIND
from tradewind.testing.disk_damage import DiskDamage
from tradewind.testing.fake_disk import SimulatedDisk

MESSAGES = f"{FOLDER}/msgs"
DAMAGE = f"{FOLDER}/damage"
ERASED, TOMBSTONE = 1 << 63, 1 << 62


@dataclass(frozen=True, slots=True)
class DiskRecord:
    """A record where it lies; `lengths` are the bytes of it that no checksum covers."""

    path: str
    offset: int
    size: int
    seq: int
    kind: str
    lengths: frozenset[int]
    synced: tuple[int, int] = (0, 0)  # of a mark: block and offset before which all is synced

    @property
    def place(self) -> tuple[int, int]:
        return int(self.path.split("/")[-1][:-4]), self.offset


def records_of(path: str, content: bytes) -> list[DiskRecord]:
    """All records of an undamaged plain block."""
    records: list[DiskRecord] = []
    offset = 0
    while offset < len(content):
        length, sequence, timestamp, subject_size = struct.unpack_from("<IQqH", content, offset)
        size = length & 0x7FFFFFFF
        kind = "tombstone" if sequence & TOMBSTONE else "skip" if sequence & ERASED else "message"
        start = offset + 22 + subject_size
        lengths = {offset + 20, offset + 21}
        if length >> 31:
            lengths |= set(range(start, start + 4))
        seq = sequence & (TOMBSTONE - 1)
        synced = (0, 0)
        if kind == "tombstone" and not seq and timestamp >> 56 == MARK_SYNCED_KIND:
            synced = timestamp >> 32 & 0xFFFFFF, timestamp & 0xFFFFFFFF
        records.append(DiskRecord(path, offset, size, seq, kind, frozenset(lengths), synced))
        offset += size
    return records


@dataclass(slots=True)
class Store:
    """A store on a disk before anything happened to it."""

    run: Run
    disk: SimulatedDisk
    records: list[DiskRecord]
    paths: list[str]
    stale: dict[str, bytes]  # an earlier state of the same files
    live: Content = field(default_factory=dict)

    @property
    def workload(self) -> Workload:
        return self.run.workload

    def copy(self) -> SimulatedDisk:
        return self.disk.crash_keeping_unsynced()


def prepared(workload: Workload, *, with_index: bool) -> Store:
    """Run a workload to its end; the stale bytes are those of the middle."""
    run = Run(workload, SimulatedDisk())
    run.start()
    half = len(workload.steps) // 2
    for step in workload.steps[:half]:
        run.do(step)
    run.do_commit()
    stale = run.disk.file_contents()
    for step in workload.steps[half:]:
        run.do(step)
    run.do_commit()
    run.store.close()
    if not with_index:
        run.disk.remove(f"{MESSAGES}/index.db")
    files = run.disk.file_contents()
    paths = sorted(
        (p for p in files if p.endswith(".blk")), key=lambda p: int(p.split("/")[-1][:-4])
    )
    plain = plain_files(run.disk, workload.cipher)
    records = [record for path in paths for record in records_of(path, plain[path])]
    return Store(run, run.disk, records, paths, stale, dict(run.ledger.live))


# --- ways to do harm -----------------------------------------------------------------------------

Harm = Callable[[Store, SimulatedDisk, Random], str]


def _chosen(store: Store, disk: SimulatedDisk, random: Random, size_min: int) -> str:
    paths = [path for path in store.paths if len(disk.content_of(path)) >= size_min]
    return random.choice(paths)


def flip_bits(store: Store, disk: SimulatedDisk, random: Random) -> str:
    path = _chosen(store, disk, random, 1)
    bits = DiskDamage(disk).flip_random_bits(
        path, random.choice((1, 1, 1, 2, 5, 20)), random.getrandbits(32)
    )
    return f"bits {bits} of {path}"


def zero_range(store: Store, disk: SimulatedDisk, random: Random) -> str:
    path = _chosen(store, disk, random, 1)
    size = len(disk.content_of(path))
    offset = random.randrange(size)
    count = random.randint(1, min(size - offset, random.choice((1, 40, 512))))
    DiskDamage(disk).zero(path, offset, count)
    return f"zeros {offset} to {offset + count} of {path}"


def overwrite(store: Store, disk: SimulatedDisk, random: Random) -> str:
    path = _chosen(store, disk, random, 1)
    size = len(disk.content_of(path))
    offset = random.randrange(size)
    count = random.randint(1, min(size - offset, 100))
    DiskDamage(disk).overwrite(path, offset, random.randbytes(count))
    return f"garbage {offset} to {offset + count} of {path}"


def swap_chunks(store: Store, disk: SimulatedDisk, random: Random) -> str:
    path = _chosen(store, disk, random, 40)
    size = len(disk.content_of(path))
    count = random.randint(4, size // 3)
    first = random.randint(0, size - 2 * count)
    second = random.randint(first + count, size - count)
    DiskDamage(disk).swap(path, first, second, count)
    return f"{count} bytes at {first} and {second} of {path} swapped"


def restore_stale_chunk(store: Store, disk: SimulatedDisk, random: Random) -> str:
    """A lost write; where the old file was shorter there are zeros."""
    path = _chosen(store, disk, random, 8)
    size = len(disk.content_of(path))
    offset = random.randrange(size)
    count = random.randint(1, min(size - offset, 512))
    old = store.stale.get(path, b"").ljust(size, b"\0")
    DiskDamage(disk).overwrite(path, offset, old[offset : offset + count])
    return f"stale {offset} to {offset + count} of {path}"


def truncate(store: Store, disk: SimulatedDisk, random: Random) -> str:
    path = _chosen(store, disk, random, 1)
    size = random.randrange(len(disk.content_of(path)))
    DiskDamage(disk).truncate(path, size)
    return f"{path} cut to {size}"


def append_garbage(store: Store, disk: SimulatedDisk, random: Random) -> str:
    path = _chosen(store, disk, random, 0)
    garbage = random.choice(
        (random.randbytes(random.randint(1, 200)), bytes(random.randint(1, 600)))
    )
    disk.put_durable_file(path, disk.content_of(path) + garbage)
    return f"{len(garbage)} bytes behind {path}"


def duplicate_block(store: Store, disk: SimulatedDisk, random: Random) -> str:
    """A second copy under a number of its own, or over another block."""
    path = _chosen(store, disk, random, 1)
    last = int(store.paths[-1].split("/")[-1][:-4])
    number = random.choice((last + 1, last + 5, random.randint(1, last)))
    if store.workload.cipher:  # one without a key is refused
        number = random.choice([int(name.split("/")[-1][:-4]) for name in store.paths])
    DiskDamage(disk).duplicate(path, f"{MESSAGES}/{number}.blk")
    return f"{path} copied to {number}.blk"


def delete_block(store: Store, disk: SimulatedDisk, random: Random) -> str:
    path = _chosen(store, disk, random, 0)
    disk.remove(path)
    disk.sync_directory(MESSAGES)
    return f"{path} deleted"


IN_PLACE: tuple[Harm, ...] = (flip_bits, zero_range, overwrite, swap_chunks, restore_stale_chunk)
OF_WHOLE_FILES: tuple[Harm, ...] = (truncate, append_garbage, duplicate_block, delete_block)


# --- what is left --------------------------------------------------------------------------------


@dataclass(slots=True)
class Hits:
    """The records that the damage has changed, from a comparison of the bytes."""

    records: list[DiskRecord]
    only_lengths: set[int]  # sequences of messages where nothing but a length was changed

    @property
    def messages(self) -> set[int]:
        return {record.seq for record in self.records if record.kind == "message"}

    @property
    def tombstones(self) -> set[int]:
        return {record.seq for record in self.records if record.kind == "tombstone"}


def hits_of(store: Store, disk: SimulatedDisk) -> Hits:
    """Compare every record with what lies in its place now."""
    now = disk.file_contents()
    before = store.disk.file_contents()
    hit: list[DiskRecord] = []
    only_lengths: set[int] = set()
    for record in store.records:
        old, new = before[record.path], now.get(record.path, b"")
        end = record.offset + record.size
        if old[record.offset : end] == new[record.offset : end]:
            continue
        places = [
            place
            for place in range(record.offset, end)
            if place >= len(new) or old[place] != new[place]
        ]
        hit.append(record)
        if record.kind == "message" and record.lengths.issuperset(places):
            only_lengths.add(record.seq)
    return Hits(hit, only_lengths)


def reportable(store: Store, disk: SimulatedDisk, hits: Hits) -> set[int]:
    """The messages whose loss shows: damaged bytes are there, or a later message is."""
    now = disk.file_contents()
    good = [r.seq for r in store.records if r.kind == "message" and r not in hits.records]
    last_good = max(good, default=0)
    return {
        record.seq
        for record in hits.records
        if record.kind == "message"
        and record.seq in store.live
        and record.seq not in hits.only_lengths
        and record.seq < last_good
        and len(now.get(record.path, b"")) > record.offset
    }


def check_recovered(store: Store, disk: SimulatedDisk, hits: Hits) -> RecoveryReport:
    """Open the damaged store and compare; gives the report."""
    ledger = store.run.ledger
    damaged = disk.file_contents()
    expected = reportable(store, disk, hits)
    opened, report = open_workload(disk, store.workload, ledger.now_ns)
    found, lost = content_of(opened), set(report.lost)
    problems = consistency_problems(opened, found)
    assert not problems, problems
    given_up = taken_for_unpromised(store, hits, report)
    forgotten = {record.seq for record in given_up if record.kind == "tombstone"}
    given_up_messages = {record.seq for record in given_up if record.kind == "message"}
    for seq, message in found.items():
        # DiskDamage may move a record, but what is given out is what was stored.
        assert message == ledger.messages[seq], f"message {seq} is another one now"
        is_allowed = seq in store.live or seq in forgotten or may_be_back(store, hits, seq)
        assert is_allowed, f"message {seq} is back"
    gone = set(store.live) - set(found)
    # A removed file leaves no trace without index.db: its deletions are unknown.
    is_gone = any(path not in damaged for path in store.paths)
    crowded = crowded_out(store, found, (gone if is_gone else lost & gone) - hits.messages)
    left_out = gone - hits.messages - lost - given_up_messages - (crowded if is_gone else set())
    assert not left_out, f"not hit and gone: {left_out}"
    unnamed = expected - set(found) - lost - given_up_messages - misnamed(store, found, lost)
    unnamed -= beside_moved(store, hits, damaged, found, lost)
    assert not unnamed, f"lost without a word: {unnamed}"
    assert lost.isdisjoint(found), f"reported as lost, but there: {lost & set(found)}"
    # What is given up behind the last mark that is left is lost, and may be named.
    known = hits.messages | crowded | given_up_messages | unknown_sequences(store, lost)
    assert lost <= known, "reported what was not hit"
    # The first bytes of a record may be all that is left of it. The size of a removed block is
    # unknown; the witness says which sequences it may have held.
    room = sum((entry.size + entry.missing + 29) // 30 for entry in report.damage)
    ends = [entry for entry in report.damage if not entry.size + entry.missing]
    room += sum(entry.last_lost + 1 - entry.first_lost for entry in ends)
    # What limits took is named, too; it may be a message that is back.
    whole = {r.seq for r in store.records if r.kind == "message" and r not in hits.records}
    assert len(lost - whole) <= room
    assert opened.table.last_seq >= max(lost | set(found), default=0)
    told = set(opened.lost.sequences if opened.lost else ())
    assert {seq for seq in lost if seq >= opened.table.first_seq} <= told <= lost
    check_evidence(disk, damaged, report)
    check_second_open(disk, store, found, opened)
    return report


def unknown_sequences(store: Store, lost: set[int]) -> set[int]:
    """The lost sequences that no undamaged part mentions: they may have been in the damage."""
    return lost - set(store.live)


def misnamed(store: Store, found: Content, lost: set[int]) -> set[int]:
    """The messages between two existing ones where the report names sequences that held no message:
    if sequences were skipped or removed, it is unknown which of them were in the damage.
    """
    there = sorted(found)
    strangers = {bisect(there, seq) for seq in lost - set(store.live)}
    return {seq for seq in store.live if bisect(there, seq) in strangers}


def beside_moved(
    store: Store, hits: Hits, damaged: dict[str, bytes], found: Content, lost: set[int]
) -> set[int]:
    """Messages beside one that lies whole in another place now, where some are named, but not all:
    the damage that is left there does not say how much has been there. The one that has moved need
    not be found: it may have been deleted.
    """
    before = store.disk.file_contents()
    there = sorted(found)
    moved = set[int]()
    for record in hits.records:
        whole = before[record.path][record.offset : record.offset + record.size]
        if record.kind == "message" and whole in damaged.get(record.path, b""):
            moved.add(bisect(there, record.seq))
    named = {bisect(there, seq) for seq in lost}
    beside = named & (moved | {place - 1 for place in moved})
    return {seq for seq in store.live if bisect(there, seq) in beside}


def taken_for_unpromised(store: Store, hits: Hits, report: RecoveryReport) -> set[DiskRecord]:
    """Records that look as if no commit had covered them, since the marks that say so were hit.

    DiskDamage among them that looks like a write that was cut off is taken for one.
    """
    marks = (record.synced for record in store.records if record not in hits.records)
    left = max(marks, default=(0, 0))
    if not any(entry.torn and (entry.block, entry.offset) >= left for entry in report.damage):
        return set()
    return {record for record in store.records if record.place >= left}


def crowded_out(store: Store, found: Content, gone: set[int]) -> set[int]:
    """The missing messages that a limit took for messages whose deletion is forgotten: at most one
    for each that is back, and none while an older one of all, or of its subject, exists.
    """
    limits, messages = store.workload.limits, store.run.ledger.messages
    back = set(found) - set(store.live)
    if not limits.removes_for_others or len(gone) > len(back):
        return set()

    def rivals(seq: int) -> list[int]:
        if limits.msgs_max:
            return list(found)
        return [other for other in found if found[other].subject == messages[seq].subject]

    return {
        seq
        for seq in gone
        if seq < min(rivals(seq), default=0) and not back.isdisjoint(rivals(seq))
    }


def may_be_back(store: Store, hits: Hits, seq: int) -> bool:
    """A deletion is forgotten with its tombstone, and lost messages make room under a limit."""
    return seq in hits.tombstones or bool(hits.records and store.run.ledger.gone[seq].cause)


def check_cut_recovery(store: Store, disk: SimulatedDisk) -> None:
    """Fail the power at each step of the repair: the next start comes to the same result, and the
    loss is not forgotten.
    """
    workload, now_ns = store.workload, store.run.ledger.now_ns
    opened, expected = open_workload(disk.crash_keeping_unsynced(), workload, now_ns)
    content, lost = content_of(opened), set(expected.lost)
    for step, after in cut_off(disk, lambda cut: open_workload(cut, workload, now_ns)):
        told = written_lost(after)
        again, report = open_workload(after, workload, now_ns)
        assert content_of(again) == content, step
        assert again.table.last_seq == opened.table.last_seq, step
        assert told | set(report.lost) == lost, step


def written_lost(disk: SimulatedDisk) -> set[int]:
    """The lost sequences in earlier reports in the damage folder."""
    lost: set[int] = set()
    for path, content in disk.file_contents().items():
        if path.startswith(DAMAGE) and path.endswith(".json"):
            lost.update(json.loads(content)["lost"])
    return lost


def check_evidence(disk: SimulatedDisk, damaged: dict[str, bytes], report: RecoveryReport) -> None:
    """All bytes that were taken out are kept, and the written report says what the other does."""
    if report.is_clean:
        assert not disk.exists(f"{DAMAGE}/1.json")
        return
    assert written_lost(disk) == set(report.lost)
    if not report.damage:
        return
    # A second report may be about the end that is missing.
    reports = [f"{DAMAGE}/{number}.json" for number in (1, 2)]
    written = [json.loads(disk.content_of(path)) for path in reports if disk.exists(path)]
    texts = [text for each in written for text in each["damage"]]
    for entry, text in zip(report.damage, texts, strict=True):
        assert text == {name: getattr(entry, name) for name in text}
        if entry.size:
            content = damaged[f"{MESSAGES}/{entry.block}.blk"]
            saved = disk.content_of(f"{DAMAGE}/{entry.saved_as}")
            piece = saved[entry.saved_at : entry.saved_at + entry.size]
            assert piece == content[entry.offset : entry.offset + entry.size]


def check_second_open(disk: SimulatedDisk, store: Store, found: Content, opened: FileStore) -> None:
    """Check that a second opening changes nothing, even after a power failure: recovery has settled
    the damage permanently, and remembers the loss.
    """
    after = disk.crash_losing_unsynced()
    again, report = open_workload(after, store.workload, store.run.ledger.now_ns)
    assert report.is_clean, report
    assert content_of(again) == found
    assert again.table.last_seq == opened.table.last_seq
    assert again.lost == opened.lost
    again.verify()


# --- many at once --------------------------------------------------------------------------------


def damage_workload(seed: int) -> Workload:
    """A store with several blocks, deletions of every kind and, for some seeds, a limit."""
    steps = [
        step for step in random_workload(seed, 60).steps if step[0] not in ("reopen", "expire")
    ]
    limits = (StoreLimits(), StoreLimits(msgs_max=20), StoreLimits(subject_msgs_max=4))[seed % 3]
    last = [("store", b"last", b"", b"message %d" % number) for number in range(3)]
    return Workload(f"damage {seed}", (*steps, *last), limits, (300, 1000, 5000)[seed % 3])


def harmed(store: Store, harm: Harm, seed: int) -> tuple[SimulatedDisk, str]:
    """A damaged copy of a store, and in words what was done."""
    disk = store.copy()
    return disk, harm(store, disk, Random(seed))


def damage_seed(seed: int, cases: int, *, is_encrypted: bool = False) -> list[str]:
    """Damage one store in many ways; gives what was wrong, each with what leads there again."""
    workload = damage_workload(seed)
    if is_encrypted:
        workload = encrypted(workload, seed)
    store = prepared(workload, with_index=False)
    failures: list[str] = []
    harms = IN_PLACE + OF_WHOLE_FILES
    for case in range(cases):
        harm = harms[case % len(harms)]
        disk, what = harmed(store, harm, case)
        try:
            if case % 8 == 0:
                check_cut_recovery(store, disk)
            check_recovered(store, disk, hits_of(store, disk))
        except Exception as error:
            place = error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            line = place.tb_lineno if place is not None else 0
            failures.append(f"damage seed {seed}, case {case}: {what}: {error!r} (line {line})")
    return failures
