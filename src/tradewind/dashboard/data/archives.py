"""A backup as one file: a zip with the two files of a backup folder, written and read as a stream.

Owns the container only. It unpacks to a folder that `tradewind stream restore` and `nats` accept:

    <stream>/backup.json      configuration and state
    <stream>/stream.tar.s2    what the server sent, as it is

It never holds more than a chunk. Zip files of other tools are accepted too, if `backup.json` comes
first: the configuration is needed before the data.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from tradewind.errors import TradewindError

INFO_NAME: Final = "backup.json"
DATA_NAME: Final = "stream.tar.s2"
INFO_BYTES_MAX: Final = 4 << 20
NAME_BYTES_MAX: Final = 4096
PIECE_BYTES: Final = 64 << 10
_LOCAL: Final = b"PK\x03\x04"
_ENDS: Final = (_LOCAL, b"PK\x01\x02")
_HEAD: Final = struct.Struct("<4s5H3I2H")
_STORED: Final = 0
_DEFLATED: Final = 8
_ENCRYPTED: Final = 1
_SIZES_FOLLOW: Final = 8
_ZIP64: Final = 1
_UINT32_MAX: Final = 0xFFFFFFFF
# The optional data descriptor: a checksum and two sizes, of 4 or 8 bytes, with or without a mark.
_TRAILERS: Final = (16, 24, 12, 20)


class BadArchiveError(TradewindError):
    """A file that is not a backup; the text says why."""


class _Sink:
    """The buffer between a zip file and its reader."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes, /) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        """Do nothing: no data is held back."""

    def close(self) -> None:
        """Do nothing: no file is open."""

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


async def pack(
    stream: str, document: dict[str, Any], chunks: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """The chunks of a backup as a zip. The data is compressed already, and stored as it is."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=0) as file:
        text = msgspec.json.format(msgspec.json.encode(document), indent=2)
        file.writestr(f"{stream}/{INFO_NAME}", text)
        yield sink.take()
        with file.open(f"{stream}/{DATA_NAME}", "w", force_zip64=True) as data:
            async for chunk in chunks:
                data.write(chunk)
                yield sink.take()
    yield sink.take()


class UploadedArchive:
    """Reads a zip from its beginning to its end, once."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._source = source
        self._held = bytearray()

    async def document(self) -> dict[str, Any]:
        """The configuration and state; BadArchiveError if the file does not begin with them."""
        while (name := await self._next_name()).endswith("/"):
            await self._skip_folder()
        if name.rpartition("/")[2] != INFO_NAME:
            raise BadArchiveError(
                f"the file begins with {name[:80]!r}: {INFO_NAME} must come first, then {DATA_NAME}"
            )
        text = bytearray()
        async for piece in self._content():
            text += piece
            if len(text) > INFO_BYTES_MAX:
                raise BadArchiveError(f"{INFO_NAME} must have at most {INFO_BYTES_MAX >> 20} MiB")
        try:
            document = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadArchiveError(f"{INFO_NAME}: {error}") from None
        config = document.get("config")
        if not isinstance(config, dict) or not isinstance(config.get("name"), str):
            raise BadArchiveError(f"{INFO_NAME} must have a config with a name")
        return document

    async def data(self) -> AsyncIterator[bytes]:
        """The data of the server, which is complete if this ends without an error."""
        name = await self._next_name()
        if name.rpartition("/")[2] != DATA_NAME:
            raise BadArchiveError(f"after {INFO_NAME} comes {name[:80]!r} instead of {DATA_NAME}")
        async for piece in self._content():
            yield piece
        # The directory at the end of the file is read so that the browser can send all of it.
        async for _ in self._source:
            continue

    # ------------------------------------------------------------------ inside

    async def _next_name(self) -> str:
        await self._fill(_HEAD.size)
        if self._held[:4] != _LOCAL:
            raise BadArchiveError("not a zip file, or truncated")
        fields = _HEAD.unpack_from(self._held)
        _, _, self._flags, self._method, _, _, self._sum, size, whole, named, more = fields
        if named > NAME_BYTES_MAX:
            raise BadArchiveError(f"a name in the zip must have at most {NAME_BYTES_MAX} bytes")
        await self._fill(_HEAD.size + named + more)
        name = bytes(self._held[_HEAD.size : _HEAD.size + named]).decode(errors="replace")
        extra = bytes(self._held[_HEAD.size + named : _HEAD.size + named + more])
        self._size = _large_size(extra, size, whole)
        del self._held[: _HEAD.size + named + more]
        return name

    async def _skip_folder(self) -> None:
        async for _ in self._content():
            raise BadArchiveError("a folder in the zip has content")

    async def _content(self) -> AsyncIterator[bytes]:
        """The content of an entry; BadArchiveError if its checksum does not match."""
        if self._flags & _ENCRYPTED:
            raise BadArchiveError("the zip is encrypted: pack it without a password")
        found = 0
        pieces = {_STORED: self._stored, _DEFLATED: self._deflated}.get(self._method)
        if pieces is None:
            raise BadArchiveError(f"the zip is compressed by method {self._method}: use deflate")
        async for piece in pieces():
            found = zlib.crc32(piece, found)
            yield piece
        if self._flags & _SIZES_FOLLOW:
            await self._read_trailer()
        if found != self._sum:
            raise BadArchiveError("the file is damaged: a checksum in the zip does not match")

    async def _stored(self) -> AsyncIterator[bytes]:
        if self._flags & _SIZES_FOLLOW:
            raise BadArchiveError("the zip does not say how large its entries are: use deflate")
        left = self._size
        while left:
            await self._fill(1)
            piece = bytes(self._held[: min(left, PIECE_BYTES)])
            del self._held[: len(piece)]
            left -= len(piece)
            yield piece

    async def _deflated(self) -> AsyncIterator[bytes]:
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        while not inflate.eof:
            await self._fill(1)
            taken = bytes(self._held[:PIECE_BYTES])
            del self._held[: len(taken)]
            try:
                while taken and not inflate.eof:
                    if piece := inflate.decompress(taken, PIECE_BYTES):
                        yield piece
                    taken = inflate.unconsumed_tail
            except zlib.error as error:
                raise BadArchiveError(f"the file is damaged: {error}") from None
        self._held[:0] = inflate.unused_data

    async def _read_trailer(self) -> None:
        await self._fill(max(_TRAILERS) + 4)
        for size in _TRAILERS:
            if bytes(self._held[size : size + 4]) in _ENDS:
                start = 4 if size in (16, 24) else 0
                self._sum = struct.unpack_from("<I", self._held, start)[0]
                del self._held[:size]
                return
        raise BadArchiveError("the file is damaged: an entry of the zip has no end")

    async def _fill(self, size: int) -> None:
        """Read until this many bytes are available; BadArchiveError if the file ends before."""
        while len(self._held) < size:
            piece = await anext(self._source, None)
            if piece is None:
                raise BadArchiveError("not a zip file, or truncated")
            self._held += piece


def _large_size(extra: bytes, size: int, whole: int) -> int:
    """The size of an entry, including one that is too large for its own field."""
    if size != _UINT32_MAX:
        return size
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, place)
        at = place + 4 + (8 if whole == _UINT32_MAX else 0)
        if kind == _ZIP64 and at + 8 <= place + 4 + length <= len(extra):
            return int(struct.unpack_from("<Q", extra, at)[0])
        place += 4 + length
    raise BadArchiveError("the file is damaged: the size of an entry of the zip is missing")
