"""Each tenant gets a stream of its own when it publishes for the first time.

    tradewind-server -js                                    a server with JetStream
    python examples/templates.py                            talks to nats://127.0.0.1:4222
    python examples/templates.py nats://127.0.0.1:4333      or to any other address

It needs a tradewind-server: nats-server had something like this once, and has it no more.
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import sys
from datetime import timedelta

import tradewind
from tradewind.errors import PublishError, StreamInvalidConfigError


async def main(url: str) -> None:
    """Two tenants publish, a third one is too many."""
    async with tradewind.connect(url, name="templates") as connection:
        js = connection.jetstream()
        templates = js.manager.templates
        await templates.put(
            "tenants",
            match="tenant.*.>",
            stream="tenant_{1}",
            max_streams=2,
            idle=timedelta(days=30),
            max_age=timedelta(days=7),
        )
        for tenant in ("ada", "bob", "ada", "eve"):
            try:
                ack = await js.publish(f"tenant.{tenant}.logins", "hello")
                print(f"{tenant}: message {ack.seq} of {ack.stream}")
            except (PublishError, StreamInvalidConfigError) as error:
                print(f"{tenant}: refused, {'limit of 2 streams' in str(error)}")
        await templates.delete("tenants")
        for tenant in ("ada", "bob"):
            await js.manager.streams.delete(f"tenant_{tenant}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
