"""Key-value buckets with both clients: get and put, 32 at a time, as a busy service does it.

Owns the workloads of `benchmarks.client` about buckets. The bucket is in memory, so that the
client is measured and not the disk.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import nats
from nats.js.api import KeyValueConfig, StorageType

import tradewind

OURS, THEIRS = "bench-ours", "bench-theirs"
LANES = 32
KEYS = [f"key.{number}" for number in range(256)]
VALUE = bytes(128)
SECONDS_MAX = 120


async def measure(count: int, call: Callable[[str], Awaitable[object]]) -> float:
    """The CPU seconds of so many calls, over all keys, in lanes."""

    async def lane(offset: int) -> None:
        for number in range(count // LANES):
            await call(KEYS[(number * LANES + offset) % len(KEYS)])

    start = time.process_time()
    await asyncio.gather(*(lane(offset) for offset in range(LANES)))
    return time.process_time() - start


async def put_ours(url: str, count: int) -> float:
    """Put values; each call waits for its acknowledgement."""
    async with tradewind.connect(url, timeout=SECONDS_MAX) as connection:
        bucket = await connection.jetstream().kv.create(OURS, storage="memory")
        return await measure(count, lambda key: bucket.put(key, VALUE))


async def put_nats_py(url: str, count: int) -> float:
    client = await nats.connect(url)
    config = KeyValueConfig(bucket=THEIRS, storage=StorageType.MEMORY, direct=True)
    bucket = await client.jetstream(timeout=SECONDS_MAX).create_key_value(config)
    used = await measure(count, lambda key: bucket.put(key, VALUE))
    await client.close()
    return used


async def get_ours(url: str, count: int) -> float:
    """Get values that are there."""
    async with tradewind.connect(url, timeout=SECONDS_MAX) as connection:
        bucket = await connection.jetstream().kv.create(OURS, storage="memory")
        for key in KEYS:
            await bucket.put(key, VALUE)
        return await measure(count, bucket.get)


async def get_nats_py(url: str, count: int) -> float:
    client = await nats.connect(url)
    config = KeyValueConfig(bucket=THEIRS, storage=StorageType.MEMORY, direct=True)
    bucket = await client.jetstream(timeout=SECONDS_MAX).create_key_value(config)
    for key in KEYS:
        await bucket.put(key, VALUE)
    used = await measure(count, bucket.get)
    await client.close()
    return used
