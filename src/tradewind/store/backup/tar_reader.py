"""Takes a tar apart as it arrives.

Owns what of the tar format a backup may use, which is what nats-server before 2.15 wrote: plain
files with POSIX headers, each after an extended ("pax") header with its time, and with its name if
that is long or not ASCII. Everything else is refused with the byte at which it is: links, folders,
devices, sparse files, long names and numbers of other formats, extended headers for all members. So
a member holds as many bytes as the tar has for it, the work is linear in the bytes, and no more
than one header is held. It never touches a file; the sink decides about names and sizes.

    100 name, 8 mode, 8 user, 8 group, 12 size, 12 time, 8 checksum, 1 kind, 100 target of a link,
    6 "ustar" NUL, 2 "00", 32 user, 32 group, 8 and 8 device, 155 prefix of the name, 12 unused
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

from tradewind.store.backup.archive import ArchiveError

BLOCK_BYTES: Final = 512
# A name of 255 characters in UTF-8, folders and some times; the one that servers write has 30 bytes
# without a name.
EXTENDED_BYTES_MAX: Final = 4096
_HEADER: Final = struct.Struct("100s24x12s12x8sc100x6s2s80x155s12x")
# Mode, user, group, time and device are not used, but a valid header has numbers there.
_UNUSED_NUMBERS: Final = struct.Struct("100x8s8s8s12x12s181x8s8s167x")
_CHECKSUM: Final = slice(148, 156)
_MAGIC: Final = (b"ustar\0", b"00")
_ZEROS: Final = bytes(BLOCK_BYTES)
_PLAIN: Final = b"0"
_EXTENDED: Final = b"x"
_KINDS: Final = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"5": "a folder",
    b"6": "a pipe",
    b"g": "an extended header for all members",
    b"K": "a long name of a link",
    b"L": "a long name",
    b"S": "a sparse file",
}
# The allowed keys of an extended header. All but the name are ignored.
_NAME_KEY: Final = b"path"
_KEYS: Final = frozenset(
    (_NAME_KEY, b"mtime", b"atime", b"ctime", b"uid", b"gid", b"uname", b"gname")
)
_LENGTH_DIGITS_MAX: Final = 4


class MemberSink(Protocol):
    """The receiver of the members; each of its methods may raise to end the reading."""

    def begin(self, name: str, size: int) -> None:
        """Called when a plain file of this size begins."""

    def data(self, piece: memoryview) -> None:
        """Called with a piece of the file."""

    def end(self) -> None:
        """Called when the file is complete."""


class TarReader:
    """Parses a tar in pieces of any size, and passes its members to a sink.

    `offset` is the number of bytes read. After an error it cannot be used any more.
    """

    def __init__(self, sink: MemberSink) -> None:
        self.offset = 0
        self.is_ended = False
        self._sink = sink
        self._held = bytearray()  # a header, or the content of an extended one, until it is whole
        self._extended_bytes = 0  # the size of that content; 0: a header comes
        self._names: dict[bytes, bytes] | None = None  # of the extended header before a member
        self._data_bytes = self._padding_bytes = 0  # what is left of a member
        self._is_open = False
        self._zero_blocks = 0

    def feed(self, data: bytes) -> None:
        """Take a piece of the tar; ArchiveError if it is not valid in a backup."""
        view = memoryview(data)
        at = 0
        while at < len(view):
            if self.is_ended:
                self._check_tail(view[at:])
                taken = len(view) - at
            elif self._is_open:
                taken = self._take_member(view[at : at + self._data_bytes])
            elif self._padding_bytes:
                taken = min(self._padding_bytes, len(view) - at)
                self._padding_bytes -= taken
            else:
                taken = self._take_header(view, at)
            at += taken
            self.offset += taken

    def finish(self) -> None:
        """End the tar; ArchiveError if it is incomplete."""
        if self.offset < BLOCK_BYTES:
            raise ArchiveError(f"it is neither an archive nor a tar: it has {self.offset} bytes")
        if not self.is_ended:
            raise ArchiveError(
                f"the backup has no end: it is cut off after byte {self.offset} of its tar"
            )

    def _take_member(self, piece: memoryview) -> int:
        if piece:
            self._sink.data(piece)
            self._data_bytes -= len(piece)
        if not self._data_bytes:
            self._is_open = False
            self._sink.end()
        return len(piece)

    def _take_header(self, view: memoryview, at: int) -> int:
        """Collect the bytes of a header, and parse it when it is complete."""
        wanted = self._extended_bytes + -self._extended_bytes % BLOCK_BYTES or BLOCK_BYTES
        piece = view[at : at + wanted - len(self._held)]
        self._held += piece
        if len(self._held) == wanted:
            held, self._held = bytes(self._held), bytearray()
            if self._extended_bytes:
                self._names = self._read_extended(held[: self._extended_bytes])
                # Others read on to the end of the block: no other name may be there.
                if any(held[self._extended_bytes :]):
                    raise self._invalid(self.offset, "what fills its block is not zero")
                self._extended_bytes = 0
            elif held == _ZEROS:
                self._read_zeros()
            else:
                self._read_header(held, self.offset + len(piece) - BLOCK_BYTES)
        return len(piece)

    def _check_tail(self, rest: memoryview) -> None:
        """Check that the rest of the last record is zeros."""
        if rest.nbytes != bytes(rest).count(0):
            raise ArchiveError(f"the tar goes on after its end, which is before byte {self.offset}")

    def _read_zeros(self) -> None:
        if self._names is not None:
            raise self._invalid(self.offset, "an extended header is the last one")
        self._zero_blocks += 1
        self.is_ended = self._zero_blocks == 2

    def _read_header(self, header: bytes, start: int) -> None:
        name, size_field, sum_field, kind, magic, version, prefix = _HEADER.unpack(header)
        expected = sum(header) - sum(header[_CHECKSUM]) + len(sum_field) * ord(" ")
        if (magic, version) != _MAGIC:
            raise self._invalid(start, "it is not of the POSIX format (ustar, version 00)")
        if self._zero_blocks:
            raise self._invalid(start, "it follows a block of zeros, which ends a tar")
        if _octal(sum_field) != expected:
            raise self._invalid(start, f"its checksum is not {expected:o}")
        size = _octal(size_field)
        if size is None:
            raise self._invalid(start, "its size is not an octal number")
        if any(_octal(field or b"0") is None for field in _fields_unused(header)):
            raise self._invalid(start, "its mode, owner, time or device is not an octal number")
        if kind == _EXTENDED:
            self._begin_extended(size, start)
        elif kind == _PLAIN:
            self._begin_member(name, prefix, size, start)
        else:
            what = _KINDS.get(kind, f"of the unknown kind {kind!r}")
            shown = _until_null(name).decode("utf-8", "replace")
            raise self._invalid(start, f"{shown!r} is not a plain file, but {what}")

    def _begin_extended(self, size: int, start: int) -> None:
        if self._names is not None:
            raise self._invalid(start, "a member has two extended headers")
        if not 0 < size <= EXTENDED_BYTES_MAX:
            raise self._invalid(
                start, f"an extended header has {size} bytes, not 1 to {EXTENDED_BYTES_MAX}"
            )
        self._extended_bytes = size

    def _begin_member(self, name: bytes, prefix: bytes, size: int, start: int) -> None:
        short = _until_null(name)
        if folder := _until_null(prefix):
            short = folder + b"/" + short
        raw = (self._names or {}).get(_NAME_KEY, short)
        self._names = None
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise self._invalid(start, "the name of a member is not UTF-8") from None
        if not text or "\0" in text:
            raise self._invalid(start, "the name of a member is empty or has a zero byte")
        self._data_bytes, self._padding_bytes = size, -size % BLOCK_BYTES
        self._is_open = True
        self._sink.begin(text, size)
        if not size:
            self._take_member(memoryview(b""))

    def _read_extended(self, content: bytes) -> dict[bytes, bytes]:
        """Records `<length> <key>=<value>\\n`, the length being that of the whole record."""
        found: dict[bytes, bytes] = {}
        at = 0
        while at < len(content):
            digits = content[at : at + _LENGTH_DIGITS_MAX].partition(b" ")[0]
            end = at + int(digits) if digits.isdigit() else 0
            record = content[at + len(digits) : end]
            key, equals, value = record[1:-1].partition(b"=")
            if not (record.startswith(b" ") and record.endswith(b"\n") and equals):
                raise self._invalid(self.offset, f"no record begins at byte {at} after it")
            if end > len(content):
                raise self._invalid(self.offset, "a record is longer than the bytes that follow")
            if key not in _KEYS or key in found:
                shown = key[:64].decode("utf-8", "replace")
                raise self._invalid(self.offset, f"{shown!r} is twice or in no backup")
            found[key] = value
            at = end
        return found

    def _invalid(self, offset: int, reason: str) -> ArchiveError:
        text = f"invalid tar header at byte {offset}: {reason}"
        return ArchiveError(text if offset else f"it is neither an archive nor a tar: {text}")


def _fields_unused(header: bytes) -> list[bytes]:
    return [_until_null(field).strip(b" ") for field in _UNUSED_NUMBERS.unpack(header)]


def _until_null(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _octal(field: bytes) -> int | None:
    """Parse an octal number with blanks around it, or a zero byte after it, as every tar writes
    it.
    """
    digits = _until_null(field).strip(b" ")
    if not digits or digits.strip(b"01234567"):
        return None
    return int(digits, 8)
