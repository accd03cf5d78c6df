"""What is measured of the message store; `benchmarks.store` runs each in a process of its own.

A workload gets an empty folder, or one that a builder has filled once for all its rounds, and
returns figures by name. Rates are per second of CPU time of this process and per second of wall
time; on a busy machine only the first can be compared.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.micro import message_probes
from benchmarks.procfs import own_cpu_s, parse_status_kib
from tradewind.clock import SystemClock
from tradewind.errors import StoreError
from tradewind.server.threads.sync_threads import ThreadedSyncer
from tradewind.server.threads.threads import SYNC_THREADS, Threads
from tradewind.store.commits.commit import SyncTarget
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.table.block import Block
from tradewind.store.table.scan import recover_block
from tradewind.store.table.subject_index import SubjectIndex

Figures = dict[str, float]
NOW_NS = 1_700_000_000_000_000_000
FLUSH_EVERY = 1000
WARM_UP_SHARE = 20
UNSYNCED_MAX = 200_000
STOP_SECONDS = 5.0
CLOCK = SystemClock()


@dataclass(frozen=True)
class Task:
    """Where a workload may work, and how much; `share` 1.0 is the full size."""

    folder: str
    share: float

    def count(self, full: int) -> int:
        """That part of a full-sized load."""
        return max(1000, int(full * self.share))

    def open(self, name: str = "S", **settings: Any) -> FileStore:
        """The store of this folder."""
        disk = OsDisk(self.folder)
        disk.make_directory(f"{self.folder}/{name}")
        return open_store(disk, f"{self.folder}/{name}", name, now_ns=NOW_NS, **settings)[0]


@dataclass(frozen=True)
class Workload:
    """`build` fills the folder for all rounds; `builds` names who has built it if not itself."""

    name: str
    summary: str
    run: Callable[[Task], Figures]
    build: Callable[[Task], None] | None = None


class Watch:
    """Wall and CPU time of the block of a `with`."""

    def __enter__(self) -> Watch:
        self._cpu_s = own_cpu_s()
        self._wall_s = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self._wall_s
        self.cpu_s = own_cpu_s() - self._cpu_s


def anonymous_mib() -> float:
    """Memory of this process that is not a page of a file."""
    text = Path("/proc/self/status").read_text()
    return parse_status_kib(text, "RssAnon") / 1024


def written_bytes() -> int:
    """What this process has written, to any file."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def subject_names(count: int) -> list[bytes]:
    """So many subjects of two tokens."""
    return [b"orders.%d" % number for number in range(count)]


# --- appending ----------------------------------------------------------------------------------


