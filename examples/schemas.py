"""Payloads that obey a schema: by the publisher, and at the door of a stream.

    pip install '.[schemas]'
    tradewind-server -js                                  a server with JetStream
    python examples/schemas.py                            talks to nats://127.0.0.1:4222
    python examples/schemas.py nats://127.0.0.1:4333      or to any other address

nats-server keeps the schemas as well, but its streams take every payload.
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import sys

import tradewind
from tradewind.errors import JetStreamApiError, SchemaError, SchemaViolationError

ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "fruit": {"type": "string"}},
}


async def main(url: str) -> None:
    """Add a schema, break it in three ways, and change it."""
    async with tradewind.connect(url, name="schemas") as connection:
        js = connection.jetstream()
        await js.schemas.add("example-order", ORDER, subject="example.orders.*")
        await js.manager.streams.add(
            name="EXAMPLE-ORDERS",
            subjects=["example.orders.*"],
            metadata={"tradewind.schema": "reject"},
        )
        wrong = b'{"id": "seven"}'
        try:
            ack = await js.publish("example.orders.new", wrong)
            print(f"nats-server stored a wrong payload as message {ack.seq}")
        except JetStreamApiError as error:
            print("the stream says:", error.description)

        async with await js.use_schemas():
            try:
                await js.publish("example.orders.new", wrong)
            except SchemaViolationError as error:
                print("the client says:", error)
            payload = await js.schemas.encode("example-order", {"id": 7, "fruit": "apple"})
            ack = await js.publish("example.orders.new", payload)
            print(f"message {ack.seq} is stored")

        try:
            await js.schemas.evolve("example-order", {**ORDER, "required": ["id", "fruit"]})
        except SchemaError as error:
            print(error)
        more = {**ORDER["properties"], "count": {"type": "integer"}}  # type: ignore[dict-item]
        second = await js.schemas.evolve("example-order", {**ORDER, "properties": more})
        print(f"the schema has version {second.version}")

        await js.manager.streams.delete("EXAMPLE-ORDERS")
        await js.schemas.remove("example-order")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
