"""How long the message store takes for one message, in memory: no disk, no page cache."""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.micro.registry import Operation, micro

if TYPE_CHECKING:
    from tradewind.store.table.message_store import MessageStore

MESSAGE_COUNT = 200_000
CHUNK = 1000
TIME_NS = 1_700_000_000_000_000_000


def _filled(subject_count: int) -> "MessageStore":
    from benchmarks.micro.message_probes import append
    from tradewind.store.table.message_store import MessageStore

    store = MessageStore("BENCH")
    subjects = [b"orders.%d" % number for number in range(subject_count)]
    append(store, subjects, b"x" * 128, MESSAGE_COUNT, 0, TIME_NS)
    return store


def _repeated(work: Callable[[int], int]) -> Operation:
    """An operation from one that tells how many messages it has handled for a seed."""
    seeds = itertools.count(1)
    return lambda repetitions: sum(work(next(seeds)) for _ in range(repetitions))


@micro("store-append-128", "append 128 B, at most 100,000 kept")
def append_128() -> Operation:
    """What one message costs, with its checksum, and the removal of one by the limit."""
    from benchmarks.micro.message_probes import append
    from tradewind.store.contract import StoreLimits
    from tradewind.store.table.message_store import MessageStore

    store = MessageStore("BENCH", StoreLimits(msgs_max=100_000))
    subjects = [b"orders.%d" % number for number in range(16)]

    def work(_: int) -> int:
        append(store, subjects, b"x" * 128, CHUNK, 0, TIME_NS)
        return CHUNK

    return _repeated(work)


@micro("store-read-random", "load one of 200,000 by its sequence")
def read_random() -> Operation:
    """A direct get."""
    from benchmarks.micro import message_probes

    store = _filled(16)

    def work(seed: int) -> int:
        message_probes.read_random(store, CHUNK, seed)
        return CHUNK

    return _repeated(work)


@micro("store-read-all", "load the next message, no filter")
def read_all() -> Operation:
    """What a consumer without a filter does."""
    from benchmarks.micro import message_probes

    store = _filled(16)
    return _repeated(lambda _: message_probes.read_all(store, store.filter()))


@micro("store-pass-filtered", "pass a message that a filter refuses")
def pass_filtered() -> Operation:
    """One subject of 1,000 matches; the cost of the other messages."""
    from benchmarks.micro import message_probes

    store = _filled(1000)
    chosen = store.filter((b"*.500",))

    def work(_: int) -> int:
        message_probes.read_all(store, chosen)
        return MESSAGE_COUNT

    return _repeated(work)
