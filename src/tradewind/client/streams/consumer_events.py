"""Events about consuming messages: one class per kind of event.

Owns the classes; they are created where the event occurs. `str(event)` is one readable line.
"""

from __future__ import annotations

from dataclasses import dataclass


class ConsumerEvent:
    """Base of all events of a consumption."""


@dataclass(frozen=True, slots=True)
class HeartbeatsMissed(ConsumerEvent):
    """The server was silent for this many heartbeats in a row, two or more."""

    count: int

    def __str__(self) -> str:
        return f"{self.count} heartbeats of the consumer were missed"


@dataclass(frozen=True, slots=True)
class ConsumerDeleted(ConsumerEvent):
    """The consumer is gone; the messages end with an error, those of an ordered one continue."""

    description: str

    def __str__(self) -> str:
        return f"the consumer is gone: {self.description}"


@dataclass(frozen=True, slots=True)
class NoResponders(ConsumerEvent):
    """No server accepts requests for the consumer at the moment; they are repeated."""

    def __str__(self) -> str:
        return "no server accepts requests for the consumer"


@dataclass(frozen=True, slots=True)
class ServerNotice(ConsumerEvent):
    """The server ended requests for another reason; they are repeated."""

    code: int
    description: str

    def __str__(self) -> str:
        return f"the server says {self.code} {self.description}"


@dataclass(frozen=True, slots=True)
class Resumed(ConsumerEvent):
    """The connection was lost and is back; messages are asked for again."""

    def __str__(self) -> str:
        return "consuming continues after a reconnect"


@dataclass(frozen=True, slots=True)
class Recreated(ConsumerEvent):
    """An ordered consumer was recreated, to start after `last_sequence`."""

    reason: str
    last_sequence: int

    def __str__(self) -> str:
        return (
            f"the ordered consumer was recreated after sequence {self.last_sequence}: {self.reason}"
        )
