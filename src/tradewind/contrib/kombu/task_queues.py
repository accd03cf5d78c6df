"""Queues, bindings and messages of kombu in one stream, on any NATS server.

Owns the stream and its consumers; runs in the event loop of the client. A queue is a durable
consumer, or one for each step of priority; its bindings are the filters. The stream's retention is
`interest`: a message stays until every queue that it was routed to has acknowledged it, and one
that no queue wants is dropped, as AMQP does. Bindings and arguments of a queue are stored in the
metadata of its consumer, so that every program sees the same.
"""

from __future__ import annotations

import asyncio
import datetime
import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tradewind.api.consumer_types import ConsumerInfo
from tradewind.api.stream_types import RetentionPolicy, StreamConfig
from tradewind.client.api_errors import (
    ConsumerNotFoundError,
    JetStreamApiError,
    StreamNameExistsError,
    StreamNotFoundError,
)
from tradewind.client.core.nuid import Nuid
from tradewind.client.errors import OptionsError
from tradewind.client.jetstream import JetStream, PublishOptions, publish_headers
from tradewind.client.streams.consumers import Consumer
from tradewind.contrib.kombu.broker_settings import BrokerSettings
from tradewind.contrib.kombu.queue_subjects import (
    QueueBinding,
    consumer_name,
    exchange_subject,
    queue_filters,
    queue_subject,
)
from tradewind.contrib.kombu.task_messages import OutgoingTask
from tradewind.durations import SECOND_NS
from tradewind.subjects import is_subset_of_any

METADATA_KEY: Final = "tradewind.kombu"
HOLDER: Final = "=later"  # gives delayed messages an interest; no queue has this name
SCHEDULE_SECONDS_MIN: Final = 1.0
PURGE_BATCH: Final = 500
BIND_ATTEMPTS: Final = 5
_nuid = Nuid()


class QueueGoneError(LookupError):
    """There is no queue of this name."""


class QueueMismatchError(ValueError):
    """A queue exists with other arguments."""


class QueueRecord(msgspec.Struct):
    """A queue as its consumer's metadata describe it.

    `steps` are the lowest priorities of its consumers, from 0 on; one if it has no priorities.
    """

    name: str
    steps: tuple[int, ...] = (0,)
    message_ttl: float | None = None
    bindings: list[QueueBinding] = []

    def consumers(self) -> list[str]:
        """The names of its consumers, most urgent first."""
        return [consumer_name(self.name, self.steps, step) for step in reversed(self.steps)]

    def priorities(self, step: int, priority_max: int) -> Sequence[int | str]:
        """The tokens of the priorities that the consumer of a step receives."""
        if len(self.steps) == 1:
            return ["*"]
        later = [each for each in self.steps if each > step]
        return range(step, (min(later) if later else priority_max + 1))


