"""The addresses of this machine's network interfaces, at which other machines reach a listener.

Owns reading them from the kernel. The module is loaded only where a wildcard has to be resolved.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tradewind.own_addresses import Sockets, address_text, is_wildcard
from tradewind.platform_calls import PROC

# An ioctl request for all IPv4 addresses. An entry has a name of 16 bytes and an address of 24.
_GET_INTERFACES: Final = 0x8912
_INTERFACES_BYTES: Final = 64 * 1024
_ENTRY_BYTES: Final = 40
_IPV6_TABLE: Final = Path(PROC, "net/if_inet6")


def reachable_urls(sockets: Sockets, scheme: str) -> list[str]:
    """The URLs of all addresses that the sockets listen on; a wildcard stands for every address of
    the machine, loopback first.
    """
    places: dict[str, None] = {}
    for listening in sockets:
        host, port = listening.getsockname()[:2]
        hosts = [host]
        if is_wildcard(host):
            both = listening.family == socket.AF_INET6
            hosts = [ip for ip in interface_ips() if both or ":" not in ip] or ["127.0.0.1"]
        places.update({address_text(one, port): None for one in hosts})
    return [f"{scheme}://{place}" for place in places]


def public_places(host: str, port: int, *, both_families: bool) -> list[str]:
    """The host:port of the addresses at which other machines reach a listener; a wildcard stands
    for all that are neither loopback nor link-local. Empty if there are none.
    """
    if not is_wildcard(host):
        return [address_text(host, port)]
    return [address_text(ip, port) for ip in public_ips(both_families=both_families)]


def public_ips(*, both_families: bool) -> list[str]:
    """The addresses of this machine that are neither loopback nor link-local."""
    found = [ipaddress.ip_address(ip) for ip in interface_ips()]
    return [
        str(ip)
        for ip in found
        if not (ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified)
        and (both_families or ip.version == 4)
    ]


def interface_ips() -> list[str]:
    """The addresses of the interfaces of this machine, loopback first."""
    found = dict.fromkeys((*_ipv4_addresses(), *_ipv6_addresses()))
    return sorted(found, key=lambda ip: not ipaddress.ip_address(ip).is_loopback)


def _ipv4_addresses() -> Iterator[str]:
    area = array.array("B", bytes(_INTERFACES_BYTES))
    request = struct.pack("iL", len(area), area.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as question:
            size = struct.unpack("iL", fcntl.ioctl(question, _GET_INTERFACES, request))[0]
    except OSError:
        return
    for at in range(0, size - _ENTRY_BYTES + 1, _ENTRY_BYTES):
        yield socket.inet_ntoa(area[at + 20 : at + 24].tobytes())


def _ipv6_addresses() -> Iterator[str]:
    with contextlib.suppress(OSError), _IPV6_TABLE.open(encoding="ascii") as table:
        for line in table:
            yield str(ipaddress.IPv6Address(int(line.split(maxsplit=1)[0], 16)))
