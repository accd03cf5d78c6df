"""WebSocket connections: upgrade, frames, compression, close codes, origins, cookies and TLS."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.sync.client import ClientConnection, connect

from harness import REPLY_SECONDS, RawClient, ServerProcess, StartServer
from websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    FrameClient,
    deflate,
    frame,
    request,
    websocket_config,
    websocket_port,
)

MAX_PAYLOAD = 8192
DEFLATE = "permessage-deflate"
DEFLATE_ANSWER = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
BROWSER = "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/120.0"


@pytest.fixture(scope="module")
def port(shared_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The WebSocket port of one server that all tests of this module share."""
    path = tmp_path_factory.mktemp("websocket") / "server.conf"
    path.write_text(websocket_config("compression: true", f"max_payload: {MAX_PAYLOAD}"))
    process = ServerProcess(shared_kind, ["-a", "127.0.0.1", "-p", "-1", "-c", str(path)])
    try:
        yield websocket_port(process.wait_ready())
    finally:
        process.stop()


def text_of(client: ClientConnection) -> bytes:
    message = client.recv(timeout=REPLY_SECONDS)
    assert isinstance(message, bytes), message
    return message


def info_of(client: ClientConnection) -> dict[str, Any]:
    line = text_of(client)
    assert line.startswith(b"INFO ")
    assert line.endswith(b"\r\n")
    info: dict[str, Any] = json.loads(line[5:])
    return info


def log_in(client: ClientConnection, options: str = '{"verbose":false}') -> None:
    client.send(f"CONNECT {options}\r\nPING\r\n".encode())
    assert text_of(client) == b"PONG\r\n"


def deflate_factory() -> ClientPerMessageDeflateFactory:
    return ClientPerMessageDeflateFactory(
        server_no_context_takeover=True, client_no_context_takeover=True
    )


# --- a well-behaved client


def test_info_is_the_first_message(port: int) -> None:
    with connect(f"ws://127.0.0.1:{port}", compression=None) as client:
        info = info_of(client)
        assert info["max_payload"] == MAX_PAYLOAD
        assert info["port"] == port
        assert info["client_ip"] == "127.0.0.1"
        assert not info.get("tls_required")


def test_published_message_comes_back(port: int) -> None:
    with connect(f"ws://127.0.0.1:{port}/any/path?query", compression=None) as client:
        info_of(client)
        log_in(client)
        client.send(b"SUB a.* 1\r\nPUB a.b 5\r\nhello\r\n")
        assert text_of(client) == b"MSG a.b 1 5\r\nhello\r\n"


def test_websocket_and_plain_clients_share_subjects(start: StartServer) -> None:
    server = start(websocket_config())
    with RawClient(server.port) as plain, FrameClient(websocket_port(server)) as client:
        plain.connect()
        plain.send("SUB a 9\r\n")
        plain.ping()
        client.connect()
        client.send_text("SUB b 1\r\nPUB a 2\r\nhi\r\nPING\r\n")
        client.read_until(b"PONG\r\n")
        assert plain.read_message() == ("MSG a 9 2", b"", b"hi")
        plain.send("PUB b 2\r\nho\r\n")
        assert client.read_until(b"ho\r\n") == b"MSG b 1 2\r\nho\r\n"


def test_frame_boundaries_carry_no_meaning(port: int) -> None:
    with FrameClient(port).connect() as client:
        client.send_text("SUB a 1\r\nPUB a 5\r")
        client.send_text("\nhel")
        client.send_text("lo\r\nPI")
        client.send_text("NG\r\n")
        assert client.read_until(b"PONG\r\n") == b"MSG a 1 5\r\nhello\r\nPONG\r\n"


def test_frame_sent_byte_by_byte_is_read(port: int) -> None:
    with FrameClient(port).connect() as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(BINARY, b"PING\r\n", length_bytes=8):
            client.send(bytes([byte]))
        assert client.read_until(b"PONG\r\n") == b"PONG\r\n"


