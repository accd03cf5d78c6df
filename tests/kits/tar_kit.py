"""Tars of backups as nats-server before 2.15 wrote them, and tars that must be refused."""

from __future__ import annotations

from collections.abc import Iterable

BLOCK = 512
END = bytes(2 * BLOCK)
TIME = b"30 mtime=1794976688.827972749\n"


def padded(data: bytes) -> bytes:
    """With the zeros that fill its last block."""
    return data + bytes(-len(data) % BLOCK)


def summed(header: bytes) -> bytes:
    """A header with its own checksum."""
    blank = header[:148] + b" " * 8 + header[156:]
    return header[:148] + b"%06o\0 " % sum(blank) + header[156:]


def header(
    name: bytes, size: int | bytes, kind: bytes = b"0", magic: bytes = b"ustar\x0000"
) -> bytes:
    """One block; a size in bytes is taken as it is."""
    size_field = size if isinstance(size, bytes) else b"%011o\0" % size
    numbers = b"0000600\0" + b"0000000\0" * 2 + size_field + b"00000000000\0" + bytes(8)
    owner = b"nats".ljust(32, b"\0") * 2 + b"0000000\0" * 2
    whole = name[:100].ljust(100, b"\0") + numbers + kind + bytes(100) + magic + owner + bytes(167)
    assert len(whole) == BLOCK
    return summed(whole)


def record(key: bytes, value: bytes) -> bytes:
    """A record of an extended header."""
    size = len(key) + len(value) + 3
    while len(b"%d" % size) + len(key) + len(value) + 3 != size:
        size = len(b"%d" % size) + len(key) + len(value) + 3
    return b"%d %s=%s\n" % (size, key, value)


def extended(content: bytes, kind: bytes = b"x") -> bytes:
    """An extended header with its content."""
    return header(b"PaxHeaders.0/meta.inf", len(content), kind) + padded(content)


def member(name: str, data: bytes, content: bytes = TIME) -> bytes:
    """A file with its extended header, as the server wrote both."""
    raw = name.encode()
    if len(raw) > 100 or not name.isascii():
        content += record(b"path", raw)
    return extended(content) + header(raw, len(data)) + padded(data)


def tar_of(members: Iterable[tuple[str, bytes]]) -> bytes:
    """A whole backup."""
    return b"".join(member(name, data) for name, data in members) + END
