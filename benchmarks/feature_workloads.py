"""What is measured of the features that only our server has, and of what they cost everybody else.

The throughput of each feature is compared with the nearest thing that nats-server can do: messages
that are terminated without a copy, negative acknowledgements without a policy, a purge, streams
that are created by requests, publishes without a transaction. The `cost-` workloads run the same
load twice, before and after another stream uses the feature: their growth should be 1. All messages
are sent and read by our own client, so only the processor time of the server says something. Never
starts a server: the runner does.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from benchmarks.measure import Result, Scale, Workload, throughput
from benchmarks.procfs import Meter
from benchmarks.servers import Server
from benchmarks.stream_workloads import RELAXED

if TYPE_CHECKING:  # compiled by the build before a workload runs, not yet when this loads
    from tradewind.client.core.message import Msg
    from tradewind.client.jetstream import JetStream

QUICK_PART = 100
PAYLOAD = bytes(128)
FETCH = 500
TOGETHER = 10  # publishes in a transaction
AT_ONCE = 16
WORK, OTHER = "WORK", "OTHER"
DEAD_METADATA = {
    "tradewind.dead_letter.stream": "DEAD",
    "tradewind.dead_letter.on": "max_deliver,term,expired",
}
NAK_METADATA = {"tradewind.nak.delay": "0s"}
ORDER_METADATA = {"tradewind.order_by": "header:Key"}
KEYS = 1_000_000

Act = Callable[["JetStream", int], Awaitable[int]]
"""Does so much, and gives how many messages it was."""


async def connected(server: Server, act: Callable[["JetStream"], Awaitable[Result]]) -> Result:
    """Run with a connection of our client."""
    import tradewind

    async with tradewind.connect(f"nats://{server.host}:{server.port}") as connection:
        return await act(connection.jetstream(timeout=60))


def is_ours(js: "JetStream") -> bool:
    """Whether the server has the features."""
    return bool(js.api.connection.info.tradewind)


def featuring(prepare: Act, act: Act, *, count: int) -> Callable[[Server, Scale], Result]:
    """Prepares, then measures."""

    def run(server: Server, scale: Scale) -> Result:
        async def measured(js: "JetStream") -> Result:
            result = Result()
            total = scale.count(count, QUICK_PART)
            await prepare(js, total)
            with Meter(server.session) as meter:
                done = await act(js, total)
            throughput(result, meter, done, server.session)
            return result

        return asyncio.run(connected(server, measured))

    return run


def costing(use: Act, *, count: int) -> Callable[[Server, Scale], Result]:
    """The same load alone, and when another stream uses a feature."""

    def run(server: Server, scale: Scale) -> Result:
        async def measured(js: "JetStream") -> Result:
            result = Result()
            total = scale.count(count, QUICK_PART)
            await work_stream(js, total)
            await traffic(js, total // 10)  # warm-up
            with Meter(server.session) as alone:
                await traffic(js, total)
            await js.manager.streams.purge(WORK)
            await use(js, 100)
            with Meter(server.session) as among:
                await traffic(js, total)
            result.figures["alone_per_cpu"] = total / alone.server_cpu_s
            result.figures["among_per_cpu"] = total / among.server_cpu_s
            result.figures["growth"] = among.server_cpu_s / alone.server_cpu_s
            return result

        return asyncio.run(connected(server, measured))

    return run


async def publish_all(js: "JetStream", subject: str, count: int) -> None:
    """So many messages, all of them acknowledged at the end."""
    for number in range(count):
        await js.publish_async(f"{subject}.{number % 16}", PAYLOAD)
    await js.publish_async_completed()


async def traffic(js: "JetStream", total: int) -> None:
    """Publish, then read and acknowledge everything."""
    await publish_all(js, "work", total)
    await read_all(js, WORK, total, lambda message: message.ack())


async def read_all(
    js: "JetStream", stream: str, total: int, answer: Callable[["Msg"], object]
) -> None:
    """Read so many messages of consumer `c`, and answer each."""
    consumer = await js.consumers.get(stream, "c")
    left = total
    while left > 0:
        async for message in consumer.fetch(min(FETCH, left), expires=5.0):
            answer(message)
            left -= 1


async def work_stream(js: "JetStream", _total: int) -> int:
    """The stream that uses nothing."""
    await js.manager.streams.add(name=WORK, subjects=["work.*"])
    await js.manager.consumers.add(WORK, durable_name="c", ack_policy="explicit")
    return 0


async def add_other(js: "JetStream", total: int, **consumer: object) -> int:
    """A stream with messages and a consumer with these settings."""
    await js.manager.streams.add(name=OTHER, subjects=["other.*"], max_age=timedelta(hours=1))
    settings = {"durable_name": "c", "ack_policy": "explicit", **consumer}
    await js.manager.consumers.add(OTHER, **settings)
    await publish_all(js, "other", total)
    return total


# ---------------------------------------------------------------------- dead letters


async def with_dead_letters(js: "JetStream", total: int) -> int:
    """Messages of a consumer whose dead letters go to another stream."""
    await js.manager.streams.add(name="DEAD", subjects=["dead.>"])
    return await add_other(js, total, metadata=DEAD_METADATA)


async def terminate(js: "JetStream", total: int) -> int:
    """Terminate all, until all are dead letters; on another server, until none is pending."""
    await read_all(js, OTHER, total, lambda message: message.term("bad"))
    while True:
        if is_ours(js):
            is_done = (await js.manager.streams.info("DEAD")).state.messages == total
        else:
            is_done = (await js.manager.consumers.info(OTHER, "c")).num_ack_pending == 0
        if is_done:
            return total
        await asyncio.sleep(0.01)


async def redrive(js: "JetStream", total: int) -> int:
    """Send all dead letters back; another server gets as many publishes, one after the other."""
    if is_ours(js):
        return await js.dead_letters.redrive_all("DEAD")
    for number in range(total):
        await js.publish(f"other.{number % 16}", PAYLOAD)
    return total


async def prepare_redrive(js: "JetStream", total: int) -> int:
    """As many dead letters."""
    await with_dead_letters(js, total)
    return await terminate(js, total)


# ---------------------------------------------------------------------- NAK policies


async def with_nak_policy(js: "JetStream", total: int) -> int:
    """Messages of a consumer with a policy for negative acknowledgements."""
    return await add_other(js, total, metadata=NAK_METADATA)


async def refuse_once(js: "JetStream", total: int) -> int:
    """Refuse every message once, and acknowledge it the second time."""

    def answer(message: "Msg") -> None:
        if message.metadata.delivered_count == 1:
            message.nak()
        else:
            message.ack()

    await read_all(js, OTHER, 2 * total, answer)
    return total


# ---------------------------------------------------------------------- order per key


async def with_keys(js: "JetStream", total: int) -> int:
    """Messages of many keys, in no order of the keys, and an ordered consumer."""
    await js.manager.streams.add(name=OTHER, subjects=["other.*"])
    settings = {"durable_name": "c", "ack_policy": "explicit", "metadata": ORDER_METADATA}
    await js.manager.consumers.add(OTHER, **settings)
    for number in range(total):
        await js.publish_async("other.a", PAYLOAD, headers={"Key": str(number * 7_919 % KEYS)})
    await js.publish_async_completed()
    return total


async def handle_keys(js: "JetStream", total: int) -> int:
    """Read all, and acknowledge each."""
    await read_all(js, OTHER, total, lambda message: message.ack())
    return total


# ---------------------------------------------------------------------- truncate


async def with_messages(js: "JetStream", total: int) -> int:
    """A stream with messages."""
    return await add_other(js, total)


async def truncate(js: "JetStream", total: int) -> int:
    """Remove half of them and bring them back, twice; another server only purges them, once."""
    if not is_ours(js):
        return await js.manager.streams.purge(OTHER, seq=total // 2)
    for _ in range(2):
        await js.manager.streams.truncate(OTHER, newest=total // 2, keep_for=timedelta(hours=1))
        await js.manager.streams.undo(OTHER)
    return 2 * (total // 2)


# ---------------------------------------------------------------------- templates


async def with_template(js: "JetStream", total: int) -> int:
    """A template for as many streams, some of which are there."""
    if is_ours(js):
        await js.manager.templates.put(
            "bench", match="tenant.*.>", stream="tenant_{1}", max_streams=10_000
        )
        await make_tenants(js, min(total, 10), first=1_000_000)
    return total


async def make_tenants(js: "JetStream", total: int, first: int = 0) -> int:
    """The first publish of each of so many tenants, some of them at a time."""
    numbers = iter(range(first, first + total))

    async def work() -> None:
        for number in numbers:
            if not is_ours(js):
                await js.manager.streams.add(
                    name=f"tenant_{number}", subjects=[f"tenant.{number}.>"]
                )
            await js.publish(f"tenant.{number}.x", PAYLOAD)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return total


# ---------------------------------------------------------------------- transactions


async def with_two_streams(js: "JetStream", _total: int) -> int:
    """Two streams that transactions write to."""
    for name in ("LEFT", "RIGHT"):
        await js.manager.streams.add(name=name, subjects=[f"{name.lower()}.*"])
    return 0


async def commit(js: "JetStream", total: int) -> int:
    """Transactions of ten messages for two streams, some of them at a time; another server gets the
    same messages one by one.
    """

    async def work(transactions: int) -> None:
        for _ in range(transactions):
            if is_ours(js):
                async with js.transaction() as transaction:
                    for number in range(TOGETHER):
                        transaction.publish(f"{('left', 'right')[number % 2]}.{number}", PAYLOAD)
                continue
            for number in range(TOGETHER):
                await js.publish(f"{('left', 'right')[number % 2]}.{number}", PAYLOAD)

    each = max(total // TOGETHER // AT_ONCE, 1)
    await asyncio.gather(*(work(each) for _ in range(AT_ONCE)))
    return each * AT_ONCE * TOGETHER


async def use_transactions(js: "JetStream", total: int) -> int:
    """Some transactions, whose journal is still there."""
    await with_two_streams(js, total)
    return await commit(js, AT_ONCE * TOGETHER)


async def use_truncate(js: "JetStream", total: int) -> int:
    """A stream with something to undo."""
    await with_messages(js, total)
    if is_ours(js):
        await js.manager.streams.truncate(OTHER, newest=total // 2, keep_for=timedelta(hours=1))
    return total


FEATURE_WORKLOADS = (
    Workload(
        "dead-letters",
        "messages terminated, each a dead letter",
        featuring(with_dead_letters, terminate, count=50_000),
        RELAXED,
    ),
    Workload(
        "redrive",
        "dead letters sent back one after the other",
        featuring(prepare_redrive, redrive, count=10_000),
        RELAXED,
    ),
    Workload(
        "nak-policy",
        "each message refused once, with a policy",
        featuring(with_nak_policy, refuse_once, count=50_000),
        RELAXED,
    ),
    Workload(
        "order-keys",
        "messages of a million keys, in order per key",
        featuring(with_keys, handle_keys, count=100_000),
        RELAXED,
    ),
    Workload(
        "truncate-undo",
        "half a stream removed and brought back, twice",
        featuring(with_messages, truncate, count=200_000),
        RELAXED,
    ),
    Workload(
        "templates",
        "first publishes that make a stream each",
        featuring(with_template, make_tenants, count=2_000),
        RELAXED,
    ),
    Workload(
        "transactions",
        "transactions of 10 messages for 2 streams, 16 at a time",
        featuring(with_two_streams, commit, count=50_000),
        RELAXED,
    ),
    *(
        Workload(
            f"cost-{name}",
            f"publish and read while another stream uses {words}",
            costing(use, count=100_000),
            RELAXED,
        )
        for name, words, use in (
            ("dead-letters", "dead letters", with_dead_letters),
            ("nak-policy", "a NAK policy", with_nak_policy),
            ("order", "order per key", with_keys),
            ("truncate", "undo", use_truncate),
            ("templates", "a template", with_template),
            ("transactions", "transactions", use_transactions),
        )
    ),
)
