"""The folder of a chain: its segments of links and its checkpoints, read with bounded memory.

Owns the layout of the files and the errors about them, which name the file and the byte. It never
writes, and never verifies a hash but that of a header.

    chain/<index of the first entry, 16 hex digits>.links
        "TWCHAIN1"  algorithm (1)  zero (7)  index of the first entry (8)
        link before the first entry (32)  first 8 bytes of the SHA-256 of all that
        records (`entries`)
    chain/checkpoints
        one checkpoint a line (`checkpoints`)

Numbers are little endian.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from tradewind.chain import checkpoints
from tradewind.chain.chain_entries import (
    ALGORITHMS,
    RECORD_BYTES_MAX,
    ChainError,
    ChainRecord,
    RecordError,
    read_records,
)
from tradewind.chain.checkpoints import Checkpoint
from tradewind.errors import CorruptRecord, StoreError

FOLDER: Final = "chain"
CHECKPOINTS: Final = "checkpoints"
SUFFIX: Final = ".links"
SEGMENT_ENTRIES_MAX: Final = 1 << 20

_MAGIC: Final = b"TWCHAIN1"
_HEADER: Final = struct.Struct("<8sB7xQ32s")
_CHECKSUM_BYTES: Final = 8
HEADER_BYTES: Final = _HEADER.size + _CHECKSUM_BYTES
_NAME: Final = re.compile(r"[0-9a-f]{16}\.links\Z")
_READ_BYTES: Final = 1 << 20
_NAMES: Final = {number: name for name, number in ALGORITHMS.items()}

assert _READ_BYTES > RECORD_BYTES_MAX


class IncompleteRecord(CorruptRecord):
    """The last file ends within a record: a crash or an edit has cut it off."""


class LinksHeader(msgspec.Struct, frozen=True):
    """The header of a file of links."""

    algorithm: str
    first_index: int
    before: bytes


def segment_name(first_index: int) -> str:
    """The name of the file that begins with this entry."""
    return f"{first_index:016x}{SUFFIX}"


def encode_header(segment: LinksHeader) -> bytes:
    """The first bytes of a file of links."""
    number = ALGORITHMS[segment.algorithm]
    head = _HEADER.pack(_MAGIC, number, segment.first_index, segment.before)
    return head + hashlib.sha256(head).digest()[:_CHECKSUM_BYTES]


def decode_header(data: bytes, path: str) -> LinksHeader:
    """Decode the header at the beginning of a file; a CorruptRecord names `path`."""
    if len(data) < HEADER_BYTES:
        raise IncompleteRecord(
            path, 0, f"the header must have {HEADER_BYTES} bytes, not {len(data)}"
        )
    head, checksum = data[: _HEADER.size], data[_HEADER.size : HEADER_BYTES]
    magic, number, first_index, before = _HEADER.unpack(head)
    if magic != _MAGIC:
        raise CorruptRecord(path, 0, f"a file of links begins with {_MAGIC.decode()}")
    if checksum != hashlib.sha256(head).digest()[:_CHECKSUM_BYTES]:
        raise CorruptRecord(path, _HEADER.size, "the checksum of the header is wrong")
    if number not in _NAMES:
        raise CorruptRecord(path, len(_MAGIC), f"the algorithm must be 1 or 2, not {number}")
    if any(head[len(_MAGIC) + 1 : 16]):
        raise CorruptRecord(path, len(_MAGIC) + 1, "the unused bytes of the header are zero")
    return LinksHeader(_NAMES[number], first_index, before)


class ChainFolder:
    """A chain on disk. Its files may be large: they are read in pieces, the names once.

    `algorithm`, `before` (the link before entry 0) and the first indexes of all files are known
    from the start; StoreError if there is no chain, CorruptRecord if the first file is invalid.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._starts: list[int] = []
        try:
            names = sorted(entry.name for entry in path.iterdir() if _NAME.match(entry.name))
        except OSError as error:
            raise StoreError(
                f"{path}: cannot read the folder of the chain: {error.strerror}"
            ) from None
        if not names:
            raise StoreError(f"{path}: no chain here: {segment_name(0)} is missing")
        self._starts = [int(name[:16], 16) for name in names]
        if self._starts[0]:
            raise CorruptRecord(str(path / segment_name(0)), 0, "the first file is missing")
        with self._open(0) as file:
            first = self._header(file, 0)
        self.algorithm = first.algorithm
        self.before = first.before

    def records(self, index: int = 0) -> Iterator[tuple[int, ChainRecord]]:
        """Read every entry from `index` on with its index.

        A CorruptRecord where a file does not continue the one before or has an invalid record; an
        IncompleteRecord, at the end, if the last file ends within a record.
        """
        position = max(n for n, start in enumerate(self._starts) if start <= max(index, 0))
        link: bytes | None = None
        for number in range(position, len(self._starts)):
            start = self._starts[number]
            path = str(self.path / segment_name(start))
            with self._open(start) as file:
                header = self._header(file, start)
                if link is not None and header.before != link:
                    raise CorruptRecord(
                        path, 24, "the link before this file is not the last of the file before"
                    )
                at = start
                is_last = number + 1 == len(self._starts)
                for record in _records(file, path, is_last=is_last):
                    if at >= index:
                        yield at, record
                    at += 1
                    link = record.link
            if not is_last and at != self._starts[number + 1]:
                raise CorruptRecord(
                    path,
                    HEADER_BYTES,
                    f"it has entries {start} to {at - 1}, and the next file begins with "
                    f"{self._starts[number + 1]}",
                )

    def checkpoint_lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line of the checkpoints without its newline, with the offset of its first byte."""
        path = self.path / CHECKPOINTS
        if not path.exists():
            return
        try:
            with path.open("rb") as file:
                offset = 0
                while line := file.readline(checkpoints.LINE_BYTES_MAX + 2):
                    if not line.endswith(b"\n"):
                        is_long = len(line) > checkpoints.LINE_BYTES_MAX
                        reason = (
                            f"a checkpoint must have at most {checkpoints.LINE_BYTES_MAX} bytes"
                            if is_long
                            else "the last line has no end"
                        )
                        raise (CorruptRecord if is_long else IncompleteRecord)(
                            str(path), offset, reason
                        )
                    yield offset, line[:-1]
                    offset += len(line)
        except OSError as error:
            raise StoreError(f"{path}: cannot read the checkpoints: {error.strerror}") from None

    def checkpoints(self) -> Iterator[tuple[bytes, Checkpoint]]:
        """Read every checkpoint with its line; a CorruptRecord where a line is invalid."""
        for offset, line in self.checkpoint_lines():
            try:
                yield line, checkpoints.decode(line)
            except ChainError as error:
                raise CorruptRecord(str(self.path / CHECKPOINTS), offset, str(error)) from None

    def _open(self, start: int) -> BinaryIO:
        path = self.path / segment_name(start)
        try:
            return path.open("rb")
        except OSError as error:
            raise StoreError(f"{path}: cannot read it: {error.strerror}") from None

    def _header(self, file: BinaryIO, start: int) -> LinksHeader:
        path = str(self.path / segment_name(start))
        header = decode_header(file.read(HEADER_BYTES), path)
        if header.first_index != start:
            raise CorruptRecord(
                path, 16, f"the name says entry {start}, the header entry {header.first_index}"
            )
        if start and header.algorithm != self.algorithm:
            raise CorruptRecord(
                path, 8, f"the algorithm is {self.algorithm} before, {header.algorithm} here"
            )
        return header


def _records(file: BinaryIO, path: str, *, is_last: bool) -> Iterator[ChainRecord]:
    """The records after the header, read in pieces."""
    offset = HEADER_BYTES
    rest = b""
    while piece := file.read(_READ_BYTES):
        data = rest + piece
        try:
            found, end = read_records(data)
        except RecordError as error:
            # The lines before the wrong one are still returned.
            yield from read_records(data[: error.offset])[0]
            raise CorruptRecord(path, offset + error.offset, error.reason) from None
        yield from found
        offset += end
        rest = data[end:]
    if rest:
        kind = IncompleteRecord if is_last else CorruptRecord
        raise kind(path, offset, f"the file ends within a record, after {len(rest)} bytes of it")
