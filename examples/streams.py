"""Streams, consumers, a key-value bucket and an object store, with Tradewind's own client.

    tradewind-server -js                                   a server with JetStream
    python examples/streams.py                             talks to nats://127.0.0.1:4222
    python examples/streams.py nats://127.0.0.1:4333       or to any other address

It works with Tradewind and with nats-server alike, and leaves nothing behind.
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import sys

import tradewind
from tradewind import JetStream


async def publish(js: JetStream) -> None:
    """What matches the subjects of a stream is kept; the answer says under which number."""
    await js.manager.streams.add(name="SHOP", subjects=["shop.>"], max_msgs=1000)
    for number, what in enumerate(("two apples", "a pear", "ten figs"), 1):
        ack = await js.publish("shop.orders", what, msg_id=what)
        assert (ack.stream, ack.seq) == ("SHOP", number)
    # The id is known: nothing is stored twice, however often a publisher tries.
    again = await js.publish("shop.orders", "a pear", msg_id="a pear")
    print(f"stored 3 messages; message 2 again: duplicate is {again.duplicate}")


async def pull(js: JetStream) -> None:
    """A worker requests messages and acknowledges them; those it rejects are redelivered."""
    await js.manager.consumers.add("SHOP", durable_name="packer", ack_policy="explicit")
    packer = await js.consumers.get("SHOP", "packer")
    apples, pear, figs = [message async for message in packer.fetch(3, expires=5)]
    apples.ack()
    figs.ack()
    pear.nak()
    again = await packer.next(timeout=5)
    assert again is not None
    print(f"pulled {again.data.decode()!r}, delivery {again.metadata.delivered_count}")
    await again.ack_sync()


async def read_in_order(js: JetStream) -> None:
    """A reader gets everything from the beginning, in order, without acknowledging it."""
    async with js.consumers.ordered("SHOP").consume() as messages:
        texts = [(await messages.next(timeout=5)).data.decode() for _ in range(3)]
    print(f"in order {texts}")


async def key_value(js: JetStream) -> None:
    """A bucket is a stream with one subject per key; a revision is a sequence."""
    bucket = await js.kv.create("prices", history=3)
    revision = await bucket.put("pear", b"0.40")
    await bucket.update("pear", b"0.45", revision)
    entry = await bucket.get("pear")
    assert entry is not None
    print(f"a pear is {entry.value.decode()} at revision {entry.revision}")
    await bucket.destroy()


async def objects(js: JetStream) -> None:
    """An object is a stream of chunks with a digest."""
    store = await js.objects.create("pictures")
    info = await store.put("pear.png", b"\x89PNG" * 100_000)
    print(f"pear.png has {info.size} bytes in {info.chunks} chunks")
    await store.destroy()


async def main(url: str) -> None:
    """Connect, show all, and remove what was made."""
    async with tradewind.connect(url, name="streams") as connection:
        js = connection.jetstream()
        await publish(js)
        await pull(js)
        await read_in_order(js)
        await key_value(js)
        await objects(js)
        await js.manager.streams.delete("SHOP")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
