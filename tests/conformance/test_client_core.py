"""Publish, subscribe, request and drain with our client."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from helpers_client import SECONDS, Events, collect, connected, eventually

import tradewind
from harness import ServerProcess
from tradewind.client.core.headers import Headers
from tradewind.client.core.message import Msg
from tradewind.client.errors import (
    BadSubjectError,
    ConnectionClosedError,
    DrainingError,
    DrainTimeoutError,
    MaxPayloadError,
    NoRespondersError,
    NoServersError,
    OperationTimeoutError,
    OptionsError,
    SubscriptionClosedError,
)
from tradewind.client.events import Closed, Connected, ErrorEvent, SlowConsumer


async def test_message_arrives_with_headers_and_reply(server: ServerProcess, subject: str) -> None:
    async with connected(server.url) as connection:
        subscription = await connection.subscribe(f"{subject}.*")
        await connection.publish(
            f"{subject}.a", b"payload", reply="answer.here", headers={"One": "1", "Two": ["a", "b"]}
        )
        message = await subscription.next(SECONDS)
    assert (message.subject, message.data, message.reply) == (
        f"{subject}.a",
        b"payload",
        "answer.here",
    )
    assert message.headers == Headers([("One", "1"), ("Two", "a"), ("Two", "b")])


@pytest.mark.parametrize("payload", [b"", b"bytes", bytearray(b"array"), memoryview(b"view"), "ä"])
async def test_payload_may_be_anything_with_bytes(
    server: ServerProcess, subject: str, payload: bytes
) -> None:
    async with connected(server.url) as connection:
        subscription = await connection.subscribe(subject)
        await connection.publish(subject, payload)
        message = await subscription.next(SECONDS)
    expected = payload.encode() if isinstance(payload, str) else bytes(payload)
    assert (message.data, message.reply, dict(message.headers)) == (expected, "", {})


async def test_iteration_keeps_order_and_ends_after_unsubscribe(
    server: ServerProcess, subject: str
) -> None:
    async with connected(server.url) as connection:
        subscription = await connection.subscribe(subject)
        for number in range(1000):
            await connection.publish(subject, b"%d" % number)
        seen = []
        async for message in subscription:
            seen.append(int(message.data))
            if len(seen) == 1000:
                await subscription.unsubscribe()
        assert seen == list(range(1000))
        with pytest.raises(SubscriptionClosedError):
            await subscription.next(SECONDS)


async def test_subscription_ends_by_itself_after_max_msgs(
    server: ServerProcess, subject: str
) -> None:
    async with connected(server.url) as connection:
        subscription = await connection.subscribe(subject, max_msgs=3)
        for number in range(5):
            await connection.publish(subject, b"%d" % number)
        await connection.flush()
        assert [message.data async for message in subscription] == [b"0", b"1", b"2"]
        assert subscription.is_ended


async def test_queue_group_shares_the_messages(server: ServerProcess, subject: str) -> None:
    async with connected(server.url) as connection:
        counts = [0, 0]

        def counter(index: int) -> None:
            counts[index] += 1

        for index in range(2):
            await connection.subscribe(
                subject, queue="workers", callback=lambda _m, index=index: counter(index)
            )
        for _ in range(200):
            await connection.publish(subject)
        await eventually(lambda: sum(counts) == 200, "all messages")
        assert all(counts)


async def test_failed_callback_is_told_and_the_next_message_is_handled(
    server: ServerProcess, subject: str
) -> None:
    events = Events()
    seen: list[bytes] = []

    async def callback(message: Msg) -> None:
        seen.append(message.data)
        if message.data == b"bad":
            raise ValueError("cannot handle it")

    async with connected(server.url, on_event=events) as connection:
        subscription = await connection.subscribe(subject, callback=callback)
        await connection.publish(subject, b"bad")
        await connection.publish(subject, b"good")
        event = await events.wait(ErrorEvent)
        assert (str(event.error), event.subscription) == ("cannot handle it", subscription)
        await eventually(lambda: seen == [b"bad", b"good"], "the second message")


async def test_request_gets_the_answer_of_a_responder(server: ServerProcess, subject: str) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(message.data.upper(), headers={"Kind": "reply"})

    async with connected(server.url) as connection:
        await connection.subscribe(subject, callback=answer)
        replies = await asyncio.gather(
            *(connection.request(subject, f"hello {number}") for number in range(50))
        )
    assert [reply.data for reply in replies] == [b"HELLO %d" % number for number in range(50)]
    assert replies[0].headers["Kind"] == "reply"


async def test_request_without_responders_fails_at_once(
    server: ServerProcess, subject: str
) -> None:
    async with connected(server.url) as connection:
        with pytest.raises(NoRespondersError, match=f"nobody is listening on '{subject}'"):
            await connection.request(subject, b"", timeout=60)


async def test_request_times_out_when_nobody_answers(server: ServerProcess, subject: str) -> None:
    async with connected(server.url) as connection:
        await connection.subscribe(subject)
        with pytest.raises(OperationTimeoutError, match=r"no answer within 0\.05 s"):
            await connection.request(subject, timeout=0.05)
        with pytest.raises(TimeoutError):
            await connection.request(subject, timeout=0.01)


@pytest.mark.parametrize("end", ["count", "stall", "sentinel", "timeout"])
async def test_request_many_ends_as_told(server: ServerProcess, subject: str, end: str) -> None:
    async def answer(message: Msg) -> None:
        for number in range(5):
            await message.respond(b"%d" % number)
        await message.respond(b"")

    options = {
        "count": {"max_messages": 2, "timeout": SECONDS},
        "stall": {"stall": 2, "timeout": SECONDS},
        "sentinel": {"sentinel": lambda message: not message.data, "timeout": SECONDS},
        "timeout": {"timeout": 2},
    }[end]
    expected = {"count": 2, "stall": 6, "sentinel": 5, "timeout": 6}[end]
    async with connected(server.url) as connection:
        await connection.subscribe(subject, callback=answer)
        replies = [reply.data async for reply in connection.request_many(subject, **options)]
    assert replies == [b"0", b"1", b"2", b"3", b"4", b""][:expected]


async def test_request_many_without_responders(server: ServerProcess, subject: str) -> None:
    async with connected(server.url) as connection:
        with pytest.raises(NoRespondersError):
            async for _ in connection.request_many(subject):
                pass


async def test_next_times_out_and_later_gets_the_message(
    server: ServerProcess, subject: str
) -> None:
    async with connected(server.url) as connection:
        subscription = await connection.subscribe(subject)
        with pytest.raises(OperationTimeoutError):
            await subscription.next(0.01)
        await connection.publish(subject, b"late")
        assert (await subscription.next(SECONDS)).data == b"late"


async def test_two_readers_share_a_subscription(server: ServerProcess, subject: str) -> None:
    async with connected(server.url) as connection:
        subscription = await connection.subscribe(subject)
        readers = [asyncio.create_task(subscription.next(SECONDS)) for _ in range(2)]
        await asyncio.sleep(0)
        for number in range(2):
            await connection.publish(subject, b"%d" % number)
        assert {message.data for message in await asyncio.gather(*readers)} == {b"0", b"1"}


# ---------------------------------------------------------------------- cancellation


async def test_cancelled_wait_loses_no_message(server: ServerProcess, subject: str) -> None:
    async with connected(server.url) as connection:
        subscription = await connection.subscribe(subject)
        for _ in range(20):
            reader = asyncio.create_task(subscription.next())
            await asyncio.sleep(0)
            await connection.publish(subject, b"message")
            await connection.flush()
            reader.cancel()
            try:
                message = await reader
            except asyncio.CancelledError:
                message = await subscription.next(SECONDS)
            assert message.data == b"message"
        assert subscription.pending_messages == 0


async def test_cancelled_request_leaves_no_inbox_behind(
    server: ServerProcess, subject: str
) -> None:
    async with connected(server.url) as connection:
        await connection.subscribe(subject)
        request = asyncio.create_task(connection.request(subject, timeout=60))
        await eventually(lambda: len(connection.replies) == 1, "the request")
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert len(connection.replies) == 0


async def test_broken_off_request_many_leaves_nothing_behind(
    server: ServerProcess, subject: str
) -> None:
    async def answer(message: Msg) -> None:
        for _ in range(10):
            await message.respond(b"more")

    async with connected(server.url) as connection:
        await connection.subscribe(subject, callback=answer)
        async for _ in connection.request_many(subject):
            break
        gc.collect()
        await eventually(lambda: len(connection.replies) == 0, "the end of the iterator")


async def test_cancelled_connect_leaves_no_socket(server: ServerProcess) -> None:
    before = asyncio.all_tasks()
    attempt = asyncio.create_task(tradewind.connect(server.url))
    await asyncio.sleep(0)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    gc.collect()
    assert asyncio.all_tasks() == before


# ---------------------------------------------------------------------- limits


async def test_slow_reader_is_told_and_the_newest_messages_are_dropped(
    server: ServerProcess, subject: str
) -> None:
    events = Events()
    async with connected(server.url, on_event=events) as connection:
        subscription = await connection.subscribe(subject, pending_messages_max=10)
        for number in range(25):
            await connection.publish(subject, b"%d" % number)
        await connection.flush()
        assert (subscription.pending_messages, subscription.dropped_count) == (10, 15)
        assert [event.subscription for event in events.of(SlowConsumer)] == [subscription]
        assert await collect(subscription, 10) == [b"%d" % number for number in range(10)]
        for number in range(11):
            await connection.publish(subject, b"%d" % number)
        await connection.flush()
        assert subscription.dropped_count == 16
        assert len(events.of(SlowConsumer)) == 2


async def test_pending_bytes_are_limited_too(server: ServerProcess, subject: str) -> None:
    async with connected(server.url, on_event=Events()) as connection:
        subscription = await connection.subscribe(subject, pending_bytes_max=1000)
        for _ in range(25):
            await connection.publish(subject, bytes(100))
        await connection.flush()
        assert (subscription.pending_messages, subscription.pending_bytes) == (10, 1000)
        await collect(subscription, 10)
        assert subscription.pending_bytes == 0


async def test_too_large_a_message_is_refused_before_it_is_sent(
    server: ServerProcess, subject: str
) -> None:
    async with connected(server.url) as connection:
        subscription = await connection.subscribe(subject)
        with pytest.raises(MaxPayloadError, match=r"1048577 bytes .* at most 1048576"):
            connection.publish(subject, bytes(connection.max_payload + 1))
        await connection.publish(subject, bytes(connection.max_payload))
        assert len((await subscription.next(SECONDS)).data) == 1048576


@pytest.mark.parametrize("bad", ["", "a b", "a..b", ".a", "a.", "a\r\nPING", "a\tb"])
async def test_bad_subjects_are_refused(server: ServerProcess, bad: str) -> None:
    async with connected(server.url) as connection:
        with pytest.raises(BadSubjectError):
            connection.publish(bad, b"")
        with pytest.raises(BadSubjectError):
            connection.publish("good", b"", reply=bad)
        with pytest.raises(BadSubjectError):
            await connection.subscribe(bad)
        if bad:
            with pytest.raises(BadSubjectError):
                await connection.subscribe("good", queue=bad)
        await connection.flush()


async def test_publishing_faster_than_the_server_reads_is_slowed_down(
    server: ServerProcess, subject: str
) -> None:
    async with connected(server.url) as connection:
        high = 0
        for _ in range(200):
            await connection.publish(subject, bytes(262144))
            high = max(high, connection.pending_bytes)
        await connection.flush(30)
        assert high < 2 << 20
        assert connection.stats.out_messages == 200


# ---------------------------------------------------------------------- the end


async def test_drained_subscription_hands_out_what_arrived_and_ends(
    server: ServerProcess, subject: str
) -> None:
    async with connected(server.url) as connection:
        subscription = await connection.subscribe(subject)
        for number in range(10):
            await connection.publish(subject, b"%d" % number)
        await subscription.drain()
        await connection.publish(subject, b"too late")
        await connection.flush()
        assert len([message async for message in subscription]) == 10


async def test_drained_connection_handles_everything_and_closes(
    server: ServerProcess, subject: str
) -> None:
    async with connected(server.url) as listener, connected(server.url) as connection:
        answers = await listener.subscribe(f"{subject}.answers")
        await listener.flush()
        handled = 0

        async def callback(message: Msg) -> None:
            nonlocal handled
            await asyncio.sleep(0)
            handled += 1
            await connection.publish(f"{subject}.answers", message.data)

        await connection.subscribe(f"{subject}.work", callback=callback)
        for number in range(100):
            await connection.publish(f"{subject}.work", b"%d" % number)
        await connection.drain()
        assert (handled, connection.is_closed) == (100, True)
        assert await collect(answers, 100) == [b"%d" % number for number in range(100)]
        with pytest.raises(DrainingError):
            await connection.drain()


async def test_drain_gives_up_on_messages_that_nobody_reads(
    server: ServerProcess, subject: str
) -> None:
    async with connected(server.url) as connection:
        await connection.subscribe(subject)
        await connection.publish(subject, b"unread")
        await connection.flush()
        with pytest.raises(DrainTimeoutError, match=r"0\.1 s"):
            await connection.drain(0.1)
        assert connection.is_closed


async def test_nothing_works_on_a_closed_connection(server: ServerProcess, subject: str) -> None:
    events = Events()
    async with connected(server.url, on_event=events) as connection:
        subscription = await connection.subscribe(subject)
        reader = asyncio.create_task(anext(subscription, None))
        await asyncio.sleep(0)
        await connection.close()
        assert await reader is None
        with pytest.raises(ConnectionClosedError):
            connection.publish(subject)
        for call in (
            connection.subscribe(subject),
            connection.request(subject),
            connection.flush(),
        ):
            with pytest.raises(ConnectionClosedError):
                await call
        await connection.close()
        await connection.wait_closed()
    assert [type(event) for event in events.all] == [Connected, Closed]


async def test_what_was_published_before_close_arrives(server: ServerProcess, subject: str) -> None:
    async with connected(server.url) as listener:
        subscription = await listener.subscribe(subject)
        await listener.flush()
        async with connected(server.url) as connection:
            for number in range(100):
                connection.publish(subject, b"%d" % number)
        assert await collect(subscription, 100) == [b"%d" % number for number in range(100)]


async def test_close_inside_a_callback(server: ServerProcess, subject: str) -> None:
    connection = await tradewind.connect(server.url)

    async def callback(_message: Msg) -> None:
        await connection.close()

    await connection.subscribe(subject, callback=callback)
    await connection.publish(subject)
    await asyncio.wait_for(connection.wait_closed(), SECONDS)


async def test_no_server_is_an_error_that_names_it() -> None:
    with pytest.raises(NoServersError, match=r"nats://127\.0\.0\.1:1: Connect") as caught:
        await tradewind.connect("nats://127.0.0.1:1")
    assert list(caught.value.attempts) == ["nats://127.0.0.1:1"]


async def test_unknown_option_gets_a_hint() -> None:
    with pytest.raises(OptionsError, match="did you mean 'password'"):
        await tradewind.connect("nats://127.0.0.1:1", pasword="x")  # type: ignore[call-arg]


async def test_rtt_and_stats(server: ServerProcess, subject: str) -> None:
    async with connected(server.url) as connection:
        subscription = await connection.subscribe(subject)
        await connection.publish(subject, b"12345")
        await subscription.next(SECONDS)
        stats = connection.stats
        assert 0 < await connection.rtt() < SECONDS
    assert (stats.out_messages, stats.out_bytes, stats.in_messages, stats.in_bytes) == (1, 5, 1, 5)


async def test_closed_connection_is_freed_with_its_unread_messages(
    server: ServerProcess, subject: str
) -> None:
    connection = await tradewind.connect(server.url)
    subscription = await connection.subscribe(subject)
    for _ in range(10):
        await connection.publish(subject, b"unread")
    with pytest.raises(OperationTimeoutError):
        await connection.request(subject, timeout=0.01)
    await connection.flush()
    await connection.close()
    assert subscription.pending_messages == 11
    gone = [weakref.ref(connection), weakref.ref(subscription)]
    del connection, subscription
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
