"""Addresses of servers: URLs, and the pool of known servers.

Owns the grammar of server URLs and the order in which servers are tried. It never opens a
connection.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from tradewind.client.errors import OptionsError
from tradewind.own_addresses import address_text, is_host

DEFAULT_URL = "nats://127.0.0.1:4222"
_PORTS = {"nats": 4222, "tls": 4222, "ws": 80, "wss": 443}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
SERVERS_MAX = 1024
_Place = tuple[str, int, bool]
# Spreads load and hides nothing. Not the generator of `random` itself: that is the program's, which
# may have seeded it to get the same numbers each time.
CHANCE = random.Random()  # noqa: S311


@dataclass(frozen=True, slots=True)
class Address:
    """One server. The login in its url, if any, counts more than that of the options."""

    scheme: str
    host: str
    port: int
    path: str = ""
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def is_websocket(self) -> bool:
        """Whether the protocol is spoken inside WebSocket frames."""
        return self.scheme in ("ws", "wss")

    @property
    def is_secure(self) -> bool:
        """Whether the url asks for TLS."""
        return self.scheme in ("tls", "wss")

    @property
    def url(self) -> str:
        """The url without the login."""
        return f"{self.scheme}://{address_text(self.host, self.port)}{self.path}"

    @property
    def place(self) -> _Place:
        """The listener to which it leads: addresses of the same one have the same place."""
        return self.host, self.port, self.is_websocket


def parse_address(text: str, scheme: str = "nats") -> Address:
    """The address of a url; `scheme` is for those without one, such as "host:4222"."""
    text = text.strip()
    full = text if _SCHEME.match(text) else f"{scheme}://{text}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError:
        raise OptionsError(
            f"server url {_shown(text)!r}: the port must be a number up to 65535"
        ) from None
    if parts.scheme not in _PORTS:
        raise OptionsError(
            f"server url {_shown(text)!r}: must start with one of {', '.join(_PORTS)}, not "
            f"{parts.scheme!r}"
        )
    if not parts.hostname:
        raise OptionsError(f"server url {_shown(text)!r}: has no host")
    if not is_host(parts.hostname):
        raise OptionsError(
            f"server url {_shown(text)!r}: the parts of a host name must have 1 to 63 characters"
        )
    return Address(
        scheme=parts.scheme,
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        path=parts.path if parts.scheme in ("ws", "wss") else "",
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def parse_servers(servers: str | Sequence[str]) -> list[Address]:
    """The addresses of one url, several joined by commas, or a list of them."""
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise OptionsError(f"servers: specify at least one URL, such as {DEFAULT_URL}")
    if len(texts) > SERVERS_MAX:
        raise OptionsError(f"servers: {len(texts)} urls, the limit is {SERVERS_MAX}")
    addresses = [parse_address(text) for text in texts]
    if len({address.is_websocket for address in addresses}) > 1:
        raise OptionsError("servers: either all urls are ws:// or wss://, or none is")
    return addresses


def _shown(text: str) -> str:
    """A url without the part that may hold a password."""
    # A password may hold any character, so everything before the last @ is hidden.
    hidden, at, shown = text.rpartition("@")
    scheme = _SCHEME.match(hidden)
    return f"{scheme[0] if scheme else ''}***@{shown}" if at else text


class ServerPool:
    """All known servers in the order in which they are tried."""

    def __init__(self, configured: Sequence[Address], *, randomize: bool) -> None:
        self._configured = list(configured)
        self._servers = list(configured)
        self._randomize = randomize
        if randomize:
            CHANCE.shuffle(self._servers)

    @property
    def servers(self) -> list[Address]:
        """The servers, the next to be tried first."""
        return list(self._servers)

    def replace(self, configured: Sequence[Address]) -> None:
        """Forget all servers, also discovered ones, and use these."""
        self._configured = list(configured)
        self._servers = list(dict.fromkeys(configured))
        if self._randomize:
            CHANCE.shuffle(self._servers)

    def move_to_end(self, address: Address) -> None:
        """The server was just lost: all others are tried before it."""
        if address in self._servers:
            self._servers.remove(address)
            self._servers.append(address)

    def discovered(self, texts: Iterable[str], current: Address, *, secure: bool) -> list[Address]:
        """Take over the servers that a server names; returns those not known before.

        Only the host and the port of each entry are used: the client decides by itself whether
        to use TLS (`secure`) and which login to send. Discovered servers that are no longer named
        are forgotten, except the current one.
        """
        if current.is_websocket:
            scheme = "wss" if secure else "ws"
        else:
            scheme = "tls" if secure else "nats"
        named: dict[_Place, Address] = {}
        for text in list(texts)[:SERVERS_MAX]:
            try:
                found = parse_address(text, scheme)
            except OptionsError:
                continue  # one bad entry of a server is no reason to lose the others
            address = Address(scheme, found.host, found.port)
            named.setdefault(address.place, address)
        configured = set(self._configured)
        self._servers = [
            server
            for server in self._servers
            if server in configured or server.place == current.place or server.place in named
        ]
        known = {server.place for server in self._servers}
        new = [address for place, address in named.items() if place not in known]
        if self._randomize:
            CHANCE.shuffle(new)
        self._servers.extend(new)
        return new
