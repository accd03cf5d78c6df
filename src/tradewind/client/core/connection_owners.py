"""The interfaces that the compiled parts of a connection call on their owners.

Declares every such call, and has no behaviour. A `ClientWire` belongs to a connection, a
`MessageInbox` to its reader. These methods are called inside the parser or the event loop, so they
must never block or raise, except for coroutines.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg
    from tradewind.client.core.protocol import MessageInbox


class WireOwner(Protocol):
    """A connection, as its wire and the messages that came over it see it."""

    def _schedule_flush(self) -> None:
        """Called when the empty outbox has received its first bytes."""

    def _on_control(self, kind: str, argument: bytes) -> None:
        """Called for each INFO, -ERR, PING and PONG."""

    def _on_slow_consumer(self, inbox: MessageInbox) -> None:
        """Called for the first message dropped since the queue was last half empty."""

    def _on_handler_error(self, error: Exception) -> None:
        """Called when a handler that gets messages inside the parser has raised."""

    def _run_for_user(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The result of a message's method: the coroutine, or for users in threads its result."""

    async def wait_for_room(self) -> None:
        """Wait until the outbox has room."""

    async def request(self, subject: str, payload: bytes, *, timeout: float | None) -> Msg:
        """Publish a message and wait for the first answer."""
        ...


class InboxOwner(Protocol):
    """The reader that iterates over an inbox."""

    async def _wait_next(self) -> Msg:
        """Wait for the next message when the queue is empty; StopAsyncIteration at the end."""
        ...
