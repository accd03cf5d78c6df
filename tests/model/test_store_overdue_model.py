"""Limits that are lowered and applied in steps, while messages come in between, leave what they
would have left at once.

Messages are of one size here: where a message may be replaced by a smaller one, a limit of bytes
that is applied later may keep more.
"""

from __future__ import annotations

from random import Random

from store_model import ModelStore, Size, memory_bytes
from sweeps import sweep

from thoroughness import some
from tradewind.store.contract import StoreLimits
from tradewind.store.folder.recover import open_store
from tradewind.store.format.layout import record_bytes
from tradewind.store.table.message_store import MessageStore
from tradewind.testing.fake_disk import SimulatedDisk

CASES = some(48, 1000)
LIMITS = (
    StoreLimits(subject_msgs_max=1),
    StoreLimits(subject_msgs_max=2),
    StoreLimits(msgs_max=7),
    StoreLimits(subject_msgs_max=2, msgs_max=7),
    StoreLimits(subject_msgs_max=1, msgs_max=4),
    StoreLimits(bytes_max=400),
)


def make(kind: str, random: Random) -> tuple[MessageStore, Size]:
    block_bytes_max = random.choice((250, 500, 100_000))
    index_bytes_max = random.choice((1, 1 << 20))
    if kind == "memory":
        store = MessageStore("S", block_bytes_max=block_bytes_max, index_bytes_max=index_bytes_max)
        return store, memory_bytes
    disk = SimulatedDisk()
    disk.make_directory("/disk/S", sync=True)
    files, _ = open_store(
        disk,
        "/disk/S",
        "S",
        StoreLimits(),
        now_ns=0,
        block_bytes_max=block_bytes_max,
        index_bytes_max=index_bytes_max,
    )
    return files.table, record_bytes


@sweep("kind", ["memory", "file"])
@sweep("seed", range(CASES))
def test_steps_leave_what_one_go_would(kind: str, seed: int) -> None:
    random = Random(seed)
    store, size = make(kind, random)
    model = ModelStore(StoreLimits(), size)
    names = [b"s.%d" % number for number in range(random.choice((1, 3, 10)))]

    def add(count: int) -> None:
        for _ in range(count):
            subject = random.choice(names)
            now_ns = store.last_seq + 1
            assert store.store(subject, b"", b"x", now_ns) == model.store(
                subject, b"", b"x", now_ns
            )

    add(random.randint(0, 60))
    for seq in random.sample(sorted(model.held), len(model.held) // 4):
        assert store.remove(seq)
        assert model.remove(seq)
    for limits in random.sample(LIMITS, 2):
        model.limits = limits
        model.apply_limits(0)
        store.set_limits(limits)
        store.begin_limits()
        while store.limit_step(random.choice((1, 2, 5))):
            store.verify()
            add(random.choice((0, 0, 1, 3)))
            if random.random() < 0.2:
                store.begin_limits()
        assert not store.is_overdue
        assert list(store.messages()) == model.matching()
        assert store.subjects() == model.subjects()
        store.verify()
        add(5)
        assert list(store.messages()) == model.matching()
