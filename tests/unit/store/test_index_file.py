"""index.db, the summary of a stream."""

from __future__ import annotations

import time
from array import array

import pytest

from subject_tables import subject_table
from tradewind.errors import CorruptRecord
from tradewind.store.format.hash import key_for
from tradewind.store.format.index_codec import decode_subjects, encode_subjects
from tradewind.store.format.index_file import (
    IndexBlock,
    StreamIndex,
    SubjectTable,
    decode_index,
    encode_index,
)
from tradewind.store.format.sequence_set import SequenceSet
from tradewind.store.format.varint import append_uvarint, append_varint

EMPTY = bytes.fromhex("0b040000000000000001010001000000000000010000000000000000ea09ca03d0d24706")
PURGED = bytes.fromhex(
    "0b0400000b000ac4f9c4c2c78ea5e831000102000b000ac4f9c4c2c78ea5e8310000000259c93415ff63624d"
    "99498837ee7ca1b7"
)
TINY = bytes.fromhex(
    "0b04026b02aef3ddb8c78ea5e8310390c89ab9c78ea5e831"
    "020674696e792e620101010674696e792e63010101"
    "01016b020003e2d43c0000000146ed09de348d7e3e3036bbd4f713be91"
)


def signed(body: bytes, stream: str = "S") -> bytes:
    return body + key_for(stream).hash(body)


def example() -> StreamIndex:
    """Two full blocks with deletes, a block of tombstones only, and the last one."""
    deleted = SequenceSet()
    for seq in (5, 7, 3000, 9000):
        deleted.insert(seq)
    blocks = [
        IndexBlock(1, 5000, 2, 100, 9999, 200, 3, 1, deleted),
        IndexBlock(4, 0, 10000, 200, 9999, 200),
        IndexBlock(7, 70, 10000, 300, 10001, 400, ttl_count=2),
    ]
    rows = [(b"a.b", 9000, 1, 7), (b"c", 996, 1, 1)]
    return StreamIndex(9996, 5070, 2, 100, 10001, 400, subject_table(rows), blocks, b"checksum")


@pytest.mark.parametrize(("stream", "data"), [("EMPTY", EMPTY), ("PURGED", PURGED), ("TINY", TINY)])
def test_real_files_are_read_and_written_to_the_byte(stream: str, data: bytes) -> None:
    assert encode_index(decode_index(data, stream), stream) == data


def test_what_a_real_file_says() -> None:
    index = decode_index(TINY, "TINY")
    assert (index.messages, index.live_bytes, index.first_seq, index.last_seq) == (2, 107, 2, 3)
    assert index.first_time_ns == 1794766065474714839
    assert index.last_time_ns == 1794766065475211784
    assert list(index.subjects.rows()) == [(b"tiny.b", 1, 1, 1), (b"tiny.c", 1, 1, 1)]
    assert index.blocks == [
        IndexBlock(1, 107, 2, index.first_time_ns, 3, index.last_time_ns),
    ]
    assert index.last_checksum.hex() == "46ed09de348d7e3e"


def test_an_unused_stream_has_one_empty_block() -> None:
    index = decode_index(EMPTY, "EMPTY")
    assert index == StreamIndex(blocks=[IndexBlock(1, 0, 1, 0, 0, 0)])
    assert index.blocks[0].messages == 0


def test_a_purged_stream_keeps_its_last_sequence_and_time() -> None:
    index = decode_index(PURGED, "PURGED")
    assert (index.first_seq, index.last_seq, index.first_time_ns) == (11, 10, 0)
    assert index.last_time_ns == index.blocks[0].last_time_ns == 1794766065484996194
    assert index.blocks[0].number == 2


def test_deletes_timers_and_several_blocks_come_back() -> None:
    data = encode_index(example(), "S")
    assert decode_index(data, "S") == example()
    assert [block.messages for block in example().blocks] == [9994, 0, 2]


def test_times_before_the_base_and_in_year_1_come_back() -> None:
    index = example()
    index.first_time_ns = 1794766065474714839
    index.blocks[0].first_time_ns = -6795364578871345152
    index.blocks[1].first_time_ns = 0
    assert decode_index(encode_index(index, "S"), "S") == index


