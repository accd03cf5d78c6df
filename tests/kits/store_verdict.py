"""The conditions on a store after its power failed, and the search for a case that violates them.

Owns the examination of a crashed disk, the verdict against the ledger of the workload, and the walk
over all I/O steps with many outcomes of a power failure at each. Equal disks are examined once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from random import Random

from power_cuts import Holdings, WatchedDisk, cut_off, holdings_of
from store_workloads import (
    FOLDER,
    Ledger,
    Run,
    Workload,
    open_workload,
    plain_files,
    record_bytes,
)
from tradewind.errors import StoreError
from tradewind.store.contract import MessageCopy
from tradewind.store.folder.filestore import FileStore
from tradewind.store.format import s2
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

Content = dict[int, MessageCopy]
PROBE = b"probe.subject"
ERASED_BYTES_MIN = 20  # a shorter payload may be found anywhere
DELETED_LISTED_MAX = 1000
READABLE_BYTES_MIN = 7  # a shorter text may be found anywhere


@dataclass(slots=True)
class Outcome:
    """The content of a store after a power failure; `problems` are those that need no ledger to
    see.
    """

    messages: Content = field(default_factory=dict)
    last_seq: int = 0
    problems: list[str] = field(default_factory=list)
    recoveries_cut: int = 0
    on_disk: bytes = b""  # what all files held before they were opened


def share_of(holdings: Holdings, share: int) -> bool:
    """Whether this disk is among one of so many; always the same ones, and none of 0."""
    key = blake2b(digest_size=1)
    for path, content in holdings:
        key.update(path.encode() + (content or b""))
    return share > 0 and key.digest()[0] % share == 0


def bytes_on(disk: SimulatedDisk, cipher: str = "") -> bytes:
    """The content of all block files and of copies of them, decrypted and uncompressed."""
    found = []
    for path, data in plain_files(disk, cipher).items():
        if "/msgs/" in path and ".blk" in path:
            found.append(s2.salvage_block(data)[0] if s2.is_compressed(data[:24]) else data)
    return b"".join(found)


def content_of(store: FileStore) -> Content:
    """All live messages by sequence."""
    return {message.seq: message for message in store.table.messages()}


def consistency_problems(store: FileStore, messages: Content) -> list[str]:
    """Compare a store's figures with the messages that it returns."""
    problems: list[str] = []
    try:
        store.verify()
    except AssertionError as error:
        problems.append(f"verify: {error}")
    state = store.table.state
    # A store that was purged before it had a message says 1.
    unused = min(state.first_seq, 1)
    first_seq = min(messages, default=state.last_seq + 1 if state.last_seq else unused)
    facts = {
        "msgs": (state.msgs, len(messages)),
        "bytes": (state.bytes, sum(map(record_bytes, messages.values()))),
        "first_seq": (state.first_seq, first_seq),
        "subjects": (state.subjects, len({m.subject for m in messages.values()})),
        "first time": (
            state.first_timestamp_ns,
            messages[first_seq].timestamp_ns if messages else 0,
        ),
    }
    if messages:
        facts["deleted"] = (state.deleted, state.last_seq + 1 - first_seq - len(messages))
        missing = (s for s in range(first_seq, state.last_seq + 1) if s not in messages)
        listed = list(islice(missing, DELETED_LISTED_MAX))
        facts["deleted sequences"] = (store.table.deleted_sequences(DELETED_LISTED_MAX), listed)
    problems += [f"{k}: says {said}, is {is_}" for k, (said, is_) in facts.items() if said != is_]
    if max(messages, default=0) > state.last_seq:
        problems.append(f"last_seq {state.last_seq} is below message {max(messages)}")
    return problems


def examine(disk: SimulatedDisk, workload: Workload, now_ns: int, *, deep: bool) -> Outcome:
    """Open a crashed disk and try everything; `deep` also cuts the recovery off at each step."""
    outcome = Outcome(on_disk=bytes_on(disk, workload.cipher))
    before = disk.crash_keeping_unsynced() if deep else None
    try:
        _examine(disk, workload, now_ns, outcome)
        if before is not None and not outcome.problems:
            _cut_recovery(before, workload, now_ns, outcome)
    except StoreError as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
    return outcome


