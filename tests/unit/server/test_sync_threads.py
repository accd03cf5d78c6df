"""Group commit in real threads, on real files."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tradewind.clock import SystemClock
from tradewind.errors import StoreError
from tradewind.server.syncer import PROBE_COUNT, WAIT_NS_MAX, ThreadedSyncer
from tradewind.store.commit import Commit
from tradewind.store.disk import OsDisk
from tradewind.store.filestore import FileStore
from tradewind.store.recover import open_store
from tradewind.store.syncer import SyncMode

CLOCK = SystemClock()
WAIT_SECONDS = 20


class Watched:
    """Stores of one folder with their syncer, and what they have promised."""

    def __init__(self, folder: Path, threads: int = 4) -> None:
        self.disk = OsDisk(str(folder))
        self.batches = 0
        self.promised: dict[str, int] = {}
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

        self.syncer.attach(
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


async def test_what_comes_while_a_sync_runs_shares_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path)
    store = watched.open("S")
    gate = threading.Event()
    plain = Commit.run

    def slow(self: Commit) -> None:
        gate.wait(WAIT_SECONDS)
        plain(self)

    monkeypatch.setattr(Commit, "run", slow)
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path)
    store = watched.open("S")
    gate = threading.Event()
    monkeypatch.setattr(Commit, "run", lambda _: gate.wait(WAIT_SECONDS))
    watched.put(store)
    watched.end_turn()
    watched.put(store)
    assert await watched.syncer.drain(0.01) == [store]
    gate.set()
    assert watched.syncer.stop()
    store.abandon()


async def test_jobs_that_end_together_share_one_batch(tmp_path: Path) -> None:
    watched = Watched(tmp_path, threads=2)
    stores = [watched.open(f"S{index}") for index in range(6)]
    for store in stores:
        watched.put(store)
    watched.end_turn()
    # Let the threads finish before the loop looks.
    for thread in list(watched.syncer._threads):
        watched.syncer._waiting.put(None)
        thread.join(WAIT_SECONDS)
    await watched.until_promised("S5", 1)
    assert watched.batches == 1
    for store in stores:
        store.close()


async def test_store_is_synced_at_once_when_it_is_alone(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    store = watched.open("S")
    watched.put(store)
    watched.end_turn()
    await watched.until_promised("S", 1)
    while not watched.syncer.is_idle:
        watched.changed.clear()
        await watched.changed.wait()
    store.store(b"s", b"", b"y", 1)
    assert watched.syncer.sync_alone(store, CLOCK.monotonic_ns())
    assert store.synced_seq == store.last_seq == 2
    assert await watched.syncer.drain(WAIT_SECONDS) == []
    assert watched.syncer.stop()
    store.close()


async def test_loop_does_not_wait_for_a_slow_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path)
    store = watched.open("S")
    monkeypatch.setattr(FileStore, "commit_alone", lambda _: True)
    began_ns = CLOCK.monotonic_ns() - 5 * WAIT_NS_MAX
    waited = [watched.syncer.sync_alone(store, began_ns) for _ in range(3 * PROBE_COUNT)]
    assert waited[0]
    assert waited[16:].count(True) == 3
    assert await watched.syncer.drain(WAIT_SECONDS) == []
    assert watched.syncer.stop()
    store.close()
