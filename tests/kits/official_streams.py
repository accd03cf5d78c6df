"""Streams that the official server is made to write: one for each way a store can come to look.

Each entry has a configuration and a coroutine that fills the stream through the public API. The
tests then compare what nats-server says of it with what our store finds in its files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from interop_kit import HOUR, SECOND, Official, wait_for

Fill = Callable[[Official], Awaitable[None]]
STREAMS: dict[str, tuple[dict[str, Any], Fill]] = {}
# Gives blocks of 32000 bytes; MANY messages fill four of them.
MANY = 220
SMALL_BLOCKS = {"max_bytes": 127_900}
NOISE = Random(7).randbytes(200_000)


def stream(**config: Any) -> Callable[[Fill], Fill]:
    """Register a stream; it is named like the function and takes the subjects below its name."""

    def register(fill: Fill) -> Fill:
        name = fill.__name__
        STREAMS[name] = ({"name": name, "subjects": [f"{name}.>"], **config}, fill)
        return fill

    return register


def noise(seed: int, size: int) -> bytes:
    """Bytes that no compression makes smaller."""
    start = seed * 97 % (len(NOISE) - size)
    return NOISE[start : start + size]


async def many(server: Official, name: str, count: int, size: int = 600, subjects: int = 7) -> None:
    """`count` messages over a few subjects, as text that compresses."""
    await server.publish_all(
        [
            (f"{name}.{index % subjects}", f"{index:06}:".encode() + b"x" * (index * 37 % size))
            for index in range(count)
        ]
    )


async def delete(server: Official, name: str, *sequences: int, erase: bool = True) -> None:
    for seq in sequences:
        request: dict[str, Any] = {"seq": seq} if erase else {"seq": seq, "no_erase": True}
        await server.api(f"STREAM.MSG.DELETE.{name}", request)


@stream()
async def EMPTY(server: Official) -> None:  # noqa: N802 - the name of the stream
    pass


@stream(allow_direct=True)
async def PLAIN(server: Official) -> None:  # noqa: N802
    await server.publish("PLAIN.a", b"hello")
    await server.publish("PLAIN.a", b"")
    await server.publish("PLAIN.b", bytes(range(256)))
    await server.publish("PLAIN.c.d", b"world", {"Nats-Msg-Id": "1", "K": "v"})
    await server.publish("PLAIN.c.d", b"", {"Only": "header"})
    await server.publish("PLAIN." + "x" * 200, b"long subject")


@stream(**SMALL_BLOCKS)
async def BLOCKS(server: Official) -> None:  # noqa: N802
    await server.publish_all([(f"BLOCKS.{n % 9}", noise(n, 900 + n)) for n in range(110)])


@stream()
async def HUGE(server: Official) -> None:  # noqa: N802
    for index in range(11):
        await server.publish(f"HUGE.{index}", noise(index, 1000) * 900)
    await server.publish("HUGE.small", b"behind")


@stream(**SMALL_BLOCKS)
async def DELETES(server: Official) -> None:  # noqa: N802
    await many(server, "DELETES", MANY, 900)
    await delete(server, "DELETES", 1, 2, 3, 40, MANY - 1, MANY)
    await delete(server, "DELETES", 5, 41, 42, 80, MANY - 2, erase=False)
    await server.publish("DELETES.new", b"after")


@stream()
async def EMPTIED(server: Official) -> None:  # noqa: N802
    await many(server, "EMPTIED", 5)
    await delete(server, "EMPTIED", 5, 3, 1, 2, 4)


@stream()
async def EMPTIED_USED(server: Official) -> None:  # noqa: N802
    await many(server, "EMPTIED_USED", 5)
    await delete(server, "EMPTIED_USED", 1, 2, 3, 4, 5, erase=False)
    await many(server, "EMPTIED_USED", 3)


@stream()
async def PURGED(server: Official) -> None:  # noqa: N802
    await many(server, "PURGED", 30)
    await server.api("STREAM.PURGE.PURGED")


@stream(**SMALL_BLOCKS)
async def PURGED_USED(server: Official) -> None:  # noqa: N802
    await many(server, "PURGED_USED", MANY, 900)
    await server.api("STREAM.PURGE.PURGED_USED")
    await many(server, "PURGED_USED", 120, 900)


@stream(**SMALL_BLOCKS)
async def PURGED_SUBJECT(server: Official) -> None:  # noqa: N802
    await many(server, "PURGED_SUBJECT", MANY, 900)
    await server.api("STREAM.PURGE.PURGED_SUBJECT", {"filter": "PURGED_SUBJECT.3"})


@stream(**SMALL_BLOCKS)
async def PURGED_SEQ(server: Official) -> None:  # noqa: N802
    await many(server, "PURGED_SEQ", MANY, 900)
    await delete(server, "PURGED_SEQ", 3, 180)
    await server.api("STREAM.PURGE.PURGED_SEQ", {"seq": 150})


@stream(**SMALL_BLOCKS)
async def PURGED_KEEP(server: Official) -> None:  # noqa: N802
    await many(server, "PURGED_KEEP", MANY, 900)
    await server.api("STREAM.PURGE.PURGED_KEEP", {"keep": 7})


@stream(**SMALL_BLOCKS)
async def PURGED_SUBJECT_KEEP(server: Official) -> None:  # noqa: N802
    await many(server, "PURGED_SUBJECT_KEEP", MANY, 900)
    request = {"filter": "PURGED_SUBJECT_KEEP.*", "keep": 10}
    await server.api("STREAM.PURGE.PURGED_SUBJECT_KEEP", request)


@stream(allow_rollup_hdrs=True)
async def ROLLUP(server: Official) -> None:  # noqa: N802
    await many(server, "ROLLUP", 20)
    await server.publish("ROLLUP.3", b"sum", {"Nats-Rollup": "sub"})


@stream(max_msgs_per_subject=1)
async def LAST(server: Official) -> None:  # noqa: N802
    await many(server, "LAST", 100, subjects=13)
    await delete(server, "LAST", 95)


@stream(max_msgs_per_subject=3, **SMALL_BLOCKS)
async def LAST_THREE(server: Official) -> None:  # noqa: N802
    await many(server, "LAST_THREE", 300, 900, subjects=11)
    await server.publish_all([("LAST_THREE.one", b"%d" % n) for n in range(10)])


@stream(max_msgs=5)
async def MAX_MSGS(server: Official) -> None:  # noqa: N802
    await many(server, "MAX_MSGS", 40)
    await delete(server, "MAX_MSGS", 38)


@stream(max_bytes=40_000)
async def MAX_BYTES(server: Official) -> None:  # noqa: N802
    await many(server, "MAX_BYTES", 300, 900)


@stream(max_msgs=10, discard="new")
async def DISCARD_NEW(server: Official) -> None:  # noqa: N802
    await many(server, "DISCARD_NEW", 10)


@stream(max_age=SECOND // 5)
async def AGED(server: Official) -> None:  # noqa: N802
    await many(server, "AGED", 10)

    async def is_empty() -> bool:
        return (await server.api("STREAM.INFO.AGED"))["state"]["messages"] == 0

    await wait_for(is_empty, "the age limit")


@stream(max_age=HOUR)
async def AGING(server: Official) -> None:  # noqa: N802
    await many(server, "AGING", 10)


@stream(allow_msg_ttl=True)
async def TTL(server: Official) -> None:  # noqa: N802
    await server.publish("TTL.keep", b"1")
    await server.publish("TTL.gone", b"2", {"Nats-TTL": "1s"})
    await server.publish("TTL.hour", b"3", {"Nats-TTL": "1h"})
    await server.publish("TTL.never", b"4", {"Nats-TTL": "never"})
    await server.publish("TTL.keep", b"5")

    async def is_gone() -> bool:
        return (await server.api("STREAM.INFO.TTL"))["state"]["messages"] == 4

    await wait_for(is_gone, "the TTL")


@stream(compression="s2", **SMALL_BLOCKS)
async def COMPRESSED(server: Official) -> None:  # noqa: N802
    await server.publish_all(
        [
            (f"COMPRESSED.{n % 5}", noise(n, 200) if n % 3 else b"text and more " * 15)
            for n in range(400)
        ]
    )
    await delete(server, "COMPRESSED", 1, 2, 77, 300)
    await delete(server, "COMPRESSED", 78, 301, erase=False)


@stream(first_seq=1000)
async def FIRST(server: Official) -> None:  # noqa: N802
    await many(server, "FIRST", 5)


@stream(first_seq=500)
async def FIRST_EMPTY(server: Official) -> None:  # noqa: N802
    pass


@stream(retention="workqueue")
async def WORK(server: Official) -> None:  # noqa: N802
    consumer = {"durable_name": "worker", "ack_policy": "explicit", "ack_wait": HOUR}
    await server.api("CONSUMER.CREATE.WORK.worker", {"stream_name": "WORK", "config": consumer})
    await many(server, "WORK", 20)
    messages = await server.fetch("WORK", "worker", 10)
    for index in (0, 1, 2, 5, 7):
        await server.answer(messages[index])
    await server.answer(messages[8], b"+TERM")
    await server.wait_for_messages("WORK", 14)


@stream(retention="interest")
async def INTEREST(server: Official) -> None:  # noqa: N802
    await many(server, "INTEREST", 3)
    for name in ("one", "two"):
        consumer = {"durable_name": name, "ack_policy": "explicit", "ack_wait": HOUR}
        request = {"stream_name": "INTEREST", "config": consumer}
        await server.api(f"CONSUMER.CREATE.INTEREST.{name}", request)
    await many(server, "INTEREST", 12)
    for name, count in (("one", 8), ("two", 5)):
        for message in await server.fetch("INTEREST", name, count):
            await server.answer(message)
    await server.wait_for_messages("INTEREST", 7)


@stream()
async def CONSUMED(server: Official) -> None:  # noqa: N802
    await many(server, "CONSUMED", 40)
    for policy in ("explicit", "all", "none"):
        consumer = {"durable_name": policy, "ack_policy": policy, "ack_wait": HOUR}
        if policy == "none":
            del consumer["ack_wait"]
        request = {"stream_name": "CONSUMED", "config": consumer}
        await server.api(f"CONSUMER.CREATE.CONSUMED.{policy}", request)
    for config in (
        {"durable_name": "new", "deliver_policy": "new"},
        {"durable_name": "filtered", "filter_subject": "CONSUMED.3"},
        {"name": "short", "inactive_threshold": HOUR},
    ):
        name = config.get("durable_name") or config["name"]
        request = {"stream_name": "CONSUMED", "config": {"ack_policy": "explicit", **config}}
        await server.api(f"CONSUMER.CREATE.CONSUMED.{name}", request)
    messages = await server.fetch("CONSUMED", "explicit", 10)
    for index in (0, 1, 2, 5, 7):
        await server.answer(messages[index])
    for index in (3, 8):
        await server.answer(messages[index], b"-NAK")
    await server.fetch("CONSUMED", "explicit", 4)
    messages = await server.fetch("CONSUMED", "all", 10)
    await server.answer(messages[4])
    await server.fetch("CONSUMED", "none", 7)
    messages = await server.fetch("CONSUMED", "filtered", 3)
    await server.answer(messages[1])


@stream()
async def MADE_TWICE(server: Official) -> None:  # noqa: N802
    await many(server, "MADE_TWICE", 20)
    await server.api("STREAM.DELETE.MADE_TWICE")
    await server.api("STREAM.CREATE.MADE_TWICE", STREAMS["MADE_TWICE"][0])
    await many(server, "MADE_TWICE", 3)