def _examine(disk: SimulatedDisk, workload: Workload, now_ns: int, outcome: Outcome) -> None:
    store, report = open_workload(disk, workload, now_ns)
    outcome.messages, outcome.last_seq = content_of(store), store.table.last_seq
    outcome.problems += consistency_problems(store, outcome.messages)
    if report.lost or store.table.state.lost is not None:
        outcome.problems.append(f"false alarm: lost {report.lost}, {store.table.state.lost}")
    if store.table.synced_seq != store.table.last_seq:
        outcome.problems.append(f"synced_seq {store.table.synced_seq} of {store.table.last_seq}")
    # The recovery itself has to be durable, for it has told the world what there is.
    again, report = open_workload(disk.crash_losing_unsynced(), workload, now_ns)
    _expect_same("second power failure", again, outcome, outcome.problems)
    # Life goes on, and the next start sees it.
    seq = store.table.store(PROBE, b"", b"probe", now_ns)
    if seq <= outcome.last_seq:
        outcome.problems.append(f"sequence {seq} was given out again")
    expected = content_of(store)
    store.commit()
    again, report = open_workload(disk.crash_losing_unsynced(), workload, now_ns)
    _compare("appended, then a power failure", content_of(again), expected, outcome.problems)
    store.close()
    again, report = open_workload(disk, workload, now_ns)
    _compare("closed and opened", content_of(again), expected, outcome.problems)
    outcome.problems += consistency_problems(again, expected)
    if not report.is_clean:
        outcome.problems.append(f"closed and opened: {report}")
    if workload.cipher:
        outcome.problems += readable_problems(
            disk, {*expected.values(), *outcome.messages.values()}
        )


def readable_problems(disk: SimulatedDisk, messages: set[MessageCopy]) -> list[str]:
    """The messages that can be read from an encrypted disk without a key."""
    everything = b"\0".join(data for data in disk.snapshot_tree().values() if data)
    texts = {text for message in messages for text in (message.subject, message.payload)}
    return [
        f"{text!r} can be read from the disk"
        for text in texts
        if len(text) >= READABLE_BYTES_MIN and text in everything
    ]


def _cut_recovery(before: SimulatedDisk, workload: Workload, now_ns: int, outcome: Outcome) -> None:
    """Fail the power at every step of the recovery: the next one has to come to the same result."""
    untouched = holdings_of(before)
    for step, disk in cut_off(before, lambda disk: open_workload(disk, workload, now_ns)):
        if holdings_of(disk) == untouched:
            continue
        outcome.recoveries_cut += 1
        store, report = open_workload(disk, workload, now_ns)
        _expect_same(f"recovery cut off at {step}", store, outcome, outcome.problems)
        if report.lost:
            outcome.problems.append(f"recovery cut off at {step}: lost {report.lost}")


def _expect_same(where: str, store: FileStore, outcome: Outcome, problems: list[str]) -> None:
    _compare(where, content_of(store), outcome.messages, problems)
    if store.table.last_seq != outcome.last_seq:
        problems.append(f"{where}: last_seq {store.table.last_seq} instead of {outcome.last_seq}")


def _compare(where: str, found: Content, expected: Content, problems: list[str]) -> None:
    if found != expected:
        missing, more = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
        other = [s for s in found if s in expected and found[s] != expected[s]]
        problems.append(f"{where}: missing {missing}, more {more}, different {other}")


def judge(ledger: Ledger, outcome: Outcome) -> list[str]:
    """Every broken promise."""
    problems = list(outcome.problems)
    found = outcome.messages
    promised_gone = set(list(ledger.gone)[: ledger.promised_gone])
    for seq, message in found.items():
        if ledger.messages.get(seq) != message:
            problems.append(f"message {seq} was never stored like this")
        elif seq in promised_gone:
            problems.append(f"message {seq} is back")
        elif ledger.is_too_old(seq):
            problems.append(f"message {seq} is too old")
    if not ledger.acknowledged_seq <= outcome.last_seq <= ledger.last_seq:
        text = f"last_seq {outcome.last_seq} is not in {ledger.acknowledged_seq}..{ledger.last_seq}"
        problems.append(text)
    for seq in ledger.messages:
        if seq > ledger.acknowledged_seq:
            break
        if seq not in found and seq not in promised_gone and not may_be_gone(ledger, found, seq):
            problems.append(f"message {seq} is lost")
    return problems + erased_problems(ledger, outcome.on_disk)


def erased_problems(ledger: Ledger, on_disk: bytes) -> list[str]:
    """Messages that were to be erased and can still be read from the disk."""
    removals = list(ledger.gone.items())[: ledger.promised_erased]
    payloads = Counter(message.payload for message in ledger.messages.values())
    return [
        f"message {seq} is not erased"
        for seq, removal in removals
        if removal.erase
        and len(payload := ledger.messages[seq].payload) >= ERASED_BYTES_MIN
        and payloads[payload] == 1
        and payload in on_disk
    ]


