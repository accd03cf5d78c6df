"""Tars of backups, taken apart piece by piece: what old servers wrote, and nothing else."""

from __future__ import annotations

import pytest

from tar_kit import (
    BLOCK,
    END,
    TIME,
    extended,
    header,
    member,
    padded,
    record,
    summed,
    tar_of,
)
from tradewind.store.backup.archive import ArchiveError
from tradewind.store.backup.tar_reader import EXTENDED_BYTES_MAX, TarReader

MEMBERS = [
    ("meta.inf", b"{}"),
    ("meta.sum", b"0123456789abcdef"),
    ("msgs/1.blk", bytes(range(256)) * 5),
    ("msgs/2.blk", b""),
    ("msgs/3.blk", bytes(BLOCK)),
    (f"obs/{'n' * 200}/meta.inf", b"long"),
    ("obs/ümlaut/o.dat", b"not ASCII"),
]


class Members:
    """Keeps everything."""

    def __init__(self) -> None:
        self.whole: list[tuple[str, bytes]] = []
        self._name, self._data, self._size = "", b"", 0

    def begin(self, name: str, size: int) -> None:
        self._name, self._data, self._size = name, b"", size

    def data(self, piece: memoryview) -> None:
        self._data += piece

    def end(self) -> None:
        assert len(self._data) == self._size
        self.whole.append((self._name, self._data))


def read(tar: bytes, piece_bytes: int = 1 << 20) -> list[tuple[str, bytes]]:
    members = Members()
    reader = TarReader(members)
    for start in range(0, len(tar), piece_bytes):
        reader.feed(tar[start : start + piece_bytes])
    reader.finish()
    return members.whole


@pytest.mark.parametrize("piece_bytes", [1, 7, 511, 512, 513, 1 << 20])
def test_members_come_whole_whatever_the_pieces_are(piece_bytes: int) -> None:
    assert read(tar_of(MEMBERS), piece_bytes) == MEMBERS


def test_member_without_an_extended_header_is_taken() -> None:
    assert read(header(b"meta.sum", 3) + padded(b"abc") + END) == [("meta.sum", b"abc")]


def test_prefix_of_a_name_is_part_of_it() -> None:
    whole = header(b"meta.inf", 0)
    prefixed = summed(whole[:345] + b"obs/c".ljust(155, b"\0") + whole[500:])
    assert read(prefixed + END) == [("obs/c/meta.inf", b"")]


def test_zeros_after_the_end_are_passed_over() -> None:
    assert read(tar_of(MEMBERS) + bytes(10 * BLOCK)) == MEMBERS


@pytest.mark.parametrize("cut", [0, 1, 511, 512, 600, 1024, 1600, -1, -511, -512, -1024, -1025])
def test_tar_that_is_cut_off_is_refused(cut: int) -> None:
    tar = tar_of(MEMBERS)
    with pytest.raises(ArchiveError, match=r"cut off after byte|neither an archive nor a tar"):
        read(tar[:cut])