def old_index(version: int, block_counts: list[int]) -> bytes:
    """One subject with one message and one with two, in the form of an older server."""
    body = bytearray((11, version))
    for value in (3, 120, 1):
        append_uvarint(body, value)
    append_varint(body, 1000)
    append_uvarint(body, 3)
    append_varint(body, 3000)
    body += b"\x02\x03one\x01\x05\x03two\x02\x05\x06"
    append_uvarint(body, 1)
    for value in (6, 120, 1):
        append_uvarint(body, value)
    append_varint(body, 0)
    append_uvarint(body, 3)
    append_varint(body, 2000)
    for value in block_counts:
        append_uvarint(body, value)
    append_uvarint(body, 6)
    return signed(bytes(body) + b"checksum")


@pytest.mark.parametrize(("version", "block_counts"), [(1, [0]), (2, [0, 4]), (3, [0, 4, 5])])
def test_older_versions_are_read(version: int, block_counts: list[int]) -> None:
    index = decode_index(old_index(version, block_counts), "S")
    assert list(index.subjects.rows()) == [(b"one", 1, 5, 5), (b"two", 2, 5, 6)]
    counts = [*block_counts, 0, 0][1:3]
    assert index.blocks == [IndexBlock(6, 120, 1, 1000, 3, 3000, *counts)]


def test_the_name_of_the_stream_is_part_of_the_hash() -> None:
    with pytest.raises(CorruptRecord, match="the hash is not that of the bytes before it"):
        decode_index(TINY, "OTHER")


def test_every_changed_byte_and_every_missing_end_is_found() -> None:
    data = encode_index(example(), "S")
    for place in range(0, len(data), 7):
        changed = data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]
        with pytest.raises(CorruptRecord):
            decode_index(changed, "S")
        with pytest.raises(CorruptRecord):
            decode_index(data[:place], "S")


def test_every_missing_end_is_found_even_with_a_right_hash() -> None:
    body = encode_index(example(), "S")[:-8]
    for size in range(24, len(body), 5):
        with pytest.raises(CorruptRecord) as caught:
            decode_index(signed(body[:size]), "S", "msgs/index.db")
        assert caught.value.path == "msgs/index.db"


def changed(**fields: object) -> bytes:
    index = example()
    for name, value in fields.items():
        setattr(index, name, value)
    return encode_index(index, "S")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes are too few"),
        (TINY[:31], "31 bytes are too few"),
        (signed(b"\x0c\x04" + bytes(30)), "starts with 12 and 4"),
        (signed(b"\x0b\x00" + bytes(30)), "starts with 11 and 0"),
        (signed(b"\x0b\x05" + bytes(30)), "starts with 11 and 5"),
        (signed(b"\x0b\x04" + bytes(30)), "the last block is 0, but not the last listed one"),
        (signed(encode_index(example(), "S")[:-8] + b"!"), "1 bytes follow the last field"),
        (changed(messages=9997), "messages is 9997, the blocks together have 9996"),
        (changed(live_bytes=1), "live_bytes is 1, the blocks together have 5070"),
        (changed(last_seq=10002), "last_seq is 10002, the blocks together have 10001"),
        (changed(first_seq=3), "first_seq is 3, the blocks together have 2"),
        (changed(blocks=list(reversed(example().blocks))), "do not rise"),
        (changed(blocks=[IndexBlock(1, 0, 9, 0, 7, 0)]), "block 1 goes from 9 to 7"),
        (changed(blocks=[IndexBlock(0, 0, 9, 0, 8, 0)]), "cannot have the number 0"),
        (changed(blocks=[IndexBlock(1 << 32, 0, 9, 0, 8, 0)]), "cannot have the number 4294967296"),
        (changed(blocks=[IndexBlock(1, 0, 9, 0, 1 << 62, 0)]), f"no block has a message {1 << 62}"),
        (changed(blocks=[IndexBlock(1, 0, 1, 0, 1 << 40, 0)]), f"cannot have {1 << 40} messages"),
    ],
)
def test_what_contradicts_itself_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        decode_index(data, "S")


