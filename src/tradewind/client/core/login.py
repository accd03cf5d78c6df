"""One login attempt at one server: connect, INFO, TLS, CONNECT, and the first PONG.

Owns the order of these steps and their errors. It never decides which server to try next. An
attempt that fails or is cancelled leaves no open socket.

INFO that comes before TLS may have been forged on its way. Only its nonce and its support of
headers are used, the latter until the server repeats INFO inside TLS:

    server   INFO                    in the clear; exactly this line, or the attempt fails
    both     the TLS handshake       the certificate names the host that was dialled
    client   CONNECT, PING, PING
    server   PONG, INFO, PONG        nats-server 2.15 and Tradewind; no INFO of older ones
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
from tradewind.own_addresses import address_text
from tradewind.wire.ops import PROTOCOL_VERSION

CONTROL_LOST = "LOST"
LINE_SHOWN_BYTES = 120


class ServerInfo(msgspec.Struct, frozen=True):
    """The fields of a server's INFO."""

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
    """Runs one attempt. The owner hands over every control line while it lasts.

    `secure` refuses to go on without TLS. Afterwards `is_secured` says whether there is TLS, and
    `is_confirmed` whether the resulting INFO came through the link that is used: through TLS, if
    there is TLS.
    """

    def __init__(
        self,
        owner: LinkOwner,
        wire: ClientWire,
        address: Address,
        options: ConnectOptions,
        *,
        secure: bool,
    ) -> None:
        self._owner = owner
        self._wire = wire
        self._address = address
        self._options = options
        self._secure = secure or address.is_secure or options.wants_tls
        self._controls: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._repeated: ServerInfo | None = None
        self.link: ClientLink | None = None
        self.is_secured = False
        self.is_confirmed = True

    def control(self, kind: str, argument: bytes) -> None:
        """Called for each control line that the server sends."""
        self._controls.put_nowait((kind, argument))

    def rest(self) -> list[tuple[str, Any]]:
        """The control lines that came after the PONG that ended the login."""
        return [self._controls.get_nowait() for _ in range(self._controls.qsize())]

    def lost(self, error: Exception | None) -> None:
        """Called when the link has ended."""
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
        if isinstance(link, SocketLink):
            info = await self._greeted(link)
        else:
            info = decode_info(await self._expect(CONTROL_INFO))
        # The answer to the second PING comes behind INFO, if the server repeats that.
        pings = b"PING\r\n" if self.is_confirmed else b"PING\r\nPING\r\n"
        fields = self._connect_fields(info)
        link.write(b"CONNECT " + msgspec.json.encode(fields) + b"\r\n" + pings)
        await self._expect(CONTROL_PONG)
        if not self.is_confirmed:
            await self._expect(CONTROL_PONG)
            info = self._confirm(info)
        return link, self._repeated or info

    async def _open(self) -> ClientLink:
        loop = asyncio.get_running_loop()
        address, options = self._address, self._options
        first = self._secure if address.is_websocket else options.tls_handshake_first
        context = options.ssl_context() if first else None

        def make() -> asyncio.BaseProtocol:
            if address.is_websocket:
                place = address_text(address.host, address.port)
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
        self.is_secured = first
        if isinstance(self.link, WebsocketLink):
            await self.link.upgraded
        return self.link

    async def _greeted(self, link: SocketLink) -> ServerInfo:
        """The first INFO of the server; TLS is up behind it if either side wants that."""
        await asyncio.wait({link.greeting})
        if link.greeting.cancelled():
            await self._expect(CONTROL_INFO)  # raises the reason
        line = link.greeting.result().strip()
        if line[:5].upper() == b"-ERR ":
            if self._secure and not self.is_secured:
                raise TlsError(f"{self._address.url}: refused before TLS: {line[5:]!r}")
            raise error_from_wire(line[5:].decode(errors="replace"))
        if line[:5].upper() != b"INFO ":
            raise ProtocolError(f"the server sent a wrong line: {line[:LINE_SHOWN_BYTES]!r}")
        info = decode_info(line[5:])
        if self.is_secured or not (self._secure or info.tls_required):
            link.begin()
        else:
            await self._start_tls(link, info)
        return info

    async def _start_tls(self, link: SocketLink, info: ServerInfo) -> None:
        """Change to TLS. No byte from before it is used except the INFO."""
        url = self._address.url
        if not (info.tls_required or info.tls_available):
            raise TlsError(f"{url}: TLS was requested, but the server does not offer it")
        if rest := link.take_rest():
            raise TlsError(
                f"{url}: {len(rest)} bytes came unencrypted between INFO and TLS, where none may: "
                f"{rest[:LINE_SHOWN_BYTES]!r}"
            )
        assert link.transport is not None
        transport = await asyncio.get_running_loop().start_tls(
            link.transport,
            cast("asyncio.BaseProtocol", link),
            self._options.ssl_context(),
            server_hostname=self._hostname(),
        )
        if transport is None:
            raise TlsError(f"{url}: closed during the TLS handshake")
        link.use(transport)
        self.is_secured, self.is_confirmed = True, False

    def _confirm(self, info: ServerInfo) -> ServerInfo:
        """The INFO to use; what came before TLS must not have misled us."""
        if self._repeated is None:  # an older server: nothing of it may lead anywhere else
            return msgspec.structs.replace(info, connect_urls=[], ldm=False)
        if self._repeated.headers != info.headers:
            raise TlsError(
                f"{self._address.url}: INFO before TLS says headers: {info.headers}, INFO inside "
                f"TLS {self._repeated.headers}; the connection was tampered with"
            )
        self.is_confirmed = True
        return self._repeated

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
            "tls_required": self._secure,
            **login_fields(options, self._address, info.nonce),
        }

    async def _expect(self, wanted: str) -> bytes:
        """The argument of the next such line; others than errors and INFO are passed over."""
        while True:
            kind, argument = await self._controls.get()
            if kind == wanted:
                return cast("bytes", argument)
            if kind == CONTROL_INFO:
                self._repeated = decode_info(argument)
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
    """The operating system's text of an error, without its number; else the name of its type."""
    if error.errno and (error.strerror or "").startswith("Connect call failed"):
        # The text of asyncio leaves out what was wrong.
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
