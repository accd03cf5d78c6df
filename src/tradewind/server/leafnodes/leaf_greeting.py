"""The start of a connection to a hub, up to the first INFO.

Owns the socket until a link takes it over: the WebSocket upgrade, if there is one, and the first
INFO. It never interprets INFO.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import cast

from tradewind.client.core.first_lines import END_OF_LINE, FirstLines
from tradewind.client.core.upgrade import Upgrade
from tradewind.client.errors import ClientError
from tradewind.errors import ProtocolError
from tradewind.own_addresses import address_text
from tradewind.wire.websocket import FrameDecoder, FrameEncoder

# The limit for a server's first line, before the server has been verified.
INFO_BYTES_MAX = 1 << 16
MESSAGE_BYTES_MAX = 1 << 26
DEFLATE = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"


class LeafGreeting(asyncio.Protocol):
    """Waits for INFO; with `upgrade`, first requests WebSocket."""

    def __init__(self, upgrade: Upgrade | None) -> None:
        self._upgrade = upgrade
        self._first_line = FirstLines("the first line of the server", END_OF_LINE, INFO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self.decoder: FrameDecoder | None = None
        self.encoder: FrameEncoder | None = None
        self.info: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the socket, or TLS on top of it, is connected."""
        self._transport = cast("asyncio.Transport", transport)
        if self._upgrade is not None:
            self._transport.write(self._upgrade.request())

    def data_received(self, data: bytes) -> None:
        """Called when bytes of the upgrade response or INFO have arrived."""
        if self.info.done():
            self.info = asyncio.get_running_loop().create_future()
            self._fail(ProtocolError("the server sent more than INFO before it was answered"))
            return
        try:
            complete = self._first_line.feed(self._plain(data))
        except (ProtocolError, ClientError) as error:
            self._fail(error)
            return
        if complete is None:
            return
        line, rest = complete
        if rest.strip():
            self._fail(ProtocolError("the server sent more than INFO before it was answered"))
        else:
            self.info.set_result(line.rstrip(b"\r"))

    def _plain(self, data: bytes) -> bytes:
        if self._upgrade is None:
            return data
        if self.decoder is None:
            rest = self._upgrade.feed(data)
            if rest is None:
                return b""
            fields = self._upgrade.fields
            is_deflated = "permessage-deflate" in fields.get("sec-websocket-extensions", "")
            self.decoder = FrameDecoder(
                MESSAGE_BYTES_MAX, require_mask=False, compression=is_deflated
            )
            self.encoder = FrameEncoder(
                compression=is_deflated,
                is_browser=False,
                mask=fields.get("nats-no-masking", "") != "true",
                mask_source=secrets.token_bytes,
            )
            data = rest
        return self.decoder.feed(data)

    def _fail(self, error: Exception) -> None:
        if not self.info.done():
            self.info.set_exception(error)
            self.info.exception()  # the caller may have given up
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Called when the socket is closed."""
        self._fail(error or ClientError("the server closed the connection before INFO"))


def upgrade_request(
    host: str, port: int, path: str, *, compression: bool, no_masking: bool
) -> Upgrade:
    """The upgrade request to a server that accepts leaf nodes over WebSocket."""
    headers = {}
    if no_masking:
        headers["Nats-No-Masking"] = "true"
    if compression:
        headers["Sec-WebSocket-Extensions"] = DEFLATE
    return Upgrade(address_text(host, port), f"{path.rstrip('/')}/leafnode", headers)
