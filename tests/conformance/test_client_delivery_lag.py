"""How far a consumer is behind, in messages and seconds, on both servers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
from helpers_client import lent_jetstream

from harness import ServerProcess
from tradewind.api.times import parse_time
from tradewind.client.jetstream import JetStream
from tradewind.client.streams.delivery_lag import FILTERS_MAX, DeliveryLag


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStream]:
    async with lent_jetstream(js_server) as js:
        yield js


async def test_the_lag_is_that_of_the_oldest_message_that_a_filter_passes(
    js: JetStream, subject: str
) -> None:
    """Against a naive count, while messages are delivered, acknowledged and removed at random."""
    chance = random.Random(35)
    manager = js.manager
    streams = manager.streams
    await streams.add(name=subject, subjects=[f"{subject}.*"])
    await manager.consumers.add(
        subject,
        durable_name="c",
        ack_policy="explicit",
        filter_subjects=[f"{subject}.a", f"{subject}.b"],
    )
    consumer = await js.consumers.get(subject, "c")
    times: dict[int, int] = {}  # of the messages that pass the filter
    delivered: set[int] = set()
    open_messages = []
    for _ in range(25):
        for _ in range(chance.randint(0, 3)):
            name = chance.choice("abc")
            seq = (await js.publish(f"{subject}.{name}", b"")).seq
            if name != "c":
                times[seq] = (await streams.get_message(subject, seq=seq)).time_ns
        wanted = chance.randint(0, 2)
        if wanted and len(times) > len(delivered):
            async for message in consumer.fetch(wanted, no_wait=True):
                delivered.add(message.metadata.stream_sequence)
                open_messages.append(message)
        for message in chance.sample(open_messages, len(open_messages) // 2):
            await message.ack_sync()
            open_messages.remove(message)
        before = parse_time((await manager.consumers.info(subject, "c")).ts)
        lag = await manager.consumers.lag(subject, "c")
        after = parse_time((await manager.consumers.info(subject, "c")).ts)
        left = sorted(set(times) - delivered)
        unacked = sorted(message.metadata.stream_sequence for message in open_messages)
        assert (lag.undelivered, lag.unacknowledged) == (len(left), len(unacked))
        for seconds, waiting in (
            (lag.undelivered_seconds, left),
            (lag.unacknowledged_seconds, unacked),
        ):
            if not waiting:
                assert seconds is None
                continue
            assert seconds is not None
            # The first of them decides, whatever happened after it.
            first = times[waiting[0]]
            assert before - first <= round(seconds * 1e9) + 1000
            assert seconds * 1e9 <= after - first
        if not lag.messages:
            assert lag.seconds == 0.0


async def test_lags_of_many_consumers_are_asked_for_at_once(js: JetStream, subject: str) -> None:
    manager = js.manager
    await manager.streams.add(name=subject, subjects=[f"{subject}.*"])
    await js.publish(f"{subject}.a", b"")
    many = [f"{subject}.{number}" for number in range(FILTERS_MAX)]
    wanted = {"all": [], "none": [f"{subject}.x"], "many": [*many, f"{subject}.a"]}
    for name, filters in wanted.items():
        await manager.consumers.add(subject, durable_name=name, filter_subjects=filters)
    infos = [info async for info in manager.consumers.list(subject)]
    lags = await manager.consumers.lags(infos)
    assert lags["none"] == DeliveryLag()
    assert lags["none"].seconds == 0.0
    assert lags["all"].messages == 1
    assert lags["all"].seconds is not None
    # With very many filters the age is not known, and that is said.
    assert (lags["many"].messages, lags["many"].seconds) == (1, None)
