"""Power failures at every I/O step of stores with a chain: afterwards the chain explains exactly
the messages that are there, what was promised has its link, and no checkpoint that was given out
is contradicted.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from store_chains import chain_of, chained, checkpoint, verify_chain
from tradewind.chain.checkpoints import Checkpoint
from tradewind.store.contract import StoreLimits
from tradewind.store.folder.filestore import FileStore
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

SEGMENT = 16
LIMITS = (
    StoreLimits(),
    StoreLimits(msgs_max=6),
    StoreLimits(subject_msgs_max=2),
    StoreLimits(bytes_max=600, msgs_max=9),
)


class ChainRun:
    """Random work on one store; what it may promise and has given out is kept."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._limits = LIMITS[seed % len(LIMITS)]
        self.block_bytes = (300, 4096)[seed % 2]
        self.given: list[Checkpoint] = []
        self.promised: dict[int, bytes] = {}
        self._links: list[bytes] = []

    def open(self, disk: SimulatedDisk) -> FileStore:
        """The store as it is now."""
        store, _ = chained(
            disk,
            limits=self._limits,
            block_bytes_max=self.block_bytes,
            compact_bytes_min=64,
            segment_entries=SEGMENT,
        )
        return store

    def run(self, disk: SimulatedDisk, length: int) -> None:
        """PowerLoss ends it."""
        store = self.open(disk)
        for step in range(length):
            if self._random.random() < 0.06:
                store.close()
                store = self.open(disk)
            self._change(store, step)
            if self._random.random() < 0.5:
                store.commit()
                self._promise(store)
            elif self._random.random() < 0.2:
                store.flush()
            if self._random.random() < 0.2 and chain_of(store).unchecked:
                self.given.append(checkpoint(store))
        store.close()

    def _change(self, store: FileStore, step: int) -> None:
        chance, table = self._random.random(), store.table
        if chance < 0.6:
            subject = b"s.%d" % self._random.randrange(4)
            header = b"NATS/1.0\r\nA: b\r\n\r\n" if chance < 0.1 else b""
            payload = bytes(self._random.randrange(60))
            table.store(subject, header, payload, 1_000 + step)
        elif chance < 0.8 and table.msgs:
            live = [message.seq for message in table.messages()]
            table.remove(self._random.choice(live), erase=chance < 0.65)
        elif chance < 0.88:
            table.purge(b"s.%d" % self._random.randrange(4))
        elif chance < 0.9:
            table.purge()
        elif chance < 0.94:
            table.compact(table.first_seq + 2)
        elif chance < 0.97:
            table.skip(table.last_seq + 3, 1_000 + step)

    def _promise(self, store: FileStore) -> None:
        chain = chain_of(store)
        assert chain.synced.size == chain.links.size
        self.promised[chain.synced.size] = chain.synced.link

    def judge(self, disk: SimulatedDisk) -> None:
        """What a power failure has left holds."""
        store = self.open(disk)
        links = verify_chain(store, segment_entries=SEGMENT)
        for size, link in self.promised.items():
            assert links[size - 1 : size] == ([link] if size else []), "a promised link is gone"
        for point in self.given:
            assert point.link == links[point.size - 1].hex()
        last = chain_of(store).checkpoint
        if self.given:
            assert last is not None
            assert last.size >= self.given[-1].size
        store.table.store(b"s.9", b"", b"after", 9_999)
        store.commit()
        verify_chain(store, segment_entries=SEGMENT)
        if chain_of(store).unchecked:
            checkpoint(store)
        store.close()
        verify_chain(self.open(disk), segment_entries=SEGMENT)


def steps_of(seed: int, length: int) -> int:
    disk = SimulatedDisk(seed=seed)
    ChainRun(seed).run(disk, length)
    return disk.steps


@pytest.mark.parametrize("seed", range(8))
def test_every_power_failure_leaves_a_chain_that_fits(seed: int) -> None:
    total = steps_of(seed, 30)
    assert total > 30
    for stop_at in range(2, total + 1, 1 + total // 40):
        disk, run = SimulatedDisk(seed=seed), ChainRun(seed)
        disk.stop_at = stop_at
        with suppress(PowerLoss):
            run.run(disk, 30)
        for crash in range(2):
            run.judge(disk.crash(100 * stop_at + crash))
        run.judge(disk.crash_losing_unsynced())
        run.judge(disk.crash_keeping_unsynced())
