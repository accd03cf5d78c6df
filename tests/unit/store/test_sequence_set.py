"""Sets of sequences: the tree and its official encoding."""

from __future__ import annotations

import random
import struct

import pytest

from tradewind.errors import CorruptRecord
from tradewind.store.format.sequence_set import SequenceSet

LAST = (1 << 64) - 1


def make(*sequences: int) -> SequenceSet:
    result = SequenceSet()
    for seq in sequences:
        result.insert(seq)
    return result


def node(base: int, words: list[int], height: int = 1, word_count: int = 32) -> bytes:
    words = words + [0] * (word_count - len(words))
    return struct.pack(f"<Q{word_count}QH", base, *words, height)


def encoded(nodes: list[bytes], members: int, version: int = 2) -> bytes:
    return struct.pack("<BBII", 22, version, len(nodes), members) + b"".join(nodes)


def test_members_are_there_until_deleted() -> None:
    sequences = make(5, 1, 5000)
    assert list(sequences) == [1, 5, 5000]
    assert len(sequences) == sequences.count == 3
    assert 5 in sequences
    assert 6 not in sequences
    assert not sequences.insert(5)
    assert sequences.delete(5)
    assert not sequences.delete(5)
    assert (sequences.first, sequences.last, sequences.count) == (1, 5000, 2)


def test_an_empty_set_has_no_ends_and_no_memory() -> None:
    sequences = make(7)
    assert sequences.memory_bytes > 0
    sequences.delete(7)
    assert (sequences.first, sequences.last, sequences.count) == (None, None, 0)
    assert sequences.next_present(0) is None
    assert sequences.next_absent(9) == 9
    assert sequences.memory_bytes == 0
    assert list(sequences) == []


def test_the_whole_range_of_64_bits_can_be_members() -> None:
    sequences = make(0, LAST, LAST - 1, 1 << 63)
    assert list(sequences) == [0, 1 << 63, LAST - 1, LAST]
    assert sequences.next_absent(LAST - 1) is None
    assert sequences.next_present(LAST) == LAST
    assert sequences.count_in(0, LAST) == 4
    assert sequences.delete_below(LAST) == 3
    assert list(sequences) == [LAST]


@pytest.mark.parametrize("seq", [-1, LAST + 1])
def test_a_sequence_beyond_64_bits_is_refused(seq: int) -> None:
    with pytest.raises(OverflowError):
        SequenceSet().insert(seq)


def test_ranges_are_added_over_many_nodes() -> None:
    sequences = make(10_000, 3)
    sequences.insert_range(2040, 9000)
    sequences.insert_range(9, 8)
    sequences.check()
    assert sequences.count == 2 + 6961
    assert sequences.next_absent(2040) == 9001
    assert sequences.next_present(4) == 2040
    assert sequences.next_absent(3) == 4
    assert sequences.count_in(2048, 4095) == 2048
    assert sequences.count_in(5, 4) == 0


def test_delete_below_keeps_the_rest() -> None:
    sequences = make(1, 64, 65, 2047, 2048, 5000, 100_000)
    assert sequences.delete_below(65) == 2
    assert sequences.delete_below(65) == 0
    assert list(sequences) == [65, 2047, 2048, 5000, 100_000]
    assert sequences.delete_below(5000) == 3
    sequences.check()
    assert list(sequences) == [5000, 100_000]
    assert sequences.delete_below(LAST) == 2
    assert sequences.node_count == 0


def test_clear_removes_everything() -> None:
    sequences = make(1, 9999)
    sequences.clear()
    assert sequences == SequenceSet()
    assert sequences.insert(1)


def test_equality_is_about_members() -> None:
    assert make(1, 2) == make(2, 1)
    assert make(1, 2) != make(1, 3)
    assert make(1) != make(1, 2)
    assert make(1) != {1}


def test_the_tree_stays_balanced_and_small_for_rising_and_random_members() -> None:
    sequences = SequenceSet()
    for seq in range(1, 400_001, 2):
        sequences.insert(seq)
    sequences.check()
    assert sequences.node_count == 196
    assert sequences.memory_bytes < 196 * 288 * 1.6
    order = list(range(1, 400_001, 2))
    random.Random(7).shuffle(order)
    for seq in order[:150_000]:
        assert sequences.delete(seq)
    sequences.check()
    assert sequences.count == 50_000