PLAIN = header(b"meta.inf", 0)
AFTER = "at byte 512: "


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (header(b"a", 0, b"1"), "'a' is not a plain file, but a hard link"),
        (header(b"a", 0, b"2"), "but a symbolic link"),
        (header(b"a", 0, b"3"), "but a device"),
        (header(b"a", 0, b"4"), "but a device"),
        (header(b"a", 0, b"5"), "but a folder"),
        (header(b"a", 0, b"6"), "but a pipe"),
        (header(b"a", 0, b"7"), "but of the unknown kind b'7'"),
        (header(b"a", 0, b"\0"), "but of the unknown kind"),
        (header(b"a", 0, b"S"), "but a sparse file"),
        (header(b"a", 0, b"L"), "but a long name"),
        (header(b"a", 0, b"K"), "but a long name of a link"),
        (header(b"a", 0, b"g"), "but an extended header for all members"),
        (header(b"a", 0, magic=b"ustar  \0"), "it is not of the POSIX format"),
        (header(b"a", 0, magic=bytes(8)), "it is not of the POSIX format"),
        (header(b"a", b"\x80" + bytes(10) + b"\x01"), "its size is not an octal number"),
        (header(b"a", b"-0000000001\0"), "its size is not an octal number"),
        (header(b"a", bytes(12)), "its size is not an octal number"),
        (header(b"a", b"0000000009 \0"), "its size is not an octal number"),
        (header(b"", 0), "the name of a member is empty or has a zero byte"),
        (header(b"\xff", 0), "the name of a member is not UTF-8"),
        (summed(PLAIN[:100] + b"0000609\0" + PLAIN[108:]), "its mode, owner, time or device"),
        (summed(PLAIN[:329] + b"7x" + PLAIN[331:]), "its mode, owner, time or device"),
        (PLAIN[:-1] + b"\1", "its checksum is not"),
        (bytes(BLOCK) + PLAIN, "at byte 1024: it follows a block of zeros"),
        (END + PLAIN, "the tar goes on after its end"),
        (header(b"a", 0, b"x"), "an extended header has 0 bytes, not 1 to 4096"),
        (header(b"a", EXTENDED_BYTES_MAX + 1, b"x"), "an extended header has 4097 bytes"),
        (extended(TIME) + extended(TIME), "a member has two extended headers"),
        (extended(TIME) + END, "an extended header is the last one"),
    ],
)
def test_header_that_no_backup_has_is_refused_with_its_place(second: bytes, reason: str) -> None:
    with pytest.raises(ArchiveError) as caught:
        read(PLAIN + second)
    assert reason in str(caught.value)
    assert "at byte " in str(caught.value) or "before byte" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"mtime=1\n", "no record begins at byte 0"),
        (b"9 mtime=1", "no record begins at byte 0"),
        (b"10 mtime=1\n\n", "no record begins at byte 0"),
        (b"0 mtime=1\n", "no record begins at byte 0"),
        (b"-9 mtime=1\n", "no record begins at byte 0"),
        (b"99999 mtime=1\n", "no record begins at byte 0"),
        (b"99 mtime=1\n", "a record is longer than the bytes that follow"),
        (TIME + b"9 mtime1\n", "no record begins at byte 30"),
        (TIME + TIME, "'mtime' is twice"),
        (record(b"size", b"5"), "'size' is twice or in no backup"),
        (record(b"linkpath", b"/etc/passwd"), "'linkpath' is"),
        (record(b"GNU.sparse.major", b"1"), "'GNU.sparse.major' is"),
        (record(b"GNU.sparse.realsize", b"671088640"), "'GNU.sparse.realsize' is"),
        (record(b"hdrcharset", b"BINARY"), "'hdrcharset' is"),
        (record(b"", b"x"), "'' is"),
    ],
)
def test_extended_header_that_no_backup_has_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ArchiveError, match="invalid tar header") as caught:
        read(extended(content) + PLAIN + END)
    assert reason in str(caught.value)


def test_bytes_behind_the_records_of_an_extended_header_are_refused() -> None:
    hidden = header(b"PaxHeaders.0/a", len(TIME), b"x") + padded(TIME + record(b"path", b"b"))
    with pytest.raises(ArchiveError, match="what fills its block is not zero"):
        read(hidden + PLAIN + END)


@pytest.mark.parametrize("name", [b"", b"a\0b", b"\xff\xfe"])
def test_name_in_an_extended_header_is_as_good_as_any(name: bytes) -> None:
    with pytest.raises(ArchiveError, match="the name of a member is"):
        read(extended(record(b"path", name)) + PLAIN + END)


def test_first_header_that_is_none_says_what_was_expected() -> None:
    with pytest.raises(ArchiveError, match="neither an archive nor a tar: invalid tar header"):
        read(b"x" * BLOCK)


def test_who_takes_the_members_can_end_it() -> None:
    class Refusing(Members):
        def begin(self, name: str, size: int) -> None:
            raise ArchiveError(f"{name} of {size} bytes is not wanted")

    with pytest.raises(ArchiveError, match=r"meta\.inf of 3 bytes is not wanted"):
        TarReader(Refusing()).feed(member("meta.inf", b"abc"))
