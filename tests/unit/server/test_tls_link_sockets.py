"""TLS on real sockets, on both event loops: alerts arrive, and nothing is left of anybody."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import uvloop
from tls_link_kit import CONNECT, Ground, RecordingLog, until

from certificates import Authority
from tradewind.durations import SECOND_NS
from tradewind.options import MIB, ServerOptions, WebsocketOptions
from tradewind.server.lifecycle.app import ServerApp
from tradewind.server.tls.tls_pipe import TlsPipe

LOOPS: list[Any] = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
]
SECONDS = 30
Scenario = Callable[[ServerApp, RecordingLog], Awaitable[None]]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    return Ground(authority, authority.server(), authority.client(subject="CN=client"))


@pytest.fixture
def small_heap() -> None:
    """Let `nobody_is_left` look only at what a test itself makes: it asks once per loop round,
    and a look at everything that the tests before it left behind takes a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=LOOPS)
def run(
    request: pytest.FixtureRequest, small_heap: None
) -> Callable[[ServerOptions, Scenario], None]:
    """Run a scenario against a server in the same loop, and see that nothing is left."""

    async def main(options: ServerOptions, scenario: Scenario) -> None:
        log: Any = RecordingLog()
        server = ServerApp(options, log)
        async with server:
            await scenario(server, log)
        await until(lambda: len(asyncio.all_tasks()) == 1)
        assert server.broker.sessions == {}
        await until(nobody_is_left)

    def start(options: ServerOptions, scenario: Scenario) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main(options, scenario))

    return start


def nobody_is_left() -> bool:
    gc.collect()
    return not [found for found in gc.get_objects() if isinstance(found, TlsPipe)]


def options(ground: Ground, *, verify: bool = False, **settings: Any) -> ServerOptions:
    tls = ground.tls_options(verify=verify)
    return ServerOptions(host="127.0.0.1", port=-1, tls=tls, **settings)


def open_socket(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), SECONDS)
    connection.settimeout(SECONDS)
    return connection


def read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\r\n"):
        piece = connection.recv(1)
        if not piece:
            break
        line += piece
    return line


