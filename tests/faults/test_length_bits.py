"""Flipped bits in the parts of a record that say how it is divided.

The checksum of a record covers none of its lengths. Whatever bit of them is wrong, in a store that
is closed, killed or in use, a reader gets what was stored, or is told that it is lost.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tradewind.store.contract import MessageCopy, NotFoundError
from tradewind.store.folder.filestore import PROVED_BYTES_MIN, FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.repair.damage import RecoveryReport
from tradewind.testing.disk_damage import DiskDamage
from tradewind.testing.fake_disk import SimulatedDisk

FOLDER = "/disk/S"
MESSAGES = f"{FOLDER}/msgs"
BLOCK_BYTES = 1500
TOMBSTONE, ERASED = 1 << 62, 1 << 63
# Each is what another one becomes by a wrong length, so that neither looks wrong by itself.
STORED = [
    (b"orders.1", b"", b"5hello"),
    (b"orders.15", b"", b"hello"),
    (b"orders.15hello", b"", b""),
    (b"orders", b"", b".15hello"),
    (b"orders.15hell", b"", b"o"),
    (b"a", b"", b"b"),
    (b"ab", b"", b"c" * 40),
    (b"headers", b"NATS/1.0\r\nA: b\r\n\r\n", b"payload"),
    (b"headers", b"NATS/1.0\r\nA: b\r\n\r\n", b"1\r\n\r\n56\r\n\r\n" * 3),
    (b"headers.of.some.length", b"NATS/1.0\r\nName: value\r\nOther: 1\r\n\r\n", b""),
    (b"odd.header", b"no header at all", b"payload"),
    (b"odd.header", b"NATS/1.0\r\nA:b\r\n\r\n\r\n", b"\r\n\r\npayload"),
    (b"long." + b"x" * 200, b"", b"y" * 300),
]

ROUNDS = 2
COUNT = ROUNDS * len(STORED)


def opened(disk: SimulatedDisk) -> tuple[FileStore, RecoveryReport]:
    return open_store(disk, FOLDER, "S", now_ns=1, block_bytes_max=BLOCK_BYTES)


def filled(rounds: int = ROUNDS) -> tuple[SimulatedDisk, FileStore]:
    """Every message some times, over several blocks and commits."""
    disk = SimulatedDisk()
    disk.make_directory(FOLDER, sync=True)
    store, _ = opened(disk)
    for _ in range(rounds):
        for subject, header, payload in STORED:
            store.table.store(subject, header, payload, store.table.last_seq + 1)
            if store.table.last_seq % 4 == 0:
                store.commit()
    store.commit()
    return disk, store


@cache
def closed_disk() -> SimulatedDisk:
    disk, store = filled()
    store.close()
    return disk


def expected(seq: int) -> MessageCopy:
    return MessageCopy(seq, seq, *STORED[(seq - 1) % len(STORED)])


def length_bits(
    disk: SimulatedDisk, *, lengths_only: bool = False, but: bytes = b"-"
) -> Iterator[tuple[str, int]]:
    """The path and number of every bit in the numbers of every record that is a message; or only
    of the lengths that no checksum covers. One subject is left out.
    """
    for path, content in sorted(disk.file_contents().items()):
        if not path.endswith(".blk"):
            continue
        offset = 0
        while offset < len(content):
            length, sequence, _, subject_size = struct.unpack_from("<IQqH", content, offset)
            subject = content[offset + 22 : offset + 22 + subject_size]
            if not sequence & (TOMBSTONE | ERASED) and subject != but:
                first = offset + 20 if lengths_only else offset
                places = list(range(first, offset + 22))
                if length >> 31:
                    places += range(offset + 22 + subject_size, offset + 26 + subject_size)
                for place in places:
                    yield from ((path, 8 * place + bit) for bit in range(8))
            offset += length & 0x7FFFFFFF


def outcome(store: FileStore, sequences: range = range(1, COUNT + 1)) -> str:
    """Read everything: "same", "lost" if something is gone, or "wrong"."""
    found = "same"
    for seq in sequences:
        try:
            message = store.table.get(seq)
        except NotFoundError:
            found = "lost"
            continue
        if message != expected(seq):
            return "wrong"
    if store.table.has_open_damage:
        return found
    listed = list(store.table.messages())
    return found if all(message == expected(message.seq) for message in listed) else "wrong"


@pytest.mark.slow
@pytest.mark.parametrize("has_index", [True, False])
def test_no_bit_of_a_length_gives_out_other_bytes_after_a_start(has_index: bool) -> None:
    outcomes: Counter[str] = Counter()
    lengths = set(length_bits(closed_disk(), lengths_only=True))
    for path, bit in length_bits(closed_disk()):
        if (path, bit) not in lengths and bit % 5:
            continue  # a checksum covers it
        disk = closed_disk().crash_keeping_unsynced()
        DiskDamage(disk).flip_bits(path, [bit])
        if not has_index:
            disk.remove(f"{MESSAGES}/index.db")
        store, report = opened(disk)
        found = outcome(store)
        outcomes[found] += 1
        assert found == "lost", (path, divmod(bit, 8), found)
        assert report.damage or store.table.state.lost is not None
    assert outcomes["lost"] > 1000


@pytest.mark.slow
@pytest.mark.parametrize("is_loaded", [True, False])
def test_no_bit_of_a_length_gives_out_other_bytes_of_a_store_in_use(is_loaded: bool) -> None:
    """The system has dropped the pages; with the index of the block still there, and without."""
    # A header that was odd before may become another one that is: the next start sees that.
    bits = list(length_bits(filled()[0], lengths_only=True, but=b"odd.header"))
    assert len(bits) > 400
    for path, bit in bits:
        disk, store = filled()
        outcome(store)
        DiskDamage(disk).flip_bits(path, [bit])
        for block in store.table.blocks:
            if is_loaded or block is store.table.last:
                block.unmap()
            else:
                block.release()
        found = outcome(store)
        assert found == "lost", (path, divmod(bit, 8), found)
        store.damage.resolve_all()
        assert outcome(store) == "lost"
        store.verify()


def test_a_killed_store_knows_all_lengths_but_those_of_its_last_bytes() -> None:
    disk, _ = filled()
    content = disk.file_contents()
    last = max(content, key=lambda path: path if path.endswith(".blk") else "")
    for path, bit in length_bits(disk, lengths_only=True):
        if path == last and bit // 8 > len(content[path]) - PROVED_BYTES_MIN:
            continue
        after = disk.crash_keeping_unsynced()
        DiskDamage(after).flip_bits(path, [bit])
        assert outcome(opened(after)[0]) != "wrong", (path, divmod(bit, 8))


def test_headers_that_only_a_client_can_understand_are_no_damage() -> None:
    """Whatever happens to the process, and wherever it happens."""
    disk, store = filled(1)
    for size in range(8, 40):
        header = b"NATS/1.0\r\nA:b\r\n\r\n".ljust(size, b"x")[:size]
        seq = store.table.store(b"odd", header, b"\r\n\r\n" * 8, size)
        store.flush()
        after, report = opened(disk.crash_keeping_unsynced())
        assert report.is_clean, size
        assert after.table.get(seq).header == header


COMPACTING: dict[str, Any] = {"block_bytes_max": BLOCK_BYTES, "compact_bytes_min": 60}


def filled_to_compact() -> tuple[SimulatedDisk, FileStore]:
    """A store that compacts soon, with 60 messages whose subject and payload could be one word."""
    disk = SimulatedDisk()
    disk.make_directory(FOLDER, sync=True)
    store, _ = open_store(disk, FOLDER, "S", now_ns=1, **COMPACTING)
    for seq in range(1, 61):
        store.table.store(b"orders.1", b"", b"5hello", seq)
    store.commit()
    return disk, store


def test_compaction_keeps_the_proof_of_lengths_and_makes_none_up() -> None:
    disk, store = filled_to_compact()
    for seq in range(1, 61):
        if seq % 5:
            store.table.remove(seq)
    for _ in range(8):
        store.commit()
        store.table.store(b"more", b"", b"", 100)
    store.commit()
    content = disk.file_contents()[f"{MESSAGES}/1.blk"]
    assert len(content) < BLOCK_BYTES // 2, "nothing was compacted"
    # The lowest bit of a subject length: orders.1 becomes orders.15 without a trace in the record.
    place = content.index(b"orders.1") - 2
    DiskDamage(disk).flip_bits(f"{MESSAGES}/1.blk", [8 * place])
    after, report = open_store(disk.crash_keeping_unsynced(), FOLDER, "S", now_ns=1, **COMPACTING)
    assert report.lost == [5]
    assert {message.subject for message in after.table.messages()} == {b"orders.1", b"more"}


def test_a_wrong_length_is_not_compacted_into_a_right_one() -> None:
    disk, store = filled_to_compact()
    path = f"{MESSAGES}/1.blk"
    place = disk.content_of(path).index(b"orders.1") - 2
    DiskDamage(disk).flip_bits(path, [8 * place])
    for block in store.table.blocks:
        block.unmap()
    for seq in range(2, 61):
        if seq % 5:
            store.table.remove(seq)
    for _ in range(8):
        store.commit()
        store.table.store(b"more", b"", b"", 100)
    store.commit()
    with pytest.raises(NotFoundError):
        store.table.get(1)
    after, _ = open_store(disk.crash_keeping_unsynced(), FOLDER, "S", now_ns=1, **COMPACTING)
    assert {message.subject for message in after.table.messages()} == {b"orders.1", b"more"}
