"""The compiled part of a connection without a network: bytes in, messages and control lines out."""

from __future__ import annotations

from typing import Any

from tradewind.client.core.connection_owners import WireOwner
from tradewind.client.core.protocol import ClientWire, MessageInbox


class Probe(WireOwner):
    """Records what a Connection would react to; nothing is ever sent by itself."""

    def __init__(self) -> None:
        self.controls: list[tuple[str, bytes]] = []
        self.slow: list[MessageInbox] = []
        self.errors: list[Exception] = []
        self.flushes = 0
        self.wire = self._wire = ClientWire(self)
        self.publish = self.wire.publish
        self.wire.set_state(0)

    def _on_control(self, kind: str, argument: bytes) -> None:
        self.controls.append((kind, argument))

    def _on_slow_consumer(self, inbox: MessageInbox) -> None:
        self.slow.append(inbox)

    def _on_handler_error(self, error: Exception) -> None:
        self.errors.append(error)

    def _schedule_flush(self) -> None:
        self.flushes += 1

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout: float | None,  # noqa: ASYNC109 - as that of a connection
    ) -> Any:
        raise AssertionError("there is no network")

    def add(self, **options: Any) -> MessageInbox:
        limits = {"pending_messages_max": 0, "pending_bytes_max": 0, "messages_max": 0, **options}
        inbox = MessageInbox("s", "", **limits)
        self.wire.register(inbox)
        return inbox

    def read_in_place(self, data: bytes) -> None:
        """As a socket does it: into the read area."""
        while data:
            area = self.wire.read_area()
            size = min(len(area), len(data))
            area[:size] = data[:size]
            self.wire.received(size)
            data = data[size:]
