"""The work of one benchmark client: publish, subscribe, request, store, fetch, get.

Owns the loops around the client library, written so that the library is what is measured. It never
prints and never creates a stream: that is done before.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tradewind.cli.bench.bench_run import CHUNK, Share, Workload
from tradewind.client.connection import Connection
from tradewind.client.core.message import Msg
from tradewind.client.errors import OperationTimeoutError
from tradewind.client.jetstream import JetStream, PublishOptions
from tradewind.client.kv.kv import KeyValue
from tradewind.client.streams.ack_inbox import PendingAck
from tradewind.client.streams.consumers import Consumer
from tradewind.client.streams.delivered import DeliveredMessages
from tradewind.client.streams.direct import read_batch
from tradewind.errors import TradewindError

# Of messages that are published without waiting, one of this many has its time measured.
SAMPLE_EVERY: Final = 64
IDLE_SECONDS: Final = 30.0


class BenchError(TradewindError):
    """A benchmark cannot continue: what it reads is not there."""


@dataclass(frozen=True, slots=True)
class Subjects:
    """The subjects of the messages: one, or one of many that differ in their last token."""

    base: str
    is_multi: bool = False
    count_max: int = 100_000

    def of(self, index: int) -> str:
        """The subject of one message."""
        if not self.is_multi:
            return self.base
        return f"{self.base}.{index % self.count_max if self.count_max else index}"

    @property
    def filter(self) -> str:
        """The subject to subscribe to for the messages of all subjects."""
        return f"{self.base}.*" if self.is_multi else self.base


def publish(connection: Connection, subjects: Subjects) -> Workload:
    """Publish core NATS messages."""

    async def work(share: Share) -> None:
        payload = bytes(share.plan.size_bytes)
        while count := await share.take(1 if share.is_paced else CHUNK):
            for index in range(share.done_count, share.done_count + count):
                await connection.publish(subjects.of(index), payload)
            share.done(count)
        await connection.flush(IDLE_SECONDS)
        share.done(0)

    return work


def subscribe(connection: Connection, subjects: Subjects, ready: Callable[[], None]) -> Workload:
    """Receive messages; the time counts from the first one. `ready` is called before."""

    async def work(share: Share) -> None:
        subscription = await connection.subscribe(subjects.filter)
        await connection.flush()
        ready()
        async with subscription:
            while count := share.left(CHUNK):
                messages = await _within(share, subscription.take_some(count))
                if not messages:
                    return
                share.start()
                share.done(len(messages), _size(messages))

    return work


def request(connection: Connection, subject: str) -> Workload:
    """Send requests one at a time, each after the previous reply."""

    async def work(share: Share) -> None:
        payload = bytes(share.plan.size_bytes)

        async def once(_: int) -> None:
            await connection.request(subject, payload)

        await _one_by_one(share, once)

    return work


def serve(connection: Connection, subject: str, ready: Callable[[], None]) -> Workload:
    """Answer requests with what they ask, in a group with all that do."""

    async def work(share: Share) -> None:
        subscription = await connection.subscribe(subject, queue="bench")
        await connection.flush()
        ready()
        async with subscription:
            while messages := await subscription.take_some(CHUNK):
                share.start()
                for message in messages:
                    if share.plan.sleep_seconds:
                        await asyncio.sleep(share.plan.sleep_seconds)
                    await message.respond(message.data)
                share.done(len(messages), _size(messages))

    return work


def publish_sync(js: JetStream, subjects: Subjects, *, ids: str = "") -> Workload:
    """Publish to a stream, waiting for each acknowledgement."""

    async def work(share: Share) -> None:
        payload = bytes(share.plan.size_bytes)

        async def once(index: int) -> None:
            if ids:
                await js.publish(
                    subjects.of(index), payload, msg_id=f"{ids}-{share.client}-{index}"
                )
            else:
                await js.publish(subjects.of(index), payload)

        await _one_by_one(share, once)

    return work


def publish_async(js: JetStream, subjects: Subjects, *, ids: str = "") -> Workload:
    """Publish into a stream with as many messages on their way as the window of `js` allows."""

    async def work(share: Share) -> None:
        payload = bytes(share.plan.size_bytes)
        samples: list[asyncio.Task[None]] = []
        try:
            while count := await share.take(1 if share.is_paced else CHUNK):
                for index in range(share.done_count, share.done_count + count):
                    began_ns = time.perf_counter_ns()
                    options: PublishOptions = {}
                    if ids:
                        options["msg_id"] = f"{ids}-{share.client}-{index}"
                    pending = await js.publish_async(subjects.of(index), payload, **options)
                    if index % SAMPLE_EVERY == 0:
                        samples.append(asyncio.create_task(_time(pending, began_ns, share)))
                share.done(count)
                samples = [task for task in samples if not _is_over(task)]
            await js.publish_async_completed()
            await asyncio.gather(*samples)
        finally:
            for task in samples:
                task.cancel()
        share.done(0)

    return work


def publish_batches(js: JetStream, subjects: Subjects, size: int) -> Workload:
    """Publish into a stream in atomic batches of this many messages."""

    async def work(share: Share) -> None:
        payload = bytes(share.plan.size_bytes)
        while count := await share.take(size):
            first = share.done_count
            began_ns = time.perf_counter_ns()
            batch = js.batch()
            for index in range(first, first + count - 1):
                await batch.add(subjects.of(index), payload)
            await batch.commit(subjects.of(first + count - 1), payload)
            share.latency.add(time.perf_counter_ns() - began_ns)
            share.done(count)

    return work


def fetch(consumer: Consumer, batch: int, settle: Callable[[Msg], Awaitable[None]]) -> Workload:
    """Ask a consumer for batches, one after the other; the time of a batch is measured."""

    async def work(share: Share) -> None:
        share.start()
        while count := share.left(batch):
            began_ns = time.perf_counter_ns()
            expires = share.seconds_left or (0.1 if share.plan.duration_seconds else IDLE_SECONDS)
            received = size_bytes = 0
            async for message in consumer.fetch(count, expires=expires):
                await settle(message)
                received += 1
                size_bytes += len(message.data)
            share.latency.add(time.perf_counter_ns() - began_ns)
            share.done(received, size_bytes)
            if share.seconds_left == 0.0:
                return
            if not received and not share.plan.duration_seconds:
                raise _nothing(share)

    return work


def consume(
    begin: Callable[[], Awaitable[DeliveredMessages]], settle: Callable[[Msg], Awaitable[None]]
) -> Workload:
    """Read what a consumer sends on and on; the time counts from the first message."""

    async def work(share: Share) -> None:
        messages = await begin()
        try:
            while count := share.left(CHUNK):
                some = await _within(share, messages.take_some(count))
                if not some:
                    return
                share.start()
                for message in some:
                    await settle(message)
                share.done(len(some), _size(some))
        finally:
            await messages.stop()

    return work


def get_direct(js: JetStream, stream: str, first: int, last: int) -> Workload:
    """Read stored messages one by one, without a consumer."""

    async def work(share: Share) -> None:
        async def once(index: int) -> None:
            await js.manager.streams.get_message(stream, seq=first + index % (last - first + 1))

        await _one_by_one(share, once)

    return work


def get_batches(js: JetStream, stream: str, subject: str, first: int, batch: int) -> Workload:
    """Read stored messages in batches, without a consumer; behind the last it begins again."""

    async def work(share: Share) -> None:
        start = first
        while count := await share.take(batch):
            began_ns = time.perf_counter_ns()
            read = await read_batch(js.api, stream, subject, start=start, messages_max=count)
            share.latency.add(time.perf_counter_ns() - began_ns)
            share.done(len(read.messages), _size([item.message for item in read.messages]))
            if read.pending and read.messages:
                start = read.messages[-1].sequence + 1
            elif start == first and not read.messages:
                raise _nothing(share)
            else:
                start = first

    return work


def kv_put(bucket: KeyValue) -> Workload:
    """Put values, each after the one before; keys are the numbers of the messages."""

    async def work(share: Share) -> None:
        payload = bytes(share.plan.size_bytes)
        offset = sum(share.plan.share(client) for client in range(share.client))

        async def once(index: int) -> None:
            await bucket.put(str(offset + index), payload)

        await _one_by_one(share, once)

    return work


def kv_get(bucket: KeyValue, keys: int = 0) -> Workload:
    """Get values one after the other: in order, or `keys` of them at random."""
    chance = random.Random()  # noqa: S311 - any keys will do

    async def work(share: Share) -> None:
        offset = sum(share.plan.share(client) for client in range(share.client))

        async def once(index: int) -> None:
            key = str(chance.randrange(keys) if keys else offset + index)
            if await bucket.get(key) is None:
                raise BenchError(
                    f"bucket {bucket.bucket!r} has no key {key!r}: run `bench kv put` with as many "
                    "messages first"
                )

        await _one_by_one(share, once)

    return work


def settler(mode: str, *, twice: bool = False) -> Callable[[Msg], Awaitable[None]]:
    """The function that acknowledges a message after it was read; for `none`, it does nothing."""
    if mode == "none":
        return _leave
    return _ack_twice if twice else _ack


def _size(messages: list[Msg]) -> int:
    return sum(len(message.data) for message in messages)


async def _leave(_: Msg) -> None:
    return


async def _ack(message: Msg) -> None:
    message.ack()


async def _ack_twice(message: Msg) -> None:
    await message.ack_sync()


async def _one_by_one(share: Share, once: Callable[[int], Awaitable[None]]) -> None:
    while count := await share.take(1 if share.is_paced else CHUNK):
        for index in range(share.done_count, share.done_count + count):
            began_ns = time.perf_counter_ns()
            await once(index)
            share.latency.add(time.perf_counter_ns() - began_ns)
            share.done()


async def _time(pending: PendingAck, began_ns: int, share: Share) -> None:
    await pending
    share.latency.add(time.perf_counter_ns() - began_ns)


def _is_over(task: asyncio.Task[None]) -> bool:
    """Whether a task has ended; its error is raised if it failed."""
    if task.done():
        task.result()
    return task.done()


async def _within(share: Share, some: Awaitable[list[Msg]]) -> list[Msg]:
    """Messages that come before the time is over; without a limit those that come at all."""
    limit = share.seconds_left
    if limit is None and share.done_count:
        limit = IDLE_SECONDS
    try:
        async with asyncio.timeout(limit):
            return await some
    except OperationTimeoutError:
        raise
    except TimeoutError:
        if share.plan.duration_seconds:
            return []
        raise _nothing(share) from None


def _nothing(share: Share) -> BenchError:
    return BenchError(
        f"no message for {IDLE_SECONDS:g} s after {share.done_count:,} of {share.count:,}; "
        "check --msgs"
    )
