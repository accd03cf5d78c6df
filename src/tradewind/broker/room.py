"""A waiting room of limited size in which no address can take all places.

Owns the places by address. An address may have as many places as are still free: a single address
gets half of the room, and if several arrive at the same time, each gets as much as is left for one
more.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

# One who has an IPv6 address has all of its network.
IPV6_NETWORK_BITS = 64

Guest = TypeVar("Guest", bound=Hashable)


class Room:
    """The places. Guests are kept in one or several `Guests`."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._by_source: Counter[str] = Counter()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has_place_for(self, ip: str) -> bool:
        """Whether one more may come from this address."""
        return self._by_source[source_of(ip)] < self._places - self._count

    def take(self, source: str) -> None:
        """A guest has come."""
        self._by_source[source] += 1
        self._count += 1

    def leave(self, source: str) -> None:
        """A guest has gone."""
        self._count -= 1
        self._by_source[source] -= 1
        if not self._by_source[source]:
            del self._by_source[source]


class Guests(Generic[Guest]):
    """Those who wait for the same thing in a room."""

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
        """It is in the room from now on, also if there is no place."""
        if guest not in self._sources:
            source = self._sources[guest] = source_of(ip)
            self.room.take(source)

    def discard(self, guest: Guest) -> None:
        """It is no longer in the room."""
        source = self._sources.pop(guest, None)
        if source is not None:
            self.room.leave(source)


def source_of(ip: str) -> str:
    """What counts as one address: of IPv6 the network, which one host has all of."""
    if ":" not in ip:
        return ip
    try:
        address = ipaddress.IPv6Address(ip.partition("%")[0])
    except ValueError:
        return ip
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(int(address) >> (128 - IPV6_NETWORK_BITS))
