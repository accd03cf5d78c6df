"""A consumer with order per key under two servers: what is parked is lost in neither."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from interop_kit import Official
from server_truth import running

pytestmark = pytest.mark.timeout(120)
SUBJECTS = ["s.a", "s.a", "s.b", "s.a", "s.b", "s.c"] * 5
CONSUMER = {
    "durable_name": "c",
    "ack_policy": "explicit",
    "ack_wait": 1_000_000_000,
    "metadata": {"tradewind.order_by": "subject"},
}


async def fill(server: Official) -> None:
    """One message of each key is acknowledged, and one in flight; the rest is parked."""
    await server.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
    await server.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": CONSUMER})
    await server.publish_all([(subject, b"x") for subject in SUBJECTS])
    for message in await server.fetch("S", "c", 3):
        await server.answer(message)
    assert len(await server.fetch("S", "c", 3)) == 3


async def drain(server: Official) -> list[int]:
    """The stream sequences of all that is left, in the order of their acknowledgements."""
    seen: list[int] = []
    while True:
        info = await server.api("CONSUMER.INFO.S.c")
        if not info["num_ack_pending"] + info["num_pending"]:
            return seen
        for message in await server.fetch("S", "c", 1):
            await server.answer(message)
            seen.append(int(message.reply.split(".")[5]))


@pytest.mark.parametrize("kill", [False, True])
def test_the_official_server_delivers_what_was_parked(tmp_path: Path, kill: bool) -> None:
    async def journey() -> None:
        async with running("tradewind", tmp_path) as server:
            await fill(server)
            info = await server.api("CONSUMER.INFO.S.c")
            assert (info["num_ack_pending"], info["num_pending"]) == (3, len(SUBJECTS) - 6)
            await server.stop(kill=kill)
        async with running("official", tmp_path) as server:
            assert set(await drain(server)) >= set(range(7, len(SUBJECTS)))
            await server.stop()

    asyncio.run(journey())


def test_order_goes_on_after_the_official_server(tmp_path: Path) -> None:
    async def journey() -> None:
        async with running("tradewind", tmp_path) as server:
            await fill(server)
            await server.stop()
        async with running("official", tmp_path) as server:
            assert len(await server.fetch("S", "c", 4)) > 0
            await server.stop()
        async with running("tradewind", tmp_path) as server:
            seen = await drain(server)
            for key in ("s.a", "s.b", "s.c"):
                of_key = [seq for seq in seen if SUBJECTS[seq - 1] == key]
                assert of_key == sorted(of_key)
            await server.stop()

    asyncio.run(journey())
