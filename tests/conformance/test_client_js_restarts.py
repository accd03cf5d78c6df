"""Publishers and consumers of our client lose their server or their network, on both servers.

What has an id is stored exactly once, what a consumer delivers is seen at least once, and what an
ordered consumer delivers exactly once and in order.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from helpers_client import SECONDS, Events, Restartable, connected, eventually, fill, jetstream

from chaos_proxy import ChaosProxy
from harness import ServerProcess, StartServer
from tradewind.client.core.message import Msg
from tradewind.client.errors import DisconnectedError, PublishError
from tradewind.client.events import Disconnected, Reconnected
from tradewind.client.jetstream import JetStream
from tradewind.client.streams.consumer_events import (
    ConsumerEvent,
    HeartbeatsMissed,
    Recreated,
    Resumed,
)

FAST = {"reconnect_wait": 0.02, "reconnect_wait_max": 0.2}
# A restart of a busy machine may take a while; nothing here should fail for that.
PATIENCE = 60.0
ENDINGS = [signal.SIGTERM, signal.SIGKILL]


@pytest.fixture
def restartable(start: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Restartable:
    return Restartable(start, tmp_path_factory.mktemp("jetstream"))


async def stored(js: JetStream, stream: str) -> list[bytes]:
    """The payloads of all messages of a stream."""
    async with await js.consumers.ordered(stream).consume() as messages:
        return [(await messages.next(SECONDS)).data for _ in range(messages.info.num_pending)]


@pytest.mark.parametrize("ending", ENDINGS, ids=["stopped", "killed"])
async def test_messages_with_an_id_are_stored_exactly_once(
    restartable: Restartable, ending: signal.Signals
) -> None:
    count = 3000
    events = Events()
    async with connected(restartable.server.url, on_event=events, **FAST) as connection:
        js = connection.jetstream(timeout=PATIENCE)
        await js.manager.streams.add(name="S", subjects=["s"])
        restarts = None
        for number in range(count):
            if number == count // 3:
                await eventually(lambda: js.publish_async_pending < 1000, "some acknowledgements")
                restarts = asyncio.create_task(restartable.restart(ending))
            # An id is an id, however it came into the headers.
            if number % 2:
                await js.publish_async("s", b"%d" % number, msg_id=f"id-{number}")
            else:
                await js.publish_async("s", b"%d" % number, headers={"Nats-Msg-Id": f"id-{number}"})
            if number > count // 3:
                await asyncio.sleep(0.0005)  # the server dies while this goes on
        await asyncio.wait_for(js.publish_async_completed(), PATIENCE)
        assert restarts is not None
        await restarts
        await events.wait(Reconnected)
        assert (await js.publish("s", b"last", msg_id="last")).duplicate is False
        found = await stored(js, "S")
        assert sorted(found) == sorted([*(b"%d" % number for number in range(count)), b"last"])


async def test_a_message_without_an_id_is_not_sent_twice(restartable: Restartable) -> None:
    events = Events()
    async with connected(restartable.server.url, on_event=events, **FAST) as connection:
        js = connection.jetstream(timeout=PATIENCE)
        await js.manager.streams.add(name="S", subjects=["s"], no_ack=True)
        pending = [await js.publish_async("s", b"%d" % number) for number in range(3)]
        while (await js.manager.streams.info("S")).state.messages < 3:
            pass
        await restartable.restart(signal.SIGKILL)
        with pytest.raises(DisconnectedError, match="with msg_id it would have been sent again"):
            await pending[0]
        with pytest.raises(PublishError, match="3 messages were not stored"):
            await js.publish_async_completed()
        await events.wait(Reconnected)
        assert await stored(js, "S") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("ending", ENDINGS, ids=["stopped", "killed"])
@pytest.mark.parametrize("is_callback", [False, True], ids=["iterator", "callback"])
async def test_a_consumer_goes_on_after_a_restart(
    restartable: Restartable, ending: signal.Signals, is_callback: bool
) -> None:
    count = 400
    told: list[ConsumerEvent] = []
    seen: set[bytes] = set()
    async with connected(restartable.server.url, on_event=Events(), **FAST) as connection:
        js = connection.jetstream(timeout=PATIENCE)
        await js.manager.streams.add(name="S", subjects=["s"])
        for number in range(count):
            await js.publish_async("s", b"%d" % number)
        await js.publish_async_completed()
        await js.manager.consumers.add("S", durable_name="c", ack_policy="explicit", ack_wait=1)
        consumer = await js.consumers.get("S", "c")

        def handle(message: Msg) -> None:
            message.ack()
            seen.add(message.data)

        options: dict[str, Any] = {"max_messages": 20, "on_status": told.append}
        if is_callback:
            options["callback"] = handle
        messages = await consumer.consume(**options)

        async def read() -> None:
            async for message in messages:
                handle(message)
                await asyncio.sleep(0)

        reading = None if is_callback else asyncio.create_task(read())
        await eventually(lambda: len(seen) > 20, "the first messages")
        await restartable.restart(ending)
        for number in range(count, count + 10):
            await js.publish("s", b"%d" % number)
        await eventually(lambda: len(seen) == count + 10, "all messages", PATIENCE)
        await messages.stop()
        if reading is not None:
            await reading
        assert seen == {b"%d" % number for number in range(count + 10)}
        assert any(isinstance(event, Resumed) for event in told)


async def test_next_and_fetch_wait_over_a_restart(restartable: Restartable) -> None:
    async with connected(restartable.server.url, on_event=Events(), **FAST) as connection:
        js = connection.jetstream(timeout=PATIENCE)
        await js.manager.streams.add(name="S", subjects=["s"])
        await js.manager.consumers.add("S", durable_name="c", ack_policy="explicit")
        consumer = await js.consumers.get("S", "c")
        waiting = asyncio.create_task(consumer.next(PATIENCE))
        batch = await consumer.fetch(2, expires=PATIENCE)
        await connection.flush()
        await restartable.restart(signal.SIGKILL)
        for number in range(3):
            await js.publish("s", b"%d" % number)
        first = await asyncio.wait_for(waiting, PATIENCE)
        assert first is not None
        both = {message.data async for message in batch}
        assert both | {first.data} == {b"0", b"1", b"2"}


@pytest.mark.parametrize("ending", ENDINGS, ids=["stopped", "killed"])
async def test_an_ordered_consumer_has_no_gap_after_a_restart(
    restartable: Restartable, ending: signal.Signals
) -> None:
    told: list[ConsumerEvent] = []
    async with connected(restartable.server.url, on_event=Events(), **FAST) as connection:
        js = connection.jetstream(timeout=PATIENCE)
        await js.manager.streams.add(name="S", subjects=["s"])
        for number in range(300):
            await js.publish_async("s", b"%d" % number)
        await js.publish_async_completed()
        ordered = js.consumers.ordered("S")
        async with await ordered.consume(30, on_status=told.append) as messages:
            seen = [(await messages.next(SECONDS)).data for _ in range(50)]
            await restartable.restart(ending)
            await js.publish("s", b"300", msg_id="300")
            seen += [(await messages.next(PATIENCE)).data for _ in range(251)]
        assert seen == [b"%d" % number for number in range(301)]
        assert any(isinstance(event, Recreated) for event in told)


async def test_a_durable_push_consumer_goes_on_after_a_restart(restartable: Restartable) -> None:
    async with connected(restartable.server.url, on_event=Events(), **FAST) as connection:
        js = connection.jetstream(timeout=PATIENCE)
        await js.manager.streams.add(name="S", subjects=["s"])
        seen: set[bytes] = set()

        def handle(message: Msg) -> None:
            message.ack()
            seen.add(message.data)

        messages = await js.subscribe_push(
            "S",
            durable_name="p",
            deliver_subject="deliver.p",
            ack_wait=1,
            callback=handle,
        )
        await js.publish("s", b"1")
        await eventually(lambda: seen == {b"1"}, "the first message")
        await restartable.restart(signal.SIGKILL)
        await js.publish("s", b"2")
        await eventually(lambda: seen == {b"1", b"2"}, "the second message")
        await messages.stop()


@asynccontextmanager
async def proxied(
    server: ServerProcess, piece_bytes: int = 0, **options: Any
) -> AsyncIterator[tuple[ChaosProxy, JetStream]]:
    """JetStream through a network that misbehaves; its streams are removed on another way."""
    async with ChaosProxy(server.port, piece_bytes) as proxy:
        try:
            async with connected(proxy.url, **FAST, **options) as connection:
                yield proxy, connection.jetstream(timeout=PATIENCE)
        finally:
            async with jetstream(server):
                pass


@pytest.mark.parametrize("piece_bytes", [1, 7])
async def test_bytes_in_pieces_change_nothing(js_server: ServerProcess, piece_bytes: int) -> None:
    async with proxied(js_server, piece_bytes) as (_, js):
        await fill(js, "S", 50)
        await js.manager.consumers.add("S", durable_name="c", ack_policy="explicit")
        consumer = await js.consumers.get("S", "c")
        async with await consumer.consume(10) as messages:
            for number in range(1, 51):
                message = await messages.next(PATIENCE)
                assert message.metadata.stream_sequence == number
                message.ack()
        assert len(await stored(js, "S")) == 50


async def test_a_network_that_is_cut_again_and_again_loses_nothing(
    js_server: ServerProcess,
) -> None:
    events = Events()
    async with proxied(js_server, on_event=events) as (proxy, js):
        await js.manager.streams.add(name="S", subjects=["s"], storage="memory")
        await js.manager.consumers.add("S", durable_name="c", ack_policy="explicit", ack_wait=1)
        consumer = await js.consumers.get("S", "c")
        seen: set[bytes] = set()

        def handle(message: Msg) -> None:
            message.ack()
            seen.add(message.data)

        messages = await consumer.consume(50, callback=handle)
        ordered = await js.consumers.ordered("S").consume(50)
        for cut in range(1, 4):
            for number in range(200):
                await js.publish_async("s", b"%d.%d" % (cut, number), msg_id=f"{cut}.{number}")
            proxy.cut()
            await events.wait(Reconnected, cut)
        await asyncio.wait_for(js.publish_async_completed(), PATIENCE)
        expected = {b"%d.%d" % (cut, number) for cut in range(1, 4) for number in range(200)}
        in_order = [
            (await ordered.next(PATIENCE)).metadata.stream_sequence for _ in range(len(expected))
        ]
        assert in_order == list(range(1, len(expected) + 1))
        await eventually(lambda: seen == expected, "all messages", PATIENCE)
        await messages.stop()
        await ordered.stop()


async def test_a_question_that_was_lost_is_asked_again(js_server: ServerProcess) -> None:
    async with proxied(js_server, on_event=Events()) as (proxy, js):
        await fill(js, "S", 3)
        proxy.stall()
        asking = asyncio.create_task(js.manager.streams.info("S"))
        await eventually(lambda: len(js.connection.replies) == 1, "the question")
        await asyncio.sleep(0)
        proxy.cut()
        proxy.resume()
        assert (await asyncio.wait_for(asking, PATIENCE / 2)).state.messages == 3
        assert js.connection._link_watchers == {js._window._on_link}


async def test_a_stalled_network_is_noticed_by_missed_heartbeats(
    js_server: ServerProcess,
) -> None:
    async with proxied(js_server, on_event=Events()) as (proxy, js):
        await fill(js, "S", 1)
        await js.manager.consumers.add("S", durable_name="c", ack_policy="explicit")
        consumer = await js.consumers.get("S", "c")
        told: list[ConsumerEvent] = []
        async with await consumer.consume(
            5, expires=2, idle_heartbeat=0.3, on_status=told.append
        ) as messages:
            (await messages.next(SECONDS)).ack()
            proxy.stall()
            await eventually(
                lambda: any(isinstance(event, HeartbeatsMissed) for event in told), "silence"
            )
            proxy.resume()
            await fill(js, "S", 1, first=2)
            assert (await messages.next(PATIENCE)).data == b"2"


async def test_a_half_open_connection_is_given_up_and_replaced(js_server: ServerProcess) -> None:
    events = Events()
    options = {"ping_interval": 1}
    async with proxied(js_server, on_event=events, **options) as (proxy, js):
        await fill(js, "S", 1)
        # What the server sent into the dead connection comes again after the ack wait.
        await js.manager.consumers.add("S", durable_name="c", ack_policy="explicit", ack_wait=1)
        consumer = await js.consumers.get("S", "c")
        async with await consumer.consume(5) as messages:
            # Waited for: an acknowledgement that is lost with the connection brings it again.
            await (await messages.next(SECONDS)).ack_sync(timeout=SECONDS)
            proxy.stall()
            pending = await js.publish_async("S.2", b"2", msg_id="2")
            await events.wait(Disconnected)
            proxy.resume()
            assert (await pending).stream == "S"
            assert (await messages.next(PATIENCE)).data == b"2"
