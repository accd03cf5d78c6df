"""The short forms: blocks and loops directly over the call that opens something."""

from __future__ import annotations

import asyncio

import pytest
from helpers_client import SECONDS, connected, eventually, jetstream

import tradewind
from harness import ServerProcess
from tradewind.client.errors import ConnectionClosedError, NoServersError
from tradewind.client.jetstream import JetStream


async def make(js: JetStream, count: int) -> None:
    await js.manager.streams.add(name="S", subjects=["s"], storage="memory")
    await js.manager.consumers.add("S", durable_name="c", ack_policy="explicit", ack_wait=60)
    for number in range(count):
        await js.publish("s", str(number))


async def test_a_block_connects_and_closes(server: ServerProcess) -> None:
    async with tradewind.connect(server.url) as nats:
        assert nats.is_connected
    assert nats.is_closed
    with pytest.raises(ConnectionClosedError):
        nats.publish("a")
    with pytest.raises(NoServersError):
        async with tradewind.connect("nats://127.0.0.1:1", reconnect_attempts_max=1):
            raise AssertionError("there is no server")


async def test_a_block_subscribes_and_unsubscribes(server: ServerProcess, subject: str) -> None:
    async with connected(server.url) as nats:
        async with nats.subscribe(subject) as messages:
            await nats.publish(subject, b"1")
            assert (await messages.next(SECONDS)).data == b"1"
        assert messages.is_ended


async def test_a_loop_over_a_subscription_unsubscribes_when_it_is_left(
    server: ServerProcess, subject: str
) -> None:
    async with connected(server.url) as nats:
        seen: list[bytes] = []

        async def read() -> None:
            async for message in nats.subscribe(subject):
                seen.append(message.data)
                if len(seen) == 2:
                    break

        reading = asyncio.create_task(read())
        await eventually(lambda: bool(list(nats._subscribers())), "subscribed")
        for number in range(3):
            await nats.publish(subject, str(number))
        await reading
        assert seen == [b"0", b"1"]
        await eventually(lambda: not list(nats._subscribers()), "unsubscribed")


async def test_messages_are_fetched_in_a_loop(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await make(js, 5)
        consumer = await js.consumers.get("S", "c")
        seen = []
        async for message in consumer.fetch(3, expires=SECONDS):
            message.ack()
            seen.append(message.data)
        assert seen == [b"0", b"1", b"2"]

        async for message in consumer.fetch(2, expires=SECONDS):
            message.ack()
            break
        # The rest is given back at once, not after the ack wait of a minute.
        message = await consumer.next(SECONDS)
        assert message is not None
        assert message.data == b"4"
        message.ack()


async def test_a_block_consumes_and_gives_back_what_was_not_read(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await make(js, 5)
        consumer = await js.consumers.get("S", "c")
        async with consumer.consume() as messages:
            async for message in messages:
                message.ack()
                if message.data == b"2":
                    break
        assert messages.is_ended
        first = await consumer.next(SECONDS)
        assert first is not None
        assert first.data in (b"3", b"4")

        ordered = js.consumers.ordered("S")
        async with ordered.consume() as copies:
            assert (await copies.next(SECONDS)).data == b"0"
        async with js.subscribe_push("S") as pushed:
            assert (await pushed.next(SECONDS)).data == b"0"


async def test_buckets_are_watched_in_blocks_and_loops(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        bucket = await js.kv.create("prices", storage="memory")
        await bucket.put("apple", b"3")
        async with bucket.watch() as watcher:
            assert [entry.key async for entry in watcher.initial()] == ["apple"]
        async for entry in bucket.watch("apple"):
            assert entry.value == b"3"
            break
        store = await js.objects.create("films", storage="memory")
        await store.put("one", b"data")
        async for info in store.watch():
            assert info.name == "one"
            break


async def test_a_block_runs_a_service(server: ServerProcess, subject: str) -> None:
    async with connected(server.url) as nats:
        async with nats.services.add(subject, "1.0.0") as service:
            await service.add_endpoint(
                "ask", lambda request: request.respond(b"yes"), subject=subject
            )
            assert (await nats.request(subject)).data == b"yes"
        assert service.is_stopped
