"""Random work with messages that live for a time of their own, against a dict.

Everything is tried in memory and on disk, with restarts that find thw.db whole, old, missing or
damaged, and the index or not.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from store_model import ModelStore, memory_bytes

from thoroughness import some
from tradewind.store.contract import MessageCopy, StoreLimits
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.format.layout import record_bytes
from tradewind.store.format.message_ttl import NEVER, parse_ttl_ns
from tradewind.store.table.message_store import MessageStore
from tradewind.testing.fake_disk import SimulatedDisk

CASES = some(60, 1500)
STEPS = 80
PARTS = 4
SECOND = 1_000_000_000
TTLS = (b"", b"", b"1s", b"2", b"3s", b"5", b"1m0s", b"1h", b"never", b"wrong", b"0")
SUBJECTS = (b"a", b"b", b"c.d")
THW = "/disk/S/msgs/thw.db"


def header_of(ttl: bytes) -> bytes:
    return b"NATS/1.0\r\nNats-TTL: " + ttl + b"\r\nA: b\r\n\r\n" if ttl else b""


def ttl_ns_of(message: MessageCopy) -> int:
    line = next((x for x in message.header.split(b"\r\n") if x.startswith(b"Nats-TTL: ")), b"")
    try:
        return parse_ttl_ns(line.removeprefix(b"Nats-TTL: ")) if line else 0
    except ValueError:
        return 0


class TtlModel(ModelStore):
    """Looks at all messages each time."""

    def expire(self, now_ns: int) -> int:
        due = self.due(now_ns)
        for message in due:
            del self.held[message.seq]
        return len(due)

    def due(self, now_ns: int) -> list[MessageCopy]:
        """What goes at this time: by age from the front, and by its own time anywhere."""
        found = {}
        for message in self.matching():
            if self.limits.age_max_ns <= 0:
                break
            if message.timestamp_ns + self.limits.age_max_ns > now_ns:
                break
            if ttl_ns_of(message) != NEVER:
                found[message.seq] = message
        for message in self.matching():
            ttl_ns = ttl_ns_of(message)
            if self.limits.message_ttl and 0 < ttl_ns <= now_ns - message.timestamp_ns:
                found[message.seq] = message
        return [found[seq] for seq in sorted(found)]


class Work:
    """Random steps from a seed."""

    def __init__(self, seed: int, *, on_disk: bool) -> None:
        self.random = Random(seed)
        self.on_disk = on_disk
        self.now_ns = 1000 * SECOND
        self.disk = SimulatedDisk(seed)
        self.disk.make_directory("/disk/S", sync=True)
        self.layout = {"block_bytes_max": self.random.choice((400, 2000)), "index_bytes_max": 1}
        self.model = TtlModel(self.limits(), record_bytes if on_disk else memory_bytes)
        self.expired = 0
        self.store: MessageStore = MessageStore("S", self.model.limits, **self.layout)
        self.files: FileStore | None = None
        if on_disk:
            self.open_files()

    def open_files(self) -> None:
        self.files = self.open()
        self.store = self.files.table

    def open(self) -> FileStore:
        told: list[MessageCopy] = []
        due = self.model.due(self.now_ns)
        store, report = open_store(
            self.disk,
            "/disk/S",
            "S",
            self.model.limits,
            now_ns=self.now_ns,
            expired=told.append,
            **self.layout,
        )
        assert report.is_clean
        # What went by age before a crash may be told of again, as age leaves no trace on the disk.
        again = [message for message in told if message.seq not in self.model.held]
        assert all(self.is_old(message) for message in again)
        told = [message for message in told if message.seq in self.model.held]
        assert sorted(told, key=lambda message: message.seq) == due
        self.model.apply_limits(self.now_ns)
        return store

    def is_old(self, message: MessageCopy) -> bool:
        return 0 < self.model.limits.age_max_ns <= self.now_ns - message.timestamp_ns

    def limits(self) -> StoreLimits:
        return StoreLimits(
            age_max_ns=self.random.choice((0, 0, 2, 4, 30)) * SECOND,
            msgs_max=self.random.choice((0, 0, 10)),
            subject_msgs_max=self.random.choice((0, 0, 3)),
            message_ttl=self.random.random() < 0.8,
        )

    def add(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            subject, header = self.random.choice(SUBJECTS), header_of(self.random.choice(TTLS))
            ttl_ns = ttl_ns_of(MessageCopy(1, 0, subject, header, b""))
            payload = b"x" * self.random.choice((0, 50))
            seq = self.store.store(subject, header, payload, self.now_ns, ttl_ns)
            assert seq == self.model.store(subject, header, payload, self.now_ns)

    def wait(self) -> None:
        self.now_ns += self.random.choice((SECOND // 2, SECOND, 2 * SECOND, 61 * SECOND))

    def expire(self) -> None:
        due, told = self.model.due(self.now_ns), list[MessageCopy]()
        limit = self.random.choice((0, 0, 1, 3))
        while True:
            count = self.store.expire(self.now_ns, limit=limit, expired=told.append)
            assert not limit or count <= limit
            if not limit or count < limit:
                break
        assert sorted(told, key=lambda message: message.seq) == due
        self.expired += len(due)
        self.model.expire(self.now_ns)

    def look_ahead(self) -> None:
        """The timer may ring early, never late, and not at all if there is nothing to wait for."""
        next_ns = self.store.next_expiry_ns()
        if next_ns is None:
            assert not self.model.due(self.now_ns + 10**6 * SECOND)
        elif next_ns > self.now_ns:
            assert not self.model.due(next_ns - 1)

    def remove(self) -> None:
        seq = self.random.randint(max(1, self.model.first_seq), self.model.last_seq + 1)
        assert self.store.remove(seq) == self.model.remove(seq)

    def purge(self) -> None:
        pattern = self.random.choice((b"", b"a", b"c.*"))
        assert self.store.purge(pattern) == self.model.purge(pattern)

    def change_limits(self) -> None:
        self.model.limits = self.limits()
        self.store.set_limits(self.model.limits)
        due = self.store.apply_limits(self.now_ns)
        assert due == self.model.apply_limits(self.now_ns)

    def restart(self) -> None:
        if self.files is None:
            return
        old = self.disk.read_file(THW) if self.disk.exists(THW) else None
        self.files.close()
        if self.random.random() < 0.5:
            self.disk.remove("/disk/S/msgs/index.db")
        if self.disk.exists(THW):
            self.change_timers(old)
        self.wait()
        self.open_files()

    def change_timers(self, old: bytes | None) -> None:
        data = self.disk.read_file(THW)
        how = self.random.choice(("whole", "whole", "old", "missing", "torn", "early"))
        if how == "missing":
            self.disk.remove(THW)
        elif how == "old" and old is not None:
            self.disk.write_file_atomically(THW, old)
        elif how == "torn":
            self.disk.write_file_atomically(THW, data[: self.random.randrange(len(data))])
        elif how == "early" and len(data) > 18:
            # A timer that says "now" about a message that lives on.
            changed = bytearray(data)
            changed[17:27] = bytes([changed[17] & 0xFE | 0x80]) + changed[18:27]
            self.disk.write_file_atomically(THW, bytes(changed))

    def crash(self) -> None:
        if self.files is not None:
            self.files.commit()
            self.disk = self.disk.crash_losing_unsynced()
            self.open_files()

    def do(self) -> None:
        steps: dict[Callable[[], None], float] = {
            self.add: 10,
            self.wait: 6,
            self.expire: 8,
            self.remove: 2,
            self.purge: 0.4,
            self.change_limits: 0.6,
            self.restart: 2,
            self.crash: 1,
        }
        self.random.choices(list(steps), list(steps.values()))[0]()
        assert self.store.state == self.model.state
        assert list(self.store.messages()) == self.model.matching()
        self.store.verify()
        self.look_ahead()


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("part", range(PARTS))
def test_messages_go_when_their_time_has_come(part: int, *, on_disk: bool) -> None:
    expired = 0
    for seed in range(part, CASES, PARTS):
        work = Work(seed, on_disk=on_disk)
        try:
            for _ in range(STEPS):
                work.do()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        expired += work.expired
    assert expired > CASES