def test_fragments_with_a_ping_in_between_are_read(port: int) -> None:
    with FrameClient(port).connect() as client:
        client.send(
            frame(BINARY, b"PI", final=False)
            + frame(CONTINUATION, b"", final=False)
            + frame(PING, b"in between")
            + frame(CONTINUATION, b"NG\r\n")
        )
        assert client.read_frame() == (0x80 | PONG, b"in between")
        assert client.read_frame() == (0x80 | BINARY, b"PONG\r\n")


def test_text_frame_and_empty_frame_are_read(port: int) -> None:
    with FrameClient(port).connect() as client:
        client.send(frame(BINARY) + frame(TEXT, b"PING\r\n"))
        assert client.read_until(b"\r\n") == b"PONG\r\n"


def test_ping_is_answered_with_its_payload_and_pong_is_ignored(port: int) -> None:
    with FrameClient(port).connect() as client:
        client.send(frame(PONG, b"nobody asked") + frame(PING, b"x" * 125) + frame(PING))
        assert client.read_frame() == (0x80 | PONG, b"x" * 125)
        assert client.read_frame() == (0x80 | PONG, b"")


def test_plain_message_far_larger_than_max_payload_is_read_as_a_stream(port: int) -> None:
    with FrameClient(port).connect() as client:
        publish = b"PUB nobody 1000\r\n" + b"x" * 1000 + b"\r\n"
        client.send_text(publish * 100 + b"PING\r\n")
        assert client.read_until(b"PONG\r\n") == b"PONG\r\n"


def test_no_masking_is_agreed_on_request(port: int) -> None:
    with FrameClient(port, request(Nats_No_Masking="true")) as client:
        assert client.response.headers["nats-no-masking"] == "true"
        client.read_until(b"\r\n")
        client.send(frame(BINARY, b'CONNECT {"verbose":false}\r\nPING\r\n', mask=None))
        assert client.read_until(b"\r\n") == b"PONG\r\n"


# --- compression


def test_compression_is_agreed_and_used_both_ways(port: int) -> None:
    extensions = [deflate_factory()]
    with connect(f"ws://127.0.0.1:{port}", compression=None, extensions=extensions) as client:
        assert client.response is not None
        assert client.response.headers["Sec-WebSocket-Extensions"] == DEFLATE_ANSWER
        info_of(client)
        log_in(client)
        client.send(b"SUB a 1\r\nPUB a 3000\r\n" + b"abc" * 1000 + b"\r\n")
        assert text_of(client) == b"MSG a 1 3000\r\n" + b"abc" * 1000 + b"\r\n"


def test_small_messages_are_not_compressed(port: int) -> None:
    with FrameClient(port, request(Sec_WebSocket_Extensions=DEFLATE)) as client:
        assert client.read_frame()[0] == 0xC2, "INFO is long enough"
        client.send(frame(BINARY, deflate(b'CONNECT {"verbose":false}\r\nPING\r\n'), reserved=4))
        assert client.read_frame() == (0x82, b"PONG\r\n")
        client.send_text("SUB a 1\r\nPUB a 50\r\n" + "x" * 50 + "\r\n")
        first, payload = client.read_frame()
        assert (first, len(payload)) == (0x82, 64)


def test_compressed_fragments_and_final_blocks_are_read(port: int) -> None:
    with FrameClient(port, request(Sec_WebSocket_Extensions=DEFLATE)).connect() as client:
        payload = deflate(b"PUB nobody 500\r\n" + b"y" * 500 + b"\r\nPING\r\n")
        client.send(
            frame(BINARY, payload[:3], reserved=4, final=False)
            + frame(CONTINUATION, payload[3:], final=False)
            + frame(CONTINUATION, b"")
            + frame(BINARY, b"\0", reserved=4)
        )
        assert client.read_until(b"\r\n") == b"PONG\r\n"


def test_other_extension_is_not_agreed(port: int) -> None:
    with FrameClient(port, request(Sec_WebSocket_Extensions="x-other")) as client:
        assert "sec-websocket-extensions" not in client.response.headers


