"""The addresses of hubs: URLs in `leafnodes.remotes`, and those that a hub announces.

Owns the grammar of these URLs. `ws`, `wss` and `tls` have their usual meaning; a URL with any other
scheme, or without one, stands for a plain connection, as in nats-server.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tradewind.client.core.addresses import Address, parse_address

LEAF_PORT = 7422
_SCHEME = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?//")
_KEPT = ("tls", "ws", "wss")


def leaf_address(url: str) -> Address:
    """The address of a hub, with the port of leaf nodes by default; OptionsError without a host."""
    url = url.strip()
    found = _SCHEME.match(url)
    scheme = (found[1] or "").lower() if found is not None else ""
    place = url[found.end() :] if found is not None else url
    address = parse_address(f"{scheme if scheme in _KEPT else 'nats'}://{place}")
    host_part = place.partition("/")[0].rpartition("@")[2]
    has_port = host_part.rpartition(":")[2].isdecimal() and not host_part.endswith("]")
    if has_port or address.is_websocket:
        return address
    return replace(address, port=LEAF_PORT)
