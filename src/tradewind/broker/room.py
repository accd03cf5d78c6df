"""A waiting room of limited size in which no address can take all places.

Owns the places by address. An address may have as many places as are still free: a single address
gets half of the room, and if several arrive at the same time, each gets as many as are left for one
more.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

# The owner of an IPv6 address has its whole network.
IPV6_NETWORK_BITS = 64

Guest = TypeVar("Guest", bound=Hashable)


class Room:
    """The places of a room, whose guests are in one or several `Guests`."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._by_source: Counter[str] = Counter()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has_place_for(self, ip: str) -> bool:
        """Whether one more guest may come from this address."""
        return self._by_source[source_of(ip)] < self._places - self._count

    def take(self, source: str) -> None:
        """Called when a guest has arrived."""
        self._by_source[source] += 1
        self._count += 1

    def leave(self, source: str) -> None:
        """Called when a guest has left."""
        self._count -= 1
        self._by_source[source] -= 1
        if not self._by_source[source]:
            del self._by_source[source]


class Guests(Generic[Guest]):
    """The guests of a room that wait for the same thing."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self._sources: dict[Guest, str] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[Guest]:
        return iter(self._sources)

    def __contains__(self, guest: object) -> bool:
        return guest in self._sources

    def add(self, guest: Guest, ip: str) -> None:
        """Add a guest to the room, even if there is no place."""
        if guest not in self._sources:
            source = self._sources[guest] = source_of(ip)
            self.room.take(source)

    def discard(self, guest: Guest) -> None:
        """Remove a guest from the room."""
        source = self._sources.pop(guest, None)
        if source is not None:
            self.room.leave(source)


def source_of(ip: str) -> str:
    """The source that counts as one address: for IPv6 the network, all of which belongs to one
    host.
    """
    if ":" not in ip:
        return ip
    try:
        address = ipaddress.IPv6Address(ip.partition("%")[0])
    except ValueError:
        return ip
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(int(address) >> (128 - IPV6_NETWORK_BITS))
