"""Numbers in files and requests that claim more than is there: they decide neither about memory nor
about time. What is measured is memory and work, not seconds.
"""

from __future__ import annotations

import resource
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from subject_tables import subject_table
from tradewind.api.stream_rules import SEQUENCE_MAX as SEQUENCE_MAX_OF_REQUESTS
from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.contract import StoreLimits
from tradewind.store.files import witness
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import RecoveryReport, open_store
from tradewind.store.format.hash import key_for
from tradewind.store.format.index_file import (
    IndexBlock,
    StreamIndex,
    decode_index,
    encode_index,
)
from tradewind.store.format.layout import BLOCK_NUMBER_MAX, SEQUENCE_MAX, block_file_name
from tradewind.store.table.block import Block
from tradewind.store.table.message_store import MessageStore
from tradewind.testing.fake_disk import SimulatedDisk

MEMORY_MAX = 32 * 1024 * 1024
SKIP = 1 << 63
FAR = 1 << 33


@contextmanager
def little_memory() -> Iterator[None]:
    """Neither Python objects nor C memory grow by more than a few blocks."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < 2 * MEMORY_MAX


def opened(disk: SimulatedDisk, **settings: Any) -> tuple[FileStore, RecoveryReport]:
    disk.make_directory(f"{disk.root}/S")
    return open_store(disk, f"{disk.root}/S", "S", now_ns=0, **settings)


def disk_with(blocks: dict[int, bytes], index: StreamIndex | None = None) -> SimulatedDisk:
    disk = SimulatedDisk()
    for number, content in blocks.items():
        disk.put_durable_file(f"{disk.root}/S/msgs/{block_file_name(number)}", content)
    if index is not None:
        disk.put_durable_file(f"{disk.root}/S/msgs/index.db", encode_index(index, "S"))
    return disk


def record(seq: int, payload: bytes = b"x", number: int = 1) -> bytes:
    """A message of the official format."""
    size = 30 + 1 + len(payload)
    numbers = seq.to_bytes(8, "little") + (1).to_bytes(8, "little")
    checksum = key_for(f"S-{number}").hash(numbers + b"a" + payload)
    return size.to_bytes(4, "little") + numbers + b"\x01\0a" + payload + checksum


def messages_at(*sequences: int) -> bytes:
    """A block with messages that may be far apart."""
    return b"".join(map(record, sequences))


def first_mark(number: int) -> bytes:
    return Block("S", number).mark_bytes(1 << 62, 1 << 56)


# --- gaps ---


def test_messages_far_apart_in_one_block_are_refused_before_memory_is_taken() -> None:
    disk = disk_with({1: messages_at(1, FAR)})
    before = disk.snapshot_tree()
    with (
        little_memory(),
        pytest.raises(
            StoreError, match=r"1\.blk: sequences 1 to \d+ are too far apart for one block; at most"
        ),
    ):
        opened(disk)
    assert disk.snapshot_tree() == before


def test_a_skip_far_behind_the_last_message_of_a_block_is_refused_too() -> None:
    content = messages_at(1) + Block("S", 1).mark_bytes(SKIP | FAR, 1)
    with little_memory(), pytest.raises(StoreError, match="too far apart"):
        opened(disk_with({1: content}))


@pytest.mark.parametrize("distance", [60_000, 5_000_000])
def test_gaps_between_messages_begin_new_blocks_before_they_take_memory(distance: int) -> None:
    disk = SimulatedDisk()
    with little_memory():
        store, _ = opened(disk)
        for _ in range(500):
            store.table.skip(store.table.last_seq + distance, 1)
            store.table.store(b"a", b"", b"x", 1)
        store.commit()
        expected = store.table.state
        assert sum(block.deleted.memory_bytes for block in store.table.blocks) < MEMORY_MAX
        store.verify()
        again, report = opened(disk.crash_keeping_unsynced())
        assert report.is_clean
        assert again.table.state == expected
        store.close()
        again, _ = opened(disk)
        assert again.table.state == expected
        # Removing the first message passes a gap in one step.
        while again.table.msgs:
            again.table.remove(again.table.first_seq)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_gap_costs_nothing_wherever_messages_are_looked_at(kind: str) -> None:
    store = MessageStore("S") if kind == "memory" else opened(SimulatedDisk())[0].table
    with little_memory():
        store.store(b"a", b"", b"x", 1)
        store.skip(1 << 60, 1)
        last = store.store(b"b", b"", b"y", 2)
        assert last == (1 << 60) + 1
        assert store.subjects_between(1, last) == {b"a", b"b"}
        assert store.state.deleted == (1 << 60) - 1
        assert len(store.deleted_sequences(1000)) == 1000
        assert store.next_sequence(2, ()) == last
        store.remove(1)
        assert store.first_seq == last


# --- the highest sequence ---


def test_requests_and_files_agree_about_the_highest_sequence() -> None:
    assert SEQUENCE_MAX_OF_REQUESTS == SEQUENCE_MAX == (1 << 62) - 1


@pytest.mark.parametrize("first", [1 << 24, 1 << 56, (1 << 56) + 5, 1 << 61, SEQUENCE_MAX - 2])
@pytest.mark.parametrize("ending", ["closed", "killed"])
@pytest.mark.parametrize("is_limited", [False, True])
def test_high_sequences_come_back(first: int, ending: str, is_limited: bool) -> None:
    disk = SimulatedDisk()
    limits = StoreLimits(msgs_max=2) if is_limited else StoreLimits()
    store, _ = opened(disk, limits=limits)
    store.table.compact(first)
    for number in range(3):
        assert store.table.store(b"a", b"", b"%d" % number, 1) == first + number
    store.commit()
    if is_limited:
        # There is room again: only the floor says that the first one is gone.
        store.table.remove(first + 2)
        store.commit()
    expected = store.table.state
    if ending == "closed":
        store.close()
    again, report = opened(disk.crash_keeping_unsynced(), limits=limits)
    assert report.is_clean
    assert again.table.state == expected
    again.verify()


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_what_is_higher_is_refused_and_nothing_changes(kind: str) -> None:
    store = MessageStore("S") if kind == "memory" else opened(SimulatedDisk())[0].table
    store.store(b"a", b"", b"x", 1)
    for call in (
        lambda: store.skip(SEQUENCE_MAX + 1, 1),
        lambda: store.compact(SEQUENCE_MAX + 2),
        lambda: store.purge(below=(1 << 64) - 1),
    ):
        with pytest.raises(StoreError, match=rf"the highest one is {SEQUENCE_MAX}"):
            call()
        assert (store.msgs, store.last_seq) == (1, 1)
    store.compact(SEQUENCE_MAX)
    assert store.store(b"a", b"", b"x", 1) == SEQUENCE_MAX
    with pytest.raises(StoreError, match=rf"sequence {SEQUENCE_MAX + 1} cannot be stored"):
        store.store(b"a", b"", b"x", 1)
    assert (store.msgs, store.last_seq) == (1, SEQUENCE_MAX)


@pytest.mark.parametrize("number", [1 << 24, (1 << 24) + 1, BLOCK_NUMBER_MAX - 1])
def test_marks_are_right_in_blocks_with_high_numbers(number: int) -> None:
    """What a mark says has a block number in it, and tells a cut off write from damage."""
    disk = disk_with({number: first_mark(number)})
    store, _ = opened(disk, block_bytes_max=300)
    for _ in range(4):
        store.table.store(b"a", b"", b"x" * 20, 1)
        store.commit()
    content = disk.content_of(f"{disk.root}/S/msgs/{block_file_name(number)}")
    disk.put_durable_file(
        f"{disk.root}/S/msgs/{block_file_name(number)}", content.replace(b"x" * 20, b"y" * 20, 1)
    )
    again, report = opened(disk.crash_keeping_unsynced(), block_bytes_max=300)
    assert report.lost == [1]
    assert again.table.msgs == 3


def test_there_is_no_block_behind_the_last_number() -> None:
    disk = disk_with({BLOCK_NUMBER_MAX: first_mark(BLOCK_NUMBER_MAX)})
    store, _ = opened(disk, block_bytes_max=300)
    for _ in range(4):
        store.table.store(b"a", b"", b"x" * 20, 1)
    with pytest.raises(StoreError, match=rf"there is no block after {BLOCK_NUMBER_MAX}"):
        store.table.store(b"a", b"", b"x" * 200, 1)
    assert store.table.msgs == 4


# --- index.db ---


def summary(blocks: list[IndexBlock], checksum: bytes) -> StreamIndex:
    return StreamIndex(
        messages=sum(block.messages for block in blocks),
        live_bytes=sum(block.live_bytes for block in blocks),
        first_seq=blocks[0].first_seq,
        last_seq=blocks[-1].last_seq,
        first_time_ns=1,
        last_time_ns=1,
        subjects=subject_table([(b"a", 1, 1, 1)]),
        blocks=blocks,
        last_checksum=checksum,
    )


@pytest.mark.parametrize("count", [1000, 1 << 33, 1 << 61])
def test_a_summary_that_claims_more_messages_than_a_block_can_hold_is_not_followed(
    count: int,
) -> None:
    content = messages_at(1, 2, 3)
    index = summary([IndexBlock(1, 90, 1, 1, count, 1)], content[-8:])
    with little_memory():
        store, report = opened(disk_with({1: content}, index))
        assert store.table.msgs == 3
        assert report.lost_total <= 1000
        store.verify()


def test_a_summary_with_many_blocks_that_are_not_there_is_read_in_bounded_work() -> None:
    content = messages_at(1, 2, 3)
    blocks = [
        IndexBlock(number, 90, number * 1_000_000, 1, number * 1_000_000 + 900_000, 1)
        for number in range(2, 300)
    ]
    index = summary([IndexBlock(1, 90, 1, 1, 3, 1), *blocks], bytes(8))
    with little_memory():
        store, report = opened(disk_with({1: content}, index))
        assert len(report.lost) <= 100_000
        assert store.table.msgs == 3
        assert store.table.last_seq == index.last_seq


def test_a_summary_with_sequences_that_cannot_be_is_refused() -> None:
    block = IndexBlock(1, 90, (1 << 62) - 5, 1, (1 << 62) + 1, 1)
    with pytest.raises(CorruptRecord, match="no block has a message 4611686018427387905"):
        decode_index(encode_index(summary([block], bytes(8)), "S"), "S")


# --- reports, witness ---


@pytest.mark.parametrize("text", [b"1" * 30, b"-5", b"4611686018427387904", b"0"])
def test_a_report_of_damage_with_sequences_that_cannot_be_is_noted(text: bytes) -> None:
    disk = disk_with({1: messages_at(1, 2)})
    disk.put_durable_file(f"{disk.root}/S/damage/1.json", b'{"stream":"S","lost":[' + text + b"]}")
    store, report = opened(disk)
    assert store.table.msgs == 2
    assert "what was lost earlier cannot be read" in report.notes[0]


def test_a_witness_that_claims_an_endless_reserve_takes_no_memory() -> None:
    disk = disk_with({1: messages_at(1, 2)})
    testimony = witness.Testimony(5, 9, 2, 1 << 61)
    disk.put_durable_file(
        f"{disk.root}/S/{witness.WITNESS_FILE}", witness.testimony_file(testimony, "S")
    )
    with little_memory():
        store, report = opened(disk)
        assert store.table.last_seq == 1 << 61
        assert len(report.lost) <= 100_000


# --- what looks like records ---


def test_a_payload_that_looks_like_many_records_does_not_cost_the_square_of_its_size() -> None:
    """Behind damage every byte may begin a record; each of these claims to be half a block long."""
    size = 1 << 20
    fake = (size // 2).to_bytes(4, "little") + (5).to_bytes(8, "little") + bytes(8) + b"\x01\0"
    bomb = record(1, fake * (size // len(fake)))
    bomb = bytes([bomb[0] ^ 1]) + bomb[1:]
    content = bomb + record(2, b"still there") + record(3)
    store, report = opened(disk_with({1: content}))
    assert report.lost == [1]
    assert store.table.get(2).payload == b"still there"
