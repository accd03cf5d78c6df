"""A connection of the websocket listener: first the HTTP upgrade, then frames.

Owns the upgrade and its time limit; `websocket_framing` handles everything after it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast

from tradewind.broker.contracts import RemoteAddress
from tradewind.broker.room import Guests
from tradewind.broker.session import Session
from tradewind.durations import SECOND_NS
from tradewind.options import WebsocketOptions
from tradewind.own_addresses import plain_ip
from tradewind.server.auth.cookies import credentials_from_cookies
from tradewind.server.links.link import Turns
from tradewind.server.links.link_core import SessionLink
from tradewind.server.tls.tls_codec import tls_facts
from tradewind.server.tls.tls_pipe import peer_ip
from tradewind.server.websocket.websocket_framing import (
    UNAUTHENTICATED_MESSAGE_BYTES_MAX,
    WebsocketFraming,
)
from tradewind.server.websocket.websocket_handshake import Handshake, HandshakeResult
from tradewind.wire.websocket import FrameDecoder, FrameEncoder

# Leaf nodes request a path with this ending.
LEAFNODE_PATH = "/leafnode"


class AcceptedFrameLink(SessionLink, asyncio.BufferedProtocol):
    """Transport of WebSocket frames for the side that accepted; the upgrade comes first."""

    def __init__(
        self,
        turns: Turns,
        options: WebsocketOptions,
        upgrading: Guests[AcceptedFrameLink],
        area: memoryview,
        *,
        tls: bool,
    ) -> None:
        super().__init__(turns)
        self._options = options
        self._upgrading = upgrading  # links without a session, counted by the listener
        self._area = area  # takes every read; all links of the listener share it
        self._tls = tls
        leaves = turns.broker.leaves
        self._handshake: Handshake | None = Handshake(
            options, tls, leafnodes=leaves is not None and leaves.options.port != 0
        )
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the socket is connected; the client has to request the upgrade in time."""
        transport = cast(asyncio.Transport, transport)
        self.use_transport(transport)
        self._upgrading.add(self, peer_ip(transport))
        seconds = self._options.handshake_timeout_ns / SECOND_NS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        if self._handshake is not None and self.transport is not None:
            self.transport.write(self._handshake.expire())
            self.transport.close()

    def abandon_upgrade(self) -> None:
        """Close a connection without a session. Called when the server stops or has changed
        pins.
        """
        if self.session is None and self.transport is not None:
            self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the area has one size
        """The buffer for the next read."""
        return self._area

    def buffer_updated(self, nbytes: int) -> None:
        """Called when bytes of the upgrade, or frames, were read."""
        data = self._area[:nbytes]
        if self.framing is not None:
            self.framing.run(data)
        elif self._handshake is not None and self.transport is not None:
            try:
                result = self._handshake.feed(bytes(data))
                if result is not None:
                    self._upgraded(result, self.transport)
            except Exception as error:  # a bug may end this connection, but no other
                self.give_up(error)

    def _upgraded(self, result: HandshakeResult, transport: asyncio.Transport) -> None:
        broker = self.turns.broker
        self._handshake = None
        self._upgrading.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        transport.write(result.response)
        if not result.accepted:
            broker.log.error(f"websocket handshake error: {result.error}")
            transport.close()
            return
        decoder = FrameDecoder(
            UNAUTHENTICATED_MESSAGE_BYTES_MAX, not result.no_masking, result.compression
        )
        encoder = FrameEncoder(
            result.compression,
            result.is_browser,
            fragment_compressed=result.fragment_compressed,
            window_bits=result.window_bits,
        )
        ip, port = transport.get_extra_info("peername")[:2]
        remote = RemoteAddress(plain_ip(ip), port)
        session: Session
        if not result.path.endswith(LEAFNODE_PATH):
            session = broker.open_session(remote, "WEBSOCKET")
        elif broker.leaves is not None and broker.leaves.options.port:
            session = broker.leaves.accepted(remote, "LEAFNODE_WS")
        else:
            transport.close()
            return
        if self._tls:
            session.tls = tls_facts(transport.get_extra_info("ssl_object"))
        if result.cookies:
            session.complete_credentials = partial(
                credentials_from_cookies, self._options, result.cookies
            )
        self.attach(session, WebsocketFraming(self, decoder, encoder))
        socket = None if self._tls else transport.get_extra_info("socket")
        if socket is not None:
            self.send_frames_to(socket.fileno())
        self.data_done()

    def connection_lost(self, error: Exception | None) -> None:
        """Called when the socket is closed."""
        self._upgrading.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(error)
