"""The listening sockets for WebSocket: like those for clients, but the session starts after the
upgrade.

Owns the connections that have not requested the upgrade yet.
"""

from __future__ import annotations

import asyncio

from tradewind.broker.contracts import RemoteAddress
from tradewind.broker.room import Guests, Room
from tradewind.options import TlsOptions, WebsocketOptions
from tradewind.own_addresses import Sockets
from tradewind.server.links.link import Turns
from tradewind.server.links.listener import PENDING_HANDSHAKES_MAX, Listener
from tradewind.server.links.tls_link import late_pipe
from tradewind.server.tls.tls import ServerContext
from tradewind.server.tls.tls_pipe import AREA_BYTES, TlsSettings
from tradewind.server.websocket.websocket_link import AcceptedFrameLink


class WebSocketListener(Listener):
    """Accepts WebSocket connections on a set of sockets."""

    connection_type = "WEBSOCKET"

    def __init__(
        self,
        turns: Turns,
        sockets: Sockets,
        options: WebsocketOptions,
        context: ServerContext | None,
    ) -> None:
        self._options = options
        self._area = memoryview(bytearray(AREA_BYTES))
        room = Room(PENDING_HANDSHAKES_MAX)
        self._upgrading: Guests[AcceptedFrameLink] = Guests(room)
        super().__init__(turns, sockets, options.tls, context, room=room)

    def _tls_settings(
        self, tls: TlsOptions, context: ServerContext, *, allow_non_tls: bool
    ) -> TlsSettings:
        """The settings of a TLS listener: TLS comes first, as in https."""
        return TlsSettings(
            context, tls, 0, allow_non_tls, pending=self._pending, turns=self._handshakes
        )

    def set_tls(
        self, tls: TlsOptions | None, context: ServerContext | None, *, allow_non_tls: bool
    ) -> None:
        """Set the TLS settings, and end connections without a session: these could not be checked
        against changed pins.
        """
        super().set_tls(tls, context, allow_non_tls=allow_non_tls)
        for link in list(self._upgrading):
            link.abandon_upgrade()

    def protocol(self, remote: RemoteAddress) -> asyncio.BaseProtocol:
        """The protocol of an accepted socket."""
        tls = self._tls is not None
        link = AcceptedFrameLink(self._turns, self._options, self._upgrading, self._area, tls=tls)
        return link if self._tls is None else late_pipe(link, self._broker.log, remote, self._tls)

    async def cancel_handshakes(self) -> None:
        """End the unestablished connections, including those that have not requested the upgrade
        yet.
        """
        await super().cancel_handshakes()
        for link in list(self._upgrading):
            link.abandon_upgrade()
