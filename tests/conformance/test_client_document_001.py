"""The JetStream examples of document 001 in Python's idiom, one test each, on both servers.

The examples about the key-value store and the object store are with those.
"""

from __future__ import annotations

import asyncio

import pytest
from helpers_client import SECONDS, eventually, fill, jetstream

from harness import ServerProcess
from tradewind.client.api_errors import (
    ConsumerNotFoundError,
    NoMessageFoundError,
    StreamWrongLastSequenceError,
)
from tradewind.client.core.message import Msg
from tradewind.client.errors import OptionsError
from tradewind.client.streams.consumer_events import HeartbeatsMissed


async def test_jetstream_manager(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        connection = js.connection
        manager = connection.jetstream_manager()
        assert await manager.streams.list().next_page() == []

        stream = "mystream"
        await manager.streams.add(name=stream, subjects=["mystream.*"], storage="memory")
        assert [info.config.name async for info in manager.streams.list()] == [stream]

        # JetStream captures core messages.
        for _ in range(100):
            await connection.publish("mystream.a", b"")
        await connection.flush()
        name = await manager.streams.find("mystream.A")
        assert name == stream

        # A stream may store them a moment later: nobody waits for an acknowledgement.
        async with asyncio.timeout(SECONDS):
            while (info := await manager.streams.info(name)).state.messages < 100:
                pass
        assert info.state.messages == 100
        await manager.streams.update(name, subjects=[*info.config.subjects, "a.*"])
        assert (await manager.streams.info(name)).config.subjects == ["mystream.*", "a.*"]

        message = await manager.streams.get_message(stream, seq=1)
        assert (message.seq, message.subject) == (1, "mystream.a")
        assert await manager.streams.delete_message(stream, 5)
        with pytest.raises(NoMessageFoundError):
            await manager.streams.get_message(stream, seq=5)

        assert await manager.streams.purge(stream) == 99
        for letter in "bcd":
            for _ in range(10):
                await js.publish(f"a.{letter}")
        assert await manager.streams.purge(stream, filter="a.b") == 10
        assert await manager.streams.purge(stream, filter="a.c", keep=5) == 5
        assert await manager.streams.purge(stream, seq=116) == 0  # those below are gone
        assert await manager.streams.purge(stream, filter="a.d", seq=126) == 5

        assert await manager.consumers.list(stream).next_page() == []
        await manager.consumers.add(stream, durable_name="me", ack_policy="explicit")
        assert [info.name async for info in manager.consumers.list(stream)] == ["me"]
        consumer = await manager.consumers.info(stream, "me")
        assert (consumer.stream_name, consumer.num_pending) == (stream, 10)
        assert await manager.consumers.delete(stream, "me")
        with pytest.raises(ConsumerNotFoundError):
            await manager.consumers.info(stream, "me")


async def test_jetstream_client(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await js.connection.jetstream_manager().streams.add(
            name="a", subjects=["a.*"], storage="memory"
        )

        ack = await js.publish("a.b")
        assert (ack.stream, ack.seq, ack.duplicate) == ("a", 1, False)

        await js.publish("a.b", msg_id="a")
        again = await js.publish("a.b", msg_id="a")
        assert (again.seq, again.duplicate) == (2, True)

        await js.publish("a.b", expect_last_msg_id="a")
        await js.publish("a.b", expect_last_sequence=3)
        ack = await js.publish("a.b", expect_stream="a")
        assert ack.seq == 5

        acks = await asyncio.gather(*(js.publish("a.a") for _ in range(100)))
        assert sorted(ack.seq for ack in acks) == list(range(6, 106))
        await js.publish("a.b", expect_last_subject_sequence=ack.seq)
        with pytest.raises(StreamWrongLastSequenceError, match="wrong last sequence: 106"):
            await js.publish("a.b", expect_last_subject_sequence=ack.seq)


async def test_retrieving_the_consumer(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 1)
        await js.manager.consumers.add("S", durable_name="a", ack_policy="explicit")
        consumer = await js.consumers.get("S", "a")
        assert (consumer.stream, consumer.name) == ("S", "a")
        with pytest.raises(ConsumerNotFoundError):
            await js.consumers.get("S", "b")


async def test_requesting_a_single_message(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 1)
        await js.manager.consumers.add("S", durable_name="b", ack_policy="explicit")
        consumer = await js.consumers.get("S", "b")
        message = await consumer.next()
        assert message is not None
        assert (message.metadata.stream_sequence, message.subject) == (1, "S.1")
        message.ack()
        assert await consumer.next(timeout=0.1) is None


async def test_fetching_batch_of_messages(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 7)
        await js.manager.consumers.add("S", durable_name="c", ack_policy="explicit")
        consumer = await js.consumers.get("S", "c")
        seen = []
        async for message in await consumer.fetch(max_messages=5):
            seen.append(message.metadata.stream_sequence)
            message.ack()
        assert seen == [1, 2, 3, 4, 5]
        while len(seen) < 7:
            async for message in await consumer.fetch(max_messages=5, expires=0.3):
                seen.append(message.metadata.stream_sequence)
                message.ack()
        assert seen == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("max_messages", [20, 1])
async def test_consuming_messages(js_server: ServerProcess, max_messages: int) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 50)
        await js.manager.consumers.add("S", durable_name="d", ack_policy="explicit")
        consumer = await js.consumers.get("S", "d")
        messages = await consumer.consume(max_messages=max_messages)
        seen = []
        async for message in messages:
            assert messages.wanted_messages + messages.pending_messages <= max_messages
            message.ack()
            seen.append(message.metadata.stream_sequence)
            if len(seen) == 50:
                break
        await messages.stop()
        assert seen == list(range(1, 51))


async def test_horizontally_scaling_consumers(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 30)
        await js.manager.consumers.add("S", durable_name="q", ack_policy="explicit")
        seen: list[int] = []

        async def work() -> None:
            consumer = await js.consumers.get("S", "q")
            while len(seen) < 30:
                message = await consumer.next(timeout=0.3)
                if message is not None:
                    seen.append(message.metadata.stream_sequence)
                    message.ack()

        await asyncio.gather(*(work() for _ in range(3)))
        assert sorted(seen) == list(range(1, 31))


async def test_callbacks(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 10)
        await js.manager.consumers.add("S", durable_name="e", ack_policy="explicit")
        consumer = await js.consumers.get("S", "e")
        seen: list[int] = []
        done = asyncio.Event()

        def handle(message: Msg) -> None:
            message.ack()
            seen.append(message.metadata.stream_sequence)
            if len(seen) == 10:
                done.set()

        messages = await consumer.consume(max_messages=1, callback=handle)
        await asyncio.wait_for(done.wait(), SECONDS)
        await messages.stop()
        assert seen == list(range(1, 11))


@pytest.mark.parametrize("is_concurrent", [False, True], ids=["sequential", "concurrent"])
async def test_iterators_callbacks_and_concurrency(
    js_server: ServerProcess, is_concurrent: bool
) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 10)
        await js.manager.consumers.add("S", durable_name="f", ack_policy="explicit")
        consumer = await js.consumers.get("S", "f")
        running = most = 0
        failed_once: set[int] = set()

        async def handle(message: Msg) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            for _ in range(3):
                await asyncio.sleep(0)
            running -= 1
            number = message.metadata.stream_sequence
            if number % 5 == 0 and number not in failed_once:
                failed_once.add(number)
                message.nak()
            else:
                message.ack()

        messages = await consumer.consume()
        # Of those that come one by one each would be done before the next.
        await eventually(lambda: messages.pending_messages == 10, "all messages")
        tasks = []
        count = 0
        async for message in messages:
            count += 1
            if is_concurrent:
                tasks.append(asyncio.create_task(handle(message)))
            else:
                await handle(message)
            if count == 12:
                break
        await asyncio.gather(*tasks)
        await messages.stop()
        assert failed_once == {5, 10}
        assert (most > 1) == is_concurrent