class TaskQueues:
    """The queues in one stream. `has_schedules` is set if the server can deliver later."""

    def __init__(self, js: JetStream, settings: BrokerSettings) -> None:
        self._js = js
        self._settings = settings
        self._stream = settings.stream
        self._binding = asyncio.Lock()
        self.has_schedules = False
        self._has_ttl = False

    # ------------------------------------------------------------------ the stream

    async def open(self) -> None:
        """Find or create the stream; OptionsError if there is one that cannot be used."""
        streams = self._js.manager.streams
        try:
            config = (await streams.info(self._stream)).config
        except StreamNotFoundError:
            config = await self._create_stream()
        if config.retention is not RetentionPolicy.INTEREST:
            raise OptionsError(
                f"stream {self._stream!r} has retention {config.retention.value!r}, and queues "
                "need 'interest': choose another stream by the path of the URL"
            )
        if not is_subset_of_any(f"{self._stream}.>", config.subjects):
            raise OptionsError(
                f"stream {self._stream!r} must have the subject '{self._stream}.>', not "
                f"{config.subjects}"
            )
        self._has_ttl = config.allow_msg_ttl
        self.has_schedules = config.allow_msg_schedules and self._settings.server_delays
        if self.has_schedules:
            await self._js.manager.consumers.add(
                self._stream,
                durable_name=HOLDER,
                description="keeps delayed messages until their time; nobody reads it",
                filter_subject=f"{self._stream}.delay.>",
                deliver_policy="new",
            )

    async def _create_stream(self) -> StreamConfig:
        settings = self._settings
        wanted = StreamConfig(
            name=self._stream,
            description="queues of kombu and Celery",
            subjects=[f"{self._stream}.>"],
            retention=RetentionPolicy.INTEREST,
            num_replicas=settings.replicas,
            allow_msg_ttl=True,
            allow_msg_schedules=True,
        )
        streams = self._js.manager.streams
        try:
            return (await streams.add(wanted)).config
        except StreamNameExistsError:  # another program was faster
            return (await streams.info(self._stream)).config

    # ------------------------------------------------------------------ queues

    async def find(self, queue: str) -> QueueRecord:
        """The queue of this name; QueueGoneError if there is none."""
        return _record_of(queue, await self._info(queue))

    async def declare(self, wanted: QueueRecord, expires: float | None) -> QueueRecord:
        """Create a queue unless it is there; QueueMismatchError if that one has other priorities.

        The server deletes a queue that was not used for `expires` seconds.
        """
        threshold = 0.0 if expires is None else max(expires, self._settings.expires_min)
        try:
            info = await self._info(wanted.name)
        except QueueGoneError:
            await self._apply(wanted, threshold, is_new=True)
            return wanted
        found = _record_of(wanted.name, info)
        if found.steps != wanted.steps:
            raise QueueMismatchError(
                f"queue {wanted.name!r} exists with steps of priority {list(found.steps)}, not "
                f"{list(wanted.steps)}: delete it, or declare it with the same max_priority"
            )
        changed = (info.config.ack_wait, info.config.inactive_threshold) != (
            round(self._settings.visibility_timeout * SECOND_NS),
            round(threshold * SECOND_NS),
        )
        if changed or found.message_ttl != wanted.message_ttl:
            found.message_ttl = wanted.message_ttl
            await self._apply(found, threshold, is_new=False)
        return found

    async def bind(self, queue: str, binding: QueueBinding) -> None:
        """Let a queue receive what an exchange routes to it."""
        await self._change_bindings(queue, binding, is_wanted=True)

    async def unbind(self, queue: str, binding: QueueBinding) -> None:
        """Undo `bind`; a queue without this binding is no error."""
        await self._change_bindings(queue, binding, is_wanted=False)

    async def queues_of(self, exchange: str) -> list[tuple[str, QueueBinding]]:
        """Every binding to an exchange, with the queue; reads all queues."""
        found: list[tuple[str, QueueBinding]] = []
        async for info in self._js.manager.consumers.list(self._stream):
            if METADATA_KEY not in info.config.metadata:
                continue
            record = _record_of(info.name, info)
            if info.name == consumer_name(record.name, record.steps, record.steps[0]):
                found += [
                    (record.name, each) for each in record.bindings if each.exchange == exchange
                ]
        return found

    async def size(self, queue: str) -> int:
        """How many messages wait in a queue and were never delivered."""
        record = await self.find(queue)
        infos = await asyncio.gather(*(self._consumer_info(name) for name in record.consumers()))
        return sum(info.num_pending for info in infos)

    async def is_empty(self, queue: str) -> bool:
        """Whether nothing waits in a queue and no client works on anything of it."""
        record = await self.find(queue)
        infos = await asyncio.gather(*(self._consumer_info(name) for name in record.consumers()))
        return not any(info.num_pending or info.num_ack_pending for info in infos)

    async def is_used(self, queue: str) -> bool:
        """Whether a client waits for messages of a queue."""
        record = await self.find(queue)
        infos = await asyncio.gather(*(self._consumer_info(name) for name in record.consumers()))
        return any(info.num_waiting for info in infos)

    async def purge(self, queue: str) -> int:
        """Remove the messages that wait in a queue now; returns how many."""
        record = await self.find(queue)
        removed = 0
        for name in record.consumers():
            consumer = await self._js.consumers.get(self._stream, name)
            info = consumer.cached_info
            left = info.num_pending + info.num_ack_pending  # some of these are given back
            while left > 0:
                count = 0
                async with consumer.fetch(min(left, PURGE_BATCH), no_wait=True) as batch:
                    async for message in batch:
                        message.ack()
                        count += 1
                if not count:
                    break
                removed += count
                left -= count
        await self._js.connection.flush()
        return removed

    async def delete(self, queue: str) -> None:
        """Delete a queue with its messages; none is no error."""
        try:
            record = await self.find(queue)
        except QueueGoneError:
            return
        for name in record.consumers():
            try:
                await self._js.manager.consumers.delete(self._stream, name)
            except ConsumerNotFoundError:
                continue

    async def consumers(self, record: QueueRecord) -> list[Consumer]:
        """The consumers of a queue, most urgent first."""
        try:
            return [await self._js.consumers.get(self._stream, name) for name in record.consumers()]
        except ConsumerNotFoundError:
            raise QueueGoneError(_gone(record.name)) from None

    # ------------------------------------------------------------------ messages

    def subject(self, exchange: str, routing_key: str, priority: int) -> str:
        """Where a message to an exchange, or to a queue by the default exchange, is published."""
        if exchange:
            return exchange_subject(self._stream, exchange, routing_key, priority)
        return queue_subject(self._stream, routing_key, priority)

    async def publish(self, subject: str, task: OutgoingTask) -> None:
        """Publish a message, and wait until it is stored unless it is transient."""
        options: PublishOptions = {}
        ttl = 0 if task.ttl_seconds is None else max(1, math.ceil(task.ttl_seconds))
        if self.has_schedules and task.eta is not None and _is_later(task.eta):
            options = {"schedule": task.eta, "schedule_target": subject, "msg_id": _nuid.next()}
            if ttl and self._has_ttl:
                options["schedule_ttl"] = ttl
            later = f"{self._stream}.delay.{_nuid.next()}"
            await self._js.publish(later, task.body, headers=task.headers, **options)
            return
        if ttl and self._has_ttl:
            options["ttl"] = ttl
        if task.is_transient:
            headers = publish_headers(task.headers, options)
            self._js.connection.publish(subject, task.body, headers=headers)
            if self._js.connection.is_crowded:
                await self._js.connection.wait_for_room()
            return
        options["msg_id"] = _nuid.next()  # with an id it is sent again after a reconnect
        await self._js.publish(subject, task.body, headers=task.headers, **options)

    # ------------------------------------------------------------------ details

    async def _info(self, queue: str) -> ConsumerInfo:
        """The consumer of a queue that holds its record."""
        try:
            return await self._consumer_info(consumer_name(queue, (0,), 0))
        except ConsumerNotFoundError:
            raise QueueGoneError(_gone(queue)) from None

    async def _consumer_info(self, name: str) -> ConsumerInfo:
        return await self._js.manager.consumers.info(self._stream, name)

    async def _change_bindings(self, queue: str, binding: QueueBinding, *, is_wanted: bool) -> None:
        """Read, change and read again: another program may write at the same time."""
        async with self._binding:
            for _ in range(BIND_ATTEMPTS):
                info = await self._info(queue)
                record = _record_of(queue, info)
                if (binding in record.bindings) == is_wanted:
                    return
                if is_wanted:
                    record.bindings.append(binding)
                else:
                    record.bindings.remove(binding)
                seconds = info.config.inactive_threshold / SECOND_NS
                await self._apply(record, seconds, is_new=False)
        raise QueueMismatchError(
            f"queue {queue!r}: other programs change its bindings all the time; tried "
            f"{BIND_ATTEMPTS} times"
        )

    async def _apply(self, record: QueueRecord, threshold: float, *, is_new: bool) -> None:
        """Create or update the consumers of a queue; the one with the record last."""
        consumers = self._js.manager.consumers
        for step in reversed(record.steps):
            name = consumer_name(record.name, record.steps, step)
            priorities = record.priorities(step, self._settings.priority_max)
            settings: dict[str, Any] = {
                "filter_subjects": queue_filters(
                    self._stream, record.name, record.bindings, priorities
                ),
                "ack_wait": self._settings.visibility_timeout,
                "max_deliver": self._settings.max_deliver,
                "inactive_threshold": threshold,
                "metadata": {METADATA_KEY: msgspec.json.encode(record).decode()},
            }
            if not is_new:
                await consumers.update(self._stream, name, **settings)
                continue
            try:
                await consumers.add(
                    self._stream,
                    durable_name=name,
                    ack_policy="explicit",
                    deliver_policy="new",
                    max_ack_pending=-1,
                    **settings,
                )
            except JetStreamApiError:
                await self._consumer_info(name)  # fine if another program has just created it


def _record_of(queue: str, info: ConsumerInfo) -> QueueRecord:
    text = info.config.metadata.get(METADATA_KEY, "")
    try:
        return msgspec.json.decode(text, type=QueueRecord)
    except msgspec.DecodeError:
        raise QueueMismatchError(
            f"consumer {info.name!r} has the name of queue {queue!r}, but no {METADATA_KEY} in its "
            "metadata: rename it, or use another stream"
        ) from None


def _gone(queue: str) -> str:
    return f"NOT_FOUND - no queue {queue!r}"


def _is_later(eta: datetime.datetime) -> bool:
    left = eta - datetime.datetime.now(datetime.UTC)
    return left.total_seconds() > SCHEDULE_SECONDS_MIN
