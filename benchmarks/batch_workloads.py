"""What is measured of batches and counters: atomic batches, fast batches, increments.

The messages are sent by our own client to either server, in this process: only the server's
processor time is compared, and a server that is faster than the client waits for it. Never starts a
server: the runner does.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Result, Scale, Workload, throughput
from benchmarks.procfs import Meter
from benchmarks.servers import Server
from benchmarks.stream_api import StreamApi
from benchmarks.stream_workloads import RELAXED, SUBJECT_COUNT, create_stream

if TYPE_CHECKING:  # compiled by the build before a workload runs, not yet when this loads
    from tradewind.client.jetstream import JetStream

QUICK_PART = 50
BATCH = 100
OPEN_BATCHES = 10  # by as many writers, each with one batch at a time
PAYLOAD = bytes(128)
SUBJECTS = tuple(f"bench.{number}" for number in range(SUBJECT_COUNT))

Send = Callable[["JetStream", int], Awaitable[None]]


def sending(send: Send, *, count: int, **settings: Any) -> Callable[[Server, Scale], Result]:
    """Sends so many messages to a stream with these settings; what counts are messages stored."""

    def run(server: Server, scale: Scale) -> Result:
        result = Result()
        total = scale.count(count, QUICK_PART)
        with StreamApi(server) as api:
            create_stream(api, **settings)
        meter = asyncio.run(measured(server, send, total))
        throughput(result, meter, total, server.session)
        return result

    return run


async def measured(server: Server, send: Send, total: int) -> Meter:
    """The meter of the time in which they were sent and acknowledged."""
    import tradewind

    url = f"nats://{server.host}:{server.port}"
    async with tradewind.connect(url) as connection:
        js = connection.jetstream(timeout=60)
        with Meter(server.session) as meter:
            await send(js, total)
    return meter


async def atomic(js: "JetStream", total: int) -> None:
    """Batches that are stored as a whole."""

    async def write(batches: int) -> None:
        for _ in range(batches):
            batch = js.batch()
            for number in range(BATCH - 1):
                await batch.add(SUBJECTS[number % SUBJECT_COUNT], PAYLOAD)
            await batch.commit(SUBJECTS[0], PAYLOAD)

    async with asyncio.TaskGroup() as group:
        for _ in range(OPEN_BATCHES):
            group.create_task(write(total // BATCH // OPEN_BATCHES))


async def fast(js: "JetStream", total: int) -> None:
    """One fast batch."""
    async with js.fast_batch() as batch:
        for number in range(total):
            await batch.add(SUBJECTS[number % SUBJECT_COUNT], PAYLOAD)


async def plain(js: "JetStream", total: int) -> None:
    """Messages that are acknowledged one by one, to compare with."""
    for number in range(total):
        await js.publish_async(SUBJECTS[number % SUBJECT_COUNT], PAYLOAD)
    await js.publish_async_completed()


async def increments(js: "JetStream", total: int) -> None:
    """Counters that grow by one."""
    fields = {"Nats-Incr": "1"}
    for number in range(total):
        await js.publish_async(SUBJECTS[number % SUBJECT_COUNT], headers=fields)
    await js.publish_async_completed()


BATCH_WORKLOADS = (
    Workload(
        "atomic-100",
        "atomic batches of 100, 128 B, 10 open",
        sending(atomic, count=200_000, allow_atomic=True),
        RELAXED,
    ),
    Workload(
        "counters",
        "increments of 16 counters",
        sending(increments, count=200_000, allow_msg_counter=True, allow_direct=True),
        RELAXED,
    ),
    Workload(
        "fast-batch",
        "one fast batch, 128 B, by our client",
        sending(fast, count=500_000, allow_batched=True),
        RELAXED,
    ),
    Workload(
        "client-async",
        "the same messages acknowledged one by one, by our client",
        sending(plain, count=500_000),
        RELAXED,
    ),
)
