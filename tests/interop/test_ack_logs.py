"""A consumer with much pending under two servers: our log, which nats-server passes over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness import wait_for
from interop_kit import Official
from server_truth import differences, running, server_truth

# More than a state may have that is always written as a whole.
MESSAGES = 1200
NAMES = ["S"]
pytestmark = pytest.mark.timeout(120)


async def fill(server: Official) -> None:
    """Everything is delivered; every tenth message is acknowledged, with an answer."""
    await server.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": -1}
    await server.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    await server.publish_all([("s", b"x")] * MESSAGES)
    messages = await server.fetch("S", "c", MESSAGES)
    assert len(messages) == MESSAGES
    for message in messages[9::10]:
        await server.answer(message)
    for message in messages[1::400]:  # its time is kept to the nanosecond
        await server.answer(message, b'-NAK {"delay": 3600000000001}')


def logs(folder: Path) -> list[Path]:
    return list(folder.glob("jetstream/$G/streams/S/tradewind.acks.*"))


def wait_until_folded(folder: Path) -> None:
    """A log that a start has found goes into o.dat by itself."""
    wait_for(lambda: not logs(folder))


async def left(server: Official) -> int:
    """What the consumer is going to deliver, for the first time or again."""
    info = await server.api("CONSUMER.INFO.S.c")
    return int(info["num_ack_pending"]) + int(info["num_pending"])


def test_after_a_clean_stop_the_official_server_knows_every_acknowledgement(tmp_path: Path) -> None:
    async def journey() -> None:
        async with running("tradewind", tmp_path) as server:
            await fill(server)
            truth = await server_truth(server, NAMES)
            assert logs(tmp_path), "the log was not used: nothing was tested"
            await server.stop()
        assert not logs(tmp_path)
        async with running("official", tmp_path) as server:
            assert differences(truth, await server_truth(server, NAMES)) == []
            await server.stop()

    asyncio.run(journey())


def test_after_a_kill_the_official_server_goes_on_without_the_log_and_we_without_it_after_that(
    tmp_path: Path,
) -> None:
    async def journey() -> None:
        async with running("tradewind", tmp_path) as server:
            await fill(server)
            await server.stop(kill=True)
        assert logs(tmp_path)
        async with running("official", tmp_path) as server:
            # It delivers again what was acknowledged, but for what an o.dat has said by chance.
            known = await left(server)
            assert MESSAGES - MESSAGES // 20 <= known <= MESSAGES
            config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": -1}
            config |= {"ack_wait": 1_000_000}
            await server.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
            # One by one: what is not acknowledged within a millisecond comes again.
            acknowledged: set[str] = set()
            while len(acknowledged) < 50:
                [message] = await server.fetch("S", "c", 1)
                await server.answer(message)
                acknowledged.add(message.reply.split(".")[5])
            await server.stop()
        assert logs(tmp_path), "it was left alone"
        async with running("tradewind", tmp_path) as server:
            # What the official server has written says nothing of our log.
            assert await left(server) == known - 50
            await server.stop()
        assert not logs(tmp_path)

    asyncio.run(journey())


def test_after_a_kill_we_know_every_acknowledgement_that_was_answered(tmp_path: Path) -> None:
    async def journey() -> None:
        async with running("tradewind", tmp_path) as server:
            await fill(server)
            await server.stop(kill=True)
        assert logs(tmp_path)
        async with running("tradewind", tmp_path) as server:
            assert await left(server) == MESSAGES - MESSAGES // 10
            await asyncio.to_thread(wait_until_folded, tmp_path)
            await server.stop(kill=True)
        async with running("official", tmp_path) as server:
            assert await left(server) == MESSAGES - MESSAGES // 10

    asyncio.run(journey())