async def test_heartbeats(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 2)
        await js.manager.consumers.add("S", durable_name="a", ack_policy="explicit")
        consumer = await js.consumers.get("S", "a")
        messages = await consumer.consume(max_messages=10, expires=2, idle_heartbeat=0.4)
        seen: list[int] = []
        missed: list[int] = []

        async def watch() -> None:
            async for event in messages.status():
                if isinstance(event, HeartbeatsMissed):
                    missed.append(event.count)
                    if event.count == 3:
                        await messages.stop()

        watching = asyncio.create_task(watch())
        async for message in messages:
            message.ack()
            seen.append(message.metadata.stream_sequence)
            if len(seen) == 2:
                # From now on the requests go nowhere, as if their server had gone away.
                messages._pull_subject = js.connection.new_inbox()
                await js.connection.subscribe(messages._pull_subject)
        await asyncio.wait_for(watching, SECONDS)
        assert (seen, missed[-2:]) == ([1, 2], [2, 3])


async def test_jetstream_ordered_consumers(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await js.manager.streams.add(name="S", subjects=["S.*"], storage="memory")
        for number in range(1, 11):
            await js.publish("S.a" if number % 2 else "S.b", b"%d" % number)

        everything = js.consumers.ordered("S")
        async with await everything.consume() as messages:
            assert messages.info.num_pending == 10
            seen = [(await messages.next(SECONDS)).data for _ in range(10)]
        assert seen == [b"%d" % number for number in range(1, 11)]

        some = js.consumers.ordered("S", filter_subjects=["S.a"])
        assert [message.data async for message in some.fetch(3)] == [b"1", b"3", b"5"]
        message = await some.next()
        assert message is not None
        assert message.data == b"7"
        with pytest.raises(OptionsError, match="already read in another way"):
            await some.consume()
        await some.stop()
        async with await some.consume() as messages:
            assert (await messages.next(SECONDS)).data == b"9"
            with pytest.raises(OptionsError, match="already read in another way"):
                await some.next()
