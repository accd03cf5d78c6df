"""The archive of backups: what is written is read again, in any pieces, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.store.archive import (
    END,
    MAGIC,
    NAME_BYTES_MAX,
    ArchiveError,
    ArchiveReader,
    Entry,
    append_entry,
)
from tradewind.store.varint import append_uvarint

U64_MAX = (1 << 64) - 1
I64_MAX = (1 << 63) - 1
entries = st.lists(
    st.builds(
        Entry,
        st.binary(min_size=1, max_size=20),
        st.integers(-I64_MAX - 1, I64_MAX),
        st.integers(0, U64_MAX),
        st.binary(max_size=20),
        st.binary(max_size=300),
    ),
    max_size=8,
)


def archive(*content: Entry) -> bytes:
    target = bytearray(MAGIC)
    for entry in content:
        append_entry(target, *entry)
    return bytes(target)


def read_all(data: bytes, piece_bytes: int, message_bytes_max: int = 1000) -> list[Entry]:
    reader = ArchiveReader(message_bytes_max)
    found = []
    for start in range(0, len(data), piece_bytes):
        reader.feed(data[start : start + piece_bytes])
        while (entry := reader.next_entry()) is not None:
            found.append(entry)
            if reader.is_ended:
                return found
    return found


@given(entries, st.integers(1, 100))
def test_what_is_written_is_read_in_any_pieces(content: list[Entry], piece_bytes: int) -> None:
    assert read_all(archive(*content, END), piece_bytes) == [*content, END]


@given(entries, st.data())
def test_a_cut_archive_has_no_end(content: list[Entry], data: st.DataObject) -> None:
    whole = archive(*content, END)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert END not in read_all(cut, 50)


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_read_or_refused(noise: bytes, piece_bytes: int) -> None:
    try:
        found = read_all(MAGIC + noise, piece_bytes)
    except ArchiveError:
        return
    assert sum(map(len, (entry.payload for entry in found))) <= len(noise)


def test_other_bytes_are_no_archive() -> None:
    with pytest.raises(ArchiveError, match="begins with NATSARC1"):
        read_all(b"NATSARC2" + bytes(5), 100)


def test_a_message_that_is_too_large_is_refused_before_it_has_arrived() -> None:
    head = archive(Entry(b"a", 0, 7, b"h" * 5, b"p" * 996))[:20]
    with pytest.raises(ArchiveError, match="message sequence 7 exceeds maximum payload size"):
        read_all(head, 20)


def test_a_name_that_is_too_long_is_refused_before_it_has_arrived() -> None:
    head = bytearray(MAGIC)
    append_uvarint(head, NAME_BYTES_MAX + 1)
    with pytest.raises(ArchiveError, match="longer than"):
        read_all(bytes(head) + bytes(4), 100)


def test_a_number_above_64_bits_is_refused() -> None:
    with pytest.raises(ArchiveError, match="64 bits"):
        read_all(MAGIC + b"\xff" * 11, 100)
