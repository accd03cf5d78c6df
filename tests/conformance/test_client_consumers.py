"""Our client reads from consumers: next, fetch, consume, and what can go wrong, on both servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from helpers_client import SECONDS, Events, connected, eventually, fill, jetstream

from harness import ServerProcess
from tradewind.client.api_errors import ConsumerNotFoundError, StreamNotFoundError
from tradewind.client.core.message import Msg
from tradewind.client.core.subscription import Subscription
from tradewind.client.errors import ConsumerGoneError, OptionsError, SubscriptionClosedError
from tradewind.client.events import ErrorEvent
from tradewind.client.jetstream import JetStream
from tradewind.client.streams.consumer_events import ConsumerDeleted, ConsumerEvent, NoResponders
from tradewind.client.streams.consumers import Consumer


async def make(js: JetStream, count: int, **settings: Any) -> Consumer:
    """A stream S with so many messages, and its consumer c."""
    await fill(js, "S", count)
    await js.manager.consumers.add(
        "S", **{"durable_name": "c", "ack_policy": "explicit", **settings}
    )
    return await js.consumers.get("S", "c")


async def numbers(messages: Subscription, count: int) -> list[int]:
    """The sequences of the next messages, which are acknowledged."""
    seen = []
    for _ in range(count):
        message = await messages.next(SECONDS)
        message.ack()
        seen.append(message.metadata.stream_sequence)
    return seen


async def all_settled(js: JetStream) -> None:
    """Wait until the server has taken note of all acknowledgements."""
    async with asyncio.timeout(SECONDS):
        while (await js.manager.consumers.info("S", "c")).num_ack_pending:
            pass


async def test_a_fetch_ends_by_count_bytes_or_time(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 10)
        assert await numbers(await consumer.fetch(4), 4) == [1, 2, 3, 4]
        # A message counts with its subject and reply subject, so five of them do not fit.
        some = [m async for m in await consumer.fetch(max_bytes=200, expires=SECONDS)]
        assert 1 <= len(some) < 5
        now = [m async for m in await consumer.fetch(100, no_wait=True)]
        assert len(some) + len(now) == 6
        assert [m async for m in await consumer.fetch(5, expires=0.1)] == []
        assert [m async for m in await consumer.fetch(5, no_wait=True)] == []


async def test_a_message_larger_than_max_bytes_is_an_error_not_silence(
    js_server: ServerProcess,
) -> None:
    async with jetstream(js_server) as js:
        await js.manager.streams.add(name="S", subjects=["s"], storage="memory")
        await js.publish("s", bytes(1000))
        await js.manager.consumers.add("S", durable_name="c", ack_policy="explicit")
        consumer = await js.consumers.get("S", "c")
        with pytest.raises(ConsumerGoneError, match=r"larger than max_bytes \(100\)"):
            async for _ in await consumer.fetch(max_bytes=100, expires=SECONDS):
                pass
        with pytest.raises(ConsumerGoneError, match=r"larger than max_bytes \(100\)"):
            async for _ in await consumer.consume(max_bytes=100):
                pass


async def test_consuming_in_bytes_goes_on_and_on(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 200)
        async with await consumer.consume(max_bytes=2000) as messages:
            assert await numbers(messages, 200) == list(range(1, 201))


async def test_what_was_not_read_is_given_back(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 10)
        messages = await consumer.consume(max_messages=10)
        assert await numbers(messages, 1) == [1]
        await eventually(lambda: messages.pending_messages == 9, "the other messages")
        await messages.stop()
        with pytest.raises(SubscriptionClosedError):
            await messages.next()
        assert sorted(await numbers(await consumer.fetch(9), 9)) == list(range(2, 11))
        await all_settled(js)


async def test_draining_reads_what_has_arrived(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 10)
        messages = await consumer.consume(max_messages=10)
        await eventually(lambda: messages.pending_messages == 10, "all messages")
        await messages.drain()
        await fill(js, "S", 5, first=11)
        seen = []
        async for message in messages:
            message.ack()
            seen.append(message.metadata.stream_sequence)
        assert seen == list(range(1, 11))
        await messages.wait_ended()


async def test_draining_the_connection_finishes_callbacks(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await make(js, 10)
        seen: list[int] = []

        async def handle(message: Msg) -> None:
            await asyncio.sleep(0)
            seen.append(message.metadata.stream_sequence)
            message.ack()

        async with connected(js_server.url) as other:
            consumer = await other.jetstream().consumers.get("S", "c")
            messages = await consumer.consume(max_messages=10, callback=handle)
            await eventually(lambda: messages.received_messages == 10, "all messages")
            await other.drain()
        assert seen == list(range(1, 11))
        await all_settled(js)


async def test_a_callback_that_fails_is_an_event_and_the_next_message_comes(
    js_server: ServerProcess,
) -> None:
    events = Events()
    async with jetstream(js_server, on_event=events) as js:
        consumer = await make(js, 3)
        done = asyncio.Event()

        def handle(message: Msg) -> None:
            if message.metadata.stream_sequence == 2:
                raise RuntimeError("two is too many")
            if message.metadata.stream_sequence == 3:
                done.set()

        async with await consumer.consume(callback=handle):
            await asyncio.wait_for(done.wait(), SECONDS)
        assert str((await events.wait(ErrorEvent)).error) == "two is too many"


@pytest.mark.parametrize("what", ["consumer", "stream"])
async def test_a_deleted_consumer_ends_the_iteration_with_an_error(
    js_server: ServerProcess, what: str
) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 3)
        told: list[ConsumerEvent] = []
        messages = await consumer.consume(on_status=told.append)
        assert await numbers(messages, 3) == [1, 2, 3]
        if what == "consumer":
            assert await consumer.delete()
        else:
            await js.manager.streams.delete("S")
        with pytest.raises((ConsumerGoneError, ConsumerNotFoundError, StreamNotFoundError)):
            await messages.next(SECONDS)
        with pytest.raises((ConsumerGoneError, ConsumerNotFoundError, StreamNotFoundError)):
            await messages.wait_ended()
        assert any(isinstance(event, ConsumerDeleted) for event in told)


async def test_asking_a_consumer_that_is_gone_says_so(js_server: ServerProcess) -> None:
    events = Events()
    async with jetstream(js_server, on_event=events) as js:
        consumer = await make(js, 1)
        await consumer.delete()
        with pytest.raises(ConsumerNotFoundError):
            await consumer.next(SECONDS)
        messages = await consumer.consume()
        statuses = messages.status()
        with pytest.raises(ConsumerNotFoundError):
            await messages.next(SECONDS)
        assert [type(event) async for event in statuses] == [NoResponders, ConsumerDeleted]
        await consumer.consume(callback=lambda _message: None)
        assert isinstance((await events.wait(ErrorEvent)).error, ConsumerNotFoundError)


async def test_requests_beyond_the_limits_of_the_consumer_are_refused(
    js_server: ServerProcess,
) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 5, max_batch=2)
        with pytest.raises(ConsumerGoneError, match="Exceeded MaxRequestBatch of 2"):
            async for _ in await consumer.fetch(3):
                pass
        assert await numbers(await consumer.fetch(2), 2) == [1, 2]
        for arguments, text in (
            ({"max_messages": 0}, "max_messages must be a number above 0, not 0"),
            ({"threshold": 2}, "threshold must be a share from 0 to 1, not 2"),
            ({"threshold": "half"}, "threshold must be a share from 0 to 1, not 'half'"),
            ({"expires": 0}, "expires must be a number above 0, not 0"),
            ({"expires": "5s"}, "expires must be a number above 0, not '5s'"),
            ({"expires": 1, "idle_heartbeat": 0.6}, "at most half of expires"),
        ):
            with pytest.raises(OptionsError, match=text):
                await consumer.consume(**arguments)  # type: ignore[arg-type]


async def test_a_push_consumer_cannot_be_pulled(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 1)
        await js.manager.consumers.add("S", durable_name="p", deliver_subject="deliver")
        with pytest.raises(OptionsError, match="pushes its messages to 'deliver'"):
            await js.consumers.get("S", "p")


async def test_requests_are_repeated_when_they_expire(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 0)
        async with await consumer.consume(max_messages=5, expires=0.2) as messages:
            waiting = asyncio.create_task(numbers(messages, 3))
            # Heartbeats and expired requests of at least two rounds.
            await eventually(lambda: messages._inbox.arrivals > 5, "some rounds")
            await fill(js, "S", 3)
            assert await waiting == [1, 2, 3]
            assert messages.wanted_messages <= 5


async def test_naks_terms_and_more_time(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 3, ack_wait=60)
        async with await consumer.consume() as messages:
            first, second, third = [await messages.next(SECONDS) for _ in range(3)]
            first.nak()
            again = await messages.next(SECONDS)
            assert (again.data, again.metadata.delivered_count) == (b"1", 2)
            again.nak(delay=0.1)
            again = await messages.next(SECONDS)
            assert again.metadata.delivered_count == 3
            second.working()
            second.term("not wanted")
            await again.ack_sync(timeout=SECONDS)
            await third.ack_sync(timeout=SECONDS)
        await all_settled(js)


async def test_a_cancelled_next_leaves_no_subscription_and_loses_no_message(
    js_server: ServerProcess,
) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 0)
        before = len(js.connection._wire.registered())
        waiting = [asyncio.create_task(consumer.next()) for _ in range(3)]
        await eventually(
            lambda: len(js.connection._wire.registered()) == before + 3, "the requests"
        )
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert len(js.connection._wire.registered()) == before
        assert not js.connection._link_watchers - {js._window._on_link}
        await js.connection.flush()
        await fill(js, "S", 1)
        message = await consumer.next(SECONDS)
        assert message is not None
        assert message.data == b"1"


async def test_a_cancelled_reader_can_go_on(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 0)
        async with await consumer.consume() as messages:
            reader = asyncio.create_task(messages.next())
            await asyncio.sleep(0)
            reader.cancel()
            await asyncio.wait([reader])
            await fill(js, "S", 2)
            assert await numbers(messages, 2) == [1, 2]


async def test_priority_groups_pass_their_conditions_on(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 3, priority_groups=["g"], priority_policy="overflow")
        with pytest.raises(ConsumerGoneError, match="Priority Group missing"):
            await consumer.next(SECONDS)
        assert await consumer.next(0.2, group="g", min_pending=10) is None
        message = await consumer.next(SECONDS, group="g", min_pending=3)
        assert message is not None
        assert message.data == b"1"


async def test_closing_the_connection_ends_everything(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await make(js, 0)
        async with connected(js_server.url) as other:
            consumer = await other.jetstream().consumers.get("S", "c")
            messages = await consumer.consume()
            statuses = messages.status()
            reading = asyncio.create_task(anext(messages, None))
            await asyncio.sleep(0)
            await other.close()
            assert await reading is None
            assert [event async for event in statuses] == []
            await messages.wait_ended()
            await messages.stop()


async def test_a_pinned_reader_gets_everything_until_it_is_unpinned(
    js_server: ServerProcess,
) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(
            js,
            40,
            priority_groups=["g"],
            priority_policy="pinned_client",
            priority_timeout=120,
        )
        first = await consumer.consume(5, group="g")
        # Many requests: each names the pin, or the rest would wait behind it.
        assert await numbers(first, 20) == list(range(1, 21))
        second = await consumer.consume(5, group="g")
        assert await numbers(first, 10) == list(range(21, 31))
        assert second.received_messages == 0
        # A message that is delivered just when its reader stops comes again after the ack wait.
        await eventually(lambda: first.wanted_messages == 0, "all that was asked for")
        await first.stop()
        await js.manager.consumers.unpin("S", "c", "g")
        assert sorted(await numbers(second, 10)) == list(range(31, 41))
        await second.stop()


async def test_a_consumer_that_is_reset_delivers_again(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 5)
        assert await numbers(await consumer.fetch(5), 5) == [1, 2, 3, 4, 5]
        await all_settled(js)
        await js.manager.consumers.reset("S", "c", seq=4)
        assert await numbers(await consumer.fetch(2), 2) == [4, 5]
