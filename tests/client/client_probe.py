"""The compiled half of a connection without a network: bytes in, messages and control lines out."""

from __future__ import annotations

from typing import Any

from tradewind.client.core.protocol import ClientCore, SubscriptionCore


class Probe(ClientCore):
    """Records what a Connection would react to; nothing is ever sent by itself."""

    def __init__(self) -> None:
        self.controls: list[tuple[str, bytes]] = []
        self.slow: list[SubscriptionCore] = []
        self.errors: list[Exception] = []
        self.flushes = 0
        self._set_state(0)

    def _on_control(self, kind: str, argument: bytes) -> None:
        self.controls.append((kind, argument))

    def _on_slow_consumer(self, subscription: SubscriptionCore) -> None:
        self.slow.append(subscription)

    def _on_handler_error(self, error: Exception) -> None:
        self.errors.append(error)

    def _schedule_flush(self) -> None:
        self.flushes += 1

    def add(self, **options: Any) -> SubscriptionCore:
        limits = {"pending_messages_max": 0, "pending_bytes_max": 0, "messages_max": 0, **options}
        subscription = SubscriptionCore("s", "", **limits)
        self._register(subscription)
        return subscription

    def read_in_place(self, data: bytes) -> None:
        """As a socket does it: into the read area."""
        while data:
            area = self._read_area()
            size = min(len(area), len(data))
            area[:size] = data[:size]
            self._received(size)
            data = data[size:]