def test_compression_is_not_agreed_unless_configured(start: StartServer) -> None:
    port = websocket_port(start(websocket_config()))
    with FrameClient(port, request(Sec_WebSocket_Extensions=DEFLATE)) as client:
        assert "sec-websocket-extensions" not in client.response.headers
        client.connect()


@pytest.mark.parametrize(
    "payload",
    [
        deflate((b"PUB a 1000\r\n" + b"a" * 1000 + b"\r\n") * 70_000, level=9),
        b"\xff\xff\xff\xff",
        b"",
    ],
    ids=["bomb", "corrupt", "empty"],
)
def test_bad_compressed_message_closes_only_its_connection(port: int, payload: bytes) -> None:
    offer = request(Sec_WebSocket_Extensions=DEFLATE)
    with FrameClient(port, offer).connect() as other, FrameClient(port, offer).connect() as client:
        with contextlib.suppress(ConnectionError):
            client.send(frame(BINARY, payload, reserved=4) + frame(BINARY, b"PING\r\n"))
        data, _ = client.read_to_close()
        assert b"PONG" not in data
        other.send_text("PING\r\n")
        assert other.read_until(b"\r\n") == b"PONG\r\n"


# --- browsers


def test_browser_gets_frames_of_at_most_4096_bytes(port: int) -> None:
    with FrameClient(port, request(User_Agent=BROWSER)).connect() as client:
        noise = os.urandom(MAX_PAYLOAD)
        client.send_text("SUB a 1\r\n")
        client.send_text(b"PUB a %d\r\n%b\r\n" % (MAX_PAYLOAD, noise) * 3)
        wanted = b"MSG a 1 %d\r\n%b\r\n" % (MAX_PAYLOAD, noise) * 3
        data = b""
        while len(data) < len(wanted):
            first, payload = client.read_frame()
            assert first == 0x82
            data += payload
        assert data == wanted
        assert client.largest_frame_bytes <= 4096


