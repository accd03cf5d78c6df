"""The listening sockets for leaf nodes: like those for clients, but with leaf sessions.

Owns no state of its own.
"""

from __future__ import annotations

import asyncio
from functools import partial

from tradewind.broker.contracts import RemoteAddress
from tradewind.server.links.link import StreamLink
from tradewind.server.links.listener import Listener


class LeafListener(Listener):
    """Accepts connections of other servers."""

    connection_type = "LEAFNODE"

    def protocol(self, remote: RemoteAddress) -> asyncio.BaseProtocol:
        """The protocol of an accepted socket."""
        leaves = self._broker.leaves
        assert leaves is not None, "listening requires leaf nodes"
        open_session = partial(leaves.accepted, remote)
        if self._tls is None:
            return StreamLink(self._turns, open_session)
        from tradewind.server.links.tls_link import client_pipe

        return client_pipe(self._turns, open_session, self._tls)


__all__ = ["LeafListener"]
