"""Listening sockets: accept, negotiate TLS, hand over to a link.

Owns the sockets until a transport takes them. TLS may begin before INFO, after it, or not at all, and only the first
byte tells which (`allow_non_tls`, `handshake_first: auto`); so the listener looks at that byte with MSG_PEEK before any
transport exists, and asyncio does the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable

from tradewind.broker.broker import Broker
from tradewind.broker.contracts import RemoteAddress, TlsFacts, label
from tradewind.broker.session import Session
from tradewind.errors import ServerStartError
from tradewind.server.link import Link, StreamLink, Turns
from tradewind.server.options import SECOND_NS, TlsOptions, WebsocketOptions
from tradewind.server.tls import check_pinned, peer_certificate, tls_cipher_name, tls_version_name
from tradewind.server.websocket_link import WebSocketLink
from tradewind.wire import ops

BACKLOG = 4096
ACCEPT_BATCH = 256
# Out of file descriptors: stop accepting for this long instead of spinning.
ACCEPT_PAUSE_SECONDS = 0.2
TLS_RECORD_HANDSHAKE = 0x16
PENDING_HANDSHAKES_MAX = 8192


def bind(host: str, port: int) -> list[socket.socket]:
    """Bind every address of a host name; port -1 or 0 means any free one, the same for all addresses."""
    sockets: list[socket.socket] = []
    port = max(port, 0)
    try:
        addresses = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(addresses):
            listening = socket.socket(family, kind, protocol)
            sockets.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # "::" serves IPv4 too, as nats-server does; any other address stands for itself.
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
            listening.bind((address[0], port, *address[2:]))
            port = listening.getsockname()[1]
            listening.listen(BACKLOG)
            listening.setblocking(False)
    except OSError as error:
        for listening in sockets:
            listening.close()
        reason = "bind: address already in use" if error.errno == errno.EADDRINUSE else str(error)
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise ServerStartError(f'Error listening on port: {place}, "listen tcp {place}: {reason}"') from None
    return sockets


class Handshaking:
    """Stands in for the link while TLS is negotiated: a session that ends meanwhile takes the handshake with it."""

    def __init__(self, session: Session, task: asyncio.Task[None]) -> None:
        self._session = session
        self._task = task

    def flush(self) -> None:
        """End of a turn."""
        if self._session.is_closed:
            self._task.cancel()


class Listener:
    """Accepts client connections on a set of sockets."""

    connection_type = "STANDARD"

    def __init__(
        self,
        turns: Turns,
        sockets: list[socket.socket],
        tls: TlsOptions | None,
        context: ssl.SSLContext | None,
        *,
        allow_non_tls: bool = False,
    ) -> None:
        self._turns = turns
        self._broker: Broker = turns.broker
        self._sockets = sockets
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.set_tls(tls, context, allow_non_tls=allow_non_tls)

    def set_tls(self, tls: TlsOptions | None, context: ssl.SSLContext | None, *, allow_non_tls: bool) -> None:
        """TLS settings for connections from now on; changed by a reload."""
        self._tls = tls
        self._context = context
        self._allow_non_tls = allow_non_tls
        info = self._broker.info.listener(self.connection_type)
        info.tls_required = context is not None and not allow_non_tls
        info.tls_available = context is not None and allow_non_tls
        info.tls_verify = context is not None and context.verify_mode == ssl.CERT_REQUIRED

    @property
    def address(self) -> tuple[str, int]:
        """The address that the first socket is bound to."""
        host, port = self._sockets[0].getsockname()[:2]
        return host, port

    def start(self) -> None:
        """Accept from now on."""
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Accept no more; established connections stay."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets = []

    async def cancel_handshakes(self) -> None:
        """End the connections that are not established yet."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._broker.log.error(f"Error accepting a connection: {error.strerror}")
                self._loop.remove_reader(listening)
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume, listening)
                return
            if len(self._tasks) >= PENDING_HANDSHAKES_MAX:
                connection.close()
                continue
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._establish(connection, address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    # ---------------------------------------------------------------- one connection

    async def _establish(self, connection: socket.socket, address: tuple[str, int]) -> None:
        """From an accepted socket to a link; never raises."""
        remote = RemoteAddress(address[0].removeprefix("::ffff:"), address[1])
        try:
            if self._context is None or self._tls is None:
                await self._connect(connection, lambda transport: self._open(remote))
            elif self._tls.handshake_first_ns is not None and await self._hello_comes_first(connection):
                await self._connect(connection, lambda transport: self._open(remote, transport), tls=True)
            else:
                await self._establish_after_info(connection, remote)
        except (OSError, ssl.SSLError, asyncio.TimeoutError, asyncio.CancelledError) as error:
            connection.close()
            if isinstance(error, asyncio.CancelledError) or not self._context:
                return
            self._broker.log.error(f"{remote.ip}:{remote.port} - TLS handshake error: {tls_reason(error)}")

    async def _establish_after_info(self, connection: socket.socket, remote: RemoteAddress) -> None:
        """INFO goes out in the clear, then the client starts TLS (or, if it may, does not)."""
        session = self._open(remote)
        task = asyncio.current_task()
        assert task is not None
        session.link = Handshaking(session, task)
        try:
            await self._loop.sock_sendall(connection, session.take_output())
            if session.is_closed:
                connection.close()
                return
            tls = not self._allow_non_tls or await self._peek(connection) == TLS_RECORD_HANDSHAKE

            def adopt(transport: asyncio.Transport) -> Session:
                if tls:
                    self._set_tls_facts(session, transport)
                return session

            await self._connect(connection, adopt, tls=tls)
        except BaseException as error:
            session.link = None
            if not session.is_closed and isinstance(error, ssl.SSLError | OSError | asyncio.TimeoutError):
                self._broker.log.error(f"{label(session)} - TLS handshake error: {tls_reason(error)}")
                session.close(ops.CLOSED_TLS_HANDSHAKE)
                self._turns.turn_needed()
                connection.close()
                return
            session.close(ops.CLOSED_BY_CLIENT)
            raise

    async def _connect(
        self,
        connection: socket.socket,
        open_session: Callable[[asyncio.Transport], Session],
        *,
        tls: bool = False,
    ) -> None:
        if not tls or self._tls is None:
            await self._loop.connect_accepted_socket(lambda: self._link(open_session), connection)
            return
        seconds = max(self._tls.timeout_ns / SECOND_NS, 0.001)
        await self._loop.connect_accepted_socket(
            lambda: self._link(open_session),
            connection,
            ssl=self._context,
            ssl_handshake_timeout=seconds,
        )

    def _link(self, open_session: Callable[[asyncio.Transport], Session]) -> asyncio.BaseProtocol:
        return StreamLink(self._turns, open_session)

    def _open(self, remote: RemoteAddress, transport: asyncio.Transport | None = None) -> Session:
        session = self._broker.open_session(remote, self.connection_type)
        if transport is not None:
            self._set_tls_facts(session, transport)
        return session

    def _set_tls_facts(self, session: Session, transport: asyncio.Transport) -> None:
        facts = tls_facts(transport)
        session.tls = facts
        if self._tls is not None and not check_pinned(self._tls, facts.certificate):
            self._broker.log.error(f"{label(session)} - TLS handshake error: certificate is not pinned")
            session.close(ops.CLOSED_TLS_HANDSHAKE)

    async def _hello_comes_first(self, connection: socket.socket) -> bool:
        """handshake_first: at once, or (auto) if the client speaks first within the delay."""
        assert self._tls is not None
        delay_ns = self._tls.handshake_first_ns
        if not delay_ns:
            return True
        try:
            first = await asyncio.wait_for(self._peek(connection), delay_ns / SECOND_NS)
        except asyncio.TimeoutError:
            return False
        return first == TLS_RECORD_HANDSHAKE

    async def _peek(self, connection: socket.socket) -> int:
        """The first byte, left in the socket; -1 if the peer closed."""
        readable = self._loop.create_future()
        self._loop.add_reader(connection, lambda: readable.done() or readable.set_result(None))
        try:
            await readable
        finally:
            self._loop.remove_reader(connection)
        data = connection.recv(1, socket.MSG_PEEK)
        return data[0] if data else -1


class WebSocketListener(Listener):
    """The same for WebSocket: the session begins after the HTTP upgrade."""

    connection_type = "WEBSOCKET"

    def __init__(
        self,
        turns: Turns,
        sockets: list[socket.socket],
        options: WebsocketOptions,
        context: ssl.SSLContext | None,
    ) -> None:
        self._options = options
        super().__init__(turns, sockets, options.tls, context)

    async def _establish(self, connection: socket.socket, address: tuple[str, int]) -> None:
        remote = RemoteAddress(address[0].removeprefix("::ffff:"), address[1])
        try:
            await self._connect(connection, lambda transport: self._open(remote), tls=self._context is not None)
        except (OSError, ssl.SSLError, asyncio.TimeoutError, asyncio.CancelledError) as error:
            connection.close()
            if not isinstance(error, asyncio.CancelledError):
                self._broker.log.error(f"{remote.ip}:{remote.port} - TLS handshake error: {tls_reason(error)}")

    def _link(self, open_session: Callable[[asyncio.Transport], Session]) -> asyncio.BaseProtocol:
        return WebSocketLink(self._turns, self._options, tls=self._context is not None)


def tls_facts(transport: asyncio.Transport) -> TlsFacts:
    """What the handshake of this transport agreed on."""
    connection = transport.get_extra_info("ssl_object")
    return TlsFacts(tls_version_name(connection), tls_cipher_name(connection), peer_certificate(connection))


def tls_reason(error: BaseException) -> str:
    """One readable line for the log."""
    if isinstance(error, asyncio.TimeoutError):
        return "timeout"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error) or type(error).__name__


__all__ = ["Link", "Listener", "WebSocketListener", "bind", "tls_facts"]
