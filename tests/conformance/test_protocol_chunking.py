"""The same bytes give the same answers however the network cuts them into pieces."""

from __future__ import annotations

import json

import pytest

from harness import Connect, RawClient, StartServer
from jwt_kit import account_jwt, account_key, login, memory_configuration, user_jwt, user_key
from websocket_frames import PING, FrameClient, frame, websocket_config, websocket_port

ACCOUNTS = [account_key(number) for number in range(1, 9)]
USER = user_key(1)
AFTER_CONNECT = b"SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n"

# No message matches two subscriptions: the order of their copies would be the server's choice.
TRANSCRIPT = (
    b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
    b"SUB cut.one 1\r\n"
    b"sub cut.any.* 22\n"
    b"PUB cut.one 5\r\nhello\r\n"
    b"PUB\tcut.any.two  cut.reply\t6\r\n\r\n\r\n\r\n\r\n"
    b"HPUB cut.one r 19 21\r\nNATS/1.0\r\nA: bc\r\n\r\nhi\r\n"
    b"PUB cut.one 0\r\n\r\n"
    b"UNSUB 1 4\r\n"
    b"PUB cut.one 1\r\nx\r\n"
    b"SUB bad..one 3\r\n"
    b"PUB cut.one 1\r\ny\r\n"
    b"pub cut.any.1 14\nPUB cut.one 0\r\r\n"
    b"UNSUB 22\r\n"
    b"PUB cut.any.1 0\r\n\r\n"
    b"SUB cut.inbox.* 4\r\n"
    b"PUB cut.none cut.inbox.9 2\r\nno\r\n"
    b"PONG\r\n"
    b"PING\r\n"
)
ANSWER = (
    b"MSG cut.one 1 5\r\nhello\r\n"
    b"MSG cut.any.two 22 cut.reply 6\r\n\r\n\r\n\r\n\r\n"
    b"HMSG cut.one 1 r 19 21\r\nNATS/1.0\r\nA: bc\r\n\r\nhi\r\n"
    b"MSG cut.one 1 0\r\n\r\n"
    b"MSG cut.one 1 1\r\nx\r\n"
    b"-ERR 'Invalid Subject'\r\n"
    b"MSG cut.any.1 22 14\r\nPUB cut.one 0\r\r\n"
    b"HMSG cut.inbox.9 4 40 40\r\nNATS/1.0 503\r\nNats-Subject: cut.none\r\n\r\n\r\n"
    b"PONG\r\n"
)
FATAL_TRANSCRIPTS = {
    "unknown-verb": (b"PING\r\nPUX", b"PONG\r\n-ERR 'Unknown Protocol Operation'\r\n"),
    "bad-size": (b"PING\r\nPUB cut 1x\r\n", b"PONG\r\n"),
    "bad-json": (b'PING\r\nCONNECT {"verbose":false,}\r\n', b"PONG\r\n"),
    "payload-end": (b"PUB cut 2\r\nhi\rX", b"-ERR 'Unknown Protocol Operation'\r\n"),
    "too-large": (b"PUB cut 1048577\r\n", b"-ERR 'Maximum Payload Violation'\r\n"),
}


def send_pieces(client: RawClient, other: RawClient, pieces: list[bytes]) -> None:
    """Send one piece at a time.

    A round trip on another connection in between gives the server its turn to read each alone.
    """
    for piece in pieces:
        try:
            client.send(piece)
        except (BrokenPipeError, ConnectionResetError):
            return
        other.ping()


def test_transcript_in_one_piece(raw: Connect) -> None:
    client = raw()
    client.send(TRANSCRIPT)
    client.expect_bytes(ANSWER)
    client.send("PING\r\n")
    client.expect_bytes("PONG\r\n")  # and nothing else before it


