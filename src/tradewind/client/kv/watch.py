"""Watches the changes of a bucket: first the current values, then every change, in order.

Owns the boundary between the two, and turning messages into entries. The messages come from an
ordered consumer, so a watch survives reconnects and server restarts without a gap, and never reads
further ahead than that consumer does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, Self

from tradewind.api.consumer_types import DeliverPolicy
from tradewind.client.core.message import Msg
from tradewind.client.streams.api_requests import Item

if TYPE_CHECKING:
    from tradewind.client.jetstream import JetStream
    from tradewind.client.streams.ordered import OrderedMessages

READ_MAX: Final = 256
# About this many bytes are read ahead, by the average size of what is stored.
WINDOW_BYTES: Final = 8 << 20
MESSAGES_MIN: Final = 8
MESSAGES_MAX: Final = 500
# What is there may be removed while it is being read; asked after this much silence.
IDLE_SECONDS: Final = 2.0


class Watcher(Generic[Item]):
    """An async iterator over the changes of a bucket. Made by `watch`.

    >>> async with bucket.watch("fruit.*") as watcher:
    ...     async for entry in watcher.initial():
    ...         print("there is", entry.key)
    ...     async for entry in watcher:
    ...         print("changed:", entry.key)

    Iterating without `initial` returns both. The iteration ends with `stop`, or with an error if
    the bucket is deleted.
    """

    def __init__(
        self,
        messages: OrderedMessages,
        decode: Callable[[Msg], Item | None],
        *,
        has_initial: bool = True,
    ) -> None:
        self._messages = messages
        self._decode = decode
        self._ready: deque[Item] = deque()
        self._initial_ready = 0
        self._is_initial = has_initial and messages.info.num_pending > 0

    @property
    def is_current(self) -> bool:
        """Whether everything that existed when the watch began has been read."""
        return not self._is_initial and not self._initial_ready

    def initial(self) -> InitialItems[Item]:
        """Iterate over the entries that existed when the watch began; ends after the last one."""
        return InitialItems(self)

    async def take_some(self, count_max: int) -> list[Item]:
        """Take up to `count_max` items: those that have arrived, or the next one; an empty list at
        the end.
        """
        while not self._ready:
            if not await self._read():
                return []
        items = [self._ready.popleft() for _ in range(min(count_max, len(self._ready)))]
        self._initial_ready = max(self._initial_ready - len(items), 0)
        return items

    async def stop(self) -> None:
        """End the watch."""
        await self._messages.stop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        items = await self.take_some(1)
        if not items:
            raise StopAsyncIteration
        return items[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"Watcher({self._messages!r})"

    async def _take_initial(self, count_max: int) -> list[Item]:
        while not self._initial_ready:
            if not self._is_initial or not await self._read():
                return []
        return await self.take_some(min(count_max, self._initial_ready))

    async def _read(self) -> bool:
        """Read the messages that come next; False at the end."""
        if not self._is_initial:
            messages = await self._messages.take_some(READ_MAX)
            self._ready.extend(item for m in messages if (item := self._decode(m)) is not None)
            return bool(messages)
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                messages = await self._messages.take_some(READ_MAX)
        except TimeoutError:
            await self._ask_what_is_left()
            return True
        for message in messages:
            item = self._decode(message)
            if item is not None:
                self._ready.append(item)
                self._initial_ready += self._is_initial
            if not message.metadata.pending_count:
                self._is_initial = False
        return bool(messages)

    async def _ask_what_is_left(self) -> None:
        if await self._messages.count_left() == 0 and not self._messages.pending_messages:
            self._is_initial = False


class InitialItems(Generic[Item]):
    """The entries that existed when a watch began."""

    def __init__(self, watcher: Watcher[Item]) -> None:
        self._watcher = watcher

    async def take_some(self, count_max: int) -> list[Item]:
        """Take up to `count_max` items; an empty list at the end."""
        return await self._watcher._take_initial(count_max)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        items = await self._watcher._take_initial(1)
        if not items:
            raise StopAsyncIteration
        return items[0]


async def open_messages(
    js: JetStream,
    stream: str,
    subjects: Sequence[str],
    *,
    history: bool,
    updates_only: bool,
    from_revision: int,
    headers_only: bool,
) -> OrderedMessages:
    """The messages of a bucket: the last of each subject, all, those to come, or from one on."""
    policy = DeliverPolicy.ALL if history or from_revision else DeliverPolicy.LAST_PER_SUBJECT
    state = (await js.manager.streams.info(stream)).state
    if updates_only and not from_revision:
        # A number, not "new": a consumer that is recreated must not start later than the first.
        from_revision = state.last_seq + 1
    consumer = js.consumers.ordered(
        stream,
        filter_subjects=list(subjects),
        deliver_policy=policy,
        start_sequence=from_revision,
        headers_only=headers_only,
    )
    # A slow reader must not pile up many large values. Not by max_bytes: with that, nats-server
    # 2.15 loses messages of consumers that start with the last of each subject.
    size = 1 if headers_only else state.bytes // max(state.messages, 1)
    window = WINDOW_BYTES // max(size, 1)
    return await consumer.consume(max(MESSAGES_MIN, min(window, MESSAGES_MAX)))
