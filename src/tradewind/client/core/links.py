"""The two kinds of byte stream under a connection: a socket (plain or TLS), and WebSocket frames.

Owns the transport and its back-pressure. It never interprets the NATS protocol. It passes bytes to
the parser, and reports the end of the link to its owner exactly once. After `abort` it reports
nothing but that end.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from tradewind.client.core.upgrade import Upgrade
from tradewind.client.errors import ClientError
from tradewind.errors import ProtocolError
from tradewind.wire.websocket import (
    CLOSE_NORMAL,
    OPCODE_CLOSE,
    OPCODE_PING,
    OPCODE_PONG,
    FrameDecoder,
    FrameEncoder,
)

if TYPE_CHECKING:
    from tradewind.client.core.protocol import ClientWire

WRITE_BUFFER_HIGH_BYTES = 1 << 20
WEBSOCKET_MESSAGE_BYTES_MAX = 1 << 28
FRAME_BYTES_MAX = 1 << 16
# INFO lists all servers of a cluster.
GREETING_BYTES_MAX = 1 << 20
GREETING_READ_BYTES = 1 << 16


class LinkOwner(Protocol):
    """The methods through which a link reports to its owner, a Connection."""

    def _on_link_lost(self, link: ClientLink, error: Exception | None) -> None: ...

    def _on_writable(self, link: ClientLink) -> None: ...


class ClientLink:
    """The part that both kinds of link share."""

    def __init__(self, owner: LinkOwner, wire: ClientWire) -> None:
        self._owner = owner
        self._wire = wire
        self.transport: asyncio.Transport | None = None
        self.paused = False
        self.lost = asyncio.get_running_loop().create_future()
        self._error: Exception | None = None
        self._detached = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self.use(cast("asyncio.Transport", transport))

    def use(self, transport: asyncio.Transport) -> None:
        """Go on with this transport: the first one, or the one that TLS made of it."""
        self.transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)

    def pause_writing(self) -> None:
        """Called when the transport's buffer is full; the owner then keeps what it has to send."""
        self.paused = True

    def resume_writing(self) -> None:
        """Called when the transport has room again."""
        self.paused = False
        if not self._detached:
            self._owner._on_writable(self)

    def eof_received(self) -> None:
        """Called when the server sends nothing more; the transport closes itself."""

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        if self.lost.done():
            return
        self.lost.set_result(None)
        if not self._detached:
            self._owner._on_link_lost(self, self._error or error)

    def write(self, data: bytes) -> None:
        """Send these bytes."""
        if self.transport is not None:
            self.transport.write(data)

    def close(self) -> None:
        """Send what was written, then close; `lost` is done when it is over."""
        if self.transport is not None:
            self.transport.close()

    def leave(self) -> None:
        """Send what was written, then close; what the server still sends is not used."""
        self._detached = True
        self.close()

    def abort(self, *, silent: bool = True) -> None:
        """Close at once; notify the owner unless `silent`."""
        self._detached = silent
        if self.transport is not None:
            self.transport.abort()

    def fail(self, error: Exception) -> None:
        """Called when the server has sent something unusable; closes and reports this error."""
        self._error = error
        self.abort(silent=False)


class SocketLink(ClientLink, asyncio.BufferedProtocol):
    """Protocol bytes straight over TCP or TLS, read into the memory of the wire.

    The first line becomes `greeting`. Bytes after it are held back, since TLS may come next, and
    nothing more is read until `begin` or TLS.
    """

    def __init__(self, owner: LinkOwner, wire: ClientWire) -> None:
        super().__init__(owner, wire)
        self._is_greeted = False  # from then on bytes belong to the wire
        self._area = bytearray()
        self._first = bytearray()
        self.greeting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> memoryview[Any]:
        """The memory for the next bytes of the transport."""
        if self._detached:
            return memoryview(bytearray(max(sizehint, 1)))
        if self._is_greeted:
            return self._wire.read_area()
        self._area = bytearray(GREETING_READ_BYTES)
        return memoryview(self._area)

    def buffer_updated(self, size: int) -> None:
        """Called when the transport has put `size` bytes into the buffer."""
        if self._detached or self._error is not None:
            return
        try:
            if self._is_greeted:
                self._wire.received(size)
            else:
                self._greet(self._area[:size])
        except ProtocolError as error:
            self.fail(error)

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        super().connection_lost(error)
        if not self.greeting.done():
            self.greeting.cancel()

    def _greet(self, data: bytearray) -> None:
        seen = len(self._first)
        self._first += data
        if self.greeting.done():
            return
        end = self._first.find(b"\n", seen)
        if end < 0:
            if len(self._first) > GREETING_BYTES_MAX:
                raise ProtocolError(
                    f"the first line of the server has more than {GREETING_BYTES_MAX} bytes"
                )
            return
        if self.transport is not None:
            self.transport.pause_reading()
        line = bytes(self._first[:end])
        del self._first[: end + 1]
        self.greeting.set_result(line)

    def take_rest(self) -> bytes:
        """The bytes that came after the first line; later ones belong to the wire, or to TLS."""
        rest, self._first, self._area = bytes(self._first), bytearray(), bytearray()
        self._is_greeted = True
        return rest

    def begin(self) -> None:
        """Continue without a change to TLS, with the bytes that came after the first line."""
        rest = self.take_rest()
        if self.transport is not None:
            self.transport.resume_reading()
        if rest:
            try:
                self._wire.feed(rest)
            except ProtocolError as error:
                self.fail(error)


class WebsocketLink(ClientLink, asyncio.Protocol):
    """Protocol bytes in binary frames, after an HTTP upgrade."""

    def __init__(
        self,
        owner: LinkOwner,
        wire: ClientWire,
        host: str,
        path: str,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(owner, wire)
        self._upgrade = Upgrade(host, path, headers)
        self._decoder = FrameDecoder(
            WEBSOCKET_MESSAGE_BYTES_MAX, require_mask=False, compression=False
        )
        self._encoder = FrameEncoder(
            compression=False, is_browser=False, mask=True, mask_source=secrets.token_bytes
        )
        self.upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        super().connection_made(transport)
        super().write(self._upgrade.request())

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        if not self.upgraded.done():
            self.upgraded.set_exception(
                self._error or ClientError("the server closed the connection during the upgrade")
            )
            self.upgraded.exception()  # no warning if the login has given up
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Bytes of the response first, then frames."""
        if self._detached or self._error is not None:
            return
        try:
            if not self.upgraded.done():
                rest = self._upgrade.feed(data)
                if rest is None:
                    return
                self.upgraded.set_result(None)
                data = rest
            if data:
                self._frames(data)
        except (ProtocolError, ClientError) as error:
            self.fail(error)

    def write(self, data: bytes) -> None:
        """Send these bytes as messages, none larger than any server accepts."""
        view = memoryview(data)
        for start in range(0, len(data), FRAME_BYTES_MAX):
            super().write(self._encoder.encode(view[start : start + FRAME_BYTES_MAX]))

    def close(self) -> None:
        """Say goodbye, then close."""
        if self.upgraded.done() and not self.lost.done():
            super().write(self._encoder.encode_close(CLOSE_NORMAL))
        super().close()

    def _frames(self, data: bytes) -> None:
        plain = self._decoder.feed(data)
        while plain or self._decoder.pending:
            if plain:
                self._wire.feed(plain)
            plain = self._decoder.feed(b"") if self._decoder.pending else b""
        for opcode, payload in self._decoder.take_control():
            if opcode == OPCODE_PING:
                super().write(self._encoder.encode_control(OPCODE_PONG, payload))
            elif opcode == OPCODE_CLOSE:
                super().close()
