"""Entries byte by byte, and everything that is none."""

from __future__ import annotations

import hashlib
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain_kit import CREATED, ReferenceChain, encode_records, stored
from tradewind.chain import chain_entries
from tradewind.chain.chain_entries import ChainError, ChainRecord, RecordError

FEW = settings(max_examples=50)

SHA = chain_entries.digest_of(chain_entries.SHA256)
sequences = st.integers(1, chain_entries.SEQUENCE_MAX)
hashes = st.binary(min_size=32, max_size=32)


@st.composite
def range_lists(draw: st.DrawFn) -> list[tuple[int, int]]:
    bounds = sorted(draw(st.sets(sequences, min_size=2, max_size=20)))
    return list(zip(bounds[::2], bounds[1::2], strict=False))


records = st.one_of(
    st.builds(
        lambda seq, link: ChainRecord(chain_entries.MESSAGE, seq, b"", link), sequences, hashes
    ),
    st.builds(
        lambda kind, ranges, link: ChainRecord(
            kind, 0, chain_entries.removal_body(7, 1, ranges), link
        ),
        st.sampled_from([chain_entries.REMOVAL, chain_entries.RETURN]),
        range_lists(),
        hashes,
    ),
)


def test_a_link_is_the_hash_of_the_documented_bytes() -> None:
    before = chain_entries.first_link(SHA, "ORDERS", CREATED)
    assert before == hashlib.sha256(b"\x02ORDERS\x00" + CREATED.encode()).digest()
    body = chain_entries.message_body(5, -7, b"a.b", b"NATS/1.0\r\n\r\n", b"payload")
    assert body == (
        b"\x05\0\0\0\0\0\0\0"
        b"\xf9\xff\xff\xff\xff\xff\xff\xff"
        b"\x03\0\0\0a.b"
        b"\x0c\0\0\0NATS/1.0\r\n\r\n"
        b"payload"
    )
    link = chain_entries.link_of(SHA, before, chain_entries.MESSAGE, body)
    assert link == hashlib.sha256(b"\x00" + before + b"\x01" + body).digest()


def test_a_removal_is_the_documented_bytes() -> None:
    body = chain_entries.removal_body(1, chain_entries.PURGED, [(1, 2), (4, 4)])
    numbers = b"".join(number.to_bytes(8, "little") for number in (1, 2, 4, 4))
    assert body == b"\x01\0\0\0\0\0\0\0\x02\x02\0\0\0" + numbers
    assert chain_entries.decode_removal(body) == (1, chain_entries.PURGED, ((1, 2), (4, 4)))


def test_blake3_is_the_hash_of_its_specification() -> None:
    digest = chain_entries.digest_of(chain_entries.BLAKE3)
    assert digest(b"").hex() == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"


def test_blake3_without_its_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "blake3", None)
    with pytest.raises(ChainError, match=r"not installed: .*pip install .*\[chain\]'"):
        chain_entries.digest_of(chain_entries.BLAKE3)


def test_an_unknown_algorithm_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ChainError, match="one of sha256, blake3"):
        chain_entries.digest_of("md5")


@FEW
@given(st.lists(records, max_size=20), st.integers(0, 2000))
def test_records_come_back_from_any_cut(found: list[ChainRecord], cut: int) -> None:
    data = encode_records(found)
    first, end = chain_entries.read_records(data[:cut])
    rest, whole = chain_entries.read_records(data[end:])
    assert first + rest == found
    assert end + whole == len(data)
    assert len(data[:cut]) - end < chain_entries.RECORD_BYTES_MAX


@FEW
@given(st.binary(max_size=300))
def test_any_bytes_are_records_or_a_record_error(data: bytes) -> None:
    try:
        found, end = chain_entries.read_records(data)
    except RecordError as error:
        found, end = chain_entries.read_records(data[: error.offset])
    assert encode_records(found) == data[:end]


def test_no_more_records_are_read_than_asked_for() -> None:
    chain = ReferenceChain()
    for sequence in range(1, 6):
        chain.add(stored(sequence))
    data = encode_records(chain.records)
    found, end = chain_entries.read_records(data, count=2)
    assert found == chain.records[:2]
    assert chain_entries.read_records(data, end)[0] == chain.records[2:]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x00", "byte 0: a record must have a kind from 1 to 3, not 0"),
        (b"\x01" + bytes(40) + b"\x09", "byte 41: a record must have a kind from 1 to 3, not 9"),
        (
            b"\x02\xff\xff\xff\xff",
            "byte 0: a removal must have at most 16013 bytes, not 4294967295",
        ),
    ],
)
def test_what_is_no_record_is_named_with_its_byte(data: bytes, error: str) -> None:
    with pytest.raises(RecordError) as caught:
        chain_entries.read_records(data)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("reason", "ranges"),
    [
        (0, [(1, 1)]),
        (6, [(1, 1)]),
        (1, []),
        (1, [(0, 1)]),
        (1, [(2, 1)]),
        (1, [(1, 3), (3, 4)]),
        (1, [(5, 6), (1, 2)]),
        (1, [(n, n) for n in range(1, 1002)]),
    ],
)
def test_removals_that_cannot_be_are_refused(reason: int, ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(ChainError):
        chain_entries.removal_body(1, reason, ranges)
    numbers = b"".join(n.to_bytes(8, "little") for pair in ranges for n in pair)
    head = bytes(8) + reason.to_bytes(1, "little") + len(ranges).to_bytes(4, "little")
    with pytest.raises(ChainError):
        chain_entries.decode_removal(head + numbers)


@pytest.mark.parametrize("cut", [0, 12, 13, 28, 30])
def test_a_removal_of_another_length_is_refused(cut: int) -> None:
    body = chain_entries.removal_body(1, 1, [(1, 2)])
    assert len(body) == 29
    with pytest.raises(ChainError):
        chain_entries.decode_removal((body + b"\0")[:cut])
