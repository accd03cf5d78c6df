"""The advisories of a consumer that wait for the end of its turn.

Owns the advisories and metrics that one consumer has not published yet. Most are noticed in the
middle of a delivery, where nothing may be sent: adding one wakes the consumer, which publishes them
once it has delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tradewind.broker.turn import Participant, Turn


class QueuedAdvisories:
    """The advisories of one consumer. `waiting` are (kind, fields), in order of arrival."""

    __slots__ = ("_consumer", "_publish", "_turn", "waiting")

    def __init__(
        self,
        consumer: Participant,
        turn: Turn,
        publish: Callable[[str, dict[str, object]], None],
    ) -> None:
        self._consumer = consumer
        self._turn = turn
        self._publish = publish
        self.waiting: list[tuple[str, dict[str, object]]] = []

    def add(self, kind: str, **fields: object) -> None:
        """Add an advisory, which is published in this turn."""
        self.waiting.append((kind, fields))
        self._turn.wake(self._consumer)

    def publish(self) -> None:
        """Publish all waiting advisories."""
        advisories = self.waiting.copy()
        self.waiting.clear()
        for kind, fields in advisories:
            self._publish(kind, fields)