def secure(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    connection = open_socket(port)
    try:
        assert read_line(connection).startswith(b"INFO {")
        return context.wrap_socket(connection, server_hostname="localhost")
    except BaseException:
        connection.close()
        raise


def good_client(port: int, ground: Ground) -> None:
    with secure(port, ground.client.client_context(ground.authority)) as client:
        client.sendall(CONNECT + b"PING\r\n")
        assert read_line(client) == b"PONG\r\n"


def client_that_breaks_the_protocol(port: int, ground: Ground) -> None:
    with secure(port, ground.client.client_context(ground.authority)) as client:
        client.sendall(b"FOO\r\n")
        assert read_line(client) == b"-ERR 'Unknown Protocol Operation'\r\n"
        assert client.recv(1) == b""


def client_without_certificate(port: int, ground: Ground) -> None:
    with secure(port, ground.authority.client_context()) as client:
        # It has no idea yet that it is refused, and goes on sending.
        client.sendall(CONNECT + bytes(3 * MIB))
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            client.recv(1)


def plain_client(port: int, ground: Ground) -> None:
    with open_socket(port) as client:
        read_line(client)
        client.sendall(CONNECT)
        assert client.recv(1) == b""


def garbage_client(port: int, ground: Ground) -> None:
    with open_socket(port) as client:
        read_line(client)
        client.sendall(b"\x16\x03\x01\x00\x05hello")
        assert client.recv(100)[0] == 0x15
        assert client.recv(1) == b""


def client_that_leaves(port: int, ground: Ground) -> None:
    with open_socket(port) as client:
        read_line(client)
        client.sendall(b"\x16\x03\x01\x02\x00\x01")


CLIENTS = [
    good_client,
    client_that_breaks_the_protocol,
    client_without_certificate,
    plain_client,
    garbage_client,
    client_that_leaves,
]


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_is_left_of_a_client(
    run: Callable[..., None],
    ground: Ground,
    client: Callable[[int, Ground], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Timers that were forgotten would let go of everybody only when the wait below is long over.
    for module in ("links.link_core", "tls.tls_pipe"):
        monkeypatch.setattr(f"tradewind.server.{module}.LINGER_SECONDS", 600)

    async def scenario(server: ServerApp, log: RecordingLog) -> None:
        for _ in range(5):
            await asyncio.to_thread(client, server.port, ground)
        await until(lambda: server.broker.sessions == {})
        await until(nobody_is_left)
        refused = client not in (good_client, client_that_breaks_the_protocol)
        assert len(log.about_handshake()) == (5 if refused else 0)

    run(options(ground, verify=True), scenario)


def test_silent_client_is_closed_at_the_timeout(run: Callable[..., None], ground: Ground) -> None:
    def silent_client(port: int) -> None:
        with open_socket(port) as client:
            read_line(client)
            assert client.recv(1) == b""

    async def scenario(server: ServerApp, log: RecordingLog) -> None:
        await asyncio.to_thread(silent_client, server.port)
        await until(lambda: server.broker.sessions == {})
        assert [text.rpartition(": ")[2] for _, text in log.about_handshake()] == ["timeout"]

    tls = ground.tls_options(timeout_ns=SECOND_NS // 20)
    run(ServerOptions(host="127.0.0.1", port=-1, tls=tls), scenario)


def test_slow_reader_gets_everything(run: Callable[..., None], ground: Ground) -> None:
    """More than the sockets hold: the server has to wait for the client, and goes on."""
    body = bytes(range(256)) * 256
    count = 300

    def slow_reader(port: int) -> None:
        with secure(port, ground.authority.client_context()) as client:
            client.sendall(CONNECT + b"SUB a 1\r\nPING\r\n")
            assert read_line(client) == b"PONG\r\n"
            for _ in range(count):
                client.sendall(b"PUB a %d\r\n%b\r\n" % (len(body), body))
            message = b"MSG a 1 %d\r\n%b\r\n" % (len(body), body)
            left = b""
            for _ in range(count):
                while len(left) < len(message):
                    piece = client.recv(1 << 18)
                    assert piece, "closed"
                    left = (left + piece).removeprefix(b"PING\r\n")
                assert left[: len(message)] == message
                left = left[len(message) :].removeprefix(b"PING\r\n")

    async def scenario(server: ServerApp, log: RecordingLog) -> None:
        await asyncio.to_thread(slow_reader, server.port)

    run(options(ground), scenario)


def test_plain_and_tls_clients_share_a_port(run: Callable[..., None], ground: Ground) -> None:
    def plain(port: int) -> None:
        with open_socket(port) as client:
            read_line(client)
            for piece in (b"P", b"ING\r\n", b"PING\r\n"):
                client.sendall(piece)
            assert read_line(client) == read_line(client) == b"PONG\r\n"

    async def scenario(server: ServerApp, log: RecordingLog) -> None:
        for _ in range(3):
            await asyncio.to_thread(plain, server.port)
            await asyncio.to_thread(good_client, server.port, ground)
        await until(lambda: server.broker.sessions == {})
        assert log.about_handshake() == []

    run(options(ground, allow_non_tls=True), scenario)


def test_stop_takes_unfinished_handshakes_along(run: Callable[..., None], ground: Ground) -> None:
    clients: list[socket.socket] = []

    def begin(port: int, first: bytes) -> None:
        client = open_socket(port)
        clients.append(client)
        client.sendall(first)

    async def scenario(server: ServerApp, log: RecordingLog) -> None:
        websocket_port = int(server.websocket_url.rpartition(":")[2])
        for first in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"):
            await asyncio.to_thread(begin, server.port, first)
            await asyncio.to_thread(begin, websocket_port, first)
        await until(lambda: len(server.broker.sessions) == 3)

    websocket = WebsocketOptions(host="127.0.0.1", port=-1, tls=ground.tls_options())
    run(options(ground, websocket=websocket), scenario)
    for client in clients:
        # Reset, when something that it sent was never read.
        with client, suppress(ConnectionResetError):
            while client.recv(4096):
                pass


def test_stop_takes_unfinished_upgrades_along(run: Callable[..., None], ground: Ground) -> None:
    clients: list[socket.socket] = []

    def begin(port: int) -> None:
        client = ground.authority.client_context().wrap_socket(
            open_socket(port), server_hostname="localhost"
        )
        clients.append(client)
        client.sendall(b"GET / HTTP/1.1\r\n")

    async def scenario(server: ServerApp, log: RecordingLog) -> None:
        await asyncio.to_thread(begin, int(server.websocket_url.rpartition(":")[2]))

    websocket = WebsocketOptions(
        host="127.0.0.1",
        port=-1,
        tls=ground.tls_options(),
        handshake_timeout_ns=60 * SECOND_NS,
    )
    run(options(ground, websocket=websocket), scenario)
    with clients[0] as client:
        assert client.recv(1) == b""
