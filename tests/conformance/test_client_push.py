"""Our client reads from consumers that push, as older programs do, on both servers."""

from __future__ import annotations

import asyncio

import pytest
from helpers_client import SECONDS, eventually, fill, jetstream, no_consumers

from harness import ServerProcess
from tradewind.client.api_errors import ConsumerNotFoundError
from tradewind.client.core.message import Msg
from tradewind.client.errors import OptionsError
from tradewind.client.streams.consumer_events import ConsumerEvent, HeartbeatsMissed


async def test_a_temporary_consumer_is_removed_at_the_end(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 5)
        async with await js.subscribe_push("S", filter_subjects=["S.2", "S.4"]) as messages:
            seen = []
            for _ in range(2):
                message = await messages.next(SECONDS)
                message.ack()
                seen.append(message.data)
            assert seen == [b"2", b"4"]
            assert messages.info.config.flow_control
            assert await js.manager.consumers.names("S").all() == [messages.info.name]
        await no_consumers(js, "S")


async def test_members_of_a_deliver_group_share_the_messages(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 0)
        await js.manager.consumers.add(
            "S",
            durable_name="d",
            deliver_subject="deliver.d",
            deliver_group="workers",
            ack_policy="explicit",
        )
        counts = [0, 0]

        def work(member: int, message: Msg) -> None:
            counts[member] += 1
            message.ack()

        members = [
            await js.subscribe_push("S", "d", callback=lambda m, n=n: work(n, m)) for n in (0, 1)
        ]
        await fill(js, "S", 100)
        await eventually(lambda: sum(counts) == 100, "all messages")
        assert min(counts) > 0
        for member in members:
            await member.stop()
        assert await js.manager.consumers.names("S").all() == ["d"]


async def test_flow_control_holds_the_server_back_until_the_reader_has_caught_up(
    js_server: ServerProcess,
) -> None:
    async with jetstream(js_server) as js:
        await js.manager.streams.add(name="S", subjects=["s"], storage="memory")
        count, size = 600, 100_000
        for _ in range(count):
            await js.publish_async("s", bytes(size))
        await js.publish_async_completed()
        messages = await js.subscribe_push("S", ack_policy="none")
        await eventually(lambda: messages._flow_reply, "a request for flow control")
        await js.connection.flush()
        # The window begins with 2 MiB; the server sent no more than that without an answer.
        assert messages.pending_bytes < 8 << 20
        seen = most = 0
        async for message in messages:
            seen += len(message.data) == size
            most = max(most, messages.pending_bytes)
            if seen == count:
                break
        assert most < count * size
        await messages.stop()


async def test_a_consumer_that_is_gone_is_noticed_by_its_silence(
    js_server: ServerProcess,
) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 1)
        told: list[ConsumerEvent] = []
        messages = await js.subscribe_push("S", idle_heartbeat=0.2, on_status=told.append)
        (await messages.next(SECONDS)).ack()
        await js.manager.consumers.delete("S", messages.info.name)
        with pytest.raises(ConsumerNotFoundError):
            await messages.next(SECONDS)
        assert any(isinstance(event, HeartbeatsMissed) for event in told)


async def test_wrong_uses_are_named(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 1)
        await js.manager.consumers.add("S", durable_name="c", ack_policy="explicit")
        with pytest.raises(OptionsError, match=r"is pulled: read it with consumers\.get"):
            await js.subscribe_push("S", "c")
        with pytest.raises(OptionsError, match="its settings cannot be passed"):
            await js.subscribe_push("S", "c", ack_policy="none")
        with pytest.raises(ConsumerNotFoundError):
            await js.subscribe_push("S", "d")


async def test_a_durable_one_goes_on_where_it_stopped(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 4)
        messages = await js.subscribe_push("S", durable_name="d", deliver_subject="deliver.x")
        for _ in range(2):
            await (await messages.next(SECONDS)).ack_sync(timeout=SECONDS)
        # What is delivered just when the reader stops comes again after the ack wait.
        await eventually(lambda: messages.received_messages == 4, "all messages")
        await messages.stop()
        again = await js.subscribe_push("S", "d")
        async with asyncio.timeout(SECONDS):
            seen = set()
            async for message in again:
                message.ack()
                seen.add(message.data)
                if seen == {b"3", b"4"}:
                    break
        await again.stop()
