"""The interface between links and the server, and the link of a client connection.

Owns no behaviour of its own: the work of a link is in `link_core`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from tradewind.broker.broker import Broker
from tradewind.server.links.link_core import PlainLink

if TYPE_CHECKING:
    from tradewind.server.links.socket_set import SocketSet


class HeldLink(Protocol):
    """A link that is not read because its receivers are crowded."""

    def release(self) -> None:
        """Resume reading from the link."""

    def give_up(self, error: Exception) -> None:
        """Called when releasing the link has failed."""


class Turns(Protocol):
    """The part of the server that links use: what ends the turn."""

    @property
    def broker(self) -> Broker:
        """The broker whose turns these are."""

    @property
    def sockets(self) -> SocketSet:
        """The sockets of accepted connections."""

    def turn_needed(self) -> None:
        """Called when something happened: end the turn once every ready socket has been read."""

    def input_done(self, link: object) -> None:
        """Called when a link has run the input it read."""

    def turn_now(self) -> None:
        """End the turn at once: some outbox has grown large."""

    def hold(self, link: HeldLink) -> None:
        """Release the link after a moment, or as soon as a receiver accepts output again."""

    def release_held(self) -> None:
        """Called when a receiver accepts output again."""


class Framing(Protocol):
    """The wrapping of a link's protocol bytes; most links have none."""

    @property
    def has_input(self) -> bool:
        """Whether input is still to be run; nothing more is read until then."""

    def run(self, data: bytes | memoryview) -> None:
        """Run input. The link calls this without data while `has_input`, once per turn."""

    def head(self, size: int) -> bytes | None:
        """The bytes to send before `size` protocol bytes; None if these must be encoded."""

    def encode(self, data: bytes) -> bytes:
        """The protocol bytes in the form that the transport sends."""

    def farewell(self, reason: str) -> bytes:
        """The bytes to send after the last output."""


class StreamLink(PlainLink, asyncio.BufferedProtocol):
    """A client's connection: the transport reads straight into the broker's read area."""
