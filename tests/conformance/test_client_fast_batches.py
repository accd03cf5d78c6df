"""Fast batches with our client, with and without an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from helpers_client import lent_jetstream

import tradewind.sync
from harness import ServerProcess
from tradewind.client.api_errors import BatchPublishDisabledError
from tradewind.client.errors import JetStreamUnavailableError, OptionsError, PublishError
from tradewind.client.jetstream import JetStream


@pytest.fixture
async def js(js_server: ServerProcess) -> AsyncIterator[JetStream]:
    async with lent_jetstream(js_server) as js:
        yield js


async def test_thousands_of_messages_are_stored_in_order(js: JetStream) -> None:
    await js.manager.streams.add(name="FAST", subjects=["fast.>"], allow_batched=True)
    batch = js.fast_batch(flow=100)
    for number in range(4_999):
        await batch.add("fast.1", str(number), headers={"N": "1"} if number % 7 == 0 else None)
    assert batch.count - batch.acknowledged < 200
    ack = await batch.commit("fast.1", b"4999")
    assert (ack.stream, ack.seq, ack.count) == ("FAST", 5_000, 5_000)
    for seq in (1, 2_500, 5_000):
        message = await js.manager.streams.get_message("FAST", seq=seq)
        assert message.data == str(seq - 1).encode()
    with pytest.raises(OptionsError, match="ended"):
        await batch.add("fast.1", b"")


async def test_end_of_the_block_ends_the_batch(js: JetStream) -> None:
    await js.manager.streams.add(name="FAST", subjects=["fast.>"], allow_batched=True)
    async with js.fast_batch() as batch:
        for number in range(10):
            await batch.add(f"fast.{number}", b"")
    assert batch.acknowledged == 10
    async with js.fast_batch() as empty:
        pass
    assert (empty.count, await empty.close()) == (0, None)
    info = await js.manager.streams.info("FAST")
    assert info.state.messages == 10


async def test_message_that_is_refused_ends_the_batch(js: JetStream) -> None:
    await js.manager.streams.add(name="FAST", subjects=["fast.>"], allow_batched=True)
    batch = js.fast_batch()
    await batch.add("fast.1", b"good")
    await batch.add("fast.1", b"bad", headers={"Nats-Expected-Stream": "OTHER"})
    with pytest.raises(PublishError, match=r"after 1 messages.*expected stream does not match"):
        await batch.commit("fast.1", b"late")
    assert (await js.manager.streams.info("FAST")).state.messages == 1


async def test_message_that_is_refused_is_left_out(js: JetStream) -> None:
    await js.manager.streams.add(name="FAST", subjects=["fast.>"], allow_batched=True)
    batch = js.fast_batch(skips_failures=True)
    await batch.add("fast.1", b"good")
    await batch.add("fast.1", b"bad", headers={"Nats-Expected-Stream": "OTHER"})
    ack = await batch.commit("fast.1", b"good")
    assert (ack.count, ack.seq) == (3, 2)
    ((subject, error),) = batch.failures
    assert (subject.startswith("fast."), "expected stream" in str(error)) == (True, True)


async def test_where_there_are_none(js: JetStream) -> None:
    await js.manager.streams.add(name="PLAIN", subjects=["plain"])
    with pytest.raises(BatchPublishDisabledError):
        await js.fast_batch().add("plain", b"")
    with pytest.raises(JetStreamUnavailableError, match="create one"):
        await js.fast_batch().add("nowhere", b"")
    with pytest.raises(OptionsError, match="flow"):
        js.fast_batch(flow=0)


def test_without_an_event_loop(js_server: ServerProcess) -> None:
    with tradewind.sync.connect(js_server.url) as connection:
        js = connection.jetstream()
        js.manager.streams.add(name="FASTSYNC", subjects=["fastsync"], allow_batched=True)
        with js.fast_batch(flow=10) as batch:
            for number in range(100):
                batch.add("fastsync", str(number))
        assert batch.acknowledged == 100
        js.manager.streams.delete("FASTSYNC")
