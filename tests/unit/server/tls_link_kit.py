"""A broker, a socket that is only memory, and a TLS client that is only memory."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from certificates import Authority, Certificate
from tradewind.broker.broker import Broker
from tradewind.broker.contracts import RemoteAddress
from tradewind.broker.session import Session
from tradewind.clock import SystemClock
from tradewind.durations import SECOND_NS
from tradewind.options import ServerOptions, TlsOptions
from tradewind.server.lifecycle.app import account_limits, build_gates
from tradewind.server.links.tls_link import client_pipe
from tradewind.server.tls.handshakes import HandshakeTurns, Shaker
from tradewind.server.tls.tls import server_context
from tradewind.server.tls.tls_pipe import TlsPipe, TlsSettings
from tradewind.wire import ops

MILLISECOND_NS = 1_000_000
CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


def every_step_is_cheap() -> int:
    """A processor clock that stands still, for tests of how many steps an iteration takes."""
    return 0


class RecordingLog:
    """Keeps lines as (level, text)."""

    debug_enabled = True
    trace_enabled = False

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def notice(self, text: str) -> None:
        self.lines.append(("notice", text))

    def warn(self, text: str) -> None:
        self.lines.append(("warn", text))

    def error(self, text: str) -> None:
        self.lines.append(("error", text))

    def debug(self, text: str) -> None:
        self.lines.append(("debug", text))

    def trace(self, text: str) -> None:
        self.lines.append(("trace", text))

    def about_handshake(self) -> list[tuple[str, str]]:
        return [line for line in self.lines if "TLS handshake error" in line[1]]


class Turns:
    """Ends turns in the next iteration of the loop, as the server does."""

    def __init__(self, options: ServerOptions) -> None:
        self.log = RecordingLog()
        self.broker = Broker(
            options,
            build_gates(options),
            account_limits(options),
            server_id="N" * 56,
            clock=SystemClock(),
            log=self.log,
            chance=random.Random(1),
        )

    def input_done(self, link: object) -> None:
        self.turn_needed()

    def lost(self, session: Session, reason: str) -> None:
        session.close(reason)
        self.turn_needed()

    def turn_needed(self) -> None:
        asyncio.get_running_loop().call_soon(self.turn_now)

    def release_held(self) -> None:
        """Do nothing: no link is held here."""

    def turn_now(self) -> None:
        for session in self.broker.end_turn():
            if session.link is not None:
                session.link.flush()


class MemoryTransport(asyncio.Transport):
    """A socket without a network: `sent` is what went out, `receive` is what comes in."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.protocol: Any = protocol
        self.sent = bytearray()
        self.waiting = bytearray()
        self.is_paused = False
        self.is_closed = False
        self.is_aborted = False
        self.eof_sent = False
        self.is_lost = False
        self.unsent_bytes = 0
        self.largest_read_bytes = 0

    def receive(self, data: bytes) -> None:
        """Pass bytes from the peer to the protocol; the unread rest waits."""
        self.waiting += data
        while self.waiting and not self.is_paused and not self.is_closed:
            view = self.protocol.get_buffer(-1)
            size = min(len(view), len(self.waiting))
            view[:size] = self.waiting[:size]
            del self.waiting[:size]
            self.largest_read_bytes = max(self.largest_read_bytes, size)
            self.protocol.buffer_updated(size)

    def receive_eof(self) -> None:
        if not self.protocol.eof_received():
            self.close()

    def lose(self, error: Exception | None = None) -> None:
        if not self.is_lost:
            self.is_lost = self.is_closed = True
            self.protocol.connection_lost(error)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.eof_sent, "written behind the end"
        assert not self.is_closed, "written after the close"
        self.sent += data

    def write_eof(self) -> None:
        self.eof_sent = True

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if not self.unsent_bytes:
                asyncio.get_running_loop().call_soon(self.lose)

    def abort(self) -> None:
        self.is_aborted = self.is_closed = True
        asyncio.get_running_loop().call_soon(self.lose)

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        asyncio.get_running_loop().call_soon(self.receive, b"")

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 4711) if name == "peername" else default


