"""WebSocket for tests, written to be obvious: frame builder, whole-input decoder, raw client.

Nothing here uses the code under test, so it can judge it.
"""

from __future__ import annotations

import base64
import os
import socket
import struct
import zlib
from dataclasses import dataclass, field

from harness import REPLY_SECONDS, ServerProcess

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = base64.b64encode(bytes(range(16))).decode()
KEY_ANSWER = "Bz3qJYTGdOe8gUSpLosEdiLKDrk="


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    final: bool = True,
    reserved: int = 0,
    mask: bytes | None = b"\x11\x22\x33\x44",
    length_bytes: int | None = None,
) -> bytes:
    """One frame; `reserved` is RSV1-3 as 4, 2, 1; `length_bytes` (0, 2, 8) forces a length form."""
    size = len(payload)
    if length_bytes is None:
        length_bytes = 0 if size <= 125 else 2 if size <= 0xFFFF else 8
    mask_bit = 0 if mask is None else 0x80
    head = bytes([(0x80 if final else 0) | reserved << 4 | opcode])
    if length_bytes == 0:
        head += bytes([mask_bit | size])
    elif length_bytes == 2:
        head += bytes([mask_bit | 126]) + struct.pack(">H", size)
    else:
        head += bytes([mask_bit | 127]) + struct.pack(">Q", size)
    return head + (payload if mask is None else mask + masked(payload, mask))


def masked(payload: bytes, mask: bytes) -> bytes:
    return bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))


def deflate(data: bytes, level: int = 6, window_bits: int = 15) -> bytes:
    """A permessage-deflate payload."""
    deflater = zlib.compressobj(level, zlib.DEFLATED, -window_bits)
    return (deflater.compress(data) + deflater.flush(zlib.Z_SYNC_FLUSH))[:-4]


def inflate(payload: bytes) -> bytes:
    return zlib.decompressobj(-15).decompress(payload + b"\x00\x00\xff\xff")


@dataclass
class Decoded:
    """The meaning of a whole input: `error` is (text, close code) of the violation that ends it."""

    data: bytes = b""
    controls: list[tuple[int, bytes]] = field(default_factory=list)
    error: tuple[str, int] | None = None
    closed: bool = False


class _ViolationError(Exception):
    pass


def decode_all(raw: bytes, *, require_mask: bool, compression: bool, limit: int) -> Decoded:
    """Decode the input so far; an incomplete last frame contributes its available part."""
    result = Decoded()
    message: list[bytes] | None = None  # the payloads of the message in progress
    compressed = False
    position = 0
    try:
        while not result.closed and len(raw) - position >= 2:
            first, second = raw[position], raw[position + 1]
            _check_flags(first, second, message is not None, require_mask, compression)
            opcode, final = first & 15, first >= 128
            if opcode in (TEXT, BINARY):
                message, compressed = [], bool(first & 64)
            length_bytes = {126: 2, 127: 8}.get(second & 127, 0)
            mask_bytes = 4 if second >= 128 else 0
            header = raw[position + 2 : position + 2 + length_bytes + mask_bytes]
            if len(header) < length_bytes + mask_bytes:
                break
            length = int.from_bytes(header[:length_bytes], "big") if length_bytes else second & 127
            if length >= 1 << 63:
                raise _ViolationError("invalid 64-bit payload length", 1002)
            position += 2 + length_bytes + mask_bytes
            payload = raw[position : position + length]
            position += len(payload)
            complete = len(payload) == length
            if mask_bytes:
                payload = masked(payload, header[length_bytes:])
            if opcode >= CLOSE:
                if complete:
                    _check_control(opcode, payload)
                    result.controls.append((opcode, payload))
                    result.closed = opcode == CLOSE
                continue
            assert message is not None
            message.append(payload)
            ended = complete and final
            if compressed:
                _inflate_into(result, message, ended, limit)
            else:
                result.data += payload
            if ended:
                message = None
    except _ViolationError as violation:
        result.error = violation.args
    return result


def _check_flags(
    first: int, second: int, in_message: bool, require_mask: bool, compression: bool
) -> None:
    opcode = first & 15
    if require_mask and second < 128:
        raise _ViolationError("mask bit missing", 1002)
    if first & 0x30:
        raise _ViolationError("RSV2 and RSV3 must be clear", 1002)
    if first & 64 and not compression:
        raise _ViolationError(
            "compressed frame received without negotiated permessage-deflate", 1002
        )
    if opcode in (CLOSE, PING, PONG):
        if second & 127 > 125:
            raise _ViolationError(
                "control frame length bigger than maximum allowed of 125 bytes", 1002
            )
        if first & 64:
            raise _ViolationError("control frame must not be compressed", 1002)
        if first < 128:
            raise _ViolationError("control frame does not have final bit set", 1002)
    elif opcode in (TEXT, BINARY):
        if in_message:
            raise _ViolationError(
                "new message started before final frame for previous message was received", 1002
            )
    elif opcode == CONTINUATION:
        if not in_message or first & 64:
            raise _ViolationError("invalid continuation frame", 1002)
    else:
        raise _ViolationError(f"unknown opcode {opcode}", 1002)


def _check_control(opcode: int, payload: bytes) -> None:
    if opcode != CLOSE or not payload:
        return
    if len(payload) == 1:
        raise _ViolationError("close frame payload cannot be 1 byte", 1002)
    code = int.from_bytes(payload[:2], "big")
    if not (1000 <= code < 1016 or 3000 <= code < 5000) or code in (1004, 1005, 1006, 1015):
        raise _ViolationError(f"invalid close status code {code}", 1002)
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise _ViolationError("invalid utf8 body in close frame", 1007) from None


