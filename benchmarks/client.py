"""Our client against nats-py: the same server, the same run, messages per CPU second of the client.

    python -m benchmarks.client                       three rounds of everything
    python -m benchmarks.client --quick --only publish-128

Each measurement is a fresh process with one client in it, so that neither pays for the other. A
workload is two coroutines that do the same with each library; add one to WORKLOADS.
"""

import argparse
import asyncio
import json
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import nats
from nats.aio.msg import Msg as NatsPyMessage

import tradewind
from benchmarks import client_kv
from benchmarks.servers import Server

PAYLOAD = bytes(128)
SUBJECT = "bench.client"
QUICK_DIVISOR = 20
SECONDS_MAX = 120
JETSTREAM = 'jetstream: {store_dir: "{folder}"}\n'
CLIENTS = ("ours", "nats-py")

Run = Callable[[str, int], Awaitable[float]]


@dataclass(frozen=True)
class Workload:
    """What is measured; a run gives the CPU seconds that `count` operations took."""

    name: str
    count: int
    ratio_min: float  # below it the run fails
    ours: Run
    nats_py: Run


# ---------------------------------------------------------------------- publish


async def publish_ours(url: str, count: int) -> float:
    """Publish without waiting for anything but the server's answer to the last ping."""
    async with tradewind.connect(url) as connection:
        start = time.process_time()
        for _ in range(count):
            await connection.publish(SUBJECT, PAYLOAD)
        await connection.flush(SECONDS_MAX)
        return time.process_time() - start


async def publish_nats_py(url: str, count: int) -> float:
    client = await nats.connect(url)
    start = time.process_time()
    for _ in range(count):
        await client.publish(SUBJECT, PAYLOAD)
    await client.flush(SECONDS_MAX)
    used = time.process_time() - start
    await client.close()
    return used


# ---------------------------------------------------------------------- subscribe


async def feed(url: str, count: int) -> None:
    """Publish what a subscriber in another process counts."""
    async with tradewind.connect(url) as connection:
        for _ in range(count):
            await connection.publish(SUBJECT, PAYLOAD)
        await connection.flush(SECONDS_MAX)


def start_feeder(url: str, count: int) -> Awaitable[asyncio.subprocess.Process]:
    return asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.client", "--feed", url, "--count", str(count)
    )


async def subscribe_ours(url: str, count: int) -> float:
    """Iterate over messages that another process publishes."""
    async with tradewind.connect(url) as connection:
        subscription = await connection.subscribe(SUBJECT, max_msgs=count)
        await connection.flush()
        feeder = await start_feeder(url, count)
        start = time.process_time()
        received = 0
        async for message in subscription:
            received += len(message.data) > 0
        used = time.process_time() - start
        await feeder.wait()
    if received != count:
        raise SystemExit(f"{received} of {count} messages arrived")
    return used


async def subscribe_nats_py(url: str, count: int) -> float:
    client = await nats.connect(url)
    subscription = await client.subscribe(SUBJECT, pending_msgs_limit=0, pending_bytes_limit=0)
    await client.flush()
    feeder = await start_feeder(url, count)
    start = time.process_time()
    received = 0
    async for message in subscription.messages:
        received += len(message.data) > 0
        if received == count:
            break
    used = time.process_time() - start
    await feeder.wait()
    await client.close()
    return used


# ---------------------------------------------------------------------- requests


async def request_ours(url: str, count: int) -> float:
    """32 requests at a time; the responder is in the same process, as in most services."""
    async with tradewind.connect(url) as connection:
        await connection.subscribe(SUBJECT, callback=lambda message: message.respond(message.data))
        start = time.process_time()
        await in_lanes(count, lambda: connection.request(SUBJECT, PAYLOAD, timeout=SECONDS_MAX))
        return time.process_time() - start


async def request_nats_py(url: str, count: int) -> float:
    client = await nats.connect(url)

    async def answer(message: NatsPyMessage) -> None:
        await message.respond(message.data)

    await client.subscribe(SUBJECT, cb=answer)
    start = time.process_time()
    await in_lanes(count, lambda: client.request(SUBJECT, PAYLOAD, timeout=SECONDS_MAX))
    used = time.process_time() - start
    await client.close()
    return used


