"""A connection to a hub through an HTTP proxy: CONNECT, and its answer.

Owns a connection from the first byte to the end of the answer; bytes that the hub has sent after it
are stored for the next protocol. The password is in no text.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import cast

from tradewind.client.core.connect_options import ConnectOptions
from tradewind.client.core.first_lines import END_OF_HEAD, FirstLines
from tradewind.client.errors import ClientError
from tradewind.errors import ProtocolError
from tradewind.options import LeafProxyOptions

ANSWER_BYTES_MAX = 1 << 14
_OK = "200"


class Tunnel(asyncio.Protocol):
    """Requests from a proxy a connection to `place`, such as "hub.example.com:7422"."""

    def __init__(self, proxy: LeafProxyOptions, place: str) -> None:
        self._proxy = proxy
        self._place = place
        self._answer = FirstLines("the answer of the proxy", END_OF_HEAD, ANSWER_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        # The bytes after the answer.
        self.opened: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the proxy is connected."""
        self._transport = cast("asyncio.Transport", transport)
        lines = [f"CONNECT {self._place} HTTP/1.1", f"Host: {self._place}"]
        if self._proxy.user:
            login = f"{self._proxy.user}:{self._proxy.password.reveal()}".encode()
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(login).decode()}")
        self._transport.write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, data: bytes) -> None:
        """Called when bytes of the answer have arrived; nothing more is read before another
        protocol takes over.
        """
        assert self._transport is not None
        if self.opened.done():
            return
        try:
            complete = self._answer.feed(data)
        except ProtocolError as error:
            self._fail(error)
            return
        if complete is None:
            return
        head, rest = complete
        version, _, status = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        if not version.startswith("HTTP/1."):
            self._fail(ProtocolError("the proxy does not speak HTTP"))
        elif status.partition(" ")[0] != _OK:
            self._fail(ClientError(f"the proxy refused the connection: {status[:200]!r}"))
        else:
            self._transport.pause_reading()
            self.opened.set_result(rest)

    def connection_lost(self, error: Exception | None) -> None:
        """Called when the proxy, or the server it reached, has closed the connection."""
        self._fail(error or ClientError("the proxy closed the connection before it answered"))

    def _fail(self, error: Exception) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # the caller may have given up


async def open_tunnel(
    proxy: LeafProxyOptions, place: str, seconds: float
) -> tuple[asyncio.Transport, bytes]:
    """A connection to `place`, with reading paused, and the bytes that have arrived on it."""
    loop = asyncio.get_running_loop()
    transport: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(seconds):
            context: ssl.SSLContext | None = None
            if proxy.is_secure:
                context = await loop.run_in_executor(None, ConnectOptions().ssl_context)
            transport, tunnel = await loop.create_connection(
                lambda: Tunnel(proxy, place), proxy.host, proxy.port, ssl=context
            )
            return transport, await tunnel.opened
    except BaseException:
        if transport is not None:
            transport.abort()
        raise