class Peer:
    """The client's end of TLS; `take` gives what it would send."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def handshake(self, data: bytes = b"") -> bool:
        self.incoming.write(data)
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def take(self) -> bytes:
        return self.outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        view = memoryview(data)
        while view:
            view = view[self.tls.write(view) :]
        return self.take()

    def decrypt(self, data: bytes) -> tuple[bytes, bool]:
        """The plaintext, and whether the server said goodbye."""
        self.incoming.write(data)
        plain = b""
        while True:
            try:
                piece = self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                return plain, False
            if not piece:
                return plain, True
            plain += piece


@dataclass
class Connection:
    """One accepted connection, from both ends."""

    turns: Turns
    settings: TlsSettings
    pipe: TlsPipe
    transport: MemoryTransport
    peer: Peer
    link: Any

    @property
    def session(self) -> Session:
        return self.link.session

    @property
    def log(self) -> RecordingLog:
        return self.turns.log

    def take_sent(self) -> bytes:
        sent = bytes(self.transport.sent)
        self.transport.sent.clear()
        return sent

    def shake_hands(self, chunk_bytes: int = 1 << 20) -> None:
        """Run the handshake, in pieces of `chunk_bytes` towards the server."""
        complete = self.peer.handshake()
        for _ in range(10):
            data = self.peer.take()
            for start in range(0, len(data), chunk_bytes):
                self.transport.receive(data[start : start + chunk_bytes])
            if complete and not data:
                return
            complete = self.peer.handshake(self.take_sent())
        raise AssertionError("the handshake does not end")

    async def say(self, data: bytes) -> bytes:
        """Send over TLS and give the answer once it ends with a line."""
        self.transport.receive(self.peer.encrypt(data))
        return await self.hear()

    async def hear(self) -> bytes:
        heard = self.peer.decrypt(self.take_sent())[0]
        while not heard.endswith(b"\r\n"):
            await until(lambda: bool(self.transport.sent))
            heard += self.peer.decrypt(self.take_sent())[0]
        return heard

    async def gone(self) -> None:
        """Wait until nothing of it is left."""
        await until(lambda: self.transport.is_lost)
        assert self.turns.broker.sessions == {}
        assert len(self.settings.pending) == 0
        assert len(self.settings.turns) == 0
        assert self.pipe._timer is None


class NoWaiting(HandshakeTurns):
    """Everybody is next at once: then a test need not leave the loop to it."""

    def request(self, shaker: Shaker, ip: str) -> None:
        shaker.take_step()


class Ground:
    """Certificates, and connections made with them."""

    def __init__(self, authority: Authority, server: Certificate, client: Certificate) -> None:
        self.authority = authority
        self.server = server
        self.client = client
        self.turns: list[Turns] = []

    def close(self) -> None:
        """End every session: a broker is not thrown away with open ones."""
        for turns in self.turns:
            for _ in turns.broker.close_all(ops.CLOSED_SERVER_SHUTDOWN):
                pass
        self.turns.clear()

    def tls_options(self, **settings: Any) -> TlsOptions:
        defaults = {
            "cert_file": self.server.cert_file,
            "key_file": self.server.key_file,
            "ca_file": self.authority.ca_file,
            "timeout_ns": 60 * SECOND_NS,
        }
        return TlsOptions(**{**defaults, **settings})

    def settings(self, *, allow_plain: bool = False, **settings: Any) -> TlsSettings:
        options = self.tls_options(**settings)
        context = server_context(options)
        first_ns = options.handshake_first_ns
        return TlsSettings(context, options, first_ns, allow_plain, turns=NoWaiting())

    def connect(
        self,
        settings: TlsSettings,
        client: ssl.SSLContext | None = None,
        options: ServerOptions | None = None,
    ) -> Connection:
        """Accept a connection; whatever is sent at once has been sent."""
        turns = Turns(options or ServerOptions())
        self.turns.append(turns)
        broker = turns.broker
        remote = RemoteAddress("192.0.2.1", 4711)
        pipe = client_pipe(turns, lambda: broker.open_session(remote), settings)
        transport = MemoryTransport(pipe)
        peer = Peer(client or self.authority.client_context())
        connection = Connection(turns, settings, pipe, transport, peer, pipe._upper)
        pipe.connection_made(transport)
        return connection


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Let the loop run until something is true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, "it never happened"
        await asyncio.sleep(0.001)
