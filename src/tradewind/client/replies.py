"""Replies to requests: one wildcard subscription for all of them, told apart by their last token.

Owns the inbox of a connection, who waits for which reply, and until when. A handler runs inside the
parser, so it only stores or wakes; whoever adds one removes it. All deadlines share one timer.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from tradewind.client.errors import OperationTimeoutError
from tradewind.client.nuid import Nuid
from tradewind.client.protocol import SubscriptionCore

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.message import Msg

ReplyHandler = Callable[["Msg | Exception"], None]
# Deadlines of answered requests are swept out when they are more than these and half of all.
STALE_DEADLINES_MAX = 1024

nuid = Nuid()


class Replies:
    """The inbox of a connection. `add` gives a reply subject whose messages go to a handler."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._base = f"{prefix}.{nuid.next()}."
        self._base_size = len(self._base)
        self._waiting: dict[str, tuple[str, ReplyHandler | asyncio.Future[Msg]]] = {}
        self._deadlines: list[tuple[float, str, float]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._subscription: SubscriptionCore | None = None
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, subject: str, handler: ReplyHandler) -> str:
        """A new reply subject for a request to `subject`.

        The handler is called in the parser with each reply, or with the error when the server
        refuses the request or the connection closes; it must not raise or wait. Call `remove` when
        no more replies are wanted.
        """
        token = self._new_token()
        self._waiting[token] = (subject, handler)
        return self._base + token

    def expect(self, subject: str, seconds: float) -> tuple[str, asyncio.Future[Msg]]:
        """A new reply subject and the future of its first reply, or of the error after `seconds`.

        Call `remove` when the future is not wanted any more.
        """
        loop = self._connection._loop
        token = self._new_token()
        future: asyncio.Future[Msg] = loop.create_future()
        self._waiting[token] = (subject, future)
        deadline = loop.time() + seconds
        heapq.heappush(self._deadlines, (deadline, token, seconds))
        if self._timer is None or deadline < self._timer.when():
            self._set_timer(deadline)
        return self._base + token, future

    def remove(self, reply: str) -> None:
        """Forget a reply subject; nothing happens if that was done before."""
        self._waiting.pop(reply[self._base_size :], None)
        if not self._waiting:
            self._deadlines.clear()  # the timer stays: the next request will want one
        elif len(self._deadlines) > STALE_DEADLINES_MAX + 2 * len(self._waiting):
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._waiting]
            heapq.heapify(self._deadlines)

    def fail(self, error: Exception, subject: str | None = None) -> None:
        """Tell everyone who waits, or those whose request went to `subject`."""
        for wanted, target in list(self._waiting.values()):
            if subject is None or wanted == subject:
                _hand_over(target, error)

    def close(self, error: Exception) -> None:
        """The connection is closed: tell everyone, and stop the timer."""
        self.fail(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _new_token(self) -> str:
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
        return format(self._count, "x")

    def _on_reply(self, message: Msg) -> None:
        entry = self._waiting.get(message.subject[self._base_size :])
        if entry is not None:
            _hand_over(entry[1], message)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._connection._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        now = self._connection._loop.time()
        self._timer = None
        while self._deadlines and self._deadlines[0][0] <= now:
            _, token, seconds = heapq.heappop(self._deadlines)
            if (entry := self._waiting.get(token)) is not None:
                text = f"request to {entry[0]!r}: no answer within {seconds:g} s"
                _hand_over(entry[1], OperationTimeoutError(text))
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            heapq.heappop(self._deadlines)
        if self._deadlines:
            self._set_timer(self._deadlines[0][0])


def _hand_over(target: ReplyHandler | asyncio.Future[Msg], reply: Msg | Exception) -> None:
    if not isinstance(target, asyncio.Future):
        target(reply)
    elif target.done():
        return
    elif isinstance(reply, Exception):
        target.set_exception(reply)
        target.exception()  # whoever waits may be cancelled before it looks
    else:
        target.set_result(reply)