def test_a_long_run_is_leapt_over_without_looking_at_each_node() -> None:
    sequences = SequenceSet()
    sequences.insert_range(1, 50_000_000)
    for seq in range(1, 20_000):
        assert sequences.next_absent(seq) == 50_000_001
    assert sequences.count_in(1000, 49_999_999) == 49_999_000


def test_the_encoding_of_one_node() -> None:
    assert make(2, 66).encode() == encoded([node(0, [4, 4])], 2)


def test_five_nodes_are_written_in_the_order_of_the_official_server() -> None:
    data = make(1, 2049, 4097, 6145, 8193).encode()
    heads = [
        struct.unpack_from("<Q256xH", data, 10 + 266 * number) for number in range(5)
    ]  # base and height
    assert heads == [(2048, 3), (0, 1), (6144, 2), (4096, 1), (8192, 1)]
    decoded, end = SequenceSet.decode(data)
    decoded.check()
    assert end == len(data)
    assert decoded.encode() == data


def test_nodes_in_rising_order_are_read_and_balanced() -> None:
    nodes = [node(2048 * number, [1], 1) for number in range(500)]
    decoded, _ = SequenceSet.decode(encoded(nodes, 500))
    decoded.check()
    assert list(decoded) == [2048 * number for number in range(500)]


def test_nodes_in_any_order_are_read() -> None:
    bases = [2048 * number for number in range(100)]
    random.Random(3).shuffle(bases)
    decoded, _ = SequenceSet.decode(encoded([node(base, [2]) for base in bases], 100))
    decoded.check()
    assert list(decoded) == [base + 1 for base in sorted(bases)]


def test_heights_in_the_file_are_not_trusted() -> None:
    decoded, _ = SequenceSet.decode(encoded([node(0, [1], 999)], 1))
    decoded.check()
    assert decoded.encode() == encoded([node(0, [1], 1)], 1)


def test_nodes_with_other_bases_and_empty_ones_are_read() -> None:
    data = encoded([node(100, [1] + [0] * 30 + [1 << 63]), node(9000, [])], 2)
    decoded, _ = SequenceSet.decode(data)
    decoded.check()
    assert list(decoded) == [100, 100 + 2047]


def test_version_1_has_wider_nodes() -> None:
    data = encoded([node(4096, [1] + [0] * 62 + [3], word_count=64)], 3, version=1)
    decoded, end = SequenceSet.decode(b"xx" + data + b"yy", 2)
    assert end == 2 + len(data) == 2 + 10 + 522
    assert list(decoded) == [4096, 4096 + 63 * 64, 4096 + 63 * 64 + 1]


def test_a_set_within_other_bytes_ends_where_it_ends() -> None:
    data = make(1, 2, 70_000).encode()
    decoded, end = SequenceSet.decode(b"before" + data + b"after", 6)
    assert end == 6 + len(data)
    assert decoded == make(1, 2, 70_000)
    with pytest.raises(CorruptRecord):
        SequenceSet.decode(data + b"after", 0, len(data) - 1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "at least 10 bytes, here are 0"),
        (encoded([], 0)[:9], "at least 10 bytes, here are 9"),
        (b"\x15" + encoded([], 0)[1:], "starts with 22 and 1 or 2, not with 21 and 2"),
        (encoded([], 0, version=3), "not with 22 and 3"),
        (struct.pack("<BBII", 22, 2, 0xFFFFFFFF, 1), "4294967295 nodes"),
        (encoded([node(0, [1])], 1)[:-1], "1 nodes of a sequence set do not fit in 275 bytes"),
        (encoded([node(0, [3])], 1), "says it has 1 members, its bitmaps have 2"),
        (encoded([node(0, [1]), node(0, [2])], 2), "overlap"),
        (encoded([node(2048, [1]), node(0, [1]), node(2048, [2])], 3), "overlap"),
        (encoded([node(1, [1]), node(0, [2])], 2), "overlap"),
        (encoded([node(LAST, [2])], 1), "beyond 64 bits"),
    ],
)
def test_what_is_no_set_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason) as caught:
        SequenceSet.decode(data, path="index.db")
    assert caught.value.path == "index.db"
