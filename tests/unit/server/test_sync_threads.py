"""Group commit in real threads, on real files."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from tradewind.clock import SystemClock
from tradewind.errors import StoreError
from tradewind.server.sync_threads import FineTimer
from tradewind.server.syncer import ThreadedSyncer
from tradewind.store.commit import Commit
from tradewind.store.disk import Operation, OsDisk, OsFile
from tradewind.store.filestore import FileStore
from tradewind.store.recover import open_store
from tradewind.store.syncer import SyncEntry, SyncJob, SyncMode

CLOCK = SystemClock()
WAIT_SECONDS = 20


class GatedFile(OsFile):
    """Its syncs wait for a gate; it has no descriptor to give away, so they run in Python."""

    gate = threading.Event()

    def sync(self) -> None:
        self.gate.wait(WAIT_SECONDS)
        super().sync()

    def fileno(self) -> int:
        return -1


class PipeFile(OsFile):
    """Not a file at all."""


class GatedDisk(OsDisk):
    def _opened(self, path: str, operation: Operation, flags: int) -> OsFile:
        return GatedFile(path, super()._opened(path, operation, flags)._descriptor)


class Watched:
    """Stores of one folder with their syncer, and what they have promised."""

    def __init__(self, folder: Path, threads: int = 4, *, disk: OsDisk | None = None) -> None:
        self.disk = disk or OsDisk(str(folder))
        self.batches = 0
        self.promised: dict[str, int] = {}
        self.entries: dict[int, SyncEntry] = {}
        self.failures: list[StoreError] = []
        self.changed = asyncio.Event()
        self.syncer = ThreadedSyncer(
            asyncio.get_running_loop(),
            CLOCK,
            threads=threads,
            interval_ns=20_000_000,
            after_batch=self.batch,
        )

    def batch(self) -> None:
        self.batches += 1
        self.changed.set()

    def open(self, name: str, mode: SyncMode = SyncMode.ALWAYS) -> FileStore:
        self.disk.make_directory(f"{self.disk.root}/{name}")
        store, _ = open_store(self.disk, f"{self.disk.root}/{name}", name, now_ns=0)
        self.promised[name] = 0

        def on_synced(_: object, number: int) -> None:
            assert number == self.promised[name] + 1
            self.promised[name] = number

        self.entries[id(store)] = self.syncer.attach(
            store,
            mode=mode,
            on_synced=on_synced,
            on_failure=lambda _, error: self.failures.append(error),
        )
        return store

    def put(self, store: FileStore) -> int:
        store.store(b"s", b"", b"x", 1)
        return self.syncer.mark_dirty(store, CLOCK.monotonic_ns())

    def end_turn(self) -> None:
        self.syncer.end_turn(CLOCK.monotonic_ns())

    async def until_promised(self, name: str, number: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while self.promised[name] < number:
                self.changed.clear()
                await self.changed.wait()


async def test_rounds_of_many_stores_come_back_in_order(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    stores = [watched.open(f"S{index}") for index in range(8)]
    for _ in range(5):
        numbers = [watched.put(store) for store in stores]
        watched.end_turn()
        for store, number in zip(stores, numbers, strict=True):
            await watched.until_promised(store.name, number)
            assert store.synced_seq == store.last_seq
    assert watched.syncer.statistics.commits >= 40
    assert await watched.syncer.drain(WAIT_SECONDS) == []
    assert watched.syncer.stop()
    for store in stores:
        store.close()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    monkeypatch.setattr(GatedFile, "gate", threading.Event())
    return GatedFile.gate


async def test_what_comes_while_a_sync_runs_shares_the_next_one(
    tmp_path: Path, gate: threading.Event
) -> None:
    gate.set()
    watched = Watched(tmp_path, disk=GatedDisk(str(tmp_path)))
    store = watched.open("S")
    gate.clear()
    watched.put(store)
    watched.end_turn()
    for _ in range(100):
        assert watched.put(store) == 2
        watched.end_turn()
    # The loop goes on while the disk does not answer.
    await asyncio.sleep(0)
    assert watched.promised["S"] == 0
    gate.set()
    await watched.until_promised("S", 2)
    assert store.synced_seq == 101
    assert watched.syncer.statistics.rounds == 2
    watched.syncer.stop()
    store.close()


async def test_interval_store_is_synced_by_the_timer(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    store = watched.open("S", SyncMode.INTERVAL)
    watched.put(store)
    watched.end_turn()
    assert (watched.promised["S"], store.synced_seq) == (1, 0)
    async with asyncio.timeout(WAIT_SECONDS):
        while store.synced_seq == 0:
            watched.changed.clear()
            await watched.changed.wait()
    watched.syncer.stop()
    store.close()


async def test_drain_gives_up_on_a_disk_that_does_not_answer(
    tmp_path: Path, gate: threading.Event
) -> None:
    gate.set()
    watched = Watched(tmp_path, disk=GatedDisk(str(tmp_path)))
    store = watched.open("S")
    gate.clear()
    watched.put(store)
    watched.end_turn()
    watched.put(store)
    assert await watched.syncer.drain(0.01) == [store]
    assert not watched.syncer.threads.stop(0.01)
    gate.set()


async def test_jobs_that_end_together_share_one_batch(tmp_path: Path) -> None:
    watched = Watched(tmp_path, threads=2)
    stores = [watched.open(f"S{index}") for index in range(6)]
    for store in stores:
        watched.put(store)
    watched.end_turn()
    # Let the threads finish before the loop looks.
    threads = watched.syncer.threads
    until_ns = CLOCK.monotonic_ns() + WAIT_SECONDS * 10**9
    while threads.done_count < len(stores):
        assert CLOCK.monotonic_ns() < until_ns
    await watched.until_promised("S5", 1)
    assert watched.batches == 1
    assert threads.count == 2
    assert watched.syncer.stop()
    for store in stores:
        store.close()


async def test_descriptor_that_cannot_be_synced_comes_back_with_its_error(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    store = watched.open("S")
    watched.put(store)
    read_end, write_end = os.pipe()
    commit = store.begin_commit()
    assert commit is not None
    # A pipe cannot be synced: the system says EINVAL.
    file = PipeFile(f"{tmp_path}/pipe", write_end)
    pipe = Commit(watched.disk, 0, (0, 0), [file])
    entry = watched.entries[id(store)]
    watched.syncer.threads.submit(SyncJob(entry, commit, 1, 0))
    watched.syncer.threads.submit(SyncJob(entry, pipe, 1, 0))
    loop = asyncio.get_running_loop()
    loop.remove_reader(watched.syncer.threads.fileno())
    done: list[SyncJob] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while len(done) < 2:
            await asyncio.sleep(0)
            done += watched.syncer.threads.take()
    assert commit.error is None
    assert "pipe" in str(pipe.error)
    assert "Invalid argument" in str(pipe.error)
    assert all(job.run_ns > 0 for job in done)
    store.finish_commit(commit)
    assert store.synced_seq == 1
    file.close()
    os.close(read_end)
    watched.syncer.stop()
    store.close()


async def test_threads_can_be_stopped_twice_and_take_no_more_work(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    store = watched.open("S")
    watched.put(store)
    watched.end_turn()
    await watched.until_promised("S", 1)
    assert watched.syncer.threads.count == 1
    assert watched.syncer.stop()
    assert watched.syncer.threads.stop(1.0)
    assert (watched.syncer.threads.count, watched.syncer.threads.fileno()) == (0, -1)
    assert watched.syncer.threads.take() == []
    watched.put(store)
    watched.syncer.end_turn(CLOCK.monotonic_ns())
    assert watched.syncer.statistics.running == 1


async def test_timer_is_set_anew_by_every_earlier_deadline() -> None:
    timer = FineTimer()
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(timer.fileno(), came.set)
    timer.set(10**15)
    timer.set(1000)
    async with asyncio.timeout(WAIT_SECONDS):
        await came.wait()
    timer.clear()
    loop.remove_reader(timer.fileno())
    timer.close()
    timer.close()
