"""Publish and subscribe, request and reply, and a queue group, with the public Python client.

    python examples/hello.py                             talks to nats://127.0.0.1:4222
    python examples/hello.py nats://127.0.0.1:4333       or to any other address

It works with Tradewind and with nats-server alike. The client is nats-py. Tradewind itself does not
need it: it is among the development tools that `make build` installs, or `pip install nats-py`.
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import sys
from collections.abc import Awaitable, Callable

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg


async def publish_and_subscribe(client: Client) -> None:
    """Everyone who subscribes to a matching subject gets the message."""
    # "*" stands for one token of a subject, ">" for one or more at the end.
    subscription = await client.subscribe("orders.*.created")
    await client.publish("orders.42.created", b"two apples", headers={"Trace": "7"})
    message = await subscription.next_msg(timeout=2)
    print(f"{message.subject}: {message.data.decode()} {message.headers}")
    await subscription.unsubscribe()


async def request_and_reply(client: Client) -> None:
    """A request carries a reply subject; the responder publishes to it."""

    async def answer(message: Msg) -> None:
        await message.respond(message.data.upper())

    subscription = await client.subscribe("shout", cb=answer)
    reply = await client.request("shout", b"hello", timeout=2)
    print(f"shout: {reply.data.decode()}")
    await subscription.unsubscribe()
    # The server reports at once that nobody is listening; there is no need to wait for the timeout.
    try:
        await client.request("nobody.listens.here", b"", timeout=2)
    except nats.errors.NoRespondersError:
        print("nobody.listens.here: no responders")


async def queue_group(client: Client) -> None:
    """Members of a queue group share the messages: each goes to exactly one of them."""
    counts = {"ann": 0, "bob": 0}
    done = asyncio.Event()

    def worker(name: str) -> Callable[[Msg], Awaitable[None]]:
        async def work(_message: Msg) -> None:
            counts[name] += 1
            if sum(counts.values()) == 100:
                done.set()

        return work

    for name in counts:
        await client.subscribe("jobs", queue="workers", cb=worker(name))
    for number in range(100):
        await client.publish("jobs", b"%d" % number)
    await asyncio.wait_for(done.wait(), 5)
    print(f"jobs: {sum(counts.values())} done, shared by {len(counts)} workers")


async def main(url: str) -> None:
    """Connect, show the three patterns, and leave in an orderly way."""
    client = await nats.connect(url, name="hello")
    await publish_and_subscribe(client)
    await request_and_reply(client)
    await queue_group(client)
    await client.drain()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
