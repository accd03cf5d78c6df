"""Refused messages wait as their consumer says, each class of errors in its own way.

    tradewind-server -js                                     a server with JetStream
    python examples/nak_policy.py                            talks to nats://127.0.0.1:4222
    python examples/nak_policy.py nats://127.0.0.1:4333      or to any other address

nats-server takes the same configuration, and delivers at once.
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import sys
import time

import tradewind

POLICY = {
    "tradewind.nak.delay": "100ms",
    "tradewind.nak.delay.busy": "exponential 200ms x2 max 10s",
}


async def main(url: str) -> None:
    """Reject one message twice, and see how long redelivery takes."""
    async with tradewind.connect(url, name="nak policy") as connection:
        js = connection.jetstream()
        await js.manager.streams.add(name="MAILS", subjects=["mails.>"])
        await js.manager.consumers.add(
            "MAILS", durable_name="sender", ack_policy="explicit", metadata=POLICY
        )
        sender = await js.consumers.get("MAILS", "sender")
        await js.publish("mails.welcome", "Dear Ada")
        message = await sender.next(timeout=5)
        assert message is not None
        for reason, least in (("busy", 0.2), ("busy", 0.4), ("", 0.1)):
            began = time.monotonic()
            message.nak(reason=reason)
            message = await sender.next(timeout=5)
            assert message is not None
            assert time.monotonic() - began >= least
            print(f"refused for {reason or 'any other reason'}: not again within {least} s")
        await message.ack_sync()
        await js.manager.streams.delete("MAILS")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
