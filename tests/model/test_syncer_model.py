"""Random work of several stores with commits that end in any order, failures and deletions.

A promise must never be given early, never in the wrong order, and never be forgotten.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from thoroughness import some
from tradewind.errors import StoreError
from tradewind.store.commits.commit import SyncTarget
from tradewind.store.commits.syncer import RETRY_NS, SyncEntry, SyncMode
from tradewind.store.files.disk import DiskFull
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.testing.fake_clock import FakeClock
from tradewind.testing.fake_disk import Fault, SimulatedDisk
from tradewind.testing.fake_syncer import SteppedSyncer

CASES = some(60, 2000)
STEPS = 120
NAMES = ("A", "B", "C")
INTERVAL_NS = 3 * RETRY_NS


class Stream:
    """One store, what it was given and what it has promised."""

    def __init__(self, store: FileStore, mode: SyncMode) -> None:
        self.store = store
        self.mode = mode
        self.rounds: dict[int, int] = {}  # of sequences that wait for their promise
        self.promised = 0  # the last sequence that was
        self.examined = 0  # up to there it was looked for after a power cut
        self.kept = 0  # the last round that was
        self.faults: list[Fault] = []
        self.is_failed = False
        self.free = False

    @property
    def broken(self) -> bool:
        """Whether a sync has failed: nothing more is promised."""
        return any(fault.hits for fault in self.faults)


class Work:
    """Random steps from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(seed)
        self.clock = FakeClock()
        self.syncer = SteppedSyncer(self.clock, interval_ns=INTERVAL_NS)
        self.streams: dict[str, Stream] = {}
        self.retired: list[Stream] = []
        self.entries: dict[int, SyncEntry] = {}

    # --- what the syncer says ------------------------------------------------------------------

    def on_synced(self, stream: Stream, number: int) -> None:
        assert stream not in self.retired
        assert number > stream.kept, "rounds go up"
        stream.kept = number
        covered = [seq for seq, its in stream.rounds.items() if its <= number]
        for seq in covered:
            assert seq > stream.promised, "in order"
            stream.promised = seq
            del stream.rounds[seq]
        if stream.mode is SyncMode.ALWAYS:
            assert stream.store.table.synced_seq >= stream.promised

    def on_failure(self, stream: Stream, error: StoreError) -> None:
        assert stream not in self.retired
        assert not stream.is_failed, "told once"
        assert stream.broken or isinstance(error, DiskFull)
        stream.is_failed = True

    def on_resumed(self, stream: Stream) -> None:
        assert stream.is_failed
        assert not stream.broken
        stream.is_failed = False

    # --- what is done to it --------------------------------------------------------------------

    def open(self) -> None:
        if len(self.streams) == len(NAMES):
            return
        mode = self.random.choice((SyncMode.ALWAYS, *SyncMode))
        name = next(name for name in NAMES if name not in self.streams)
        folder = f"{self.disk.root}/{name}{len(self.retired)}"
        self.disk.clear_faults()
        self.disk.make_directory(folder, sync=True)
        store, _ = open_store(self.disk, folder, name, now_ns=0, block_bytes_max=1000)
        store.commit()
        stream = self.streams[name] = Stream(store, mode)

        def on_synced(_: SyncTarget, number: int) -> None:
            self.on_synced(stream, number)

        self.entries[id(store)] = self.syncer.attach(
            store,
            mode=mode,
            on_synced=on_synced,
            on_failure=lambda _, error: self.on_failure(stream, error),
            on_resumed=lambda _: self.on_resumed(stream),
        )

    def store(self) -> None:
        stream = self.pick()
        for _ in range(self.random.randint(1, 5)):
            if stream.store.failure is not None:
                break
            before = stream.store.table.last_seq
            with suppress(StoreError):  # the next block of a full disk
                stream.store.table.store(b"s", b"", b"x" * 100, 1)
            # Whoever waits for it: the next commit may be held up for others to join.
            self.entries[id(stream.store)].waiters = self.random.randint(0, 3)
            number = self.syncer.mark_dirty(stream.store, self.clock.monotonic_ns())
            if stream.store.table.last_seq > before:
                stream.rounds[stream.store.table.last_seq] = number

    def pick(self) -> Stream:
        if not self.streams:
            self.open()
        return self.random.choice(list(self.streams.values()))

    def end_turn(self) -> None:
        self.syncer.end_turn(self.clock.monotonic_ns())

    def run(self) -> None:
        if self.syncer.waiting:
            self.syncer.run_next(self.random.randrange(len(self.syncer.waiting)))
            self.syncer.synced[-1].run_ns = 200_000

    def complete(self) -> None:
        if self.syncer.synced:
            self.syncer.complete_next(self.random.randrange(len(self.syncer.synced)))

    def wait(self) -> None:
        self.clock.advance_ns(self.random.choice((RETRY_NS // 3, RETRY_NS, INTERVAL_NS)))
        self.syncer.tick(self.clock.monotonic_ns())

    def fill_disk(self) -> None:
        self.disk.fail("write", error=errno.ENOSPC, times=self.random.randint(1, 3))

    def break_disk(self) -> None:
        stream = self.pick()
        stream.faults.append(self.disk.fail("sync", f"{stream.store.folder}/*"))

    def mend_disk(self) -> None:
        self.disk.clear_faults()

    def delete(self) -> None:
        stream = self.pick()
        self.streams = {k: v for k, v in self.streams.items() if v is not stream}
        self.retired.append(stream)

        def free() -> None:
            assert not any(job.entry.target is stream.store for job in self.syncer.waiting)
            stream.free = True
            stream.store.abandon()

        self.syncer.detach(stream.store, free)

    # --- what must hold ------------------------------------------------------------------------

    def do(self) -> None:
        """One step."""
        steps: dict[Callable[[], None], float] = {
            self.store: 12,
            self.end_turn: 12,
            self.run: 10,
            self.complete: 10,
            self.wait: 3,
            self.open: 1,
            self.fill_disk: 1,
            self.mend_disk: 1,
            self.break_disk: 0.3,
            self.delete: 0.7,
        }
        self.random.choices(list(steps), list(steps.values()))[0]()
        self.promised_messages_survive_a_power_cut()

    def promised_messages_survive_a_power_cut(self) -> None:
        for stream in self.streams.values():
            if stream.mode is not SyncMode.ALWAYS or stream.promised <= stream.examined:
                continue
            stream.examined = stream.promised
            disk = self.disk.crash_losing_unsynced()
            folder = stream.store.folder.removesuffix("/msgs")
            found, _ = open_store(disk, folder, stream.store.name, now_ns=0)
            assert found.table.last_seq >= stream.promised

    def end(self) -> None:
        """With a good disk everything is promised in the end, but for what a sync has lost."""
        self.disk.clear_faults()
        self.syncer.end_turn(self.clock.monotonic_ns())
        for _ in range(4):
            self.syncer.run_all()
            self.clock.advance_ns(RETRY_NS)
            self.syncer.tick(self.clock.monotonic_ns())
        self.syncer.run_all()
        for stream in self.streams.values():
            assert stream.broken or not stream.rounds, "forgotten"
            assert stream.broken == (stream.store.failure is not None)
        assert all(stream.free for stream in self.retired)
        self.syncer.begin_drain(self.clock.monotonic_ns())
        self.syncer.run_all()
        assert self.syncer.is_idle
        broken = {id(stream.store) for stream in self.streams.values() if stream.broken}
        assert {id(target) for target in self.syncer.unsafe_targets()} <= broken


@pytest.mark.parametrize("part", range(10))
def test_promises_are_kept_in_order_and_none_is_forgotten(part: int) -> None:
    promised = 0
    for seed in range(part, CASES, 10):
        work = Work(seed)
        try:
            for _ in range(STEPS):
                work.do()
            work.end()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        promised += sum(stream.promised for stream in work.streams.values())
    assert promised > CASES
