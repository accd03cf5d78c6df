"""Streams written by Tradewind's store: one for each possible state of a folder.

Each entry has a configuration and a function that fills the stream through the store. The tests
then start nats-server on the folder and compare its view with that of the store.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop_kit import HOUR, SECOND, StreamTruth, our_truth
from official_streams import MANY, SMALL_BLOCKS, noise
from tradewind.errors import StoreError
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.stream_folder import StoreRoot, StreamFolder
from tradewind.store.format.consumer_file import ConsumerState, PendingDelivery, SequencePair
from tradewind.store.format.meta import ConsumerMeta, StreamMeta


@dataclass
class Ours:
    """A stream that is being filled; time advances by a millisecond for each message."""

    folder: StreamFolder
    store: FileStore
    now_ns: int

    @property
    def name(self) -> str:
        return self.folder.stream

    def publish(self, subject: str, payload: bytes = b"", header: bytes = b"") -> int:
        self.now_ns += SECOND // 1000
        name = f"{self.name}.{subject}".encode()
        return int(self.store.table.store(name, header, payload, self.now_ns))

    def many(self, count: int, size: int = 600, subjects: int = 7) -> None:
        for index in range(count):
            self.publish(str(index % subjects), b"%06d:" % index + b"x" * (index * 37 % size))

    def add_consumer(self, name: str, state: ConsumerState, **config: Any) -> None:
        meta = ConsumerMeta(name, {**CONSUMER, "durable_name": name, "name": name, **config})
        self.folder.create_consumer(meta, state, self.now_ns)


Fill = Callable[[Ours], None]
STREAMS: dict[str, tuple[dict[str, Any], Fill]] = {}
CONFIG = {
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "num_replicas": 1,
    "duplicate_window": 120 * SECOND,
    "metadata": {"_nats.req.level": "0"},
}
CONSUMER = {
    "ack_policy": "explicit",
    "ack_wait": HOUR,
    "max_deliver": -1,
    "max_waiting": 512,
    "max_ack_pending": 1000,
    "metadata": {"_nats.req.level": "0"},
}


def stream(**config: Any) -> Callable[[Fill], Fill]:
    """Register a stream; it is named like the function and takes the subjects below its name."""

    def register(fill: Fill) -> Fill:
        name = fill.__name__
        STREAMS[name] = ({**CONFIG, "name": name, "subjects": [f"{name}.>"], **config}, fill)
        return fill

    return register


@stream()
def EMPTY(ours: Ours) -> None:  # noqa: N802 - the name of the stream
    pass


@stream(allow_direct=True)
def PLAIN(ours: Ours) -> None:  # noqa: N802
    ours.publish("a", b"hello")
    ours.publish("a")
    ours.publish("b", bytes(range(256)))
    ours.publish("c.d", b"world", b"NATS/1.0\r\nNats-Msg-Id: 1\r\nK: v\r\n\r\n")
    ours.publish("c.d", b"", b"NATS/1.0\r\nOnly: header\r\n\r\n")
    ours.publish("x" * 200, b"long subject")


@stream(**SMALL_BLOCKS)
def BLOCKS(ours: Ours) -> None:  # noqa: N802
    for index in range(110):
        ours.publish(str(index % 9), noise(index, 900 + index))


@stream()
def HUGE(ours: Ours) -> None:  # noqa: N802
    for index in range(11):
        ours.publish(str(index), noise(index, 1000) * 900)
    ours.publish("small", b"behind")


@stream(**SMALL_BLOCKS)
def DELETES(ours: Ours) -> None:  # noqa: N802
    ours.many(MANY, 900)
    for seq in (1, 2, 3, 5, 40, 41, 42, 80, MANY - 2, MANY - 1, MANY):
        assert ours.store.table.remove(seq)
    ours.publish("new", b"after")


@stream(**SMALL_BLOCKS)
def ERASED(ours: Ours) -> None:  # noqa: N802
    """In files, in the file of the last block, and before it was written."""
    ours.many(MANY, 900)
    ours.store.commit()
    for seq in (1, 2, 3, 40, MANY - 1, MANY):
        assert ours.store.table.remove(seq, erase=True)
    ours.many(4)
    assert ours.store.table.remove(MANY + 3, erase=True)


@stream(compression="s2", **SMALL_BLOCKS)
def ERASED_COMPRESSED(ours: Ours) -> None:  # noqa: N802
    ours.many(MANY, 900)
    ours.store.commit()
    for seq in (1, 2, 3, 40, 77, MANY - 1, MANY):
        assert ours.store.table.remove(seq, erase=True)


@stream(**SMALL_BLOCKS)
def COMPACTED(ours: Ours) -> None:  # noqa: N802
    """A few messages keep blocks alive that are dead otherwise, some of them full of tombstones."""
    for _ in range(3):
        ours.many(MANY, 900)
        ours.store.commit()
        for seq in range(ours.store.table.last_seq - MANY + 1, ours.store.table.last_seq):
            if seq % 61 and seq != 1:
                assert ours.store.table.remove(seq)
        ours.store.commit()
    assert sum(block.size for block in ours.store.table.blocks) < 80_000


@stream(compression="s2", retention="workqueue", **SMALL_BLOCKS)
def COMPACTED_COMPRESSED(ours: Ours) -> None:  # noqa: N802
    ours.many(MANY * 2, 900)
    ours.store.commit()
    for seq in range(MANY * 2, ours.store.table.first_seq + 5, -1):
        if seq % 37:
            assert ours.store.table.remove(seq, erase=seq % 2 == 0)
        if seq % 50 == 0:
            ours.store.commit()


@stream(**SMALL_BLOCKS)
def BLOCK_EMPTIED(ours: Ours) -> None:  # noqa: N802
    """A whole block in the middle goes, message by message."""
    ours.many(MANY, 900)
    for seq in range(60, 160):
        assert ours.store.table.remove(seq)
    ours.store.commit()


@stream()
def EMPTIED(ours: Ours) -> None:  # noqa: N802
    ours.many(5)
    for seq in (5, 3, 1, 2, 4):
        ours.store.table.remove(seq)


@stream()
def EMPTIED_USED(ours: Ours) -> None:  # noqa: N802
    EMPTIED(ours)
    ours.many(3)


@stream()
def PURGED(ours: Ours) -> None:  # noqa: N802
    ours.many(30)
    ours.store.table.purge()


@stream(**SMALL_BLOCKS)
def PURGED_USED(ours: Ours) -> None:  # noqa: N802
    ours.many(MANY, 900)
    ours.store.commit()
    ours.store.table.purge()
    ours.many(120, 900)


@stream(**SMALL_BLOCKS)
def PURGED_SUBJECT(ours: Ours) -> None:  # noqa: N802
    ours.many(MANY, 900)
    assert ours.store.table.purge(b"PURGED_SUBJECT.3")


@stream(**SMALL_BLOCKS)
def PURGED_SEQ(ours: Ours) -> None:  # noqa: N802
    ours.many(MANY, 900)
    ours.store.table.remove(3)
    ours.store.table.remove(180)
    assert ours.store.table.purge(below=150)


@stream(**SMALL_BLOCKS)
def PURGED_KEEP(ours: Ours) -> None:  # noqa: N802
    ours.many(MANY, 900)
    assert ours.store.table.purge(keep=7)


@stream(max_msgs_per_subject=1)
def LAST(ours: Ours) -> None:  # noqa: N802
    ours.many(100, subjects=13)
    ours.store.table.remove(95)


@stream(max_msgs_per_subject=3, **SMALL_BLOCKS)
def LAST_THREE(ours: Ours) -> None:  # noqa: N802
    ours.many(300, 900, subjects=11)
    for index in range(10):
        ours.publish("one", b"%d" % index)


@stream(max_msgs=5)
def MAX_MSGS(ours: Ours) -> None:  # noqa: N802
    ours.many(40)
    ours.store.table.remove(38)


@stream(max_bytes=40_000)
def MAX_BYTES(ours: Ours) -> None:  # noqa: N802
    ours.many(300, 900)
    ours.store.table.remove(250)


@stream(max_age=HOUR)
def AGED(ours: Ours) -> None:  # noqa: N802
    now_ns, ours.now_ns = ours.now_ns, ours.now_ns - HOUR
    ours.many(20)
    ours.now_ns = now_ns
    ours.many(10)
    assert ours.store.table.expire(now_ns + SECOND) == 20


@stream(allow_msg_ttl=True, metadata={"_nats.req.level": "1"})
def TTL(ours: Ours) -> None:  # noqa: N802
    ours.publish("keep", b"1")
    ours.publish("hour", b"2", b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n")
    ours.publish("never", b"3", b"NATS/1.0\r\nNats-TTL: never\r\n\r\n")


@stream(compression="s2", **SMALL_BLOCKS)
def COMPRESSED(ours: Ours) -> None:  # noqa: N802
    for index in range(400):
        payload = noise(index, 200) if index % 3 else b"text and more " * 15
        ours.publish(str(index % 5), payload)
    for seq in (1, 2, 77, 300):
        ours.store.table.remove(seq)


@stream(first_seq=1000)
def FIRST(ours: Ours) -> None:  # noqa: N802
    assert ours.publish("a", b"first") == 1000
    ours.many(5)


@stream(first_seq=500)
def FIRST_EMPTY(ours: Ours) -> None:  # noqa: N802
    pass


@stream()
def SKIPS(ours: Ours) -> None:  # noqa: N802
    ours.many(3)
    ours.store.table.skip(10, ours.now_ns)
    ours.many(2)
    ours.store.table.skip(5000, ours.now_ns)
    ours.many(2)
    ours.store.table.skip(6000, ours.now_ns)


@stream(retention="workqueue")
def WORK(ours: Ours) -> None:  # noqa: N802
    ours.many(20)
    for seq in (1, 2, 3, 6, 8, 9):
        ours.store.table.remove(seq)
    pending = {seq: PendingDelivery(seq, ours.now_ns) for seq in (4, 5, 7, 10)}
    state = ConsumerState(SequencePair(10, 10), SequencePair(3, 3), pending)
    ours.add_consumer("worker", state)


@stream(retention="interest")
def INTEREST(ours: Ours) -> None:  # noqa: N802
    ours.store.table.skip(3, ours.now_ns)
    ours.many(12)
    for seq in range(4, 9):
        ours.store.table.remove(seq)
    for name, taken in (("one", 8), ("two", 5)):
        at = SequencePair(taken, taken + 3)
        ours.add_consumer(name, ConsumerState(at, at))


@stream()
def CONSUMED(ours: Ours) -> None:  # noqa: N802
    ours.many(40)
    pending = {seq: PendingDelivery(seq, ours.now_ns) for seq in (4, 5, 7, 9, 10)}
    state = ConsumerState(SequencePair(14, 12), SequencePair(3, 3), pending, {4: 1, 9: 2})
    ours.add_consumer("explicit", state)
    pending = {seq: PendingDelivery(seq, ours.now_ns) for seq in range(6, 11)}
    state = ConsumerState(SequencePair(10, 10), SequencePair(5, 5), pending)
    ours.add_consumer("all", state, ack_policy="all")
    at = SequencePair(7, 7)
    nothing = {"ack_wait": 0, "max_ack_pending": 0}
    ours.add_consumer("none", ConsumerState(at, at), ack_policy="none", **nothing)
    at = SequencePair(0, 40)
    ours.add_consumer("new", ConsumerState(at, at), deliver_policy="new")
    ours.add_consumer("fresh", ConsumerState())
    changed = ConsumerState()
    ours.add_consumer("changed", changed)
    changed.delivered = changed.ack_floor = SequencePair(2, 2)
    ours.folder.states.mark("changed", changed)
    ours.folder.states.commit(ours.now_ns)


@stream()
def DUE(ours: Ours) -> None:  # noqa: N802
    """Messages 2, 4 and 5 are long due; 4 was delivered three times."""
    ours.many(10)
    pending = {seq: PendingDelivery(seq, ours.now_ns - HOUR) for seq in (2, 4, 5)}
    state = ConsumerState(SequencePair(8, 6), SequencePair(1, 1), pending, {4: 2})
    ours.add_consumer("due", state, ack_wait=SECOND)


def write_streams(path: Path, now_ns: int) -> dict[str, Ours]:
    """All of them below `path`, still open, with everything committed."""
    root = StoreRoot(OsDisk(str(path)), str(path))
    made = {}
    for name, (config, fill) in STREAMS.items():
        folder = root.stream("$G", name)
        folder.create(StreamMeta(config, now_ns - HOUR))
        ours = Ours(folder, folder.open(now_ns)[1], now_ns - 60 * SECOND)
        fill(ours)
        ours.store.commit()
        made[name] = ours
    root.close()
    return made


def truths(made: dict[str, Ours]) -> dict[str, StreamTruth | str]:
    """The store's view of the streams; the error if opening fails."""
    found: dict[str, StreamTruth | str] = {}
    for name, ours in made.items():
        try:
            found[name] = our_truth(ours.folder, ours.store)
        except (AssertionError, StoreError):
            found[name] = traceback.format_exc()
    return found
