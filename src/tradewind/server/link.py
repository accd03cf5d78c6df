"""The interface between links and the server, and the link of a client connection.

Owns no behaviour of its own: the work of a link is in `link_core`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from tradewind.broker.broker import Broker
from tradewind.server.link_core import PlainLink


class Held(Protocol):
    """A link that is not read because its receivers are crowded."""

    def release(self) -> None:
        """Read it again."""

    def give_up(self, error: Exception) -> None:
        """Releasing it has failed."""


class Turns(Protocol):
    """What a link needs of the server: somebody who ends the turn."""

    @property
    def broker(self) -> Broker:
        """Whose turn it is."""

    def turn_needed(self) -> None:
        """Something happened: end the turn when every ready socket has been read."""

    def input_done(self, link: object) -> None:
        """A link has run what it read."""

    def turn_now(self) -> None:
        """Some outbox has grown large: end the turn at once."""

    def hold(self, link: Held) -> None:
        """Release a link in a moment, or when some receiver continues."""

    def release_held(self) -> None:
        """Some receiver continues."""


class Framing(Protocol):
    """What wraps the protocol bytes of a link; most links have none."""

    @property
    def has_input(self) -> bool:
        """Whether input is still to be run: nothing more is read until it is."""

    def run(self, data: bytes | memoryview) -> None:
        """Run input. The link calls it without data while `has_input`, once per turn."""

    def head(self, size: int) -> bytes | None:
        """What to send in front of so many protocol bytes; None: they are to be encoded."""

    def encode(self, data: bytes) -> bytes:
        """Protocol bytes as the transport gets them."""

    def farewell(self, reason: str) -> bytes:
        """Bytes to send after the last output."""


class StreamLink(PlainLink, asyncio.BufferedProtocol):
    """A client's connection: the transport reads straight into the broker's read area."""
