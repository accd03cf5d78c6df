"""A worker: prints the orders of a stream, several at a time, until it is stopped.

    tradewind server run --jetstream
    tradewind stream add ORDERS --subjects 'orders.>' --defaults
    cd examples && tradewind worker worker:app --processes 2
    tradewind pub orders.new '{"id": 1, "fruit": "apple"}'

`app` is all that the command needs; it makes the consumer if there is none.
"""

import msgspec

import tradewind
from tradewind import Msg


class Order(msgspec.Struct):
    """What the payloads have; any other payload is given up at once."""

    id: int
    fruit: str


app = tradewind.Worker(
    stream="ORDERS",
    consumer="packer",
    create={"max_deliver": 10},
    codec=Order,
    concurrency=4,
    order_by="subject",
    retry=tradewind.Retry(attempts=5, delay="1s"),
    timeout="1m",
)


@app.handler
async def pack(order: Order, message: Msg) -> None:  # noqa: ARG001 - handlers get both
    """Pack an order; an unknown fruit will not get better by trying again."""
    if order.fruit not in ("apple", "pear"):
        raise tradewind.GiveUp(f"there are no {order.fruit}s")
    print(f"packed order {order.id}: {order.fruit}", flush=True)  # noqa: T201
