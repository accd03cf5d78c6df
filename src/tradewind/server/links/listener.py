"""Listening sockets: accept connections and create their links.

Owns the listening sockets, and accepted sockets until a transport takes them over. It never handles
TLS, which is up to `tls_pipe`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tradewind.broker.broker import Broker
from tradewind.broker.contracts import RemoteAddress
from tradewind.broker.room import Guests, Room
from tradewind.durations import SECOND_NS
from tradewind.errors import ServerStartError
from tradewind.options import LOOPBACK, TlsOptions
from tradewind.own_addresses import (
    Sockets,
    address_text,
    is_wildcard,
    listen_on,
    listen_reason,
    plain_ip,
)
from tradewind.server.links.link import StreamLink, Turns
from tradewind.server.tls.handshakes import HandshakeTurns
from tradewind.wire import ops

if TYPE_CHECKING:
    from tradewind.broker.session import Session
    from tradewind.server.tls.tls import ServerContext
    from tradewind.server.tls.tls_pipe import TlsSettings, TlsTransport

THROTTLED = "Connection throttling is active. Please try again later."
BACKLOG = 4096
ACCEPT_BATCH = 64
# Without free file descriptors, accepting stops for this long instead of spinning.
ACCEPT_PAUSE_SECONDS = 0.2
# The limit for connections that are establishing TLS or WebSocket, and half of it is the limit for
# one address: each holds the memory of a handshake.
PENDING_HANDSHAKES_MAX = 8192


def client_url(scheme: str, host: str, port: int) -> str:
    """A URL for a bound address; a wildcard address is reached over loopback."""
    return f"{scheme}://{address_text(LOOPBACK if is_wildcard(host) else host, port)}"


def bind(host: str, port: int) -> Sockets:
    """Listen on all addresses of a host; ServerStartError with the text of nats-server."""
    try:
        return listen_on(host, port, BACKLOG)
    except OSError as error:
        place = address_text(host, max(port, 0))
        reason = listen_reason(host, port, error)
        raise ServerStartError(f'Error listening on port: {place}, "{reason}"') from None


class Listener:
    """Accepts client connections on a set of sockets."""

    connection_type = "STANDARD"

    def __init__(
        self,
        turns: Turns,
        sockets: Sockets,
        tls: TlsOptions | None,
        context: ServerContext | None,
        *,
        allow_non_tls: bool = False,
        room: Room | None = None,
        proxy_protocol: bool = False,
    ) -> None:
        self._proxy_protocol = proxy_protocol
        self._rate = HandshakeRate(0)
        self._turns = turns
        self._broker: Broker = turns.broker
        self._sockets = sockets
        # Also known after closing: the address that the first socket is bound to, and whether one
        # of them accepts IPv6.
        self.address: tuple[str, int] = sockets[0].getsockname()[:2]
        self.both_families = any(one.family == socket.AF_INET6 for one in sockets)
        self._loop = asyncio.get_running_loop()
        self._room = Room(PENDING_HANDSHAKES_MAX) if room is None else room
        self._pending: Guests[TlsTransport] = Guests(self._room)
        self._handshakes = HandshakeTurns()
        self.set_tls(tls, context, allow_non_tls=allow_non_tls)

    def set_tls(
        self, tls: TlsOptions | None, context: ServerContext | None, *, allow_non_tls: bool
    ) -> None:
        """Set the TLS settings for later connections; called again by a reload."""
        self._tls: TlsSettings | None = None
        limit = tls.connection_rate_limit if tls is not None else 0
        if limit != self._rate.limit:
            self._rate = HandshakeRate(limit)
        if tls is not None and context is not None:
            self._tls = self._tls_settings(tls, context, allow_non_tls=allow_non_tls)
            for pipe in self._pending:
                pipe.renew(self._tls)
        info = self._broker.info.listener(self.connection_type)
        info.tls_required = context is not None and not allow_non_tls
        info.tls_available = context is not None and allow_non_tls
        info.tls_verify = context is not None and context.verify_mode == ssl.CERT_REQUIRED

    def _tls_settings(
        self, tls: TlsOptions, context: ServerContext, *, allow_non_tls: bool
    ) -> TlsSettings:
        from tradewind.server.tls.tls_pipe import TlsSettings

        return TlsSettings(
            context,
            tls,
            tls.handshake_first_ns,
            allow_non_tls,
            pending=self._pending,
            turns=self._handshakes,
        )

    def urls(self, scheme: str) -> list[str]:
        """The URLs of all addresses that the sockets listen on."""
        from tradewind.interfaces import reachable_urls

        return reachable_urls(self._sockets, scheme)

    def start(self) -> None:
        """Start accepting connections."""
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Stop accepting; established connections stay."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets = []

    async def cancel_handshakes(self) -> None:
        """End the connections that are not established yet."""
        for pipe in list(self._pending):
            pipe.abort()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log = self._broker.log
                log.error(f"Error accepting a connection: {error.strerror}")
                self._loop.remove_reader(listening)
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume, listening)
                return
            ip = plain_ip(address[0])
            if not self._room.has_place_for(ip):
                connection.close()
                continue
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._establish(connection, address, RemoteAddress(ip, address[1]))

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    # ---------------------------------------------------------------- one connection

    def _establish(
        self, connection: socket.socket, address: tuple[Any, ...], remote: RemoteAddress
    ) -> None:
        """Give the socket to a transport."""
        try:
            self._turns.sockets.connect(connection, address, self.protocol(remote))
        except OSError as error:
            connection.close()
            self._broker.log.error(f"Error accepting a connection: {error.strerror}")
        except Exception as error:  # a bug may end this connection, but no other
            connection.close()
            self._broker.faults.contain("listener", error)

    def protocol(self, remote: RemoteAddress) -> asyncio.BaseProtocol:
        """The protocol of an accepted socket."""
        if not self._proxy_protocol:
            return self._link(partial(self._broker.open_session, remote, self.connection_type))
        from tradewind.server.links.proxy_header import ProxyHead

        return ProxyHead(self._broker, remote, self._link, self.connection_type)

    def _link(self, open_session: Callable[..., Session]) -> asyncio.BaseProtocol:
        if self._tls is None:
            return StreamLink(self._turns, open_session)
        if not self._may_shake_hands():
            return StreamLink(self._turns, partial(_turned_away, open_session))
        from tradewind.server.links.tls_link import client_pipe

        return client_pipe(self._turns, open_session, self._tls)

    def _may_shake_hands(self) -> bool:
        """Whether the rate limit allows another handshake in this second."""
        now_ns = self._broker.monotonic_ns()
        refused = self._rate.refused_before(now_ns)
        if refused:
            self._broker.log.warn(f"Rejected {refused} connections due to TLS rate limiting")
        return self._rate.takes(now_ns)


def _turned_away(open_session: Callable[..., Session]) -> Session:
    session = open_session()
    session.close(ops.CLOSED_MAX_CONNECTIONS, THROTTLED)
    return session


class HandshakeRate:
    """Counts handshakes per second; a `limit` of 0 means none."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._began_ns = 0
        self._taken = 0
        self._refused = 0

    def refused_before(self, now_ns: int) -> int:
        """The number of handshakes refused in a finished second; reported only once."""
        if now_ns - self._began_ns < SECOND_NS:
            return 0
        refused, self._refused = self._refused, 0
        return refused

    def takes(self, now_ns: int) -> bool:
        """Whether another handshake may begin."""
        if not self.limit:
            return True
        if now_ns - self._began_ns >= SECOND_NS:
            self._began_ns, self._taken = now_ns, 0
        self._taken += 1
        if self._taken <= self.limit:
            return True
        self._refused += 1
        return False


__all__ = ["Listener", "bind"]
