"""Orders become bills exactly once, although the program that writes them dies again and again.

    python examples/exactly_once.py                             talks to nats://127.0.0.1:4222
    python examples/exactly_once.py nats://127.0.0.1:4333       or to any other; it needs JetStream

Three things together do it: publishers give ids, the result is published with an id made from the
message that it is about, and the message is acknowledged when the result is stored.
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import random
import sys

import tradewind
from tradewind import JetStream

ORDERS = 50


class PowerCutError(Exception):
    """The program dies here."""


async def take_orders(js: JetStream) -> None:
    """A publisher that is not sure whether it sent something sends it again."""
    for number in range(ORDERS):
        for _ in range(random.randint(1, 3)):  # noqa: S311 - it only plays
            await js.publish_async("shop.orders", str(number), msg_id=f"order-{number}")
    await js.publish_async_completed()


async def write_bills(js: JetStream) -> None:
    """One life of the program that turns orders into bills; it may end at any point."""
    consumer = await js.consumers.get("SHOP_ORDERS", "billing")
    async with consumer.consume(max_messages=10) as messages:
        async for message in messages:
            sequence = message.metadata.stream_sequence
            die_sometimes()
            await js.publish("shop.bills", message.data, msg_id=f"bill-{sequence}")
            die_sometimes()
            await message.ack_sync()
            if message.metadata.pending_count == 0:
                info = await consumer.info()
                if info.num_ack_pending == 0:
                    return


def die_sometimes() -> None:
    """A power cut, here and there."""
    if random.random() < 0.05:  # noqa: S311 - it only plays
        raise PowerCutError


async def main(url: str) -> None:
    """Take orders, write bills through many power cuts, and count."""
    async with tradewind.connect(url, name="exactly once") as connection:
        js = connection.jetstream()
        streams = js.manager.streams
        await streams.add(name="SHOP_ORDERS", subjects=["shop.orders"])
        await streams.add(name="SHOP_BILLS", subjects=["shop.bills"])
        await js.manager.consumers.add(
            "SHOP_ORDERS", durable_name="billing", ack_policy="explicit", ack_wait=1
        )
        await take_orders(js)
        while True:
            try:
                await write_bills(js)
                break
            except PowerCutError:
                continue
        for name in ("SHOP_ORDERS", "SHOP_BILLS"):
            state = (await streams.info(name)).state
            print(f"{name}: {state.messages} messages")
            await streams.delete(name)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
