"""Publish and subscribe, request and reply, and a queue group, with Tradewind's own client.

    python examples/client.py                             talks to nats://127.0.0.1:4222
    python examples/client.py nats://127.0.0.1:4333       or to any other address

It works with Tradewind and with nats-server alike.
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import sys

import tradewind
from tradewind import Msg
from tradewind.errors import NoRespondersError


async def publish_and_subscribe(connection: tradewind.Connection) -> None:
    """Everyone who subscribes to a matching subject gets the message."""
    async with connection.subscribe("orders.*.created") as subscription:
        await connection.publish("orders.42.created", "two apples", headers={"Trace": "7"})
        message = await subscription.next(timeout=2)
        print(f"{message.subject}: {message.data.decode()} {dict(message.headers)}")


async def request_and_reply(connection: tradewind.Connection) -> None:
    """A request carries a reply subject; the responder publishes to it."""

    async def answer(message: Msg) -> None:
        await message.respond(message.data.upper())

    async with connection.subscribe("shout", callback=answer):
        reply = await connection.request("shout", "hello", timeout=2)
        print(f"shout: {reply.data.decode()}")
    try:
        await connection.request("nobody.listens.here")
    except NoRespondersError as error:
        print(f"{error.subject}: no responders")


async def queue_group(connection: tradewind.Connection) -> None:
    """Members of a queue group share the messages: each goes to exactly one of them."""
    counts = {"ann": 0, "bob": 0}
    done = asyncio.Event()

    def work(name: str) -> None:
        counts[name] += 1
        if sum(counts.values()) == 100:
            done.set()

    for name in counts:
        await connection.subscribe(
            "jobs", queue="workers", callback=lambda _message, name=name: work(name)
        )
    for number in range(100):
        await connection.publish("jobs", str(number))
    await asyncio.wait_for(done.wait(), 5)
    print(f"jobs: {sum(counts.values())} done, shared by {len(counts)} workers")


async def main(url: str) -> None:
    """Connect, show the three patterns, and leave in an orderly way."""
    connection = await tradewind.connect(url, name="client example")
    await publish_and_subscribe(connection)
    await request_and_reply(connection)
    await queue_group(connection)
    await connection.drain()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