def test_browser_gets_compressed_messages_in_fragments_of_at_most_4096_bytes(port: int) -> None:
    upgrade = request(User_Agent=BROWSER, Sec_WebSocket_Extensions=DEFLATE)
    with FrameClient(port, upgrade).connect() as client:
        text = os.urandom(MAX_PAYLOAD // 2).hex().encode()
        client.send_text("SUB a 1\r\n")
        client.send_text(b"PUB a %d\r\n%b\r\n" % (MAX_PAYLOAD, text) * 3)
        wanted = b"MSG a 1 %d\r\n%b\r\n" % (MAX_PAYLOAD, text) * 3
        data = b""
        while len(data) < len(wanted):
            data += client.read_message()
        assert data == wanted
        assert client.largest_frame_bytes <= 4096


# --- closing


def test_close_is_answered_with_the_same_code_and_text(port: int) -> None:
    with FrameClient(port).connect() as client:
        client.send(frame(BINARY, b"PING\r\n") + frame(CLOSE, b"\x03\xe8bye"))
        assert client.read_to_close() == (b"PONG\r\n", b"\x03\xe8bye")


def test_empty_close_is_answered_with_an_empty_close(port: int) -> None:
    with FrameClient(port).connect() as client:
        client.send(frame(CLOSE))
        assert client.read_to_close() == (b"", b"")


def test_close_with_invalid_text_is_answered_with_1007(port: int) -> None:
    with FrameClient(port).connect() as client:
        client.send(frame(CLOSE, b"\x03\xe8\xff"))
        assert client.read_to_close() == (b"", b"\x03\xefinvalid utf8 body in close frame")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (frame(BINARY, b"PING\r\n", mask=None), "mask bit missing"),
        (
            frame(BINARY, deflate(b"PING\r\n"), reserved=4),
            "compressed frame received without negotiated permessage-deflate",
        ),
        (frame(BINARY, b"PING\r\n", reserved=2), "RSV2 and RSV3 must be clear"),
        (frame(BINARY, b"PING\r\n", reserved=1), "RSV2 and RSV3 must be clear"),
        (frame(3, b"PING\r\n"), "unknown opcode 3"),
        (frame(11), "unknown opcode 11"),
        (frame(PING, final=False), "control frame does not have final bit set"),
        (
            frame(PING, b"a" * 126),
            "control frame length bigger than maximum allowed of 125 bytes",
        ),
        (frame(CONTINUATION, b"PING\r\n"), "invalid continuation frame"),
        (
            frame(BINARY, b"", final=False) + frame(BINARY, b"PING\r\n"),
            "new message started before final frame for previous message was received",
        ),
        (b"\x82\xff\x80" + bytes(11), "invalid 64-bit payload length"),
        (frame(CLOSE, b"\x03"), "close frame payload cannot be 1 byte"),
        (frame(CLOSE, b"\x03\xe7"), "invalid close status code 999"),
        (frame(CLOSE, b"\x03\xed"), "invalid close status code 1005"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_framing_violation_closes_with_1002(
    shared_kind: str, port: int, raw: bytes, text: str
) -> None:
    with FrameClient(port).connect() as client:
        client.send(raw)
        data, close = client.read_to_close()
        assert data == b""
        # The official server often closes before its close frame has left.
        if close is not None or shared_kind != "official":
            assert close == b"\x03\xea" + text.encode()


def test_framing_violation_before_connect_closes(shared_kind: str, port: int) -> None:
    with FrameClient(port) as client:
        client.read_until(b"\r\n")
        client.send(frame(BINARY, b"PING\r\n", mask=None))
        data, close = client.read_to_close()
        assert data == b""
        if close is not None or shared_kind != "official":
            assert close == b"\x03\xeamask bit missing"


def test_unknown_operation_closes_with_1002(shared_kind: str, port: int) -> None:
    with FrameClient(port).connect() as client:
        client.send_text("HELLO\r\n")
        data, close = client.read_to_close()
        if data or shared_kind != "official":
            assert data == b"-ERR 'Unknown Protocol Operation'\r\n"
        if close is not None or shared_kind != "official":
            assert close is not None
            assert close[:2] == b"\x03\xea"


def test_payload_above_the_limit_closes_with_1009(port: int) -> None:
    with connect(f"ws://127.0.0.1:{port}", compression=None) as client:
        info_of(client)
        log_in(client)
        client.send(f"PUB a {MAX_PAYLOAD + 1}\r\n".encode())
        assert text_of(client) == b"-ERR 'Maximum Payload Violation'\r\n"
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(timeout=REPLY_SECONDS)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1009
        assert caught.value.rcvd.reason == "Maximum Message Payload Exceeded"


def test_control_line_above_the_limit_closes_with_1008(port: int) -> None:
    with FrameClient(port).connect() as client:
        client.send_text("PUB " + "a" * 5000 + " 1\r\n")
        data, close = client.read_to_close()
        assert data == b"-ERR 'maximum control line exceeded'\r\n"
        assert close == b"\x03\xf0Maximum Control Line Exceeded"


def test_authorization_failure_closes_with_1008(start: StartServer) -> None:
    server = start(websocket_config("", "authorization { user: joe, password: pw }"))
    with connect(f"ws://127.0.0.1:{websocket_port(server)}", compression=None) as client:
        assert info_of(client)["auth_required"] is True
        client.send(b'CONNECT {"user":"joe","pass":"wrong"}\r\n')
        assert text_of(client) == b"-ERR 'Authorization Violation'\r\n"
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(timeout=REPLY_SECONDS)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1008
        assert caught.value.rcvd.reason == "Authentication Failure"


def test_authorization_timeout_closes_with_1008(start: StartServer) -> None:
    server = start(websocket_config("", "authorization { token: t, timeout: 0.2 }"))
    with FrameClient(websocket_port(server)) as client:
        client.read_until(b"\r\n")
        data, close = client.read_to_close()
        assert data == b"-ERR 'Authentication Timeout'\r\n"
        assert close == b"\x03\xf0Authentication Timeout"


def test_shutdown_closes_with_1001(start: StartServer) -> None:
    server = start(websocket_config())
    with FrameClient(websocket_port(server)).connect() as client:
        server.signal(signal.SIGTERM)
        assert client.read_to_close() == (b"", b"\x03\xe9Server Shutdown")
