"""Replies to requests: one wildcard subscription for all of them, told apart by their last token.

Owns the inbox of a connection and who waits for which reply. A handler runs inside the parser, so
it only stores or wakes; whoever adds one removes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tradewind.client.nuid import Nuid
from tradewind.client.protocol import SubscriptionCore

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.message import Msg

ReplyHandler = Callable[["Msg | Exception"], None]

nuid = Nuid()


class Replies:
    """The inbox of a connection. `add` gives a reply subject whose messages go to a handler."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._base = f"{prefix}.{nuid.next()}."
        self._handlers: dict[str, tuple[str, ReplyHandler]] = {}
        self._subscription: SubscriptionCore | None = None
        self._count = 0

    def __len__(self) -> int:
        return len(self._handlers)

    def add(self, subject: str, handler: ReplyHandler) -> str:
        """A new reply subject for a request to `subject`.

        The handler is called in the parser with each reply, or with the error when the server
        refuses the request or the connection closes; it must not raise or wait. Call `remove` when
        no more replies are wanted.
        """
        if self._subscription is None:
            self._subscription = SubscriptionCore(
                self._base + "*",
                "",
                pending_messages_max=0,
                pending_bytes_max=0,
                messages_max=0,
                handler=self._on_reply,
            )
            self._connection._subscribe(self._subscription)
        self._count += 1
        token = format(self._count, "x")
        self._handlers[token] = (subject, handler)
        return self._base + token

    def remove(self, reply: str) -> None:
        """Forget a reply subject; nothing happens if that was done before."""
        self._handlers.pop(reply[len(self._base) :], None)

    def fail(self, error: Exception, subject: str | None = None) -> None:
        """Tell everyone who waits, or those whose request went to `subject`."""
        for wanted, handler in list(self._handlers.values()):
            if subject is None or wanted == subject:
                handler(error)

    def _on_reply(self, message: Msg) -> None:
        entry = self._handlers.get(message.subject[len(self._base) :])
        if entry is not None:
            entry[1](message)
