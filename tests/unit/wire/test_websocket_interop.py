"""Our frames against the `websockets` package, both ways, as server and as client."""

from __future__ import annotations

import os

import pytest
from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import (
    ClientPerMessageDeflateFactory,
    PerMessageDeflate,
)
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import OPEN, Protocol
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from tradewind.options import WebsocketOptions
from tradewind.server.websocket.websocket_handshake import Handshake
from tradewind.wire.websocket import FrameDecoder, FrameEncoder

MIB = 1024 * 1024
TEXTS = [b"a", b"PING\r\n" * 40, bytes(range(256)) * 300, os.urandom(70_000)]
CHUNK_BYTES = [1, 7, 4096, 1 << 30]


def chunks(raw: bytes, size: int) -> list[bytes]:
    return [raw[start : start + size] for start in range(0, len(raw), size)]


def received(peer: Protocol) -> bytes:
    """The data of the frames that the package has read."""
    events = peer.events_received()
    assert peer.parser_exc is None
    return b"".join(event.data for event in events if isinstance(event, Frame))


def open_client(
    *, compression: bool, window_bits: int | None = None
) -> tuple[ClientProtocol, FrameDecoder, FrameEncoder]:
    """A client of the package that went through our handshake, and our ends of the connection."""
    factory = ClientPerMessageDeflateFactory(
        server_no_context_takeover=True,
        client_no_context_takeover=True,
        server_max_window_bits=window_bits,
    )
    client = ClientProtocol(
        parse_uri("ws://localhost/"),
        extensions=[factory] if compression else None,
        max_size=MIB,
    )
    client.send_request(client.connect())
    result = Handshake(WebsocketOptions(compression=True), False).feed(
        b"".join(client.data_to_send())
    )
    assert result is not None
    assert result.accepted
    assert result.compression == compression
    client.receive_data(result.response)
    assert client.handshake_exc is None
    assert client.state is OPEN
    client.events_received()
    decoder = FrameDecoder(MIB, require_mask=True, compression=result.compression)
    encoder = FrameEncoder(result.compression, False, window_bits=result.window_bits)
    return client, decoder, encoder


@pytest.mark.parametrize("chunk_bytes", CHUNK_BYTES)
@pytest.mark.parametrize("compression", [False, True])
def test_we_read_what_a_client_sends(compression: bool, chunk_bytes: int) -> None:
    client, decoder, _ = open_client(compression=compression)
    for text in TEXTS:
        client.send_binary(text)
        client.send_ping(b"still there?")
        raw = b"".join(client.data_to_send())
        assert b"".join(map(decoder.feed, chunks(raw, chunk_bytes))) == text
        assert decoder.take_control() == [(Opcode.PING, b"still there?")]


@pytest.mark.parametrize("compression", [False, True])
def test_we_read_fragments_of_a_client(compression: bool) -> None:
    client, decoder, _ = open_client(compression=compression)
    client.send_binary(b"PUB a ", fin=False)
    client.send_continuation(b"3\r\n", fin=False)
    client.send_continuation(b"abc\r\n", fin=True)
    assert b"".join(map(decoder.feed, client.data_to_send())) == b"PUB a 3\r\nabc\r\n"


@pytest.mark.parametrize("chunk_bytes", CHUNK_BYTES)
@pytest.mark.parametrize("window_bits", [None, 9, 12, 15])
@pytest.mark.parametrize("compression", [False, True])
def test_client_reads_what_we_send(
    compression: bool, window_bits: int | None, chunk_bytes: int
) -> None:
    client, _, encoder = open_client(compression=compression, window_bits=window_bits)
    for text in TEXTS:
        for chunk in chunks(encoder.encode(text), chunk_bytes):
            client.receive_data(chunk)
        assert received(client) == text


def test_client_reads_our_fragments_for_browsers() -> None:
    client, _, _ = open_client(compression=True)
    text = os.urandom(20_000).hex().encode()
    client.receive_data(FrameEncoder(True, True).encode(text))
    assert received(client) == text


def test_client_reads_our_close() -> None:
    client, _, encoder = open_client(compression=True)
    client.receive_data(encoder.encode_close(1008, "Authentication Failure"))
    assert client.close_rcvd == Close(1008, "Authentication Failure")


def test_we_read_the_close_of_a_client() -> None:
    client, decoder, _ = open_client(compression=False)
    client.send_close(1000, "bye")
    assert b"".join(map(decoder.feed, client.data_to_send())) == b""
    assert decoder.take_control() == [(Opcode.CLOSE, b"\x03\xe8bye")]
    assert decoder.closed


@pytest.mark.parametrize("compression", [False, True])
def test_as_a_client_we_talk_to_a_server(compression: bool) -> None:
    server = ServerProtocol(state=OPEN, max_size=MIB)
    if compression:
        server.extensions = [PerMessageDeflate(True, True, 15, 15)]
    encoder = FrameEncoder(compression, False, mask=True, mask_source=os.urandom)
    decoder = FrameDecoder(MIB, require_mask=False, compression=compression)
    for text in TEXTS:
        server.receive_data(encoder.encode(text) + encoder.encode_control(Opcode.PING, b"?"))
        assert received(server) == text + b"?"
        server.send_binary(text)
        assert b"".join(map(decoder.feed, server.data_to_send())) == text
        assert decoder.take_control() == [(Opcode.PONG, b"?")]
