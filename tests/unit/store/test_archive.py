"""The archive of backups: what is written is read again, in any pieces, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.store.backup.archive import (
    END,
    MAGIC,
    NAME_BYTES_MAX,
    ArchiveEntry,
    ArchiveError,
    ArchiveReader,
    append_entry,
)
from tradewind.store.backup.archive_messages import pack_messages, store_messages
from tradewind.store.format.varint import append_uvarint
from tradewind.store.table.message_store import MessageStore
from tradewind.subjects import is_valid_literal

U64_MAX = (1 << 64) - 1
I64_MAX = (1 << 63) - 1
entries = st.lists(
    st.builds(
        ArchiveEntry,
        st.binary(min_size=1, max_size=20),
        st.integers(-I64_MAX - 1, I64_MAX),
        st.integers(0, U64_MAX),
        st.binary(max_size=20),
        st.binary(max_size=300),
    ),
    max_size=8,
)

ROOM = 1 << 40


def archive(*content: ArchiveEntry) -> bytes:
    target = bytearray(MAGIC)
    for entry in content:
        append_entry(target, *entry)
    return bytes(target)


def read_all(data: bytes, piece_bytes: int, message_bytes_max: int = 1000) -> list[ArchiveEntry]:
    reader = ArchiveReader(message_bytes_max)
    found = []
    for start in range(0, len(data), piece_bytes):
        reader.feed(data[start : start + piece_bytes])
        while (entry := reader.next_entry()) is not None:
            found.append(entry)
            if reader.is_ended:
                return found
    return found


@pytest.mark.slow
@given(entries, st.integers(1, 100))
def test_what_is_written_is_read_in_any_pieces(
    content: list[ArchiveEntry], piece_bytes: int
) -> None:
    assert read_all(archive(*content, END), piece_bytes) == [*content, END]


@pytest.mark.slow
@given(entries, st.data())
def test_a_cut_archive_has_no_end(content: list[ArchiveEntry], data: st.DataObject) -> None:
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
    head = archive(ArchiveEntry(b"a", 0, 7, b"h" * 5, b"p" * 996))[:20]
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


# ---------------------------------------------------------------- messages

subjects = st.text("ab.*> \t\r\n\fé", max_size=6)
messages = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"a.b", b"c.d.e"]),
        st.integers(-I64_MAX - 1, I64_MAX),
        st.integers(1, 5),
        st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
        st.binary(max_size=200),
    ),
    max_size=12,
)


def entries_of(rows: list[tuple[bytes, int, int, bytes, bytes]]) -> list[ArchiveEntry]:
    """Sequences rise by the steps that the rows name."""
    found, seq = [], 0
    for subject, time_ns, step, header, payload in rows:
        seq += step
        found.append(ArchiveEntry(subject, time_ns, seq, header, payload))
    return found


def stored(store: MessageStore) -> list[ArchiveEntry]:
    return [
        ArchiveEntry(each.subject, each.timestamp_ns, each.seq, each.header, each.payload)
        for each in store.messages()
    ]


@pytest.mark.slow
@given(messages, st.integers(1, 300))
def test_packed_messages_are_the_entries_that_the_format_wants(
    rows: list[tuple[bytes, int, int, bytes, bytes]], step_bytes: int
) -> None:
    store = MessageStore("S")
    wanted = entries_of(rows)
    for entry in wanted:
        store.skip(entry.seq - 1, 0)
        store.store(entry.name, entry.header, entry.payload, entry.timestamp_ns)
    packed, seq = bytearray(MAGIC), 1
    while seq:
        part, seq = pack_messages(store, store.filter(), seq, store.last_seq, step_bytes)
        packed += part
    assert bytes(packed) == archive(*wanted)


@pytest.mark.slow
@given(messages, st.integers(1, 5), st.data())
def test_messages_are_stored_as_far_as_they_have_arrived(
    rows: list[tuple[bytes, int, int, bytes, bytes]], count_max: int, data: st.DataObject
) -> None:
    wanted = entries_of(rows)
    whole = archive(*wanted, END)[len(MAGIC) :]
    arrived = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    store, offset, before = MessageStore("S"), 0, -1
    while offset > before:
        before = offset
        offset = store_messages(store, arrived, offset, 1000, count_max, ROOM, False)
    complete = read_all(MAGIC + bytes(arrived), 10_000)
    assert stored(store) == [entry for entry in complete if entry != END]
    assert archive(*stored(store))[len(MAGIC) :] == arrived[:offset]


@given(subjects)
def test_only_subjects_that_can_be_published_on_are_stored(subject: str) -> None:
    data = bytearray(archive(ArchiveEntry(subject.encode(), 0, 1, b"", b""))[len(MAGIC) :])
    store = MessageStore("S")
    if is_valid_literal(subject):
        assert store_messages(store, data, 0, 1000, 1, ROOM, False) == len(data)
        assert store.msgs == 1
    else:
        with pytest.raises(ArchiveError, match="has no valid subject"):
            store_messages(store, data, 0, 1000, 1, ROOM, False)


@given(st.binary(max_size=300))
def test_any_bytes_are_stored_left_or_refused(noise: bytes) -> None:
    store = MessageStore("S")
    try:
        offset = store_messages(store, bytearray(noise), 0, 1000, 100, ROOM, False)
    except ArchiveError:
        return
    assert stored(store) == read_all(MAGIC + noise[:offset], 10_000)


def test_what_needs_a_closer_look_is_left() -> None:
    store = MessageStore("S")
    plain, long = ArchiveEntry(b"a", 0, 1, b"", b"x"), ArchiveEntry(b"a", 0, 2, b"", b"y" * 11)
    data = bytearray(archive(plain, long)[len(MAGIC) :])
    assert store_messages(store, data, 0, 10, 9, ROOM, False) == len(archive(plain)) - len(MAGIC)
    with_header = ArchiveEntry(b"a", 0, 5, b"NATS/1.0\r\n\r\n", b"")
    data = bytearray(archive(with_header)[len(MAGIC) :])
    assert store_messages(store, data, 0, 100, 9, ROOM, True) == 0
    assert store_messages(store, data, 0, 100, 9, ROOM, False) == len(data)


def test_storing_ends_with_the_message_that_is_too_much() -> None:
    entries = [ArchiveEntry(b"a", 0, seq, b"", bytes(100)) for seq in range(1, 9)]
    data = bytearray(archive(*entries)[len(MAGIC) :])
    store = MessageStore("S")
    offset = store_messages(store, data, 0, 1000, 9, 300, False)
    assert (store.msgs, offset) == (3, len(data) * 3 // 8)
    assert store_messages(store, data, offset, 1000, 9, 300, False) == offset
