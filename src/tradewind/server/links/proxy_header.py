"""The PROXY protocol: a proxy sends the original client address at the start of a connection.

Owns the two forms of the header, and the protocol that reads it before the link receives the rest.
As on nats-server, INFO does not wait for the header, and a connection without it is accepted. Any
host that can reach the port can claim any address, so only the proxy may reach it.

    1   "PROXY TCP4 9.8.7.6 1.2.3.4 4000 4222\r\n"                      at most 107 bytes
    2   signature(12)  version and command(1)  family(1)  size(2)  addresses(size)
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import msgspec

from tradewind.broker.contracts import RemoteAddress
from tradewind.errors import ProtocolError
from tradewind.own_addresses import address_text
from tradewind.wire import ops

if TYPE_CHECKING:
    from tradewind.broker.broker import Broker
    from tradewind.broker.session import Session

LINE_BYTES_MAX = 107
# Addresses have at most 36 bytes; proxies add a little about TLS after them.
ADDRESSES_BYTES_MAX = 4096
_LINE_BEGIN = b"PROXY "
_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_FIXED_BYTES = 16
_LOCAL, _PROXY = 0, 1
_STREAM = 1
_SIZES = {0x10: 4, 0x20: 16}
_AREA_BYTES = 4096


class ProxyHeader(msgspec.Struct, frozen=True):
    """A parsed header of `size` bytes; without an address, the proxy speaks for itself."""

    size: int
    remote: RemoteAddress | None = None


def read_header(data: bytes) -> ProxyHeader | None:
    """The header at the start of a connection (of no bytes, if there is none); None if more bytes
    are needed.

    Raises ProtocolError with the reason if the header is not valid.
    """
    if data.startswith(_SIGNATURE[:6]):
        return _read_binary(data)
    if data.startswith(_LINE_BEGIN):
        return _read_line(data)
    may_become = _LINE_BEGIN.startswith(data) or _SIGNATURE.startswith(data)
    return None if may_become else ProxyHeader(0)


def _read_line(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, LINE_BYTES_MAX)
    if end < 0:
        if len(data) >= LINE_BYTES_MAX:
            raise ProtocolError("invalid PROXY protocol header: v1 line too long")
        return None
    words = data[len(_LINE_BEGIN) : end].decode("latin-1").split()
    if words[:1] == ["UNKNOWN"]:
        return ProxyHeader(end + 2)
    if len(words) != 5:
        raise ProtocolError("invalid PROXY protocol header: invalid v1 format")
    protocol, source, target, source_port, target_port = words
    wanted = {"TCP4": 4, "TCP6": 6}.get(protocol)
    if wanted is None:
        raise ProtocolError("invalid PROXY protocol header: invalid protocol")
    versions = [_address(text).version for text in (source, target)]
    if versions != [wanted, wanted]:
        raise ProtocolError(f"invalid PROXY protocol header: {protocol} with another address")
    ports = [_port(text) for text in (source_port, target_port)]
    return ProxyHeader(end + 2, RemoteAddress(_shown(_address(source)), ports[0]))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise ProtocolError("invalid PROXY protocol header: invalid address") from None


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 5 or int(text) > 65535:
        raise ProtocolError("invalid PROXY protocol header: invalid port")
    return int(text)


def _read_binary(data: bytes) -> ProxyHeader | None:
    if not _SIGNATURE.startswith(data[: len(_SIGNATURE)]):
        raise ProtocolError("invalid PROXY protocol header: invalid signature")
    if len(data) < _FIXED_BYTES:
        return None
    version, command = data[12] & 0xF0, data[12] & 0x0F
    family, protocol = data[13] & 0xF0, data[13] & 0x0F
    size = int.from_bytes(data[14:16], "big")
    if version != 0x20:
        raise ProtocolError(f"invalid PROXY protocol header: invalid version 0x{version:02x}")
    if command not in (_LOCAL, _PROXY):
        raise ProtocolError(f"unknown PROXY protocol command: 0x{command:02x}")
    if command == _PROXY and protocol != _STREAM:
        raise ProtocolError("unsupported PROXY protocol feature: only STREAM protocol supported")
    address_size = _SIZES.get(family, 0)
    if command == _PROXY and family and not address_size:
        raise ProtocolError(
            f"unsupported PROXY protocol feature: unsupported address family 0x{family:02x}"
        )
    if command == _PROXY and size < 2 * address_size + (4 if address_size else 0):
        raise ProtocolError(f"invalid PROXY protocol header: {size} bytes of addresses")
    if size > ADDRESSES_BYTES_MAX:
        raise ProtocolError(
            f"invalid PROXY protocol header: {size} bytes, at most {ADDRESSES_BYTES_MAX} are read"
        )
    end = _FIXED_BYTES + size
    if len(data) < end:
        return None
    if command == _LOCAL or not address_size:
        return ProxyHeader(end)
    source = ipaddress.ip_address(data[_FIXED_BYTES : _FIXED_BYTES + address_size])
    at = _FIXED_BYTES + 2 * address_size
    port = int.from_bytes(data[at : at + 2], "big")
    return ProxyHeader(end, RemoteAddress(_shown(source), port))


def _shown(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


class ProxyHead(asyncio.BufferedProtocol):
    """Reads the header before a link, and then passes the connection to the link."""

    def __init__(
        self,
        broker: Broker,
        remote: RemoteAddress,
        make_link: Callable[[Callable[..., Session]], asyncio.BaseProtocol],
        connection_type: str,
    ) -> None:
        self._broker = broker
        self._remote = remote
        self._connection_type = connection_type
        self._session: Session | None = None
        self._link = cast("asyncio.BufferedProtocol", make_link(self._open_session))
        self._area = memoryview(bytearray(_AREA_BYTES))
        self._data = b""

    def _open_session(self, **settings: object) -> Session:
        """Open the session with the address in the header. The link calls this at once, or after
        TLS: by then the header has been read.
        """
        self._session = self._broker.open_session(
            self._remote,
            self._connection_type,
            **settings,  # type: ignore[arg-type]
        )
        return self._session

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the socket is connected: INFO is sent without waiting for a header."""
        self._transport = cast("asyncio.Transport", transport)
        self._link.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the area has one size
        """The buffer for the next read; it is small, because the bytes after the header have to fit
        into the link's buffer.
        """
        return self._area

    def buffer_updated(self, nbytes: int) -> None:
        """Called when `nbytes` were read."""
        self._data += bytes(self._area[:nbytes])
        try:
            header = read_header(self._data)
        except ProtocolError as error:
            place = address_text(self._remote.ip, self._remote.port)
            self._broker.log.warn(f"Error reading PROXY protocol header from {place}: {error}")
            if self._session is not None:
                self._session.close(ops.CLOSED_PROTOCOL)
            self._transport.abort()
            return
        if header is None:
            return
        if header.remote is not None:
            self._remote = header.remote
            if self._session is not None:
                self._session.remote_ip = header.remote.ip
                self._session.remote_port = header.remote.port
        self._transport.set_protocol(self._link)
        rest = self._data[header.size :]
        while rest and not self._transport.is_closing():
            area = memoryview(self._link.get_buffer(-1))
            size = min(len(area), len(rest))
            area[:size] = rest[:size]
            rest = rest[size:]
            self._link.buffer_updated(size)

    def eof_received(self) -> bool | None:
        """Called when the peer has ended its side."""
        return self._link.eof_received()

    def pause_writing(self) -> None:
        """Called when the socket is slow."""
        self._link.pause_writing()

    def resume_writing(self) -> None:
        """Called when the socket accepts bytes again."""
        self._link.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the socket is closed."""
        self._link.connection_lost(exc)
