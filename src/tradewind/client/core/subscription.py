"""Subscriptions: an async iterator, `next`, or a callback.

Owns waiting for messages and the task of a callback; the queue itself is in `protocol.pyx`. A
cancelled wait never loses a message and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tradewind.client.core.connection_owners import InboxOwner
from tradewind.client.core.message import Msg
from tradewind.client.core.protocol import MessageInbox
from tradewind.client.errors import (
    OperationTimeoutError,
    SubscriptionClosedError,
)
from tradewind.client.events import ErrorEvent

if TYPE_CHECKING:
    from tradewind.client.connection import Connection

MessageHandler = Callable[[Msg], Awaitable[Any] | Any]
# A callback that never waits gives the loop a turn after this many messages.
CALLBACKS_PER_TURN = 256


class Subscription(InboxOwner):
    """Messages of one subject; made by `Connection.subscribe`.

    >>> async for message in subscription:
    ...     print(message.subject, message.data)

    The iteration ends when the subscription does: after `unsubscribe`, `drain`, its last message,
    or the end of the connection. If the connection broke for good, it ends with that error.
    """

    _inbox_type: ClassVar[type[MessageInbox]] = MessageInbox

    def __init__(
        self,
        connection: Connection,
        subject: str,
        queue: str,
        callback: MessageHandler | None = None,
        **limits: Any,
    ) -> None:
        self._inbox = self._inbox_type(subject, queue, owner=self, **limits)
        self._connection = connection
        self._callback = callback
        self._error: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        if callback is not None:
            self._task = asyncio.get_running_loop().create_task(
                self._run_callback(callback), name=f"tradewind callback {subject}"
            )

    @property
    def sid(self) -> int:
        """The ID of the subscription in the protocol; 0 before it is made."""
        return self._inbox.sid

    @property
    def subject(self) -> str:
        """The subject of the subscription."""
        return self._inbox.subject

    @property
    def queue(self) -> str:
        """The queue group; empty if there is none."""
        return self._inbox.queue

    @property
    def pending_messages(self) -> int:
        """The number of messages that wait to be read."""
        return self._inbox.pending_messages

    @property
    def pending_bytes(self) -> int:
        """The number of bytes, payloads and headers, that wait to be read."""
        return self._inbox.pending_bytes

    @property
    def pending_messages_max(self) -> int:
        """The maximum number of queued messages; 0 means no limit."""
        return self._inbox.pending_messages_max

    @property
    def pending_bytes_max(self) -> int:
        """The maximum total size of queued messages in bytes; 0 means no limit."""
        return self._inbox.pending_bytes_max

    @property
    def delivered_count(self) -> int:
        """The number of messages received, including dropped ones."""
        return self._inbox.delivered_count

    @property
    def dropped_count(self) -> int:
        """The number of messages dropped because the queue was full."""
        return self._inbox.dropped_count

    @property
    def messages_max(self) -> int:
        """The number of messages after which the subscription ends; 0 means never."""
        return self._inbox.messages_max

    @property
    def is_ended(self) -> bool:
        """Whether no more messages will come; those in the queue can still be read."""
        return self._inbox.is_ended

    def take(self) -> Msg | None:
        """Take the next message from the queue; None if it is empty."""
        return self._inbox.take()

    def __aiter__(self) -> AsyncIterator[Msg]:
        return self._inbox  # without this object in between, for every message

    def __anext__(self) -> Awaitable[Msg]:
        return self._inbox.__anext__()

    async def next(self, timeout: float | None = None) -> Msg:
        """The next message; OperationTimeoutError after `timeout` seconds (None: never)."""
        if (message := self.take()) is not None:
            return message
        if self._callback is not None:
            raise SubscriptionClosedError(
                f"subscription to {self.subject!r}: its messages go to the callback"
            )
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while (message := self.take()) is None:
            if self.is_ended:
                raise self._error or SubscriptionClosedError(
                    f"subscription to {self.subject!r} has ended and all its messages are read"
                )
            if not await self._wait(deadline):
                raise OperationTimeoutError(
                    f"subscription to {self.subject!r}: no message within {timeout:g} s"
                )
        return message

    async def take_some(self, count_max: int, timeout: float | None = None) -> list[Msg]:
        """Take up to `count_max` messages: those that have arrived, or the next one; an empty list
        at the end. Raises OperationTimeoutError if none arrives within `timeout` seconds (None: no
        limit).

        Needs fewer switches between tasks or threads than reading one message at a time.
        """
        try:
            messages = [await (self._wait_next() if timeout is None else self.next(timeout))]
        except StopAsyncIteration:
            return []
        while len(messages) < count_max and (message := self.take()) is not None:
            messages.append(message)
        return messages

    async def unsubscribe(self) -> None:
        """End the subscription now; unread messages are dropped."""
        self._connection._unsubscribe(self._inbox)
        self._inbox.discard()
        self._inbox.end()
        await self._stop_task()

    async def drain(self, timeout: float | None = None) -> None:
        """Stop the delivery of new messages, and finish those that have arrived.

        With a callback, this returns when all messages are handled. An iterator continues to the
        last message and then ends, so this returns when the last message has arrived.
        """
        if self.is_ended and self._task is None:
            return
        connection = self._connection
        seconds = connection.options.drain_timeout if timeout is None else timeout
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            if connection._stop_delivery(self._inbox):
                # The answer to a ping comes behind the last message.
                await connection.flush(timeout=seconds)
        finally:
            connection._forget(self._inbox)
            self._inbox.end()
        if self._task is not None and self._task is not asyncio.current_task():
            left = max(deadline - asyncio.get_running_loop().time(), 0)
            _, pending = await asyncio.wait({self._task}, timeout=left)
            if pending:
                await self._stop_task()
                raise OperationTimeoutError(
                    f"subscription to {self.subject!r}: {self.pending_messages} messages were not "
                    f"handled within {seconds:g} s"
                )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.unsubscribe()

    def __repr__(self) -> str:
        queue = f", queue={self.queue!r}" if self.queue else ""
        return f"Subscription({self.subject!r}{queue}, {self.pending_messages} pending)"

    async def _wait_next(self) -> Msg:
        """The slow way of the iterator: the queue was empty."""
        while (message := self.take()) is None:
            if self.is_ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            await self._wait(None)
        return message

    async def _wait(self, deadline: float | None) -> bool:
        """Wait until there may be a message; False when the deadline has come first."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        timer = None
        if deadline is not None:
            if deadline <= loop.time():
                return False
            timer = loop.call_at(deadline, _expire, waiter)
        self._inbox.add_waiter(waiter)
        try:
            return await waiter is None
        except asyncio.CancelledError:
            # Woken and cancelled at the same time: another waiter gets the message.
            if waiter.done() and not waiter.cancelled() and self.pending_messages:
                self._inbox.wake_one()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._inbox.remove_waiter(waiter)

    async def _run_callback(self, callback: MessageHandler) -> None:
        handled = 0
        while True:
            message = self.take()
            if message is None:
                if self.is_ended:
                    return
                await self._wait(None)
                continue
            try:
                result = callback(message)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                self._connection._emit(ErrorEvent(error, self))
            handled += 1
            if handled % CALLBACKS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _stop_task(self) -> None:
        """End the task of the callback, unless it is the one that asks."""
        task, self._task = self._task, None
        if task is None or task is asyncio.current_task():
            return
        task.cancel()
        await asyncio.wait({task})

    def _close(self, error: Exception | None) -> None:
        """The connection is closed for good, or the server refused the subscription."""
        self._error = error
        self._inbox.end()


def _expire(waiter: asyncio.Future[Any]) -> None:
    if not waiter.done():
        waiter.set_result(False)
