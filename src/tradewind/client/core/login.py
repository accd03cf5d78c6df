"""One login attempt at one server: connect, INFO, TLS, CONNECT, and the first PONG.

Owns the order of these steps and their errors. It never decides which server to try next. An
attempt that fails or is cancelled leaves no open socket.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import Any, cast

import msgspec

from tradewind._version import __version__
from tradewind.client.core.addresses import Address
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.client.core.credentials import login_fields
from tradewind.client.core.links import ClientLink, LinkOwner, SocketLink, WebsocketLink
from tradewind.client.core.protocol import (
    CONTROL_ERROR,
    CONTROL_INFO,
    CONTROL_PING,
    CONTROL_PONG,
    ClientWire,
)
from tradewind.client.errors import (
    ClientError,
    DisconnectedError,
    OperationTimeoutError,
    TlsError,
    error_from_wire,
)
from tradewind.errors import JSON_ERRORS, ProtocolError
from tradewind.wire.ops import PROTOCOL_VERSION

CONTROL_LOST = "LOST"


class ServerInfo(msgspec.Struct, frozen=True):
    """What a server says about itself in INFO."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    host: str = ""
    port: int = 0
    headers: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_available: bool = False
    max_payload: int = 1 << 20
    jetstream: bool = False
    client_id: int = 0
    client_ip: str = ""
    nonce: str = ""
    cluster: str = ""
    domain: str = ""
    connect_urls: list[str] = []
    ldm: bool = False
    api_lvl: int = 0
    tradewind: str = ""


_info_decoder = msgspec.json.Decoder(ServerInfo)


def decode_info(text: bytes) -> ServerInfo:
    """The INFO of a server."""
    try:
        return _info_decoder.decode(text)
    except JSON_ERRORS as error:
        raise ProtocolError(f"the INFO of the server cannot be read: {error}") from None


class LoginAttempt:
    """Runs one attempt. The owner hands over every control line while it lasts."""

    def __init__(
        self, owner: LinkOwner, wire: ClientWire, address: Address, options: ConnectOptions
    ) -> None:
        self._owner = owner
        self._wire = wire
        self._address = address
        self._options = options
        self._controls: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.link: ClientLink | None = None

    def control(self, kind: str, argument: bytes) -> None:
        """The server sent this line."""
        self._controls.put_nowait((kind, argument))

    def rest(self) -> list[tuple[str, Any]]:
        """What came behind the PONG that ended the login."""
        return [self._controls.get_nowait() for _ in range(self._controls.qsize())]

    def lost(self, error: Exception | None) -> None:
        """The link has ended."""
        self._controls.put_nowait((CONTROL_LOST, error))

    async def run(self) -> tuple[ClientLink, ServerInfo]:
        """A link on which the server has accepted the login."""
        seconds = self._options.connect_timeout
        succeeded = False
        try:
            async with asyncio.timeout(seconds):
                result = await self._run()
            succeeded = True
        except TimeoutError:
            raise OperationTimeoutError(
                f"{self._address.url}: no login within {seconds:g} s (connect_timeout)"
            ) from None
        except ssl.SSLError as error:
            raise TlsError(f"{self._address.url}: the TLS handshake failed: {error}") from error
        except OSError as error:
            raise DisconnectedError(f"{self._address.url}: {_reason(error)}") from error
        else:
            return result
        finally:
            if not succeeded and self.link is not None:
                self.link.abort()

    async def _run(self) -> tuple[ClientLink, ServerInfo]:
        link = await self._open()
        info = decode_info(await self._expect(CONTROL_INFO))
        if not self._address.is_websocket:
            await self._secure(link, info)
        fields = self._connect_fields(info)
        link.write(b"CONNECT " + msgspec.json.encode(fields) + b"\r\nPING\r\n")
        await self._expect(CONTROL_PONG)
        return link, info

    async def _open(self) -> ClientLink:
        loop = asyncio.get_running_loop()
        address, options = self._address, self._options
        first = address.scheme == "wss" or (
            options.tls_handshake_first and not address.is_websocket
        )
        context = options.ssl_context() if first else None

        def make() -> asyncio.BaseProtocol:
            if address.is_websocket:
                place = f"{address.host}:{address.port}"
                self.link = WebsocketLink(
                    self._owner, self._wire, place, address.path, options.websocket_headers
                )
            else:
                self.link = SocketLink(self._owner, self._wire)
            return cast("asyncio.BaseProtocol", self.link)

        await loop.create_connection(
            make,
            address.host,
            address.port,
            ssl=context,
            server_hostname=self._hostname() if context else None,
        )
        assert self.link is not None
        assert self.link.transport is not None
        if (sock := self.link.transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if isinstance(self.link, WebsocketLink):
            await self.link.upgraded
        return self.link

    async def _secure(self, link: ClientLink, info: ServerInfo) -> None:
        """Change to TLS if either side wants it."""
        options = self._options
        if options.tls_handshake_first:
            return
        wanted = self._address.is_secure or options.wants_tls
        if wanted and not (info.tls_required or info.tls_available):
            raise TlsError(
                f"{self._address.url}: TLS was requested, but the server does not offer it"
            )
        if not wanted and not info.tls_required:
            return
        assert link.transport is not None
        transport = await asyncio.get_running_loop().start_tls(
            link.transport,
            cast("asyncio.BaseProtocol", link),
            options.ssl_context(),
            server_hostname=self._hostname(),
        )
        if transport is None:
            raise TlsError(f"{self._address.url}: closed during the TLS handshake")
        link.use(transport)

    def _hostname(self) -> str:
        return self._options.tls_hostname or self._address.host

    def _connect_fields(self, info: ServerInfo) -> dict[str, Any]:
        options = self._options
        return {
            "verbose": False,
            "pedantic": False,
            "protocol": PROTOCOL_VERSION,
            "headers": info.headers,
            "no_responders": info.headers,
            "echo": options.echo,
            "lang": "python-tradewind",
            "version": __version__,
            "name": options.name,
            "tls_required": options.wants_tls or self._address.is_secure,
            **login_fields(options, self._address, info.nonce),
        }

    async def _expect(self, wanted: str) -> bytes:
        """The argument of the next such line; others than errors are passed over."""
        while True:
            kind, argument = await self._controls.get()
            if kind == wanted:
                return cast("bytes", argument)
            if kind == CONTROL_ERROR:
                raise error_from_wire(argument.decode(errors="replace"))
            if kind == CONTROL_PING and self.link is not None:
                self.link.write(b"PONG\r\n")
            if kind == CONTROL_LOST:
                if isinstance(argument, ClientError | ProtocolError | OSError):
                    raise argument
                raise DisconnectedError(
                    f"{self._address.url}: the server closed the connection before the login"
                )


def _reason(error: OSError) -> str:
    """What the operating system says, without numbers where there is a text."""
    if error.errno and (error.strerror or "").startswith("Connect call failed"):
        # The text of asyncio leaves out what was wrong.
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
