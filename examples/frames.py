"""Streams as data frames, and frames as messages, without Java.

    tradewind-server -js                                   a server with JetStream
    python examples/frames.py                              talks to nats://127.0.0.1:4222
    python examples/frames.py nats://127.0.0.1:4333        or to any other address

It needs the extra `frames`, works with Tradewind and with nats-server alike, and removes its stream
at the end.
"""
# ruff: noqa: T201 - an example talks to the terminal

import sys

import duckdb
import pyarrow as pa

import tradewind.sync
from tradewind import frames

ORDERS = pa.table(
    {
        "region": ["north", "south", "north", "west"],
        "amount": [12.5, 7.0, 30.0, 1.25],
    }
)


def main(server: str) -> None:
    """Write a frame twice, read it, and follow the stream."""
    with tradewind.sync.connect(server) as connection:
        js = connection.jetstream()
        js.manager.streams.add(name="FRAMES", subjects=["frames.>"])
        try:
            first = frames.write(js, ORDERS, subject="frames.{region}")
            again = frames.write(js, ORDERS, subject="frames.{region}")
            print(f"stored {first.stored} rows; the same frame again: {again.stored}")
            source = frames.stream("FRAMES", servers=server, decode="json")
            table = source.select("seq", "subject", "amount").arrow()
            print(f"{table.num_rows} messages, amounts {table['amount'].to_pylist()}")
            engine = duckdb.connect()
            engine.register("orders", source.dataset())
            text = "select region, sum(amount) from orders where seq > 1 group by 1 order by 1"
            print(engine.execute(text).fetchall())
            engine.close()
            for batch in frames.follow(js, "FRAMES", start=3):
                print(f"followed {batch.num_rows} messages")
                break
        finally:
            js.manager.streams.delete("FRAMES")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222")
