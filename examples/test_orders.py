"""How to test a program that uses NATS: each test gets a real server of its own, in this process.

    python -m pytest examples/test_orders.py

`take_orders` stands for your program. The fixture is all that you need to copy.
"""

import asyncio
from collections.abc import Iterator

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

import tradewind


@pytest.fixture
def nats_url() -> Iterator[str]:
    """The address of an empty server on a free port; it ends with the test."""
    with tradewind.serve(port=0) as server:
        yield server.url


async def take_orders(client: Client) -> None:
    """The program under test: confirms every order, and refuses empty ones."""

    async def confirm(message: Msg) -> None:
        await message.respond(b"confirmed" if message.data else b"refused")

    await client.subscribe("orders", queue="clerks", cb=confirm)


async def order(url: str, what: bytes) -> bytes:
    """One order, from start to end."""
    client = await nats.connect(url)
    try:
        await take_orders(client)
        return bytes((await client.request("orders", what, timeout=2)).data)
    finally:
        await client.close()


def test_an_order_is_confirmed(nats_url: str) -> None:
    """The usual case."""
    assert asyncio.run(order(nats_url, b"two apples")) == b"confirmed"


def test_an_empty_order_is_refused(nats_url: str) -> None:
    """The other one."""
    assert asyncio.run(order(nats_url, b"")) == b"refused"
