"""The link of an outgoing leaf connection over WebSocket.

Owns the future that is completed when the connection ends.
"""

from __future__ import annotations

import asyncio

from tradewind.broker.session import Session
from tradewind.server.links.link import Turns
from tradewind.server.links.link_core import SessionLink
from tradewind.server.websocket.websocket_framing import WebsocketFraming
from tradewind.wire.websocket import FrameDecoder, FrameEncoder


class DialledFrameLink(SessionLink, asyncio.Protocol):
    """Transport of WebSocket frames for the side that dialled."""

    def __init__(self, turns: Turns, transport: asyncio.Transport) -> None:
        super().__init__(turns)
        self.use_transport(transport)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, session: Session, decoder: FrameDecoder, encoder: FrameEncoder) -> None:
        """Hand the connection over to the session."""
        self.attach(session, WebsocketFraming(self, decoder, encoder))
        self.data_done()

    def data_received(self, data: bytes) -> None:
        """Called when bytes have arrived: decode the frames in them."""
        if self.framing is not None:
            self.framing.run(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Called when the socket is closed."""
        super().connection_lost(error)
        if not self.ended.done():
            self.ended.set_result(None)
