"""Gossip: the servers that INFO names, to which clients reconnect when this one has ended.

Owns the list `connect_urls`, which nats-server fills from its cluster. This server has none: the
others are the `known_servers` of the configuration, and without them INFO names no servers, as on a
nats-server that runs alone. It never connects to any of them.
"""

from __future__ import annotations

from tradewind.own_addresses import address_text

# A machine can have thousands of addresses, and INFO goes to every client.
OWN_PLACES_MAX = 32


def advertised(advertise: str, host: str, port: int) -> tuple[str, int]:
    """The address in INFO: `client_advertise` if set, else the bound address; port 0 means the
    bound port.
    """
    if not advertise:
        return host, port
    if advertise.endswith("]") or ":" not in advertise:
        return advertise.strip("[]"), port
    name, _, text = advertise.rpartition(":")
    return name.strip("[]"), int(text) or port


def connect_urls(
    advertise: str,
    bound: tuple[str, int],
    known: tuple[str, ...],
    *,
    both_families: bool,
    is_leaving: bool,
) -> tuple[str, ...]:
    """This server first, then the others, each once; a server that is shutting down does not name
    itself. Empty without known servers.
    """
    if not known:
        return ()
    if advertise:
        own = [address_text(*advertised(advertise, *bound))]
    else:
        # Loaded when it is needed: servers that name no others start sooner.
        from tradewind.interfaces import public_places

        own = public_places(*bound, both_families=both_families)
    named = {_canonical(place) for place in own}
    others = [place for place in map(_canonical, known) if place not in named]
    return tuple(dict.fromkeys(others if is_leaving else (*own[:OWN_PLACES_MAX], *others)))


def _canonical(place: str) -> str:
    """The canonical form of an address, by which the same server is recognised."""
    from tradewind.server.config.known_servers import known_place

    try:
        return known_place(place)
    except ValueError:  # `client_advertise` may hold more than an entry
        return place
