"""Workloads of the store in which blocks are written anew: compression, erasing, compaction."""

from __future__ import annotations

from benchmarks.micro import message_probes
from benchmarks.store_workloads import (
    FLUSH_EVERY,
    NOW_NS,
    Figures,
    Task,
    Watch,
    Workload,
    subject_names,
    written_bytes,
)
from tradewind.store.folder.filestore import FileStore

TEXT = b'{"order": 1234, "state": "shipped", "customer": "Jane Doe", "city": "Lisbon"}' * 3
WINDOW = 100_000
STRAGGLERS = 10


def _disk_bytes(store: FileStore) -> int:
    """What the block files take."""
    disk, folder = store.disk, store.folder
    names = [name for name in disk.list_directory(folder) if name.endswith(".blk")]
    total = 0
    for name in names:
        with disk.open(f"{folder}/{name}") as file:
            total += file.size
    return total


def compress(task: Task) -> Figures:
    """Append text to a compressed stream with a commit for every 10,000, then read it."""
    store = task.open(compresses=True)
    count = task.count(2_000_000)
    with Watch() as watch:
        for _ in range(0, count, 10_000):
            message_probes.append(
                store.table, subject_names(100), TEXT, 10_000, FLUSH_EVERY, NOW_NS, store
            )
            store.commit()
    size = store.table.bytes
    packed = _disk_bytes(store)
    store.close()
    store = task.open(compresses=True)
    with Watch() as reading:
        total = sum(len(message.payload) for message in store.table.messages())
    assert total == store.table.msgs * len(TEXT)
    return {
        "append and compress, MB/CPU s": size / watch.cpu_s / 1e6,
        "append and compress, MB/s": size / watch.wall_s / 1e6,
        "size on disk, %": packed / size * 100,
        "read all, MB/CPU s": size / reading.cpu_s / 1e6,
    }


def erase(task: Task) -> Figures:
    """Erase single messages of full blocks, a commit for each."""
    store = task.open()
    message_probes.append(
        store.table,
        subject_names(100),
        b"x" * 1024,
        task.count(100_000),
        FLUSH_EVERY,
        NOW_NS,
        store,
    )
    store.commit()
    victims = list(range(1, store.table.last_seq, store.table.last_seq // 50))
    with Watch() as watch:
        for seq in victims:
            store.table.remove(seq, erase=True)
            store.commit()
    return {
        "one erased, ms": watch.wall_s / len(victims) * 1e3,
        "one erased, CPU ms": watch.cpu_s / len(victims) * 1e3,
    }


def work_queue(task: Task) -> Figures:
    """10 M messages, acknowledged in random order within windows; a few never are."""
    store = task.open()
    count = task.count(10_000_000)
    window = min(WINDOW, count // 10)
    before = written_bytes()
    with Watch() as watch:
        for start in range(1, count + 1, window):
            message_probes.append(
                store.table, subject_names(100), b"x" * 128, window, FLUSH_EVERY, NOW_NS, store
            )
            store.commit()
            order = message_probes.shuffled(start, window - STRAGGLERS, start)
            message_probes.remove(store.table, memoryview(order), FLUSH_EVERY, store)
            store.commit()
    return {
        "stored and acknowledged, us each": watch.cpu_s / count * 1e6,
        "written, bytes each": (written_bytes() - before) / count,
        "messages left": store.table.msgs,
        "on disk at the end, MiB": _disk_bytes(store) / 2**20,
        "blocks at the end": len(store.table.blocks),
    }


REWRITING_WORKLOADS = (
    Workload("compress", "2 M texts into a compressed stream", compress),
    Workload("erase", "secure deletes in blocks of 8 MiB", erase),
    Workload("work-queue", "10 M through a work queue", work_queue),
)
