"""index.db: a summary of a stream, so that its blocks need not be read at startup.

Owns the format, and every check that needs no other file. It never touches the disk: the store
compares the summary with the block files. The file is optional; after an error here, the caller
rebuilds from the blocks.

    11, version 4
    uvarint messages, uvarint bytes, uvarint first seq, varint first time (`base`),
    uvarint last seq, varint last time                                  (a time of 0 is none)
    uvarint number of subjects, the subjects                            (index_codec)
    uvarint number of blocks, each:
        uvarint number, uvarint bytes, uvarint first seq, varint first time - base,
        uvarint last seq, varint last time - base,
        uvarint deletes, uvarint TTLs, uvarint schedules, a sequence set if there are deletes
    uvarint number of the last block, the last 8 bytes of its file (zeros if that is empty)
    hash of all this with the key of the stream's name

Version 1 has neither TTLs nor schedules, version 2 no schedules.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import msgspec

from tradewind.errors import CorruptRecord
from tradewind.store.format.hash import key_for
from tradewind.store.format.index_codec import decode_subjects, encode_subjects
from tradewind.store.format.layout import (
    BLOCK_NUMBER_MAX,
    CHECKSUM_BYTES,
    RECORD_BYTES_MIN,
    SEQUENCE_MAX,
    stream_key_text,
)
from tradewind.store.format.s2 import BLOCK_BYTES_MAX
from tradewind.store.format.sequence_set import SequenceSet
from tradewind.store.format.varint import (
    U64_MASK,
    ByteReader,
    append_uvarint,
    append_varint,
    to_signed,
)

MAGIC: Final = 11
VERSION: Final = 4
TTLS_SINCE_VERSION: Final = 2
SCHEDULES_SINCE_VERSION: Final = 3
INDEX_BYTES_MIN: Final = 32
EMPTY_CHECKSUM: Final = bytes(CHECKSUM_BYTES)
_SUBJECT_BYTES_MIN: Final = 4
_BLOCK_BYTES_MIN: Final = 7
_BLOCK_MESSAGES_MAX: Final = BLOCK_BYTES_MAX // RECORD_BYTES_MIN


class SubjectTable(msgspec.Struct):
    """The subjects of a stream as columns, in no particular order.

    Name number i is names[ends[i - 1]:ends[i]]. `totals` counts its messages; the block numbers say
    where its first and its last message is, and may be too low, never too high.
    """

    names: bytes = b""
    ends: array[int] = msgspec.field(default_factory=lambda: array("Q"))
    totals: array[int] = msgspec.field(default_factory=lambda: array("Q"))
    first_blocks: array[int] = msgspec.field(default_factory=lambda: array("I"))
    last_blocks: array[int] = msgspec.field(default_factory=lambda: array("I"))

    def rows(self) -> Iterator[tuple[bytes, int, int, int]]:
        """Each subject as (name, messages, first block, last block)."""
        start = 0
        columns = zip(self.ends, self.totals, self.first_blocks, self.last_blocks, strict=True)
        for end, total, first_block, last_block in columns:
            yield self.names[start:end], total, first_block, last_block
            start = end

    def __len__(self) -> int:
        return len(self.ends)


class IndexBlock(msgspec.Struct):
    """One block. Its sequences are first_seq..last_seq; an empty one has first_seq = last_seq + 1.

    `live_bytes` is the size of the records that are not deleted. A message with a TTL or schedule
    may be counted although it is deleted.
    """

    number: int
    live_bytes: int
    first_seq: int
    first_time_ns: int
    last_seq: int
    last_time_ns: int
    ttl_count: int = 0
    schedule_count: int = 0
    deleted: SequenceSet = msgspec.field(default_factory=SequenceSet)

    @property
    def messages(self) -> int:
        """How many live messages it has."""
        return max((self.last_seq - self.first_seq + 1 & U64_MASK) - self.deleted.count, 0)


class StreamIndex(msgspec.Struct):
    """All of an index.db; times of 0 mean that there is none.

    `last_checksum` is the end of the last block's file when this was written: if it is another now,
    the index is outdated.
    """

    messages: int = 0
    live_bytes: int = 0
    first_seq: int = 0
    first_time_ns: int = 0
    last_seq: int = 0
    last_time_ns: int = 0
    subjects: SubjectTable = msgspec.field(default_factory=SubjectTable)
    blocks: list[IndexBlock] = msgspec.field(default_factory=list)
    last_checksum: bytes = EMPTY_CHECKSUM


def encode_index(index: StreamIndex, stream: str) -> bytes:
    """The file of a stream with this name; it has at least one block."""
    if not index.blocks or len(index.last_checksum) != CHECKSUM_BYTES:
        raise ValueError(f"an index needs a block and a checksum of {CHECKSUM_BYTES} bytes")
    target = bytearray((MAGIC, VERSION))
    append_uvarint(target, index.messages)
    append_uvarint(target, index.live_bytes)
    append_uvarint(target, index.first_seq)
    append_varint(target, index.first_time_ns)
    append_uvarint(target, index.last_seq)
    append_varint(target, index.last_time_ns)
    subjects = index.subjects
    append_uvarint(target, len(subjects))
    target += encode_subjects(
        subjects.names,
        subjects.ends,
        subjects.totals,
        subjects.first_blocks,
        subjects.last_blocks,
    )
    append_uvarint(target, len(index.blocks))
    for block in index.blocks:
        _append_block(target, block, index.first_time_ns)
    append_uvarint(target, index.blocks[-1].number)
    target += index.last_checksum
    target += key_for(stream_key_text(stream)).hash(target)
    return bytes(target)


def _append_block(target: bytearray, block: IndexBlock, base_ns: int) -> None:
    append_uvarint(target, block.number)
    append_uvarint(target, block.live_bytes)
    append_uvarint(target, block.first_seq)
    append_varint(target, to_signed(block.first_time_ns - base_ns))
    append_uvarint(target, block.last_seq)
    append_varint(target, to_signed(block.last_time_ns - base_ns))
    append_uvarint(target, block.deleted.count)
    append_uvarint(target, block.ttl_count)
    append_uvarint(target, block.schedule_count)
    if block.deleted.count:
        target += block.deleted.encode()


def decode_index(data: bytes, stream: str, path: str = "index.db") -> StreamIndex:
    """The checked content of the file; CorruptRecord if anything in it is wrong."""
    if len(data) < INDEX_BYTES_MIN:
        raise CorruptRecord(path, 0, f"{len(data)} bytes are too few, an index has at least 32")
    end = len(data) - CHECKSUM_BYTES
    if key_for(stream_key_text(stream)).hash(memoryview(data)[:end]) != data[end:]:
        raise CorruptRecord(path, end, f"the hash is not that of the bytes before it in {stream}")
    version = data[1]
    if data[0] != MAGIC or not 1 <= version <= VERSION:
        raise CorruptRecord(
            path, 0, f"it starts with {data[0]} and {version}, not with 11 and a version 1 to 4"
        )
    reader = ByteReader(data, path, 2, end)
    index = StreamIndex(
        messages=reader.uvarint("messages"),
        live_bytes=reader.uvarint("bytes"),
        first_seq=reader.uvarint("first sequence"),
        first_time_ns=reader.varint("first time"),
        last_seq=reader.uvarint("last sequence"),
        last_time_ns=reader.varint("last time"),
    )
    index.subjects = _read_subjects(reader, version)
    count = reader.count("number of blocks", _BLOCK_BYTES_MIN)
    index.blocks = [_read_block(reader, version, index.first_time_ns) for _ in range(count)]
    _read_tail(reader, index)
    _check_totals(reader, index)
    return index


def _read_subjects(reader: ByteReader, version: int) -> SubjectTable:
    count = reader.count("number of subjects", _SUBJECT_BYTES_MIN)
    names, ends, totals, first_blocks, last_blocks, reader.offset = decode_subjects(
        reader.data, reader.offset, reader.end, count, version, reader.path
    )
    return SubjectTable(names, ends, totals, first_blocks, last_blocks)


def _read_block(reader: ByteReader, version: int, base_ns: int) -> IndexBlock:
    start = reader.offset
    block = IndexBlock(
        number=reader.uvarint("block number"),
        live_bytes=reader.uvarint("block bytes"),
        first_seq=reader.uvarint("first sequence of a block"),
        first_time_ns=to_signed(reader.varint("first time of a block") + base_ns),
        last_seq=reader.uvarint("last sequence of a block"),
        last_time_ns=to_signed(reader.varint("last time of a block") + base_ns),
    )
    deletes = reader.uvarint("deletes of a block")
    if version >= TTLS_SINCE_VERSION:
        block.ttl_count = reader.uvarint("TTLs of a block")
    if version >= SCHEDULES_SINCE_VERSION:
        block.schedule_count = reader.uvarint("schedules of a block")
    if not 0 < block.number <= BLOCK_NUMBER_MAX:
        raise reader.corrupt(f"a block cannot have the number {block.number}", start)
    if block.last_seq > SEQUENCE_MAX:
        raise reader.corrupt(f"no block has a message {block.last_seq}", start)
    if block.first_seq > block.last_seq + 1:
        raise reader.corrupt(
            f"block {block.number} goes from {block.first_seq} to {block.last_seq}", start
        )
    if deletes:
        block.deleted, reader.offset = SequenceSet.decode(
            reader.data, reader.offset, reader.end, reader.path
        )
        if block.deleted.count != deletes:
            raise reader.corrupt(
                f"block {block.number} says it has {deletes} deletes, its set has"
                f" {block.deleted.count}",
                start,
            )
    if block.messages > _BLOCK_MESSAGES_MAX:
        raise reader.corrupt(f"block {block.number} cannot have {block.messages} messages", start)
    return block


def _read_tail(reader: ByteReader, index: StreamIndex) -> None:
    start = reader.offset
    last_block = reader.uvarint("number of the last block")
    numbers = [block.number for block in index.blocks]
    if not numbers or last_block != numbers[-1]:
        raise reader.corrupt(f"the last block is {last_block}, but not the last listed one", start)
    if any(number >= higher for number, higher in pairwise(numbers)):
        raise reader.corrupt("the numbers of the blocks do not rise", start)
    index.last_checksum = reader.take(CHECKSUM_BYTES, "checksum of the last block")
    reader.expect_end()


def _check_totals(reader: ByteReader, index: StreamIndex) -> None:
    """The stream's numbers must be the sums of its blocks, else it was written in mid-change."""
    # A block without messages only keeps tombstones, unless it is the one that is written to.
    blocks = [block for block in index.blocks if block.messages or block is index.blocks[-1]]
    found = {
        "messages": sum(block.messages for block in blocks),
        "live_bytes": sum(block.live_bytes for block in blocks),
        "last_seq": max(block.last_seq for block in blocks),
    }
    first_seq = min(block.first_seq for block in blocks)
    # A stream that was never used has first 0, its block 1.
    if first_seq > 1:
        found["first_seq"] = first_seq
    for name, value in found.items():
        said = getattr(index, name)
        if said != value:
            raise reader.corrupt(f"{name} is {said}, the blocks together have {value}", 2)
