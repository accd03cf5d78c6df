"""The link of an outgoing leaf connection over WebSocket.

Owns the future that is completed when the connection ends.
"""

from __future__ import annotations

import asyncio

from tradewind.broker.session import Session
from tradewind.server.link import Turns
from tradewind.server.websocket_link import FrameLink


class DialledFrameLink(FrameLink):
    """Frames both ways, from the side that dialled."""

    def __init__(self, turns: Turns) -> None:
        super().__init__(turns)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, session: Session) -> None:
        """The session lives on this connection from now on."""
        assert self._raw is not None
        self.attach(session, self._raw)
        self.data_done()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        super().connection_lost(error)
        if not self.ended.done():
            self.ended.set_result(None)
