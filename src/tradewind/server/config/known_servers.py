"""Reads `known_servers`: the other servers that clients may connect to.

Owns the form of an entry and the limits on the list.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from tradewind.own_addresses import address_text, is_host, is_wildcard
from tradewind.server.config.reader import expect, fault, text
from tradewind.server.config.tree import ConfigNode

# INFO, which every connection gets, holds all of them.
KNOWN_SERVERS_MAX = 64
_HOST_BYTES_MAX = 253
_PORT_MAX = 65535
_FORM = '"host:port", such as "nats2.example.com:4222" or "[fd00::2]:4222"'
_PLACE = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([0-9]{1,5})")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def known_servers(node: ConfigNode, key: str) -> tuple[str, ...]:
    """The entries in the form that INFO uses, without duplicates."""
    if isinstance(node.value, str):
        return (_entry(node, key),)
    items = expect(node, key, list, f"a list of {_FORM}")
    if len(items) > KNOWN_SERVERS_MAX:
        raise fault(
            node, f"{key} has {len(items)} entries, at most {KNOWN_SERVERS_MAX} are possible"
        )
    found = [_entry(item, f"entry {number} of {key}") for number, item in enumerate(items, 1)]
    return tuple(dict.fromkeys(found))


def _entry(node: ConfigNode, name: str) -> str:
    given = text(node, name)
    try:
        return known_place(given)
    except ValueError as error:
        raise fault(node, f"{name} {error}") from None


def known_place(given: str) -> str:
    """The form that INFO uses for an entry; a ValueError says what would be right."""
    shown = given if len(given) <= _HOST_BYTES_MAX else f"{given[:40]}..."
    parts = _PLACE.fullmatch(given)
    if "://" in given or parts is None:
        more = ", without a scheme" if "://" in given else ""
        raise ValueError(f"must be {_FORM}{more}, not {shown!r}")
    address, host, digits = parts.groups()
    port = int(digits)
    if not 0 < port <= _PORT_MAX:
        raise ValueError(f"must have a port from 1 to {_PORT_MAX}, not {shown!r}")
    if address is not None:
        try:
            host = str(ipaddress.IPv6Address(address))
        except ValueError:
            raise ValueError(f"must have an IPv6 address in the brackets, not {shown!r}") from None
    elif len(host) > _HOST_BYTES_MAX or not _NAME.fullmatch(host) or not is_host(host):
        what = f"a host name of at most {_HOST_BYTES_MAX} letters, digits, '.' and '-'"
        raise ValueError(f"must have {what}, not {shown!r}")
    if is_wildcard(host) or "%" in host:
        raise ValueError(f"must have an address that clients can connect to, not {shown!r}")
    return address_text(host.lower(), port)


def known_servers_problems(key: str, places: tuple[str, ...]) -> Iterator[str]:
    """Yield the problems of a list that does not come from a file."""
    if len(places) > KNOWN_SERVERS_MAX:
        yield f"{key} has {len(places)} entries, at most {KNOWN_SERVERS_MAX} are possible"
    for number, place in enumerate(places, 1):
        try:
            known_place(place)
        except ValueError as error:
            yield f"entry {number} of {key} {error}"