async def in_lanes(count: int, call: Callable[[], Awaitable[object]], lanes: int = 32) -> None:
    """Call so often in all, `lanes` at a time."""

    async def lane() -> None:
        for _ in range(count // lanes):
            await call()

    await asyncio.gather(*(lane() for _ in range(lanes)))


# ---------------------------------------------------------------------- streams


STREAM = {"name": "BENCH", "subjects": [SUBJECT], "storage": "memory"}
FETCH_MESSAGES = 500


async def prepare_stream(url: str, count: int) -> None:
    """A stream in memory with so many messages, and a consumer."""
    async with tradewind.connect(url, timeout=SECONDS_MAX) as connection:
        js = connection.jetstream()
        if await js.manager.streams.names().all():
            await js.manager.streams.delete("BENCH")
        await js.manager.streams.add(**STREAM)
        await js.manager.consumers.add(
            "BENCH", durable_name="reader", ack_policy="explicit", max_ack_pending=20_000
        )
        for _ in range(count):
            await js.publish_async(SUBJECT, PAYLOAD)
        await js.publish_async_completed()


async def js_publish_ours(url: str, count: int) -> float:
    """Publish into a stream with a window of unacknowledged messages."""
    await prepare_stream(url, 0)
    async with tradewind.connect(url, timeout=SECONDS_MAX) as connection:
        js = connection.jetstream()
        start = time.process_time()
        for _ in range(count):
            await js.publish_async(SUBJECT, PAYLOAD)
        await js.publish_async_completed()
        return time.process_time() - start


async def js_publish_nats_py(url: str, count: int) -> float:
    await prepare_stream(url, 0)
    client = await nats.connect(url)
    js = client.jetstream(publish_async_max_pending=4096)
    start = time.process_time()
    for _ in range(count):
        await js.publish_async(SUBJECT, PAYLOAD, wait_stall=SECONDS_MAX)
    await js.publish_async_completed()
    used = time.process_time() - start
    await client.close()
    return used


async def js_consume_ours(url: str, count: int) -> float:
    """Read a stream through a consumer and acknowledge every message."""
    await prepare_stream(url, count)
    async with tradewind.connect(url, timeout=SECONDS_MAX) as connection:
        consumer = await connection.jetstream().consumers.get("BENCH", "reader")
        start = time.process_time()
        received = 0
        async with consumer.consume(FETCH_MESSAGES) as messages:
            async for message in messages:
                message.ack()
                received += 1
                if received == count:
                    break
        await connection.flush(SECONDS_MAX)
        return time.process_time() - start


async def js_consume_nats_py(url: str, count: int) -> float:
    await prepare_stream(url, count)
    client = await nats.connect(url)
    js = client.jetstream()
    subscription = await js.pull_subscribe_bind("reader", stream="BENCH")
    start = time.process_time()
    received = 0
    while received < count:
        for message in await subscription.fetch(min(FETCH_MESSAGES, count - received), 30):
            await message.ack()
            received += 1
    await client.flush(SECONDS_MAX)
    used = time.process_time() - start
    await client.close()
    return used


WORKLOADS = (
    Workload("publish-128", 400_000, 5.0, publish_ours, publish_nats_py),
    Workload("subscribe-128", 400_000, 5.0, subscribe_ours, subscribe_nats_py),
    Workload("request-32", 32_000, 3.0, request_ours, request_nats_py),
    Workload("kv-put-128", 32_000, 5.0, client_kv.put_ours, client_kv.put_nats_py),
    Workload("kv-get-128", 32_000, 5.0, client_kv.get_ours, client_kv.get_nats_py),
    Workload("js-publish-128", 100_000, 5.0, js_publish_ours, js_publish_nats_py),
    Workload("js-consume-128", 100_000, 5.0, js_consume_ours, js_consume_nats_py),
)


# ---------------------------------------------------------------------- the run


def measure(workload: Workload, client: str, url: str, count: int) -> float:
    """Operations per CPU second, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.client", "--run", f"{client}:{workload.name}"]
    command += ["--url", url, "--count", str(count)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=2 * SECONDS_MAX, check=False
    )
    if result.returncode != 0:
        raise SystemExit(f"{workload.name} with {client} failed:\n{result.stderr}")
    return count / float(result.stdout)


@dataclass(frozen=True)
class Row:
    """A line of the table: operations per CPU second of both clients."""

    workload: str
    ours: float
    nats_py: float
    ratio: float


def compare(workload: Workload, rounds: int, divisor: int) -> Row:
    """The medians of both clients on one server each round, in changing order."""
    figures: dict[str, list[float]] = {client: [] for client in CLIENTS}
    count = max(workload.count // divisor, 320)
    server_command = f"{shlex.quote(str(Path(sys.executable).parent / 'nats-server'))} -c {{conf}}"
    for number in range(rounds):
        with Server(server_command, JETSTREAM) as server:
            url = f"nats://{server.host}:{server.port}"
            for client in CLIENTS if number % 2 == 0 else reversed(CLIENTS):
                figures[client].append(measure(workload, client, url, count))
    ours, peer = (statistics.median(figures[client]) for client in CLIENTS)
    return Row(workload.name, ours, peer, ours / peer)


def main() -> int:
    """Run the chosen workloads and print a table; 1 if one is below its ratio."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.client", description=__doc__)
    flags.add_argument("--quick", action="store_true", help="a twentieth of the load, one round")
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--only", help="names of workloads, joined by commas")
    flags.add_argument("--json", type=Path, metavar="FILE")
    for hidden in ("--run", "--url", "--feed"):
        flags.add_argument(hidden, help=argparse.SUPPRESS)
    flags.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    arguments = flags.parse_args()
    if arguments.feed:
        asyncio.run(feed(arguments.feed, arguments.count))
        return 0
    if arguments.run:
        client, _, name = arguments.run.partition(":")
        workload = next(item for item in WORKLOADS if item.name == name)
        run = workload.ours if client == "ours" else workload.nats_py
        print(asyncio.run(asyncio.wait_for(run(arguments.url, arguments.count), SECONDS_MAX)))
        return 0
    chosen = [w for w in WORKLOADS if not arguments.only or w.name in arguments.only.split(",")]
    rows, failed = [], False
    print("| workload | ours, per CPU s | nats-py, per CPU s | ratio |\n|---|---:|---:|---:|")
    for workload in chosen:
        row = compare(
            workload,
            1 if arguments.quick else arguments.rounds,
            QUICK_DIVISOR if arguments.quick else 1,
        )
        rows.append(row)
        failed |= row.ratio < workload.ratio_min
        print(f"| {row.workload} | {row.ours:,.0f} | {row.nats_py:,.0f} | {row.ratio:.1f}x |")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