def test_transcript_in_two_pieces_at_every_point(raw: Connect, wire: Connect) -> None:
    other = wire()
    for cut in range(1, len(TRANSCRIPT)):
        with raw() as client:
            send_pieces(client, other, [TRANSCRIPT[:cut], TRANSCRIPT[cut:]])
            client.expect_bytes(ANSWER)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 16, 61])
def test_transcript_in_pieces_of_equal_size(raw: Connect, wire: Connect, size: int) -> None:
    client = raw()
    pieces = [TRANSCRIPT[index : index + size] for index in range(0, len(TRANSCRIPT), size)]
    send_pieces(client, wire(), pieces)
    client.expect_bytes(ANSWER)


@pytest.mark.parametrize(("data", "answer"), FATAL_TRANSCRIPTS.values(), ids=FATAL_TRANSCRIPTS)
def test_fatal_transcript_in_two_pieces_at_every_point(
    raw: Connect, wire: Connect, data: bytes, answer: bytes
) -> None:
    other = wire()
    for cut in range(1, len(data)):
        with raw() as client:
            client.connect(protocol=0)
            send_pieces(client, other, [data[:cut], data[cut:]])
            client.expect_closed(answer)


@pytest.mark.parametrize("cut", [1, 4, 5, 1000, 4095, 4096, 4100, 4101])
@pytest.mark.parametrize("excess", [0, 1])
def test_control_line_limit_does_not_depend_on_the_pieces(
    wire: Connect, cut: int, excess: int
) -> None:
    line = b"PUB " + b"a" * (4094 + excess) + b" 0\r\n\r\nPING\r\n"
    client = wire()
    send_pieces(client, wire(), [line[:cut], line[cut:]])
    if excess:
        client.expect_closed("-ERR 'maximum control line exceeded'\r\n")
    else:
        client.expect_bytes("PONG\r\n")


def test_large_payload_in_uneven_pieces(wire: Connect, subject: str) -> None:
    client, other = wire(), wire()
    payload = bytes(range(256)) * 1024
    data = f"SUB {subject} 1\r\nPUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\n"
    pieces, start, size = [], 0, 1
    while start < len(data):
        pieces.append(data[start : start + size])
        start, size = start + size, size * 3 % 70_001
    send_pieces(client, other, pieces)
    assert client.read_message() == (f"MSG {subject} 1 {len(payload)}", b"", payload)


def test_two_connections_interleaved_byte_by_byte(raw: Connect) -> None:
    first, second = raw(), raw()
    # The same operations on subjects of their own, so that neither sees messages of the other.
    other = TRANSCRIPT.replace(b"cut", b"hew")
    for index in range(len(TRANSCRIPT)):
        first.send(TRANSCRIPT[index : index + 1])
        second.send(other[index : index + 1])
    first.expect_bytes(ANSWER)
    second.expect_bytes(ANSWER.replace(b"cut", b"hew"))


def test_first_login_of_an_account_in_two_frames_runs_what_follows_once(start: StartServer) -> None:
    """The server learns of the account while it runs the second piece of CONNECT."""
    preload = {key.public: account_jwt(key) for key in ACCOUNTS}
    server = start(memory_configuration(preload, more=websocket_config()))
    for number, key in enumerate(ACCOUNTS):
        with FrameClient(websocket_port(server)) as client:
            info = json.loads(client.read_until(b"\r\n").removeprefix(b"INFO "))
            fields = login(user_jwt(USER, key), USER, info["nonce"], protocol=0)
            connect = b"CONNECT " + json.dumps(fields).encode() + b"\r\n"
            place = 1 + number * (len(connect) - 1) // len(ACCOUNTS)
            client.send_text(connect[:place])
            client.send(frame(PING, b"read"))
            assert client.read_frame()[1] == b"read"
            client.send_text(connect[place:] + AFTER_CONNECT)
            assert client.read_until(b"PONG\r\n") == b"MSG a 1 2\r\nhi\r\nPONG\r\n", place
            client.send_text(b"PING\r\n")
            assert client.read_until(b"PONG\r\n") == b"PONG\r\n", place
