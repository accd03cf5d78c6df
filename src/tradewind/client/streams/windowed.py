"""Messages for a run: pulled while there is room, and held by their reader until they are settled.

Owns the count of held messages. Unlike those of `consume`, messages that were read and are not
released still take room, so that no more are pulled than can be handled soon.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tradewind.client.core.message import Msg
from tradewind.client.errors import ClientError
from tradewind.client.streams.consumer_events import ConsumerEvent, Resumed
from tradewind.client.streams.delivered import DeliverySource
from tradewind.client.streams.pulled import ConsumerMessages, PullOptions

SETTLE_SECONDS_MAX: Final = 5.0


class WindowMessages(ConsumerMessages):
    """At most `size` messages are requested, unread or held; requests ask for `batch` or more."""

    def __init__(
        self,
        source: DeliverySource,
        options: PullOptions,
        size: int,
        batch: int,
        on_resumed: Callable[[], None],
    ) -> None:
        self._batch = batch
        self._held = 0
        self._on_resumed = on_resumed
        super().__init__(
            source, options, max_messages=size, threshold=0.0, on_status=self._on_event_of_window
        )

    @property
    def is_connected(self) -> bool:
        """Whether acknowledgements reach the server at the moment."""
        return self._connection.is_connected

    async def take_some(self, count_max: int, timeout: float | None = None) -> list[Msg]:
        """Messages that have arrived, or the next one; they are held from now on."""
        messages = await super().take_some(count_max, timeout)
        self._held += len(messages)
        return messages

    def release(self, count: int) -> None:
        """So many messages are settled."""
        self._held -= count
        self._refill()

    async def settle(self) -> None:
        """Wait until acknowledgements have reached the server, if it is there."""
        if self._connection.is_connected:
            with suppress(ClientError):
                await self._connection.flush(SETTLE_SECONDS_MAX)

    def _begin(self) -> None:
        # Only a release makes room, not the taking of a message: it never asks by itself.
        self._inbox.set_refill(-1, 0)
        self._try_pull()
        self._start_beat(self._options.idle_heartbeat)

    def _try_pull(self) -> None:
        self._cancel_timer("retry")
        self._refill()

    def _refill(self) -> None:
        if self.is_ended or self._finished.is_set() or "retry" in self._timers:
            return
        room = self._messages_max - self._inbox.wanted_messages - self.pending_messages - self._held
        if room >= self._batch and self._connection.is_connected:
            self._pull(room, 0)

    def _on_event_of_window(self, event: ConsumerEvent) -> None:
        if isinstance(event, Resumed):
            self._on_resumed()
