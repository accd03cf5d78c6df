"""Age and time to live, in memory and on disk."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_kit import KINDS, StoreMaker, sequences

from cpu_clock import thread_seconds
from tradewind.store.contract import MessageCopy, StoreLimits
from tradewind.store.files.disk import DiskFull
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.format.message_ttl import parse_ttl_ns
from tradewind.store.format.timing_wheel import TimingWheel
from tradewind.store.table.message_store import MessageStore
from tradewind.store.table.stamps_ahead import note_ahead
from tradewind.testing.fake_disk import SimulatedDisk

SECOND = 1_000_000_000
TTL = StoreLimits(message_ttl=True)
THW = "/disk/S/msgs/thw.db"


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreMaker]:
    maker = StoreMaker(request.param, tmp_path)
    yield maker
    maker.check_that_stores_come_back()


def put(store: MessageStore, ttl: bytes = b"", at_s: int = 0, subject: bytes = b"s") -> int:
    header = b"NATS/1.0\r\nNats-TTL:" + ttl + b"\r\n\r\n" if ttl else b""
    ttl_ns = parse_ttl_ns(ttl)
    return store.store(subject, header, b"payload", at_s * SECOND, ttl_ns)


def test_message_goes_at_its_time_and_not_before(make: StoreMaker) -> None:
    store = make(TTL)
    put(store)
    put(store, b"5")
    put(store, b"3")
    assert store.next_expiry_ns() == 3 * SECOND
    assert store.expire(3 * SECOND - 1) == 0
    assert store.expire(3 * SECOND) == 1
    assert sequences(store) == [1, 2]
    assert store.next_expiry_ns() == 5 * SECOND
    assert store.expire(9 * SECOND) == 1
    assert store.next_expiry_ns() is None


def test_expired_messages_are_reported_after_they_are_gone(make: StoreMaker) -> None:
    store = make(StoreLimits(age_max_ns=10 * SECOND, message_ttl=True))
    put(store, subject=b"old")
    put(store, b"2", at_s=9, subject=b"short")
    put(store, at_s=9, subject=b"short")
    seen: list[tuple[bytes, bool]] = []

    def expired(message: MessageCopy) -> None:
        seen.append((message.subject, store.subject_state(message.subject) is None))

    assert store.expire(11 * SECOND, expired=expired) == 2
    assert seen == [(b"old", True), (b"short", False)]
    make.now_ns = 11 * SECOND


def test_number_of_messages_at_once_is_bounded(make: StoreMaker) -> None:
    store = make(TTL)
    for _ in range(10):
        put(store, b"1")
    assert [store.expire(SECOND, limit=4) for _ in range(4)] == [4, 4, 2, 0]


def test_message_that_never_expires_does_not_age_and_hides_nobody_behind_it(
    make: StoreMaker,
) -> None:
    store = make(StoreLimits(age_max_ns=2 * SECOND, message_ttl=True))
    for ttl in (b"never", b"", b"never", b"1h", b"never"):
        put(store, ttl)
    put(store, at_s=5)
    assert store.expire(3 * SECOND) == 2
    assert sequences(store) == [1, 3, 5, 6]
    assert store.next_expiry_ns() == 7 * SECOND
    assert store.expire(7 * SECOND) == 1
    assert store.next_expiry_ns() is None
    make.now_ns = 7 * SECOND


def test_removed_messages_leave_no_timer(make: StoreMaker) -> None:
    store = make(StoreLimits(message_ttl=True, subject_msgs_max=1))
    for _ in range(5):
        put(store, b"1h")
    assert store.timers.count == 1
    store.remove(5)
    assert store.timers.count == 0
    put(store, b"1h")
    store.purge()
    assert (store.timers.count, store.next_expiry_ns()) == (0, None)


def test_timers_begin_when_the_stream_allows_them(make: StoreMaker) -> None:
    store = make()
    put(store, b"5")
    assert (store.next_expiry_ns(), store.expire(9 * SECOND)) == (None, 0)
    store.set_limits(TTL)
    assert store.next_expiry_ns() == 5 * SECOND
    store.set_limits(StoreLimits())
    assert store.next_expiry_ns() is None


def test_time_beyond_64_bits_is_never_reached(make: StoreMaker) -> None:
    store = make(TTL)
    put(store, b"9" * 30, at_s=100)
    assert store.expire((1 << 63) - 2) == 0
    assert store.msgs == 1


def open_simulated(disk: SimulatedDisk, now_s: int = 0) -> FileStore:
    disk.make_directory("/disk/S", sync=True)
    return open_store(disk, "/disk/S", "S", TTL, now_ns=now_s * SECOND)[0]


def test_wrong_timer_on_disk_removes_nothing_early() -> None:
    disk = SimulatedDisk()
    store = open_simulated(disk)
    put(store.table, b"1h")
    put(store.table)
    store.close()
    wheel = TimingWheel()
    wheel.add(1, SECOND)
    wheel.add(2, SECOND)
    wheel.add(77, SECOND)
    disk.write_file_atomically(THW, wheel.encode(3))
    store = open_simulated(disk, 2)
    assert sequences(store.table) == [1, 2]
    assert store.table.timers.pending() == [(1, 3600 * SECOND)]


def test_read_only_store_expires_nothing_and_asks_for_no_timer() -> None:
    disk = SimulatedDisk()
    store = open_simulated(disk)
    put(store.table, b"1")
    disk.fail("write", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        store.flush()
    assert (store.table.next_expiry_ns(), store.table.expire(5 * SECOND)) == (None, 0)
    assert store.resume()
    assert store.table.expire(5 * SECOND) == 1


def test_empty_timers_are_written_as_the_official_server_does() -> None:
    disk = SimulatedDisk()
    store = open_simulated(disk)
    put(store.table)
    store.close()
    assert disk.read_file(THW) == b"\x01" + bytes(8) + b"\x02" + bytes(7)


def test_cost_of_stamps_that_are_ahead_does_not_grow_with_the_stream() -> None:
    """Each message with a time to live notes them while nobody believes the clock."""
    costs = []
    for count in (10, 20_000):
        store = MessageStore("S", TTL, block_bytes_max=1)
        for number in range(count):
            put(store, at_s=1000 + number)

        def note_often(store: MessageStore = store) -> None:
            for _ in range(100):
                note_ahead(store, SECOND)

        costs.append(thread_seconds(note_often, times=10))
        assert [time_ns for _, time_ns in store.ahead] == [SECOND]
    assert costs[1] < 10 * costs[0]
