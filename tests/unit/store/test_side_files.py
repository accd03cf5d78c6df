"""sched.db and sources.db."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import CorruptRecord
from tradewind.store.format.schedule_codec import decode_times
from tradewind.store.format.side_files import (
    Schedule,
    SourcePosition,
    decode_schedules,
    decode_sources,
    encode_schedules,
    encode_sources,
)

SCHEDULES = [Schedule(b"a.b", 1794766065474714839, 7), Schedule(b"c", -1, 300)]
SCHEDULES_FILE = (
    struct.pack("<BQQ", 1, 2, 301)
    + b"\x03\x00a.b" + bytes.fromhex("aef3ddb8c78ea5e831") + b"\x07"
    + b"\x01\x00c" + b"\x01" + b"\xac\x02"
)  # fmt: skip
SOURCES = [SourcePosition(b"TINY > >", 2, b"wQytchg4"), SourcePosition(b"X a.> >", 0, b"")]
SOURCES_FILE = (
    struct.pack("<BQQ", 1, 2, 9) + b"\x08TINY > >\x02\x08wQytchg4" + b"\x07X a.> >\x00\x00"
)


def test_schedules_are_read_and_written_to_the_byte() -> None:
    assert encode_schedules(SCHEDULES, 301) == SCHEDULES_FILE
    assert decode_schedules(SCHEDULES_FILE) == (SCHEDULES, 301)


def test_sources_are_read_and_written_to_the_byte() -> None:
    assert encode_sources(SOURCES, 9) == SOURCES_FILE
    assert decode_sources(SOURCES_FILE) == (SOURCES, 9)


def test_files_without_entries_have_17_bytes() -> None:
    assert encode_schedules([], 1) == encode_sources([], 1) == struct.pack("<BQQ", 1, 0, 1)
    assert decode_schedules(encode_schedules([], 5)) == ([], 5)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "version: 1 bytes are needed, 0 are left"),
        (b"\x02" + SCHEDULES_FILE[1:], "version 2 is not known"),
        (SCHEDULES_FILE[:16], "stamp: 8 bytes are needed"),
        (struct.pack("<BQQ", 1, 1 << 40, 1), "1099511627776 entries do not fit in 0 bytes"),
        (SCHEDULES_FILE[:-1], "sequence: the number is cut off"),
        (SCHEDULES_FILE + b"\0", "1 bytes follow"),
        (struct.pack("<BQQH", 1, 1, 1, 999) + b"abc", "subject: 999 bytes are needed"),
    ],
)
def test_what_is_no_sched_db_is_refused(data: bytes, reason: str) -> None:
    for decode in (decode_schedules, decode_times):
        with pytest.raises(CorruptRecord, match=reason) as caught:
            decode(data, "msgs/sched.db")
        assert caught.value.path == "msgs/sched.db"


def times_or_error(data: bytes, *, quickly: bool) -> object:
    try:
        if quickly:
            sequences, times, stamp = decode_times(data)
            return list(sequences), list(times), stamp
        schedules, stamp = decode_schedules(data)
    except CorruptRecord as error:
        return str(error)
    return [one.seq for one in schedules], [one.fire_ns for one in schedules], stamp


@given(
    st.lists(
        st.builds(
            Schedule,
            st.binary(max_size=3),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(0, 2**64 - 1),
        ),
        max_size=4,
    ),
    st.integers(0, 60),
    st.binary(max_size=3),
    st.integers(0, 3),
)
def test_times_are_read_quickly_as_they_are_carefully(
    schedules: list[Schedule], place: int, noise: bytes, removed: int
) -> None:
    data = encode_schedules(schedules, 9)
    for each in (data, data[:place] + noise + data[place + removed :]):
        assert times_or_error(each, quickly=True) == times_or_error(each, quickly=False)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00" + SOURCES_FILE[1:], "version 0 is not known"),
        (struct.pack("<BQQ", 1, 1, 1) + b"\xff\x01ab", "source name: 255 bytes are needed"),
        (SOURCES_FILE[:-9], "source name: 7 bytes are needed"),
        (SOURCES_FILE + b"\0\0", "2 bytes follow"),
    ],
)
def test_what_is_no_sources_db_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        decode_sources(data)
