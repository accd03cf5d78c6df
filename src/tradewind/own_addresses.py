"""Listening sockets, and the written form of addresses.

Owns the meaning of a host in the configuration. A wildcard (`0.0.0.0`, `::` or nothing) stands for
all addresses of both families, by one socket, as on nats-server. An address stands for itself, and
a name for all its addresses. IPv6 is omitted if the machine does not have it, unless nothing else
is configured. The module never accepts a connection.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import Any, Final, TypeAlias

Sockets: TypeAlias = list[socket.socket]
_Address: TypeAlias = tuple[Any, ...]
_Place: TypeAlias = tuple[int, _Address]

# In the resolver of the system, "*" is a name for them, too.
_WILDCARDS: Final = ("0.0.0.0", "::", "", "*")
# IPv6 is not in the kernel, is switched off, or the service may not use it.
_NO_IPV6: Final = (
    errno.EAFNOSUPPORT,
    errno.EPROTONOSUPPORT,
    errno.ENOPROTOOPT,
    errno.EADDRNOTAVAIL,
)
_EVERYTHING: Final[_Place] = (socket.AF_INET6, ("::", 0))
_EVERYTHING_IPV4: Final[_Place] = (socket.AF_INET, ("0.0.0.0", 0))
_PART_BYTES_MAX: Final = 63
# A dot at the end is not counted.
_NAME_BYTES_MAX: Final = 254
_MAPPED: Final = "::ffff:"
_MAPPED_BYTES: Final = bytes(10) + b"\xff\xff"


def address_text(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_wildcard(host: str) -> bool:
    """Whether a host stands for all addresses of the machine, in any form: `0`, `::0`."""
    if host in _WILDCARDS:
        return True
    if not is_host(host):
        return False
    with contextlib.suppress(OSError):
        packed = socket.inet_pton(socket.AF_INET6, host)
        return not any(packed.removeprefix(_MAPPED_BYTES))
    with contextlib.suppress(OSError):
        return not any(socket.inet_aton(host))
    return False


def is_host(name: str) -> bool:
    """Whether a resolver can look up a name: at most 253 bytes, with parts of 1 to 63 bytes."""
    if len(name) > _NAME_BYTES_MAX:
        return False
    parts = name.removesuffix(".").split(".")
    if name.isascii():
        return "\0" not in name and all(0 < len(part) <= _PART_BYTES_MAX for part in parts)
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def plain_ip(ip: str) -> str:
    """The address of a peer, as IPv4 if a socket of both families shows it as ::ffff:1.2.3.4."""
    return ip.removeprefix(_MAPPED) if "." in ip else ip


def listen_on(host: str, port: int, backlog: int) -> Sockets:
    """Sockets that listen on all addresses of a host; OSError. A port of -1 or 0 means any free
    one, the same for all.
    """
    port = max(port, 0)
    if is_wildcard(host):
        try:
            return _listen([_EVERYTHING], port, backlog)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
        return _listen([_EVERYTHING_IPV4], port, backlog)
    if not is_host(host):
        raise socket.gaierror(socket.EAI_NONAME, "no such host")
    # Python encodes a string by IDNA, whose tables take a millisecond to load.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    places = dict.fromkeys(_plain_place(int(family), address) for family, *_, address in found)
    return _listen(list(places), port, backlog)


def listen_reason(host: str, port: int, error: OSError) -> str:
    """The reason why `listen_on` has failed, in the words that tools know from nats-server."""
    if isinstance(error, socket.gaierror):
        return f"listen tcp: lookup {host}: no such host"
    reason = (error.strerror or str(error)).lower()
    return f"listen tcp {address_text(host, max(port, 0))}: bind: {reason}"


def _plain_place(family: int, address: _Address) -> _Place:
    """The place with its IPv4 address, if that is written as an IPv6 address."""
    plain = plain_ip(address[0])
    return (socket.AF_INET, (plain, address[1])) if plain != address[0] else (family, address)


def _listen(places: list[_Place], port: int, backlog: int) -> Sockets:
    sockets: Sockets = []
    missing: OSError | None = None
    with contextlib.ExitStack() as undo:
        for family, (host, _, *rest) in places:
            try:
                listening = _bound(family, (host, port, *rest))
            except OSError as error:
                if family != socket.AF_INET6 or error.errno not in _NO_IPV6:
                    raise
                missing = error
                continue
            undo.callback(listening.close)
            port = listening.getsockname()[1]
            listening.listen(backlog)
            sockets.append(listening)
        undo.pop_all()
    if missing is not None and not sockets:
        raise missing
    return sockets


def _bound(family: int, address: _Address) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            only = address[0] != "::"
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
        listening.bind(address)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening
