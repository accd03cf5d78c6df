"""Output of links to a receiver that reads in fits and starts: all of it, in order, once."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import uvloop
from tls_link_kit import CONNECT, Ground, RecordingLog, until

from certificates import Authority
from tradewind.broker.contracts import RemoteAddress
from tradewind.broker.session import Session
from tradewind.options import ServerOptions, WebsocketOptions
from tradewind.server.lifecycle.app import ServerApp
from tradewind.server.links.link import StreamLink
from tradewind.testing import FakeClock

LOOPS: list[Any] = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
]
SECONDS = 60
HELLO = CONNECT + b"SUB s 1\r\nPING\r\n"
Read = Callable[[int], Awaitable[bytes]]  # at most so many bytes of protocol, at least one


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    return Ground(authority, authority.server(), authority.client(subject="CN=client"))


class Receiver:
    """The server's session and link of one client, and what it is to get."""

    def __init__(self, server: ServerApp, read: Read) -> None:
        self.server = server
        self.read = read
        self.due = bytearray()
        self.link: Any = None
        self._number = 0

    async def begin(self) -> None:
        """Wait for the answer to HELLO. Then time stops, so that no PING comes in between."""
        seen = b""
        while not seen.endswith(b"PONG\r\n"):
            seen += await self.read(65536)
        (session,) = self.server.broker.sessions.values()
        assert isinstance(session, Session)
        self.link = session.link
        self.server.broker.clock = FakeClock()

    def send(self, size: int) -> None:
        """A message of about this size, and the end of the turn."""
        self._number += 1
        payload = (b"%d " % self._number) * (size // 4 + 1)
        self.server.broker.accounts["$G"].publish("s", payload)
        self.due += b"MSG s 1 %d\r\n%s\r\n" % (len(payload), payload)
        self.server.turns.turn_now()

    async def take(self, size: int) -> None:
        """Read so many bytes, which must be the next ones."""
        while size:
            piece = await asyncio.wait_for(self.read(size), SECONDS)
            assert piece
            assert piece == self.due[: len(piece)]
            del self.due[: len(piece)]
            size -= len(piece)

    @property
    def queued_bytes(self) -> int:
        """What the transport has got and the socket has not taken."""
        return int(self.link.transport.get_write_buffer_size())


async def fits_and_starts(receiver: Receiver, seed: int) -> tuple[int, int]:
    """Send and read by chance; gives how often something was left to the transport, and not."""
    random = Random(seed)
    queued = direct = 0
    for _ in range(250):
        receiver.send(random.choice((0, 10, 1000, 20_000, 150_000)))
        if receiver.queued_bytes:
            queued += 1
        else:
            direct += 1
        if random.random() < 0.5:
            await receiver.take(min(random.choice((1, 3000, 200_000)), len(receiver.due)))
        if random.random() < 0.1:
            await receiver.take(len(receiver.due))
        await asyncio.sleep(0)
    await receiver.take(len(receiver.due))
    return queued, direct


def run(make_loop: Callable[[], Any], options: ServerOptions, scenario: Any) -> None:
    async def main() -> None:
        log: Any = RecordingLog()
        async with ServerApp(options, log) as server:
            await scenario(server)
        assert [line for line in log.lines if line[0] == "error"] == []

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


# ---------------------------------------------------------------- plain, straight to the socket


def plain_options() -> ServerOptions:
    return ServerOptions(host="127.0.0.1", port=-1)


@asynccontextmanager
async def with_tiny_buffer(server: ServerApp) -> AsyncIterator[tuple[Receiver, socket.socket]]:
    """A client whose socket takes only a few kilobytes from the server."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    theirs.setblocking(False)
    ours.setblocking(False)
    remote = RemoteAddress("192.0.2.1", 4711)
    await loop.connect_accepted_socket(
        lambda: StreamLink(server.turns, lambda: server.broker.open_session(remote)), ours
    )
    receiver = Receiver(server, lambda size: loop.sock_recv(theirs, size))
    with theirs:
        await loop.sock_sendall(theirs, HELLO)
        await receiver.begin()
        yield receiver, theirs


@pytest.mark.parametrize("make_loop", LOOPS)
@pytest.mark.parametrize("seed", range(3))
def test_plain_output_arrives_once_and_in_order(make_loop: Any, seed: int) -> None:
    async def scenario(server: ServerApp) -> None:
        async with with_tiny_buffer(server) as (receiver, _):
            queued, direct = await fits_and_starts(receiver, seed)
            assert queued >= 5
            assert direct >= 5

    run(make_loop, plain_options(), scenario)


@pytest.mark.parametrize("make_loop", LOOPS)
def test_plain_output_goes_straight_to_a_socket_that_takes_it(make_loop: Any) -> None:
    async def scenario(server: ServerApp) -> None:
        async with with_tiny_buffer(server) as (receiver, theirs):
            for _ in range(3):
                receiver.send(100)
                assert theirs.recv(65536) == receiver.due  # before the loop has done anything
                receiver.due.clear()
                receiver.send(200_000)
                receiver.send(10)
                assert receiver.queued_bytes
                await receiver.take(len(receiver.due))
                await until(lambda: not receiver.queued_bytes, SECONDS)

    run(make_loop, plain_options(), scenario)


@pytest.mark.parametrize("make_loop", LOOPS)
def test_output_behind_a_paused_transport_waits_in_the_session(make_loop: Any) -> None:
    async def scenario(server: ServerApp) -> None:
        async with with_tiny_buffer(server) as (receiver, _):
            for _ in range(30):
                receiver.send(100_000)
            assert receiver.link.write_paused
            assert receiver.queued_bytes <= 4096
            assert receiver.link.session.pending_bytes >= len(receiver.due) - 65536
            for _ in range(20):
                await receiver.take(50_000)
                receiver.send(10)
            await receiver.take(len(receiver.due))
            await until(lambda: not receiver.link.write_paused, SECONDS)

    run(make_loop, plain_options(), scenario)


@pytest.mark.parametrize("make_loop", LOOPS)
def test_last_words_come_behind_what_the_socket_has_not_taken(make_loop: Any) -> None:
    async def scenario(server: ServerApp) -> None:
        async with with_tiny_buffer(server) as (receiver, theirs):
            receiver.send(200_000)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(theirs, b"nonsense\r\n")
            await until(lambda: not server.broker.sessions, SECONDS)
            receiver.due += b"-ERR 'Unknown Protocol Operation'\r\n"
            await receiver.take(len(receiver.due))
            assert await loop.sock_recv(theirs, 1) == b""

    run(make_loop, plain_options(), scenario)


@pytest.mark.parametrize("make_loop", LOOPS)
def test_receiver_that_hangs_up_in_the_middle_ends_its_session_only(make_loop: Any) -> None:
    async def scenario(server: ServerApp) -> None:
        async with with_tiny_buffer(server) as (receiver, theirs):
            receiver.send(200_000)
            theirs.close()
            receiver.send(10)
            await until(lambda: not server.broker.sessions, SECONDS)
        async with with_tiny_buffer(server) as (again, _):
            again.send(10)
            await again.take(len(again.due))

    run(make_loop, plain_options(), scenario)


# ---------------------------------------------------------------- through TLS and frames


async def open_streams(
    port: int, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    name = "localhost" if context is not None else None
    return await asyncio.open_connection(
        "127.0.0.1", port, limit=1024, ssl=context, server_hostname=name
    )


@pytest.mark.parametrize("make_loop", LOOPS)
def test_tls_output_arrives_once_and_in_order(make_loop: Any, ground: Ground) -> None:
    async def scenario(server: ServerApp) -> None:
        reader, writer = await open_streams(server.port, ground.authority.client_context())
        writer.write(HELLO)
        receiver = Receiver(server, reader.read)
        await receiver.begin()
        await fits_and_starts(receiver, 1)
        writer.close()
        await until(lambda: not server.broker.sessions, SECONDS)

    tls = ground.tls_options(verify=False, handshake_first_ns=0)
    run(make_loop, ServerOptions(host="127.0.0.1", port=-1, tls=tls), scenario)


class Frames:
    """The payloads of the frames that a WebSocket server sends."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._left = 0

    async def read(self, size: int) -> bytes:
        while not self._left:
            head = await self._reader.readexactly(2)
            self._left = head[1]
            if self._left >= 126:
                long = await self._reader.readexactly(2 if self._left == 126 else 8)
                self._left = int.from_bytes(long, "big")
        piece = await self._reader.read(min(size, self._left))
        self._left -= len(piece)
        return piece


@pytest.mark.parametrize("make_loop", LOOPS)
def test_websocket_output_arrives_once_and_in_order(make_loop: Any) -> None:
    async def scenario(server: ServerApp) -> None:
        reader, writer = await open_streams(int(server.websocket_url.rpartition(":")[2]))
        key = base64.b64encode(bytes(16)).decode()
        writer.write(
            f"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        assert len(HELLO) < 126
        writer.write(bytes([0x82, 0x80 | len(HELLO)]) + bytes(4) + HELLO)
        receiver = Receiver(server, Frames(reader).read)
        await receiver.begin()
        await fits_and_starts(receiver, 1)
        writer.close()
        await until(lambda: not server.broker.sessions, SECONDS)

    websocket = WebsocketOptions(host="127.0.0.1", port=-1, no_tls=True)
    options = ServerOptions(host="127.0.0.1", port=-1, websocket=websocket)
    run(make_loop, options, scenario)
