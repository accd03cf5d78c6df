"""Messages for a run: pulled while there is room, and held by their reader until they are settled.

Owns the operations that a run needs, over one pull stream. Unlike those of `consume`, messages that
were read and are not released still take room, so that no more are pulled than can be handled soon.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tradewind.client.core.message import Msg
from tradewind.client.errors import ClientError
from tradewind.client.streams.consumer_events import ConsumerEvent, Resumed
from tradewind.client.streams.delivered import DeliverySource
from tradewind.client.streams.pull_policies import PullOptions, WindowPolicy
from tradewind.client.streams.pulled import PulledMessages

SETTLE_SECONDS_MAX: Final = 5.0


class WindowMessages:
    """At most `size` messages are requested, unread or held; requests ask for `batch` or more."""

    def __init__(
        self,
        source: DeliverySource,
        options: PullOptions,
        size: int,
        batch: int,
        on_resumed: Callable[[], None],
    ) -> None:
        self._on_resumed = on_resumed
        self._connection = source.api.connection
        self._policy = WindowPolicy(options, size, batch)
        self._messages = PulledMessages(source, self._policy, on_status=self._on_event)

    @property
    def is_connected(self) -> bool:
        """Whether acknowledgements reach the server at the moment."""
        return self._connection.is_connected

    async def take_some(self, count_max: int) -> list[Msg]:
        """Messages that have arrived, or the next one; they are held from now on."""
        messages = await self._messages.take_some(count_max)
        self._policy.held += len(messages)
        return messages

    def release(self, count: int) -> None:
        """So many messages are settled."""
        self._policy.held -= count
        self._messages._refill()

    async def stop(self) -> None:
        """Ask for nothing more, and give back what was not taken."""
        await self._messages.stop()

    async def settle(self) -> None:
        """Wait until acknowledgements have reached the server, if it is there."""
        if self._connection.is_connected:
            with suppress(ClientError):
                await self._connection.flush(SETTLE_SECONDS_MAX)

    def _on_event(self, event: ConsumerEvent) -> None:
        if isinstance(event, Resumed):
            self._on_resumed()
