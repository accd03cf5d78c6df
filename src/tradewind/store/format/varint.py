"""Variable-length integers as in Go's encoding/binary, and a bounds-checked reader.

Owns the two encodings: uvarint (7 bits per byte, lowest first) and varint (the sign folded into the
lowest bit, then uvarint). It never reads beyond its data: anything missing, too long or too large
is a CorruptRecord with file, byte and field.
"""

from __future__ import annotations

from typing import Final

from tradewind.errors import CorruptRecord

U64_MASK: Final = (1 << 64) - 1
VARINT_BYTES_MAX: Final = 10
_SIGN_BIT: Final = 1 << 63


def to_signed(value: int) -> int:
    """The low 64 bits of `value` read as a signed number, as Go's arithmetic wraps."""
    value &= U64_MASK
    return value - (1 << 64) if value & _SIGN_BIT else value


def append_uvarint(target: bytearray, value: int) -> None:
    """Append an unsigned 64-bit number in 1 to 10 bytes."""
    if not 0 <= value <= U64_MASK:
        raise ValueError(f"{value} does not fit in 64 bits without a sign")
    while value >= 0x80:
        target.append(value & 0x7F | 0x80)
        value >>= 7
    target.append(value)


def append_varint(target: bytearray, value: int) -> None:
    """Append a signed 64-bit number: small ones of either sign become short."""
    if not -_SIGN_BIT <= value < _SIGN_BIT:
        raise ValueError(f"{value} does not fit in 64 bits")
    append_uvarint(target, (value << 1 ^ value >> 63) & U64_MASK)


class ByteReader:
    """Reads fields one after the other; `offset` is the next byte, `path` is named in errors."""

    __slots__ = ("data", "end", "offset", "path")

    def __init__(self, data: bytes, path: str, offset: int = 0, end: int | None = None) -> None:
        self.data = data
        self.path = path
        self.offset = offset
        self.end = len(data) if end is None else end
        if not 0 <= offset <= self.end <= len(data):
            raise ValueError(f"bytes {offset} to {self.end} of {len(data)}")

    @property
    def left(self) -> int:
        """The number of unread bytes."""
        return self.end - self.offset

    def corrupt(self, reason: str, offset: int | None = None) -> CorruptRecord:
        """The error for the content at `offset`, or at the next byte."""
        return CorruptRecord(self.path, self.offset if offset is None else offset, reason)

    def uvarint(self, field: str) -> int:
        """Read the next unsigned number."""
        data = self.data
        start = offset = self.offset
        limit = min(self.end, start + VARINT_BYTES_MAX)
        value = shift = 0
        while offset < limit:
            byte = data[offset]
            offset += 1
            if byte < 0x80:
                value |= byte << shift
                if value > U64_MASK:
                    break
                self.offset = offset
                return value
            value |= (byte & 0x7F) << shift
            shift += 7
        if offset == self.end and offset - start < VARINT_BYTES_MAX:
            raise self.corrupt(f"{field}: the number is cut off by the end", start)
        raise self.corrupt(f"{field}: the number does not fit in 64 bits", start)

    def varint(self, field: str) -> int:
        """Read the next signed number."""
        folded = self.uvarint(field)
        return folded >> 1 ^ -(folded & 1)

    def count(self, field: str, entry_bytes_min: int) -> int:
        """Read a number of entries that follow: refused if the data left cannot hold that many."""
        start = self.offset
        count = self.uvarint(field)
        if count > self.left // entry_bytes_min:
            raise self.corrupt(
                f"{field} is {count}, but only {self.left} bytes follow: it cannot be that many",
                start,
            )
        return count

    def take(self, size: int, field: str) -> bytes:
        """Read the next `size` bytes."""
        if size > self.left:
            raise self.corrupt(f"{field}: {size} bytes are needed, {self.left} are left")
        start = self.offset
        self.offset = start + size
        return self.data[start : self.offset]

    def fixed(self, size: int, field: str) -> int:
        """Read the next unsigned little-endian number of `size` bytes."""
        return int.from_bytes(self.take(size, field), "little")

    def expect_end(self) -> None:
        """CorruptRecord if anything follows."""
        if self.left:
            raise self.corrupt(f"{self.left} bytes follow the last field, none should")
