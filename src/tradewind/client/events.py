"""Asynchronous events of a connection: one class per kind of event.

They are passed to the `on_event` option; without it they are logged to `tradewind.client`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tradewind.client.core.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events; `str(event)` is one readable line."""


@dataclass(frozen=True, slots=True)
class Connected(Event):
    """The first login succeeded."""

    url: str

    def __str__(self) -> str:
        return f"connected to {self.url}"


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """The connection broke; `error` says why, if it is known."""

    url: str
    error: Exception | None

    def __str__(self) -> str:
        return f"disconnected from {self.url}: {self.error or 'the server closed the connection'}"


@dataclass(frozen=True, slots=True)
class Reconnected(Event):
    """A new connection stands and all subscriptions are recreated."""

    url: str

    def __str__(self) -> str:
        return f"reconnected to {self.url}"


@dataclass(frozen=True, slots=True)
class ReconnectFailed(Event):
    """One server could not be reached; others, or the same, will be tried."""

    url: str
    error: Exception

    def __str__(self) -> str:
        return f"cannot reconnect to {self.url}: {self.error}"


@dataclass(frozen=True, slots=True)
class Closed(Event):
    """The connection is closed for good; `error` is None when the program closed it."""

    error: Exception | None

    def __str__(self) -> str:
        return f"closed: {self.error or 'by the program'}"


@dataclass(frozen=True, slots=True)
class LameDuck(Event):
    """The server is going to stop and asks its clients to go elsewhere."""

    url: str

    def __str__(self) -> str:
        return f"{self.url} is shutting down"


@dataclass(frozen=True, slots=True)
class ServersDiscovered(Event):
    """The server named others of its cluster that were not known."""

    urls: tuple[str, ...]

    def __str__(self) -> str:
        return f"new servers: {', '.join(self.urls)}"


@dataclass(frozen=True, slots=True)
class SlowConsumer(Event):
    """A subscription's queue is full and messages are dropped; emitted once until it recovers."""

    subscription: Subscription

    def __str__(self) -> str:
        queue = self.subscription
        return (
            f"subscription to {queue.subject!r} is read too slowly: {queue.dropped_count} messages "
            f"dropped, {queue.pending_messages} wait"
        )


@dataclass(frozen=True, slots=True)
class ErrorEvent(Event):
    """An error that no call can report: of the server, or of a callback."""

    error: Exception
    subscription: Subscription | None = None

    def __str__(self) -> str:
        return str(self.error)