def test_a_wrong_number_of_deletes_is_refused() -> None:
    body = encode_index(example(), "S")[:-8]
    # The count stands right in front of the counts of TTLs and schedules and the set.
    place = body.index(b"\x04\x03\x01\x16\x02")
    with pytest.raises(CorruptRecord, match="block 1 says it has 5 deletes, its set has 4"):
        decode_index(signed(body[:place] + b"\x05" + body[place + 1 :]), "S")


def subjects(data: bytes, count: int, version: int = 4) -> list[tuple[bytes, int, int, int]]:
    *columns, end = decode_subjects(data, 0, len(data), count, version, "index.db")
    assert end == len(data)
    return list(SubjectTable(*columns).rows())


@pytest.mark.parametrize(
    "name", [b"a", b"a.b", b"a*b.c", b"*", b"a.>", b"a>b", b"\xff\xfe", b"\x01"]
)
def test_names_of_subjects_are_any_bytes_without_blanks(name: bytes) -> None:
    data = bytes([len(name)]) + name + b"\x01\x02\x03"
    assert subjects(data, 1) == [(name, 1, 2, 3)]


@pytest.mark.parametrize(
    "name", [b".", b".a", b"a.", b"a..b", b"a b", b"a\tb", b"a\r", b"\nb", b"\f", b"a\0", b">.a"]
)
def test_what_is_no_subject_is_refused(name: bytes) -> None:
    data = bytes([len(name)]) + name + b"\x01\x02\x03"
    with pytest.raises(CorruptRecord, match="an empty token, a blank or a zero byte"):
        subjects(data, 1)


@pytest.mark.parametrize(
    ("data", "count", "reason"),
    [
        (b"", 1, "1 subjects do not fit in 0 bytes"),
        (b"\x01a\x01\x02\x03", 1 << 62, "4611686018427387904 subjects do not fit in 5 bytes"),
        (b"\x00\x01\x02\x03\x04", 1, "a subject is empty or longer than the data"),
        (b"\x09a\x01\x02\x03", 1, "a subject is empty or longer than the data"),
        (b"\xff" * 9 + b"\x01abcd", 1, "a subject is empty or longer than the data"),
        (b"\xff" * 11, 1, "a subject's length is cut off or no number"),
        (b"\x03abc\x80", 1, "a subject's number of messages is cut off"),
        (b"\x03abc\x01", 1, "a subject's first block is cut off"),
        (b"\x03abc\x01\x80\x80\x80\x80\x10\x01", 1, "first block is cut off or no block number"),
        (b"\x03abc\x01\x01", 1, "a subject's last block is cut off"),
        (b"\x03abc\x01\x01\x80\x80\x80\x80\x10", 1, "last block is cut off or no block number"),
    ],
)
def test_subjects_that_do_not_fit_are_refused(data: bytes, count: int, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        subjects(data, count)


def test_columns_that_do_not_belong_together_are_not_written() -> None:
    with pytest.raises(ValueError, match="same length"):
        encode_subjects(b"a", array("Q", [1]), array("Q"), array("I", [1]), array("I", [1]))
    for ends in ([2], [1, 0]):
        ones = [1] * len(ends)
        with pytest.raises(ValueError, match="not after its start"):
            encode_subjects(
                b"a", array("Q", ends), array("Q", ones), array("I", ones), array("I", ones)
            )


@pytest.mark.slow
def test_a_million_subjects_are_read_in_well_under_a_second() -> None:
    count = 1_000_000
    rows = ((b"orders.%d" % number, 1, 90, 90) for number in range(count))
    index = StreamIndex(
        count, 99, 1, 5, count, 9, subject_table(rows),
        [IndexBlock(90, 99, 1, 5, count, 9)],
    )  # fmt: skip
    data = encode_index(index, "S")
    begin = time.thread_time()
    decoded = decode_index(data, "S")
    assert time.thread_time() - begin < 1
    assert decoded == index
