"""Group commit and calls in real threads, on real files."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from tradewind.clock import SystemClock
from tradewind.errors import StoreError
from tradewind.faults import Faults
from tradewind.server.threads.sync_threads import ThreadedSyncer
from tradewind.server.threads.threads import FineTimer, Threads
from tradewind.server.threads.workers import LoopWorkers
from tradewind.store.commits.commit import Commit
from tradewind.store.commits.syncer import SyncEntry, Syncer, SyncJob, SyncMode
from tradewind.store.files.disk import Operation, OsDisk, OsFile
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store

CLOCK = SystemClock()
WAIT_SECONDS = 20


class GatedFile(OsFile):
    """Its syncs wait for a gate; it has no descriptor to give away, so they run in Python."""

    gate = threading.Event()

    def sync(self, *, is_named: bool = True) -> None:
        self.gate.wait(WAIT_SECONDS)
        super().sync(is_named=is_named)

    def fileno(self) -> int:
        return -1


class PipeFile(OsFile):
    """Not a file at all."""


class GatedDisk(OsDisk):
    def _opened(self, path: str, operation: Operation, flags: int) -> OsFile:
        return GatedFile(path, super()._opened(path, operation, flags)._descriptor)


class Keeper(Syncer):
    """Only remembers what it gets back."""

    def __init__(self, run: Callable[[SyncJob], None]) -> None:
        super().__init__(run)
        self.done: list[SyncJob] = []

    def complete(self, job: SyncJob, now_ns: int) -> None:
        assert now_ns > 0
        self.done.append(job)


class Watched:
    """Stores of one folder with their syncer, and what they have promised."""

    def __init__(self, folder: Path, threads: int = 4, *, disk: OsDisk | None = None) -> None:
        self.disk = disk or OsDisk(str(folder))
        self.batches = 0
        self.promised: dict[str, int] = {}
        self.entries: dict[int, SyncEntry] = {}
        self.failures: list[StoreError] = []
        self.changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.faults = Faults()
        self.threads = Threads(
            loop,
            CLOCK.monotonic_ns,
            sync_threads=threads,
            call_threads=2,
            after_calls=self.changed.set,
            faults=self.faults,
        )
        self.syncer = ThreadedSyncer(
            loop,
            CLOCK,
            self.threads,
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

    def stop(self, seconds: float = WAIT_SECONDS) -> bool:
        self.syncer.close()
        return self.threads.stop(seconds)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()

    def put(self, store: FileStore) -> int:
        store.table.store(b"s", b"", b"x", 1)
        return self.syncer.mark_dirty(store, CLOCK.monotonic_ns())

    def end_turn(self) -> None:
        self.syncer.end_turn(CLOCK.monotonic_ns())

    async def until_promised(self, name: str, number: int) -> None:
        await self.until(lambda: self.promised[name] >= number)


async def test_rounds_of_many_stores_come_back_in_order(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    stores = [watched.open(f"S{index}") for index in range(8)]
    for _ in range(5):
        numbers = [watched.put(store) for store in stores]
        watched.end_turn()
        for store, number in zip(stores, numbers, strict=True):
            await watched.until_promised(store.name, number)
            assert store.table.synced_seq == store.table.last_seq
    assert watched.syncer.statistics.commits >= 40
    assert await watched.syncer.drain(WAIT_SECONDS) == []
    assert watched.stop()
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
    assert store.table.synced_seq == 101
    assert watched.syncer.statistics.rounds == 2
    watched.stop()
    store.close()


async def test_interval_store_is_synced_by_the_timer(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    store = watched.open("S", SyncMode.INTERVAL)
    watched.put(store)
    watched.end_turn()
    assert (watched.promised["S"], store.table.synced_seq) == (1, 0)
    async with asyncio.timeout(WAIT_SECONDS):
        while store.table.synced_seq == 0:
            watched.changed.clear()
            await watched.changed.wait()
    watched.stop()
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
    assert not watched.stop(0.01)
    gate.set()


async def test_what_a_disk_has_outlived_is_freed_when_it_answers() -> None:
    """By the thread that was stuck: nobody else knows of it any more."""

    class Clock:
        def __call__(self) -> int:
            return CLOCK.monotonic_ns()

    clock, freed, gate = Clock(), threading.Event(), threading.Event()
    threads = Threads(asyncio.get_running_loop(), clock, call_threads=2)
    weakref.finalize(clock, freed.set)
    del clock
    descriptor = threads.fileno()
    for _ in range(3):  # two are stuck, one waits
        threads.call(lambda: gate.wait(WAIT_SECONDS), pytest.fail)
    assert not threads.stop(0.01)
    del threads
    assert not freed.is_set()
    os.fstat(descriptor)
    gate.set()
    assert freed.wait(WAIT_SECONDS)


async def test_jobs_that_end_together_share_one_batch(tmp_path: Path) -> None:
    watched = Watched(tmp_path, threads=2)
    stores = [watched.open(f"S{index}") for index in range(6)]
    for store in stores:
        watched.put(store)
    watched.end_turn()
    # Let the threads finish before the loop looks.
    threads = watched.threads
    until_ns = CLOCK.monotonic_ns() + WAIT_SECONDS * 10**9
    while threads.done_count < len(stores):
        assert CLOCK.monotonic_ns() < until_ns
    await watched.until_promised("S5", 1)
    assert watched.batches == 1
    assert threads.count == 2
    assert watched.stop()
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
    keeper = Keeper(watched.threads.sync)
    watched.threads.give_back_to(keeper, watched.changed.set)
    watched.threads.sync(SyncJob(entry, commit, 1, 0))
    watched.threads.sync(SyncJob(entry, pipe, 1, 0))
    await watched.until(lambda: len(keeper.done) == 2)
    assert commit.error is None
    assert "pipe" in str(pipe.error)
    assert "Invalid argument" in str(pipe.error)
    assert all(job.run_ns > 0 for job in keeper.done)
    store.finish_commit(commit)
    assert store.table.synced_seq == 1
    file.close()
    os.close(read_end)
    watched.stop()
    store.close()


def replace_by_copy(block: Path) -> None:
    copy = block.with_suffix(".copy")
    copy.write_bytes(block.read_bytes())
    copy.rename(block)


@pytest.mark.parametrize(
    ("lose", "reason"),
    [
        (Path.unlink, "the file was removed or moved away (ENOENT)"),
        (lambda path: path.rename(path.with_suffix(".old")), "removed or moved away (ENOENT)"),
        (lambda path: path.parent.rename(path.parents[1] / "T"), "removed or moved away (ENOENT)"),
        (replace_by_copy, "another file has taken its place (ESTALE)"),
    ],
    ids=["removed", "renamed", "folder renamed", "replaced"],
)
async def test_threads_promise_nothing_of_a_file_that_has_lost_its_name(
    tmp_path: Path, lose: Callable[[Path], object], reason: str
) -> None:
    watched = Watched(tmp_path)
    store = watched.open("S")
    watched.put(store)
    watched.end_turn()
    await watched.until_promised("S", 1)
    watched.put(store)  # chores of the first commit are done, so only descriptors are synced
    watched.end_turn()
    await watched.until_promised("S", 2)
    lose(Path(store.table.last.path))
    watched.put(store)
    watched.end_turn()
    await watched.until(lambda: bool(watched.failures))
    assert reason in str(watched.failures[0])
    assert (watched.promised["S"], store.table.synced_seq) == (2, 2)
    watched.stop()
    store.abandon()


async def test_threads_can_be_stopped_twice_and_take_no_more_work(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    store = watched.open("S")
    watched.put(store)
    watched.end_turn()
    await watched.until_promised("S", 1)
    assert watched.threads.count == 1
    assert watched.stop()
    assert watched.threads.stop(1.0)
    assert (watched.threads.count, watched.threads.fileno()) == (0, -1)
    watched.threads.collect()
    watched.threads.call(pytest.fail, pytest.fail)
    watched.put(store)
    watched.syncer.end_turn(CLOCK.monotonic_ns())
    assert watched.syncer.statistics.running == 1


async def test_calls_that_take_long_keep_no_commit_waiting(tmp_path: Path) -> None:
    watched = Watched(tmp_path, threads=1)
    store = watched.open("S")
    gate, ended = threading.Event(), []
    for _ in range(5):  # more than may run at a time
        watched.threads.call(lambda: gate.wait(WAIT_SECONDS), ended.append)
    watched.put(store)
    watched.end_turn()
    await watched.until_promised("S", 1)
    assert (ended, watched.threads.count) == ([], 3)
    gate.set()
    await watched.until(lambda: len(ended) == 5)
    assert ended == [None] * 5
    assert watched.stop()
    store.close()


async def test_a_call_comes_back_with_its_error_and_a_fault_of_its_owner_is_counted(
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    told: list[Exception | None] = []

    def fail() -> None:
        raise ValueError("injected")

    def leave() -> None:
        raise SystemExit

    def broken(error: Exception | None) -> None:
        told.append(error)
        raise RuntimeError("of the owner")

    for work, done in ((fail, broken), (leave, told.append), (lambda: None, told.append)):
        before = len(told)
        watched.threads.call(work, done)
        await watched.until(lambda before=before: len(told) > before)  # type: ignore[misc]
    assert [str(error) for error in told] == [
        "injected",
        "a call ended by SystemExit()",
        "None",
    ]
    assert watched.faults.counts == {"worker": 1}
    assert watched.stop()


async def test_workers_are_drained_when_no_call_is_under_way(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    workers = LoopWorkers(watched.threads)
    assert await workers.drain(0)
    gate, ended = threading.Event(), []
    workers.submit(lambda: gate.wait(WAIT_SECONDS), ended.append)
    assert not await workers.drain(0.01)
    gate.set()
    assert await workers.drain(WAIT_SECONDS)
    assert ended == [None]
    assert watched.stop()


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
