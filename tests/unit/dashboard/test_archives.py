"""A backup as a zip: what is packed is read again, however it is cut, and nothing else is."""

from __future__ import annotations

import asyncio
import io
import struct
import zipfile
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.dashboard.data.archives import (
    DATA_NAME,
    INFO_BYTES_MAX,
    INFO_NAME,
    BadArchiveError,
    UploadedArchive,
    pack,
)

DOCUMENT: dict[str, Any] = {"config": {"name": "S"}, "state": {"messages": 3}}


async def pieces(parts: Sequence[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def packed(chunks: Sequence[bytes]) -> bytes:
    async def run() -> bytes:
        return b"".join([part async for part in pack("S", DOCUMENT, pieces(chunks))])

    return asyncio.run(run())


def read(data: bytes, cut: int = 1000) -> tuple[dict[str, Any], bytes]:
    async def run() -> tuple[dict[str, Any], bytes]:
        parts = [data[start : start + cut] for start in range(0, len(data), cut)]
        reader = UploadedArchive(pieces(parts))
        document = await reader.document()
        return document, b"".join([piece async for piece in reader.data()])

    return asyncio.run(run())


def zipped(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as file:
        for name, content in entries:
            # A time of its own: the clock may strike between two workers that collect the tests.
            file.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    return made.getvalue()


@given(st.lists(st.binary(max_size=3000), max_size=8), st.integers(1, 500))
def test_what_is_packed_is_read_again(chunks: list[bytes], cut: int) -> None:
    data = packed(chunks)
    assert read(data, cut) == (DOCUMENT, b"".join(chunks))
    # And by everybody else.
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.namelist() == [f"S/{INFO_NAME}", f"S/{DATA_NAME}"]
        assert file.read(f"S/{DATA_NAME}") == b"".join(chunks)


@given(st.binary(max_size=3000), st.integers(0), st.integers(0, 255))
def test_a_damaged_byte_is_found_or_does_no_harm(data: bytes, place: int, value: int) -> None:
    whole = bytearray(packed([data]))
    whole[place % len(whole)] = value
    try:
        document, found = read(bytes(whole))
    except BadArchiveError:
        return
    # Names, times and the list at the end have no checksum.
    assert (document, found) == (DOCUMENT, data)


@given(st.binary(max_size=500), st.integers(0, 2000))
def test_a_file_that_ends_too_early_is_refused(data: bytes, length: int) -> None:
    whole = packed([data])
    end = whole.index(b"PK\x01\x02") + 4
    if length >= end:
        assert read(whole[:length])[1] == data
    else:
        with pytest.raises(BadArchiveError):
            read(whole[:length])


@given(st.binary(max_size=300))
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(BadArchiveError):
        read(data)
    with pytest.raises(BadArchiveError):
        read(b"PK\x03\x04" + data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (zipped((DATA_NAME, b"x")), "must come first"),
        (zipped((INFO_NAME, b"[]")), "object"),
        (zipped((INFO_NAME, b'{"config": {"name": 1}}')), "must have a config with a name"),
        (zipped((INFO_NAME, b" " * (INFO_BYTES_MAX + 1))), "at most 4 MiB"),
        (zipped((INFO_NAME, b'{"config":{"name":"S"}}'), ("x", b"")), "comes 'x' instead of"),
        (zipped((INFO_NAME, b"{}"), method=zipfile.ZIP_LZMA), "method 14"),
        (zipped(("a" * 5000, b"")), "at most 4096 bytes"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, reason: str) -> None:
    with pytest.raises(BadArchiveError, match=reason):
        read(data)


def test_an_encrypted_entry_is_refused() -> None:
    data = bytearray(zipped((INFO_NAME, b"{}")))
    struct.pack_into("<H", data, 6, 1)
    with pytest.raises(BadArchiveError, match="encrypted"):
        read(bytes(data))


def test_sizes_beyond_four_gibibytes_are_read_from_their_own_place() -> None:
    info = b'{"config":{"name":"S"}}'
    data = zipped((INFO_NAME, info), method=zipfile.ZIP_STORED)
    head, name = data[:30], data[30 : 30 + len(INFO_NAME)]
    extra = struct.pack("<2H2Q", 1, 16, len(info), len(info))
    large = bytearray(head)
    struct.pack_into("<2I", large, 18, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", large, 28, len(extra))
    rest = zipped((DATA_NAME, b"data"))

    assert read(bytes(large) + name + extra + info + rest)[1] == b"data"
    with pytest.raises(BadArchiveError, match="size of an entry"):
        read(bytes(large) + name + b"\x09" + extra[1:] + info + rest)


def test_a_bomb_takes_little_memory() -> None:
    async def run() -> int:
        bomb = zipped((INFO_NAME, b'{"config":{"name":"S"}}'), (DATA_NAME, bytes(64 << 20)))
        reader = UploadedArchive(pieces([bomb]))
        await reader.document()
        return max([len(piece) async for piece in reader.data()])

    assert asyncio.run(run()) <= 64 << 10
