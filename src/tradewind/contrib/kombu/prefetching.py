"""Messages of the queues of one channel: pulled while its prefetch count leaves room.

Owns which messages are held. Everything runs in the event loop of the client, except `settle` and
`held_tags`, which any thread may call.

    room -> probe each queue in turn (only with several) -> wait for all -> held -> settled
                                                                  |
                                                                  +-> no room: given back

A held message is renewed at intervals, so that it goes to another client only if this one is gone.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from tradewind.client.core.message import Msg
from tradewind.client.errors import ClientError, ConnectionClosedError, OptionsError
from tradewind.client.streams.consumers import Consumer
from tradewind.client.streams.pulled import FetchedMessages
from tradewind.contrib.kombu.queue_subjects import matches
from tradewind.contrib.kombu.task_messages import UnreadableTaskError, decode_task, ttl_of
from tradewind.contrib.kombu.task_queues import QueueGoneError, QueueRecord, TaskQueues

BATCH_MAX: Final = 200
UNLIMITED_ROOM: Final = 1_000  # without a prefetch count so many may wait for the program
PULL_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 0.5
_log = logging.getLogger("tradewind.contrib.kombu")
_tags = itertools.count(1)


class QueueLevel:
    """One consumer of a queue that a channel reads. A lower `rank` is read first."""

    def __init__(
        self, consumer: Consumer, record: QueueRecord, channel_tag: str, rank: int, *, no_ack: bool
    ) -> None:
        self.consumer = consumer
        self.record = record
        self.channel_tag = channel_tag
        self.rank = rank
        self.no_ack = no_ack


class HeldTask:
    """A message that was delivered and is not settled; `payload` is what kombu reads."""

    __slots__ = ("level", "message", "payload", "tag")

    def __init__(self, level: QueueLevel, message: Msg, payload: dict[str, Any], tag: str) -> None:
        self.level = level
        self.message = message
        self.payload = payload
        self.tag = tag


class ChannelReader:
    """The messages of one channel. At most `prefetch_count` messages are held; 0 means no limit.

    `on_task` gets each message, `on_error` the error after which nothing more comes. A message of a
    level without acknowledgements is held until the program has it, and settled by the owner.
    """

    def __init__(
        self,
        queues: TaskQueues,
        heartbeat_seconds: float,
        on_task: Callable[[HeldTask], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._queues = queues
        self._heartbeat_seconds = heartbeat_seconds
        self._on_task = on_task
        self._on_error = on_error
        self._held: dict[str, HeldTask] = {}
        self._levels: list[QueueLevel] = []
        self._prefetch_count = 0
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._reading: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._turn = 0

    # ------------------------------------------------------------------ for any thread

    def settle(self, tag: str) -> Msg | None:
        """The message of a tag, which is no longer held; None if it is not."""
        held = self._held.pop(tag, None)
        if held is None:
            return None
        self._loop.call_soon_threadsafe(self._changed.set)
        return held.message

    def held_tags(self) -> list[str]:
        """The tags of all messages that are held, oldest first."""
        return list(self._held)

    # ------------------------------------------------------------------ in the loop

    async def add(self, queue: str, channel_tag: str, *, no_ack: bool) -> None:
        """Read from a queue too; QueueGoneError if there is none."""
        record = await self._queues.find(queue)
        for rank, consumer in enumerate(await self._queues.consumers(record)):
            level = QueueLevel(consumer, record, channel_tag, rank, no_ack=no_ack)
            self._levels.append(level)
        await self._restart()

    async def remove(self, channel_tag: str) -> None:
        """Read no longer from the queue of a consumer tag; what it has delivered stays held."""
        self._levels = [each for each in self._levels if each.channel_tag != channel_tag]
        await self._restart()

    async def set_prefetch(self, count: int) -> None:
        """Hold at most this many messages from now on."""
        self._prefetch_count = count
        self._changed.set()

    async def take(self, queue: str, *, no_ack: bool) -> HeldTask | None:
        """The next message of a queue, or None if none waits."""
        record = await self._queues.find(queue)
        self._start_beating()
        for consumer in await self._queues.consumers(record):
            level = QueueLevel(consumer, record, "", 0, no_ack=no_ack)
            while (message := await _next_now(consumer)) is not None:
                if (held := await self._hold(level, message)) is not None:
                    return held
        return None

    async def close(self) -> None:
        """Stop reading; messages that are held are no longer renewed."""
        self._levels = []
        await _cancel(self._reading)
        await _cancel(self._beating)
        self._reading = self._beating = None

    # ------------------------------------------------------------------ reading

    @property
    def _room(self) -> int:
        limit = self._prefetch_count or UNLIMITED_ROOM
        return max(limit - len(self._held), 0)

    async def _restart(self) -> None:
        """Begin anew with the queues that are read now; requests that wait are taken back."""
        await _cancel(self._reading)
        self._reading = None
        if self._levels:
            self._start_beating()
            self._reading = asyncio.create_task(self._read(), name="tradewind kombu reader")

    def _start_beating(self) -> None:
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat(), name="tradewind kombu heartbeat")

    async def _read(self) -> None:
        while True:
            try:
                await self._wait_for_room()
                if len(self._levels) == 1 or not await self._probe():
                    await self._wait_for_messages()
            except ConnectionClosedError as error:
                self._on_error(error)
                return
            except ClientError as error:
                if not await self._is_there():
                    self._on_error(error)
                    return
                _log.warning("reading queues: %s; trying again", error)
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as error:
                _log.exception("reading queues failed")
                self._on_error(error)
                return

    async def _is_there(self) -> bool:
        """Whether all queues still exist, as far as that can be found out."""
        try:
            for level in self._levels:
                await self._queues.find(level.record.name)
        except QueueGoneError:
            return False
        except ClientError:
            return True
        return True

    async def _wait_for_room(self) -> None:
        while not self._room:
            self._changed.clear()
            if not self._room:
                await self._changed.wait()

    async def _probe(self) -> bool:
        """Take what is there, urgent queues first and equal ones in turn; False if nothing is."""
        self._turn += 1
        turn = self._turn % len(self._levels)
        found = False
        # What is settled meanwhile makes room for the next round, which begins with urgent ones.
        room = self._room
        for level in sorted(self._levels[turn:] + self._levels[:turn], key=_rank):
            if room <= 0:
                break
            size = min(room, BATCH_MAX)
            async with level.consumer.fetch(size, no_wait=True) as batch:
                async for message in batch:
                    found = True
                    room -= 1
                    await self._arrived(level, message)
        return found

    async def _wait_for_messages(self) -> None:
        """Wait at all queues until messages have come, then take back the other requests."""
        size = max(min(self._room, BATCH_MAX), 1)
        arrived = asyncio.Event()
        fetches: list[FetchedMessages] = []
        tasks: list[asyncio.Task[Any]] = []
        try:
            for level in self._levels:
                fetched = await level.consumer.fetch(size, expires=PULL_SECONDS)
                fetches.append(fetched)
                tasks.append(asyncio.create_task(self._receive(level, fetched, arrived)))
            if len(tasks) > 1:
                tasks.append(asyncio.create_task(arrived.wait()))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for fetched in fetches:
                with suppress(ClientError):
                    await fetched.stop()
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, ClientError):
                raise result

    async def _receive(
        self, level: QueueLevel, fetched: FetchedMessages, arrived: asyncio.Event
    ) -> None:
        async for message in fetched:
            arrived.set()
            if self._room:
                await self._arrived(level, message)
            else:
                message.nak()

    async def _arrived(self, level: QueueLevel, message: Msg) -> None:
        held = await self._hold(level, message)
        if held is not None:
            self._on_task(held)

    async def _hold(self, level: QueueLevel, message: Msg) -> HeldTask | None:
        """A message as kombu reads it; None if it is not for this queue, expired or unreadable."""
        metadata = message.metadata
        tag = str(next(_tags))
        try:
            payload = decode_task(
                message.data, message.headers, tag, redelivered=metadata.delivered_count > 1
            )
        except UnreadableTaskError as error:
            _log.error(
                "message %d of stream %s is not delivered: %s",
                metadata.stream_sequence, metadata.stream, error,
            )  # fmt: skip
            message.term(f"unreadable: {error}"[:200])
            return None
        if _is_expired(level.record, payload, metadata.timestamp_ns):
            message.ack()
            return None
        try:
            is_bound = await self._is_bound(level, payload)
        except asyncio.CancelledError:
            message.nak()
            raise
        if not is_bound:
            message.ack()
            return None
        held = self._held[tag] = HeldTask(level, message, payload, tag)
        return held

    async def _is_bound(self, level: QueueLevel, payload: dict[str, Any]) -> bool:
        """Whether the queue wants a message; its filters may have been widened."""
        info = payload["properties"]["delivery_info"]
        exchange, key = str(info["exchange"]), str(info["routing_key"])
        if not exchange or matches(level.record.bindings, exchange, key):
            return True
        # Another program may have added a binding since.
        try:
            level.record.bindings = (await self._queues.find(level.record.name)).bindings
        except (QueueGoneError, ClientError):
            return True
        return matches(level.record.bindings, exchange, key)

    # ------------------------------------------------------------------ heartbeats

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_seconds)
            for held in list(self._held.values()):
                if not held.message.is_settled:
                    with suppress(ClientError):
                        held.message.working()


async def _next_now(consumer: Consumer) -> Msg | None:
    async with consumer.fetch(1, no_wait=True) as batch:
        async for message in batch:
            return message
    return None


def _rank(level: QueueLevel) -> int:
    return level.rank


def _is_expired(record: QueueRecord, payload: dict[str, Any], stored_ns: int) -> bool:
    """Whether a message is older than it or its queue allows."""
    try:
        own = ttl_of(payload["properties"])
    except OptionsError:
        own = None
    limits = [limit for limit in (own, record.message_ttl) if limit]
    return bool(limits) and time.time_ns() - stored_ns > min(limits) * 1e9


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