def _inflate_into(result: Decoded, message: list[bytes], ended: bool, limit: int) -> None:
    """Give out what the last piece adds to the message; the rest was given out already."""
    before = _inflated(b"".join(message[:-1]))
    payload = b"".join(message)
    if ended:
        payload += b"\x00\x00\xff\xff\x01\x00\x00\xff\xff"
    inflater = zlib.decompressobj(-15)
    try:
        after = inflater.decompress(payload)
    except zlib.error:
        raise _ViolationError("compressed message is corrupt", 1007) from None
    result.data += after[len(before) : limit]
    if len(after) > limit:
        raise _ViolationError("maximum payload exceeded", 1009)
    if ended and not inflater.eof:
        raise _ViolationError("compressed message is incomplete", 1007)


def _inflated(payload: bytes) -> bytes:
    return zlib.decompressobj(-15).decompress(payload)


def request(
    path: str = "/", method: str = "GET", version: str = "HTTP/1.1", **headers: str | None
) -> bytes:
    """An upgrade request; keywords replace or add headers (`_` for `-`), None leaves one out."""
    lines: dict[str, str | None] = {
        "Host": "localhost",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
    }
    lines.update({name.replace("_", "-"): value for name, value in headers.items()})
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
    return f"{method} {path} {version}\r\n{text}\r\n".encode("latin-1")


LISTENING = r"Listening for websocket clients on (wss?)://(\S+):(\d+)"


def websocket_config(block: str = "", rest: str = "") -> str:
    """A configuration with a WebSocket listener without TLS; `block` goes inside it."""
    return f'{rest}\nwebsocket {{ host: "127.0.0.1", port: -1, no_tls: true\n{block} }}\n'


def websocket_port(server: ServerProcess) -> int:
    return int(server.wait_for_log(LISTENING)[3])


@dataclass
class Response:
    """An HTTP response head, header names in lower case."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes = b""


def parse_response(head: bytes) -> Response:
    status_line, *lines = head.decode("latin-1").split("\r\n")
    _, status, reason = status_line.split(" ", 2)
    pairs = (line.split(": ", 1) for line in lines)
    return Response(int(status), reason, {name.lower(): value for name, value in pairs})


class FrameClient:
    """A blocking raw WebSocket client, for tests about exact frames."""

    def __init__(self, port: int, upgrade: bytes | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), REPLY_SECONDS)
        self.socket.settimeout(REPLY_SECONDS)
        self.buffer = b""
        self.largest_frame_bytes = 0  # of the payloads that read_frame has given
        self.socket.sendall(request() if upgrade is None else upgrade)
        while b"\r\n\r\n" not in self.buffer and self._fill():
            pass
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        assert head, "the server closed without an answer"
        self.response = parse_response(head)
        if self.response.status != 101:
            size = int(self.response.headers.get("content-length", 0))
            self.response.body = self._read(size)

    def __enter__(self) -> FrameClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def _fill(self) -> bool:
        try:
            chunk = self.socket.recv(65536)
        except ConnectionResetError:
            return False
        self.buffer += chunk
        return bool(chunk)

    def _read(self, size: int) -> bytes:
        while len(self.buffer) < size:
            if not self._fill():
                raise EOFError
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_text(self, text: str | bytes) -> None:
        """Protocol text in one masked binary frame."""
        self.send(
            frame(BINARY, text.encode() if isinstance(text, str) else text, mask=os.urandom(4))
        )

    def read_frame(self) -> tuple[int, bytes]:
        """The next frame as (first byte, payload); raises EOFError when the server closed."""
        first, second = self._read(2)
        assert second < 128, "the server must not mask"
        if second == 126:
            second = int.from_bytes(self._read(2), "big")
        elif second == 127:
            second = int.from_bytes(self._read(8), "big")
        self.largest_frame_bytes = max(self.largest_frame_bytes, second)
        return first, self._read(second)

    def read_message(self) -> bytes:
        """The application bytes of the next message, without the control frames around it."""
        message, compressed = b"", False
        while True:
            first, payload = self.read_frame()
            assert first & 15 != CLOSE, (message, payload)
            if first & 15 >= CLOSE:
                continue
            if first & 15 == BINARY:
                compressed = bool(first & 64)
            message += payload
            if first & 128:
                return inflate(message) if compressed else message

    def read_until(self, end: bytes) -> bytes:
        """Application bytes of messages until they end in `end`, without a PING of its own.

        It comes when 2 s have passed.
        """
        data = b""
        while not data or not data.endswith(end):
            message = self.read_message()
            data += message if message != b"PING\r\n" else b""
        return data

    def read_to_close(self) -> tuple[bytes, bytes | None]:
        """All application bytes until the end, and the payload of the close frame if one came.

        A PING does not count: it comes when 2 s have passed.
        """
        data, close = b"", None
        try:
            while True:
                first, payload = self.read_frame()
                if first & 15 == CLOSE:
                    close = payload
                elif first & 15 < CLOSE and payload != b"PING\r\n":
                    data += payload
        except EOFError:
            return data, close

    def connect(self, options: str = '{"verbose":false}') -> FrameClient:
        """Read INFO, send CONNECT and PING, wait for the PONG."""
        assert self.read_until(b"\r\n").startswith(b"INFO ")
        self.send_text(f"CONNECT {options}\r\nPING\r\n")
        assert self.read_until(b"PONG\r\n").endswith(b"PONG\r\n")
        return self
