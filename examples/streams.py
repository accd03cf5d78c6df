"""Streams, consumers, a key-value bucket and an object store, with the public Python client.

    tradewind-server -js                                   a server with JetStream
    python examples/streams.py                             talks to nats://127.0.0.1:4222
    python examples/streams.py nats://127.0.0.1:4333       or to any other address

It works with Tradewind and with nats-server alike, and leaves nothing behind. The client is
nats-py, one of the development tools that `make build` installs.
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import sys

import nats
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy, StreamConfig


async def publish(stream: JetStreamContext) -> None:
    """What matches the subjects of a stream is kept; the answer says under which number."""
    await stream.add_stream(StreamConfig(name="SHOP", subjects=["shop.>"], max_msgs=1000))
    for number, what in enumerate(("two apples", "a pear", "ten figs"), 1):
        ack = await stream.publish("shop.orders", what.encode(), headers={"Nats-Msg-Id": what})
        assert (ack.stream, ack.seq) == ("SHOP", number)
    # The id is known: nothing is stored twice, however often a publisher tries.
    again = await stream.publish("shop.orders", b"a pear", headers={"Nats-Msg-Id": "a pear"})
    print(f"stored 3 messages; message 2 again: duplicate is {again.duplicate}")


async def pull(stream: JetStreamContext) -> None:
    """A worker asks for messages and acknowledges them; what it gives back comes again."""
    worker = await stream.pull_subscribe("shop.orders", durable="packer", stream="SHOP")
    apples, pear, figs = await worker.fetch(3, timeout=5)
    await apples.ack()
    await figs.ack()
    await pear.nak()
    (again,) = await worker.fetch(1, timeout=5)
    print(f"pulled {again.data.decode()!r}, delivery {again.metadata.num_delivered}")
    await again.ack_sync()


async def push(stream: JetStreamContext) -> None:
    """A reader gets everything from the beginning, in order, at its own subject."""
    reader = await stream.subscribe(
        "shop.>", ordered_consumer=True, config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
    )
    texts = [(await reader.next_msg(timeout=5)).data.decode() for _ in range(3)]
    print(f"pushed {texts}")
    await reader.unsubscribe()


async def key_value(stream: JetStreamContext) -> None:
    """A bucket is a stream with one subject per key; a revision is a sequence."""
    bucket = await stream.create_key_value(bucket="prices", history=3)
    revision = await bucket.put("pear", b"0.40")
    await bucket.update("pear", b"0.45", last=revision)
    entry = await bucket.get("pear")
    print(f"a pear is {entry.value.decode()} at revision {entry.revision}")
    await stream.delete_key_value("prices")


async def objects(stream: JetStreamContext) -> None:
    """An object is a stream of chunks with a digest."""
    store = await stream.create_object_store("pictures")
    await store.put("pear.png", b"\x89PNG" * 100_000)
    found = await store.get("pear.png")
    print(f"pear.png has {found.info.size} bytes in {found.info.chunks} chunks")
    await stream.delete_object_store("pictures")


async def main(url: str) -> None:
    """Connect, show all, and remove what was made."""
    client = await nats.connect(url, name="streams")
    stream = client.jetstream()
    await publish(stream)
    await pull(stream)
    await push(stream)
    await key_value(stream)
    await objects(stream)
    await stream.delete_stream("SHOP")
    await client.drain()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
