"""Orders become bills exactly once: the bill, the entry in the books and the acknowledgement of the
order are one transaction. The program dies again and again, and uses no ids.

    python examples/transactions.py                             talks to nats://127.0.0.1:4222
    python examples/transactions.py nats://127.0.0.1:4333       or to any other Tradewind server
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import random
import sys

import tradewind
from tradewind import JetStream, Msg
from tradewind.errors import TransactionNotAwaitedError, TransactionRedeliveredError

ORDERS = 50


class PowerCutError(Exception):
    """The program dies here."""


async def write_bills(js: JetStream) -> None:
    """One life of the program that turns orders into bills; it may end at any point."""
    consumer = await js.consumers.get("TX_ORDERS", "billing")
    while True:
        info = await consumer.info()
        if info.num_pending == 0 and info.num_ack_pending == 0:
            return
        async with consumer.fetch(10, expires=0.5) as messages:
            async for message in messages:
                await write_bill(js, message)


async def write_bill(js: JetStream, message: Msg) -> None:
    """One order becomes a bill and an entry in the books."""
    try:
        async with js.transaction() as transaction:
            transaction.publish("tx.bills", message.data)
            die_sometimes()
            transaction.publish("tx.books.apples", message.data)
            transaction.ack(message)
            die_sometimes()
    except (TransactionRedeliveredError, TransactionNotAwaitedError):
        pass  # we were too slow, and the message was given out again
    die_sometimes()


def die_sometimes() -> None:
    """A power cut, here and there."""
    if random.random() < 0.1:  # noqa: S311 - it only plays
        raise PowerCutError


async def main(url: str) -> None:
    """Take orders, write bills through many power cuts, and count."""
    async with tradewind.connect(url, name="transactions") as connection:
        js = connection.jetstream()
        streams = js.manager.streams
        await streams.add(name="TX_ORDERS", subjects=["tx.orders"])
        await streams.add(name="TX_BILLS", subjects=["tx.bills"])
        await streams.add(name="TX_BOOKS", subjects=["tx.books.>"])
        await js.manager.consumers.add(
            "TX_ORDERS", durable_name="billing", ack_policy="explicit", ack_wait=0.5
        )
        for number in range(ORDERS):
            await js.publish("tx.orders", str(number))
        lives = 1
        while True:
            try:
                await write_bills(js)
                break
            except PowerCutError:
                lives += 1
        for name in ("TX_BILLS", "TX_BOOKS"):
            found = [
                int((await streams.get_message(name, seq=seq)).data)
                for seq in range(1, (await streams.info(name)).state.last_seq + 1)
            ]
            print(f"{name}: {len(found)} messages, each once: {sorted(found) == [*range(ORDERS)]}")
        print(f"the program has died: {lives > 1}")
        for name in ("TX_ORDERS", "TX_BILLS", "TX_BOOKS"):
            await streams.delete(name)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
