"""Links over TLS: inform the session and the log while a connection is being set up.

Owns only that: `tls_pipe` handles the bytes, and the link everything after the handshake. The
session of a client exists from accept on, because INFO and the log name it; a WebSocket link starts
when TLS is established.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from tradewind.broker.contracts import BrokerLog, RemoteAddress, label
from tradewind.broker.session import Session
from tradewind.own_addresses import address_text
from tradewind.server.links.link import StreamLink, Turns
from tradewind.server.tls.tls_pipe import TlsPipe, TlsSettings, TlsTransport
from tradewind.wire import ops


class TlsLink(StreamLink):
    """A connection of a client listener that offers TLS."""

    def opened(self, pipe: TlsTransport) -> None:
        """Open the session; INFO must be queued before the client's first byte is looked at."""
        self.connection_made(cast(asyncio.Transport, pipe))
        self.flush()

    def secured(self, pipe: TlsTransport) -> None:
        """Give the session the facts about the peer."""
        session = self.session
        assert session is not None
        session.tls = facts = pipe.codec.facts()
        log = self.turns.broker.log
        if log.debug_enabled:
            log.debug(f"{label(session)} - TLS handshake complete")
            log.debug(
                f"{label(session)} - TLS version {facts.version}, cipher suite {facts.cipher}"
            )

    def stayed_plain(self, transport: asyncio.Transport) -> None:
        """Connect the link and the socket directly."""
        self.use_transport(transport)

    def refused(self, reason: str, *, harmless: bool) -> None:
        """Close a session that never began."""
        session = self.session
        if session is None or session.is_closed:
            return
        log_refusal(self.turns.broker.log, label(session), reason, harmless=harmless)
        session.close(ops.CLOSED_TLS_HANDSHAKE)
        self.turns.turn_needed()


class LateStart:
    """Starts a protocol that knows nothing of TLS after the handshake; until then it only logs."""

    def __init__(
        self, protocol: asyncio.BaseProtocol, log: BrokerLog, remote: RemoteAddress
    ) -> None:
        self._protocol = protocol
        self._log = log
        self._remote = remote

    def opened(self, pipe: TlsTransport) -> None:
        """Do nothing yet."""

    def secured(self, pipe: TlsTransport) -> None:
        """Start the protocol."""
        self._protocol.connection_made(cast(asyncio.Transport, pipe))

    def stayed_plain(self, transport: asyncio.Transport) -> None:
        """Fail: such listeners do not offer connections without TLS."""
        raise AssertionError(f"{transport!r}: TLS is required")

    def refused(self, reason: str, *, harmless: bool) -> None:
        """Log the reason: there is no session to name."""
        place = address_text(self._remote.ip, self._remote.port)
        log_refusal(self._log, place, reason, harmless=harmless)


def log_refusal(log: BrokerLog, who: str, reason: str, *, harmless: bool) -> None:
    """Log a refusal as nats-server does: port scanners and health checks show only when
    debugging.
    """
    (log.debug if harmless else log.error)(f"{who} - TLS handshake error: {reason}")


def client_pipe(
    turns: Turns, open_session: Callable[[], Session], settings: TlsSettings
) -> TlsPipe:
    """The protocol for an accepted socket of a client listener."""
    link = TlsLink(turns, open_session, is_plain=False)
    return TlsPipe(link, link, settings)


def late_pipe(
    protocol: asyncio.Protocol | asyncio.BufferedProtocol,
    log: BrokerLog,
    remote: RemoteAddress,
    settings: TlsSettings,
) -> TlsPipe:
    """The protocol for an accepted socket whose `protocol` begins after the handshake."""
    return TlsPipe(protocol, LateStart(protocol, log, remote), settings)
