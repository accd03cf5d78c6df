"""One block: its bytes are the official ones, and nothing is lost between tail, file and index."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from store_kit import put

from tradewind.store.contract import StoreLimits
from tradewind.store.files.disk import DiskFault, DiskFull
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.format.layout import ERASED_BIT, TOMBSTONE_BIT, record_bytes
from tradewind.store.table.block import Block
from tradewind.store.table.message_store import MessageStore
from tradewind.testing.fake_disk import SimulatedDisk

HEAD_BYTES = 22
HASH_BYTES = 8


def opened(disk: SimulatedDisk, name: str = "S", **settings: Any) -> FileStore:
    disk.make_directory(f"/disk/{name}", sync=True)
    store, report = open_store(disk, f"/disk/{name}", name, StoreLimits(), now_ns=0, **settings)
    assert report.is_clean
    return store


def messages_in(disk: SimulatedDisk, path: str) -> list[bytes]:
    """The records of a block file that have a subject: all but our own marks."""
    data, records = disk.content_of(path), []
    while data:
        size = int.from_bytes(data[:4], "little") & 0x7FFFFFFF
        if size > record_bytes(0, 0, 0):
            records.append(data[:size])
        data = data[size:]
    return records


@pytest.mark.parametrize(
    ("stream", "seq", "time_hex", "subject", "header", "payload", "hash_hex"),
    [
        ("PLAIN", 1, "de2d133a3a4ae818", b"plain.a", b"", b"hello", "9afcb28a1f4a344f"),
        ("TINY", 1, "481e833b3a4ae818", b"tiny.a", b"", b"abc", "2bef559901b22aa1"),
        ("TINY", 3, "0852933b3a4ae818", b"tiny.c", b"", b"0123456789", "bc0b48368b72f3a6"),
        ("WQ", 1, "b19165503a4ae818", b"wq.a0", b"", b"", "676143166bb9594a"),
        (
            "TINY",
            2,
            "d7bc8b3b3a4ae818",
            b"tiny.b",
            b"NATS/1.0\r\nK: V\r\n\r\n",
            b"xyz",
            "fde66e35ca2c942c",
        ),
    ],
)
def test_record_has_the_bytes_of_the_official_server(
    stream: str,
    seq: int,
    time_hex: str,
    subject: bytes,
    header: bytes,
    payload: bytes,
    hash_hex: str,
) -> None:
    disk = SimulatedDisk()
    store = opened(disk, stream)
    store.table.skip(seq - 1, 1)
    time_bytes = bytes.fromhex(time_hex)
    store.table.store(subject, header, payload, int.from_bytes(time_bytes, "little", signed=True))
    store.flush()
    size = record_bytes(len(subject), len(header), len(payload))
    length = size | (1 << 31 if header else 0)
    expected = length.to_bytes(4, "little") + seq.to_bytes(8, "little") + time_bytes
    expected += len(subject).to_bytes(2, "little") + subject
    expected += len(header).to_bytes(4, "little") + header if header else b""
    expected += payload + bytes.fromhex(hash_hex)
    assert messages_in(disk, f"/disk/{stream}/msgs/1.blk") == [expected]


@pytest.mark.parametrize(
    ("stream", "number", "seq", "time_hex", "hash_hex"),
    [
        ("EMPTIED", 2, 3, "9b2d2f513a4ae818", "909edd62d56954cb"),
        ("PURGED", 2, 10, "629e283c3a4ae818", "59c93415ff63624d"),
    ],
)
def test_tombstone_has_the_bytes_of_the_official_server(
    stream: str, number: int, seq: int, time_hex: str, hash_hex: str
) -> None:
    timestamp = int.from_bytes(bytes.fromhex(time_hex), "little", signed=True)
    record = Block(stream, number).mark_bytes(TOMBSTONE_BIT | seq, timestamp)
    assert record == bytes.fromhex(
        "1e000000" + f"{seq:02x}00000000000040" + time_hex + "0000" + hash_hex
    )


def test_hash_depends_on_stream_and_block_number() -> None:
    marks = {
        Block(stream, number).mark_bytes(ERASED_BIT | 7, 1)[-HASH_BYTES:]
        for stream, number in (("S", 1), ("S", 2), ("T", 1), ("S-1", 1))
    }
    assert len(marks) == 4


def test_new_block_is_empty() -> None:
    block = Block("S", 3)
    assert (block.number, block.path, block.size, block.pending_bytes) == (3, "memory", 0, 0)
    assert (block.live_msgs, block.live_bytes, block.tombstones) == (0, 0, 0)
    assert block.last_checksum() == bytes(8)
    assert block.live_sequences() == []


def test_flush_moves_the_tail_into_the_file_in_one_write() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store.table, *[b"a"] * 100, payload=b"x" * 50)
    block = store.table.last
    assert block.pending_bytes > 100 * record_bytes(1, 0, 50) - 1
    writes = disk.calls["write"]
    store.flush()
    store.flush()
    assert disk.calls["write"] == writes + 1
    assert (block.pending_bytes, block.written) == (0, block.size)
    assert disk.content_of(block.path)[-HASH_BYTES:] == block.last_checksum()


def test_messages_are_read_from_the_tail_from_the_file_and_from_both() -> None:
    store = opened(SimulatedDisk())
    put(store.table, *[b"a"] * 5, payload=b"first")
    store.flush()
    put(store.table, *[b"b"] * 5, payload=b"second")
    assert [message.payload for message in store.table.messages()] == [b"first"] * 5 + [
        b"second"
    ] * 5
    store.flush()
    put(store.table, b"c")
    assert [store.table.get(seq).subject for seq in (1, 6, 11)] == [b"a", b"b", b"c"]
    store.verify()


@pytest.mark.parametrize("after_bytes", [0, 1, 40, 1000])
def test_failed_write_keeps_the_tail_for_the_next_try(after_bytes: int) -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store.table, *[b"a"] * 20, payload=b"x" * 30)
    disk.fail("write", "*.blk", error=errno.ENOSPC, after_bytes=after_bytes)
    written = store.table.last.written
    with pytest.raises(DiskFull):
        store.flush()
    assert store.table.last.written == written
    assert store.table.get(20).payload == b"x" * 30
    assert store.resume()
    assert store.table.last.pending_bytes == 0
    assert len(messages_in(disk, store.table.last.path)) == 20
    store.commit()
    assert store.table.synced_seq == 20


def test_other_failures_of_a_write_are_not_resumed() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store.table, b"a")
    disk.fail("write", "*.blk", error=errno.EIO)
    with pytest.raises(DiskFault):
        store.flush()
    assert not store.resume()
    assert store.table.get(1).subject == b"a"


def test_released_block_is_loaded_again_when_it_is_needed() -> None:
    store = opened(SimulatedDisk(), block_bytes_max=1000)
    put(store.table, *[b"s.%d" % (number % 3) for number in range(100)])
    store.table.remove(5)
    store.flush()
    before = [message.seq for message in store.table.messages()]
    for block in store.table.blocks[:-1]:
        block.release()
        assert block.memory_bytes == 0
    assert [message.seq for message in store.table.messages()] == before
    store.verify()


def test_block_with_unwritten_bytes_is_not_released() -> None:
    store = opened(SimulatedDisk())
    put(store.table, b"a")
    pending = store.table.last.pending_bytes
    store.table.last.release()
    assert store.table.last.pending_bytes == pending > 0
    assert store.table.get(1).subject == b"a"


def test_block_in_memory_is_not_released() -> None:
    store = MessageStore("S", index_bytes_max=1, block_bytes_max=200)
    put(store, *[b"a"] * 50)
    store.evict()
    for block in store.blocks:
        block.release()
    assert len(list(store.messages())) == 50


def test_evicted_indexes_stay_within_their_budget() -> None:
    store = opened(SimulatedDisk(), block_bytes_max=4000, index_bytes_max=20_000)
    put(store.table, *[b"a"] * 5000)
    store.flush()
    assert len(list(store.table.messages())) == 5000
    in_use = sum(
        block.memory_bytes for block in store.table.blocks if block is not store.table.last
    )
    assert in_use < 40_000
    assert len(store.table.blocks) > 30


def test_block_is_full_when_the_next_record_does_not_fit() -> None:
    size = record_bytes(1, 0, 69)
    store = MessageStore("S", block_bytes_max=3 * size)
    put(store, *[b"a"] * 3, payload=b"x" * 69)
    assert len(store.blocks) == 1
    put(store, b"a", payload=b"x" * 69)
    assert [block.live_msgs for block in store.blocks] == [3, 1]


def test_record_larger_than_a_block_is_alone_in_its_own() -> None:
    store = MessageStore("S", block_bytes_max=500)
    put(store, b"a")
    put(store, b"b", payload=b"x" * 5000)
    put(store, b"c")
    assert [block.live_msgs for block in store.blocks] == [1, 1, 1]


def test_block_that_holds_nothing_any_more_is_dropped() -> None:
    store = MessageStore("S", block_bytes_max=3 * record_bytes(1, 0, 69))
    put(store, *[b"a"] * 9, payload=b"x" * 69)
    assert [block.number for block in store.blocks] == [1, 2, 3]
    for seq in (4, 5, 6):
        store.remove(seq)
    assert [block.number for block in store.blocks] == [1, 3]
    for seq in (1, 2, 3):
        store.remove(seq)
    assert [block.number for block in store.blocks] == [3]
    assert store.state.first_seq == 7


def test_files_of_dropped_blocks_go_after_a_commit() -> None:
    disk = SimulatedDisk()
    store = opened(disk, block_bytes_max=1000)
    put(store.table, *[b"a"] * 100)
    store.commit()
    assert len(disk.list_directory("/disk/S/msgs")) > 3
    store.table.purge()
    store.commit()
    assert disk.list_directory("/disk/S/msgs") == [f"{store.table.last.number}.blk"]
    assert disk.open_files == 1
