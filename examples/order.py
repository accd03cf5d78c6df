"""Several workers share one consumer, and the messages of each customer stay in order.

    tradewind-server -js                                a server with JetStream
    python examples/order.py                            talks to nats://127.0.0.1:4222
    python examples/order.py nats://127.0.0.1:4333      or to any other address

nats-server takes the same configuration, and delivers without this order.
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import sys
from random import Random

import tradewind
from tradewind import JetStream

CUSTOMERS = ("ada", "bob", "eve")
EVENTS = 20


async def work(js: JetStream, number: int, handled: dict[str, list[int]]) -> int:
    """Handle messages until none are left; some are refused at first."""
    random = Random(number)  # noqa: S311 - decides nothing secret
    consumer = await js.consumers.get("ACCOUNTS", "booking")
    done = 0
    while sum(map(len, handled.values())) < len(CUSTOMERS) * EVENTS:
        message = await consumer.next(timeout=0.2)
        if message is None:
            continue
        await asyncio.sleep(random.random() / 500)
        if random.random() < 0.2:
            message.nak(delay=0.01)
            continue
        handled[message.subject.split(".")[1]].append(int(message.data))
        await message.ack_sync()
        done += 1
    return done


async def main(url: str) -> None:
    """Publish events of three customers, and have four workers handle them."""
    async with tradewind.connect(url, name="order per key") as connection:
        js = connection.jetstream()
        await js.manager.streams.add(name="ACCOUNTS", subjects=["accounts.>"])
        await js.manager.consumers.add(
            "ACCOUNTS",
            durable_name="booking",
            ack_policy="explicit",
            metadata={"tradewind.order_by": "token:2"},
        )
        for number in range(EVENTS):
            for customer in CUSTOMERS:
                await js.publish(f"accounts.{customer}.event", str(number))
        handled: dict[str, list[int]] = {customer: [] for customer in CUSTOMERS}
        shares = await asyncio.gather(*(work(js, number, handled) for number in range(4)))
        for customer, numbers in handled.items():
            print(f"{customer}: {len(numbers)} events, in order: {numbers == sorted(numbers)}")
        print(f"workers that had a share: {sum(share > 0 for share in shares)}")
        await js.manager.streams.delete("ACCOUNTS")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