def _append(task: Task, payload_bytes: int, full: int) -> Figures:
    count = task.count(full)
    subjects, payload = subject_names(16), b"x" * payload_bytes
    warm = task.open("WARM")
    message_probes.append(
        warm.table, subjects, payload, count // WARM_UP_SHARE, FLUSH_EVERY, NOW_NS, warm
    )
    store = task.open()
    with Watch() as watch:
        message_probes.append(store.table, subjects, payload, count, FLUSH_EVERY, NOW_NS, store)
        store.flush()
    with Watch() as plain:
        _write_plainly(task, store.table.bytes, FLUSH_EVERY * store.table.bytes // count)
    return {
        "million messages/s": count / watch.wall_s / 1e6,
        "million messages/CPU s": count / watch.cpu_s / 1e6,
        "GB/CPU s": store.table.bytes / watch.cpu_s / 1e9,
        "plain pwrite of the same bytes, GB/CPU s": store.table.bytes / plain.cpu_s / 1e9,
    }


def _write_plainly(task: Task, total_bytes: int, piece_bytes: int) -> None:
    piece = b"x" * piece_bytes
    descriptor = os.open(f"{task.folder}/plain", os.O_WRONLY | os.O_CREAT, 0o600)
    for offset in range(0, total_bytes, piece_bytes):
        os.pwrite(descriptor, piece, offset)
    os.close(descriptor)


def append_128(task: Task) -> Figures:
    """Small messages into the page cache."""
    return _append(task, 128, 2_000_000)


def append_1k(task: Task) -> Figures:
    """Larger ones."""
    return _append(task, 1024, 400_000)


# --- opening ------------------------------------------------------------------------------------


def build_scan(task: Task) -> None:
    """Blocks without an index.db, in the page cache."""
    store = task.open()
    message_probes.append(
        store.table,
        subject_names(16),
        b"x" * 1024,
        task.count(1_000_000),
        FLUSH_EVERY,
        NOW_NS,
        store,
    )
    store.commit()


def scan(task: Task) -> Figures:
    """Verify every record of all blocks, and rebuild the store from them."""
    disk, index, last_seq, size = OsDisk(task.folder), SubjectIndex(1), 0, 0
    folder = f"{task.folder}/S/msgs"
    names = sorted(disk.list_directory(folder), key=lambda name: int(name.partition(".")[0]))
    with Watch() as watch:
        for name in names:
            block = Block("S", int(name.partition(".")[0]), disk.open(f"{folder}/{name}"))
            block.adopt_file()
            assert not recover_block(block, index, last_seq).damage
            last_seq = block.last_seq
            size += block.size
            block.close()
    with Watch() as rebuild:
        store = task.open()
    assert store.table.last_seq == last_seq
    return {
        "scan, GB/s": size / watch.wall_s / 1e9,
        "scan, GB/CPU s": size / watch.cpu_s / 1e9,
        "rebuild, MB/s": size / rebuild.wall_s / 1e6,
        "rebuild, MB/CPU s": size / rebuild.cpu_s / 1e6,
    }


def _build_large(task: Task, subjects: int, full: int) -> None:
    store = task.open()
    message_probes.append(
        store.table,
        subject_names(subjects),
        b"x" * 128,
        task.count(full),
        FLUSH_EVERY,
        NOW_NS,
        store,
    )
    store.close()


def build_few_subjects(task: Task) -> None:
    """10 M messages, 100 subjects, closed."""
    _build_large(task, 100, 10_000_000)


def build_many_subjects(task: Task) -> None:
    """10 M messages, 1 M subjects, closed."""
    _build_large(task, task.count(1_000_000), 10_000_000)


def open_with_index(task: Task) -> Figures:
    """From a closed folder to the first answer; then read everything once."""
    before = anonymous_mib()
    with Watch() as watch:
        store = task.open()
        store.table.next_message((), 0)
    opened = anonymous_mib() - before
    with Watch() as read:
        assert message_probes.read_all(store.table, store.table.filter()) == store.table.msgs
    return {
        "open, s": watch.wall_s,
        "open, CPU s": watch.cpu_s,
        "read all once, ns/message": read.cpu_s / store.table.msgs * 1e9,
        "memory after open, MiB": opened,
        "memory after reading all, MiB": anonymous_mib() - before,
    }


def _memory(task: Task, subject_count: int) -> Figures:
    subjects = subject_names(subject_count)
    before = anonymous_mib()
    store = task.open()
    message_probes.append(
        store.table, subjects, b"x" * 128, task.count(10_000_000), FLUSH_EVERY, NOW_NS, store
    )
    store.flush()
    return {"memory after appending all, MiB": anonymous_mib() - before}


def memory_few_subjects(task: Task) -> Figures:
    """10 M messages, 100 subjects."""
    return _memory(task, 100)


def memory_many_subjects(task: Task) -> Figures:
    """10 M messages, 1 M subjects."""
    return _memory(task, task.count(1_000_000))


# --- reading ------------------------------------------------------------------------------------


def read_random(task: Task) -> Figures:
    """Load messages by random sequences, after and before the blocks' indexes are in memory."""
    store = task.open()
    with Watch() as first:
        message_probes.read_random(store.table, 1000, 1)
    message_probes.read_all(store.table, store.table.filter())
    count = task.count(2_000_000)
    with Watch() as later:
        message_probes.read_random(store.table, count, 2)
    return {
        "the first 1,000 loads, us each": first.cpu_s * 1e3,
        "later loads, ns each": later.cpu_s / count * 1e9,
    }


def build_filter(task: Task) -> None:
    """5 M messages, 1,000 subjects, closed."""
    _build_large(task, 1000, 5_000_000)


def read_filtered(task: Task) -> Figures:
    """Read what one of 1,000 subjects has, by its name and by a pattern; count what all have."""
    store = task.open()
    count = store.table.msgs // 1000
    figures: Figures = {}
    message_probes.read_all(store.table, store.table.filter())
    for name, pattern in (("literal", b"orders.500"), ("pattern", b"*.500")):
        with Watch() as watch:
            assert message_probes.read_all(store.table, store.table.filter((pattern,))) == count
        figures[f"{name}: a match, us"] = watch.cpu_s / count * 1e6
        figures[f"{name}: a passed message, ns"] = watch.cpu_s / store.table.msgs * 1e9
    with Watch() as everything:
        assert message_probes.read_all(store.table, store.table.filter()) == store.table.msgs
    with Watch() as wide:
        assert (
            message_probes.read_all(store.table, store.table.filter((b"orders.*",)))
            == store.table.msgs
        )
    figures["filter that passes all, cost over no filter"] = wide.cpu_s / everything.cpu_s - 1
    with Watch() as counting:
        store.table.count_matching((b"orders.*",), store.table.msgs // 2)
    figures["count half of it, ms"] = counting.cpu_s * 1e3
    return figures


def last_of_subjects(task: Task) -> Figures:
    """The newest message of each of 1 M subjects."""
    store = task.open()
    subjects = store.table.state.subjects
    with Watch() as first:
        assert len(store.table.last_sequences((b">",))) == subjects
    with Watch() as again:
        store.table.last_sequences((b">",))
    names = subject_names(subjects)[:: max(1, subjects // 10_000)]
    with Watch() as single:
        for name in names:
            store.table.last_message(name)
    return {
        "all, just opened, s": first.cpu_s,
        "all, again, s": again.cpu_s,
        "one by name, us": single.cpu_s / len(names) * 1e6,
    }


# --- removing -----------------------------------------------------------------------------------


def remove_random(task: Task) -> Figures:
    """10 M messages acknowledged in random order; then nothing happens, and nothing is written."""
    store = task.open()
    count = task.count(10_000_000)
    message_probes.append(
        store.table, subject_names(100), b"x" * 128, count, FLUSH_EVERY, NOW_NS, store
    )
    store.commit()
    order = message_probes.shuffled(1, count, 7)
    before, written = anonymous_mib(), written_bytes()
    half = count // 2
    with Watch() as watch:
        message_probes.remove(store.table, memoryview(order)[:half], FLUSH_EVERY, store)
    memory = anonymous_mib() - before
    with Watch() as rest:
        message_probes.remove(store.table, memoryview(order)[half:], FLUSH_EVERY, store)
    written = written_bytes() - written
    assert store.table.msgs == 0
    store.commit()
    idle, calls = written_bytes(), 0
    for _ in range(1000):
        calls += store.begin_commit() is not None
    return {
        "first half, us each": watch.cpu_s / half * 1e6,
        "second half, us each": rest.cpu_s / (count - half) * 1e6,
        "memory for 5 M gaps, MiB": memory,
        "written, bytes each": written / count,
        "blocks left": len(store.table.blocks),
        "commits while idle": calls,
        "written while idle, bytes": written_bytes() - idle,
    }


# --- durable ------------------------------------------------------------------------------------


def durable(task: Task) -> Figures:
    """Group commit through the syncer of the server, against bare fdatasync of the same record.

    The two take turns, because what a sync costs depends on what else the disk has to do.
    """
    return asyncio.run(_durable(task))


async def _durable(task: Task) -> Figures:
    one, many = task.count(2_000_000), task.count(400_000)
    rate, in_commit = await _durable_rate(task, 1, one)
    shared_rate, _ = await _durable_rate(task, 16, many)
    one_thread_rate, _ = await _durable_rate(task, 16, many, threads=1)
    grouped, bare = await _durable_latencies(task, task.count(2000))
    return {
        "window unlimited, thousand messages/s": rate / 1e3,
        "messages in a commit": in_commit,
        "16 streams, 64 messages at a time, thousand messages/s": shared_rate / 1e3,
        "the same with one sync thread": one_thread_rate / 1e3,
        "window 1, messages/s": 1 / statistics.mean(grouped),
        "bare pwrite and fdatasync, records/s": 1 / statistics.mean(bare),
        "window 1, median us": statistics.median(grouped) * 1e6,
        "bare pwrite and fdatasync, median us": statistics.median(bare) * 1e6,
    }


class _Durable:
    """Stores under a syncer, and how far their promises have come."""

    def __init__(self, stores: list[FileStore], threads: int = SYNC_THREADS) -> None:
        self.stores = stores
        self.progress = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.threads = Threads(loop, CLOCK.monotonic_ns, sync_threads=threads)
        self.syncer = ThreadedSyncer(loop, CLOCK, self.threads, after_batch=self.progress.set)
        for store in stores:
            self.syncer.attach(store, on_synced=self._kept, on_failure=self._failed)

    def stop(self) -> None:
        """End the threads."""
        self.syncer.close()
        self.threads.stop(STOP_SECONDS)

    def _kept(self, _: SyncTarget, __: int) -> None:
        """`synced_seq` of the store says it too."""

    def _failed(self, _: SyncTarget, error: StoreError) -> None:
        raise error

    async def turn(self, *, waits: bool = True) -> None:
        """End a turn in which the stores had messages, and wait until some are synced."""
        self.progress.clear()
        now_ns = CLOCK.monotonic_ns()
        for store in self.stores:
            self.syncer.mark_dirty(store, now_ns)
        self.syncer.end_turn(now_ns)
        await (self.progress.wait() if waits else asyncio.sleep(0))


async def _durable_rate(
    task: Task, streams: int, total: int, threads: int = SYNC_THREADS
) -> tuple[float, float]:
    """One stream takes all that it can; several get 64 messages each, when theirs are synced."""
    stores = [task.open(f"RATE-{streams}-{threads}-{number}") for number in range(streams)]
    durable, subjects = _Durable(stores, threads), subject_names(16)
    started_s = time.perf_counter()
    while sum(store.table.synced_seq for store in stores) < total:
        for store in stores:
            if streams > 1 and store.table.last_seq > store.table.synced_seq:
                continue
            if store.table.last_seq < total // streams + 1:
                count = 1024 if streams == 1 else 64
                message_probes.append(store.table, subjects, b"x" * 128, count, 0, NOW_NS)
        unsynced = sum(store.table.last_seq - store.table.synced_seq for store in stores)
        await durable.turn(waits=streams > 1 or unsynced > UNSYNCED_MAX)
    elapsed_s = time.perf_counter() - started_s
    durable.stop()
    synced = sum(store.table.synced_seq for store in stores)
    return synced / elapsed_s, synced / durable.syncer.statistics.commits


async def _durable_latencies(task: Task, count: int) -> tuple[list[float], list[float]]:
    store, grouped, bare = task.open("ONE"), [], []
    durable = _Durable([store])
    descriptor = os.open(f"{task.folder}/bare", os.O_WRONLY | os.O_CREAT, 0o600)
    for number in range(count):
        with Watch() as watch:
            store.table.store(b"orders.1", b"", b"x" * 128, NOW_NS)
            while store.table.synced_seq < store.table.last_seq:
                await durable.turn()
        grouped.append(watch.wall_s)
        with Watch() as watch:
            os.pwrite(descriptor, b"x" * 166, number * 166)
            os.fdatasync(descriptor)
        bare.append(watch.wall_s)
    durable.stop()
    os.close(descriptor)
    return grouped, bare


WORKLOADS = (
    Workload("append-128", "append 128 B, a flush for 1,000", append_128),
    Workload("append-1k", "append 1 KiB, a flush for 1,000", append_1k),
    Workload("scan", "verify and rebuild 1 GB of 1 KiB messages", scan, build_scan),
    Workload("memory-100", "append 10 M messages, 100 subjects", memory_few_subjects),
    Workload("memory-1m", "append 10 M messages, 1 M subjects", memory_many_subjects),
    Workload("open-100", "open 10 M messages, 100 subjects", open_with_index, build_few_subjects),
    Workload("open-1m", "open 10 M messages, 1 M subjects", open_with_index, build_many_subjects),
    Workload("random", "load by sequence from 10 M", read_random, build_few_subjects),
    Workload("filter", "1 of 1,000 subjects in 5 M", read_filtered, build_filter),
    Workload("last", "newest of each of 1 M subjects", last_of_subjects, build_many_subjects),
    Workload("acks", "remove 10 M in random order", remove_random),
    Workload("durable", "group commit of 128 B", durable),
)