def may_be_gone(ledger: Ledger, found: Content, seq: int) -> bool:
    """Whether a removal that was begun, but not promised, explains that a message is not there."""
    if ledger.is_too_old(seq):
        return True
    removal = ledger.gone.get(seq)
    if removal is None:
        return False
    if not removal.cause or removal.cause in found or removal.cause in ledger.gone:
        return True
    # A limit let it go for a newer message, which is lost; other new ones may have needed the room.
    limits, size = ledger.limits, record_bytes(ledger.messages[seq])
    total = sum(map(record_bytes, found.values()))
    subject = ledger.messages[seq].subject
    same = sum(message.subject == subject for message in found.values())
    return (
        0 < limits.msgs_max <= len(found)
        or 0 < limits.bytes_max < total + size
        or 0 < limits.subject_msgs_max <= same
    )


@dataclass(slots=True)
class Failure:
    """A state that must not be: enough to get there again."""

    workload: str
    step: int
    variant: str
    problems: list[str]


@dataclass(slots=True)
class Count:
    """How much was tried."""

    states: int = 0
    distinct: int = 0
    steps: int = 0
    recoveries_cut: int = 0
    failures: list[Failure] = field(default_factory=list)


class Examiner:
    """Examines disks; what comes of one does for all that are equal, under equal circumstances."""

    def __init__(self, cut_share: int = 0, count: Count | None = None) -> None:
        """One of `cut_share` recoveries is cut off everywhere, none of 0."""
        self._cut_share = cut_share
        self._count = Count() if count is None else count
        self._outcomes: dict[tuple[object, ...], Outcome] = {}

    def outcome(self, disk: SimulatedDisk, workload: Workload, now_ns: int) -> Outcome:
        """The outcome of opening a disk; it may be that of an equal disk before."""
        holdings, limits = holdings_of(disk), workload.limits
        opening = workload.block_bytes_max, workload.settings, workload.cipher
        key = holdings, limits, limits.age_max_ns and now_ns, opening
        outcome = self._outcomes.get(key)
        if outcome is None:
            deep = share_of(holdings, self._cut_share)
            outcome = self._outcomes[key] = examine(disk, workload, now_ns, deep=deep)
            self._count.distinct += 1
            self._count.recoveries_cut += outcome.recoveries_cut
        return outcome


class Explorer:
    """Runs a workload once and crashes it, on copies, in front of each step and at the end."""

    def __init__(self, workload: Workload, *, seeds: int, cut_share: int, count: Count) -> None:
        """`seeds` chances per step; one of `cut_share` recoveries is cut off everywhere."""
        self._workload = workload
        self._seeds = seeds
        self.count = count
        self._examiner = Examiner(cut_share, count)

    def run(
        self, seed: int = 0, *, sync_persists_names: bool = False, short_write_bytes: int = 0
    ) -> None:
        """All steps; `seed` moves the chances of the power failures."""
        disk = WatchedDisk(seed, sync_persists_names=sync_persists_names)
        disk.short_write_bytes = short_write_bytes
        run = Run(self._workload, disk)
        disk.on_step = lambda: self._crash_here(disk, run.ledger, seed)
        run.start()
        self._finish(run, disk, seed)

    def run_after_crash(self, before: Workload, seed: int) -> None:
        """The same in a store that has lost power somewhere in `before`."""
        rehearsal = WatchedDisk(seed)
        Run(before, rehearsal).run()
        first = WatchedDisk(seed)
        first.stop_at = Random(seed).randint(1, rehearsal.steps)
        run = Run(before, first)
        with suppress(PowerLoss):
            run.run()
        disk = WatchedDisk(seed)
        disk.tree = first.crash(seed).tree
        disk.make_directory(FOLDER, sync=True)
        again = Run(self._workload, disk)
        again.start_after_crash(run.ledger)
        disk.on_step = lambda: self._crash_here(disk, again.ledger, seed)
        self._finish(again, disk, seed)

    def _finish(self, run: Run, disk: WatchedDisk, seed: int) -> None:
        run.go_on()
        disk.on_step = None
        self._crash_here(disk, run.ledger, seed)
        run.compare()

    def _crash_here(self, disk: WatchedDisk, ledger: Ledger, seed: int) -> None:
        self.count.steps += 1
        for name, crashed in self._variants(disk, seed):
            self.count.states += 1
            workload = replace(self._workload, limits=ledger.limits)
            problems = judge(ledger, self._examiner.outcome(crashed, workload, ledger.now_ns))
            if problems:
                failure = Failure(self._workload.name, disk.steps, name, problems)
                self.count.failures.append(failure)

    def _variants(self, disk: WatchedDisk, seed: int) -> Iterator[tuple[str, SimulatedDisk]]:
        yield "nothing unsynced survives", disk.crash_losing_unsynced()
        unsynced = disk.unsynced_steps()
        if not unsynced:
            return
        yield "everything survives", disk.crash_keeping_unsynced()
        for step in unsynced[:-1]:
            yield f"steps up to {step} survive", disk.crash_keeping_steps(step)
        for index in range(self._seeds):
            number = (seed << 32) + (disk.steps << 12) + index
            yield f"seed {number}", disk.crash(number)
