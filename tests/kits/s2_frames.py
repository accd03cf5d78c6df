"""S2 streams built by hand, and a slow decoder that follows the format sentence by sentence."""

from __future__ import annotations

S2_IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
SNAPPY_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
CHUNK_CONTENT_BYTES_MAX = 4 << 20


class RefusedError(Exception):
    """The slow decoder found a fault."""


def _crc_of_byte(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


CRC_TABLE = [_crc_of_byte(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> bytes:
    crc = crc32c(data)
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def uvarint(value: int) -> bytes:
    result = b""
    while value >= 0x80:
        result += bytes([value & 0x7F | 0x80])
        value >>= 7
    return result + bytes([value])


def chunk(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def raw(content: bytes) -> bytes:
    return chunk(0x01, masked_crc(content) + content)


def packed(elements: bytes, content: bytes) -> bytes:
    """A chunk of these elements that claims to hold this content."""
    return chunk(0x00, masked_crc(content) + uvarint(len(content)) + elements)


def literal(data: bytes, length_bytes: int = 0) -> bytes:
    """A literal with its length in the tag, or in so many bytes after it."""
    code = len(data) - 1
    if length_bytes == 0:
        return bytes([code << 2]) + data
    return bytes([(59 + length_bytes) << 2]) + code.to_bytes(length_bytes, "little") + data


def copy1(offset: int, length: int) -> bytes:
    return bytes([(offset >> 8) << 5 | (length - 4) << 2 | 1, offset & 0xFF])


def copy2(offset: int, length: int) -> bytes:
    return bytes([(length - 1) << 2 | 2]) + offset.to_bytes(2, "little")


def copy4(offset: int, length: int) -> bytes:
    return bytes([(length - 1) << 2 | 3]) + offset.to_bytes(4, "little")


def repeat(length: int) -> bytes:
    if length <= 8:
        return bytes([(length - 4) << 2 | 1, 0])
    if length < 264:
        return bytes([5 << 2 | 1, 0, length - 8])
    if length < 65796:
        return bytes([6 << 2 | 1, 0]) + (length - 260).to_bytes(2, "little")
    return bytes([7 << 2 | 1, 0]) + (length - 65540).to_bytes(3, "little")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int) -> bytes:
        if self.left < size:
            raise RefusedError(f"{size} bytes are not there")
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def uvarint(self) -> int:
        value = 0
        for index in range(9):
            byte = self.number(1)
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise RefusedError("the number is too long")


def slow_elements(data: bytes, size_max: int) -> bytes:
    """The bytes that these elements encode; RefusedError if they are bad or encode more."""
    reader, output, offset = _Reader(data), bytearray(), 0
    while reader.left:
        tag = reader.number(1)
        kind, code = tag & 3, tag >> 2
        if kind == 0:
            output += reader.take((code if code < 60 else reader.number(code - 59)) + 1)
        else:
            if kind == 1:
                near, code = tag >> 5 << 8 | reader.number(1), code & 7
                length = code + 4
                if near:
                    offset = near
                elif code >= 5:
                    length = reader.number(code - 4) + (8, 260, 65540)[code - 5]
            else:
                length = code + 1
                offset = reader.number(2 if kind == 2 else 4)
            if not 0 < offset <= len(output) or len(output) + length > size_max:
                raise RefusedError("a copy that cannot be")
            for _ in range(length):
                output.append(output[-offset])
        if len(output) > size_max:
            raise RefusedError("too much")
    return bytes(output)


def slow_decompress(data: bytes, size_limit: int) -> bytes:
    """The content of a stream, or RefusedError."""
    reader, output = _Reader(data), b""
    while reader.left:
        first = reader.position == 0
        kind, length = reader.number(1), reader.number(3)
        body = _Reader(reader.take(length))
        if first and kind != 0xFF:
            raise RefusedError("no identifier")
        if kind == 0xFF:
            if body.data not in (S2_IDENTIFIER[4:], SNAPPY_IDENTIFIER[4:]):
                raise RefusedError("another identifier")
        elif kind <= 1:
            crc = body.take(4)
            size = body.uvarint() if kind == 0 else body.left
            if size > CHUNK_CONTENT_BYTES_MAX or len(output) + size > size_limit:
                raise RefusedError("too large")
            rest = body.take(body.left)
            content = slow_elements(rest, size) if kind == 0 else rest
            if len(content) != size or masked_crc(content) != crc:
                raise RefusedError("not what was announced")
            output += content
        elif kind < 0x80:
            raise RefusedError("reserved")
    return output
