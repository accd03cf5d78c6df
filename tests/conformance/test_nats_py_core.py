"""The nats-py client on both servers: what an application does with core NATS."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from harness import ServerProcess

Open = Callable[..., Awaitable[Client]]
REPLY_SECONDS = 20


@pytest.fixture
async def open_client(server: ServerProcess) -> AsyncIterator[Open]:
    """open_client(…) gives a connected nats-py client, closed after the test."""
    clients: list[Client] = []

    async def _open(**options: Any) -> Client:
        patient = {"allow_reconnect": False, "connect_timeout": REPLY_SECONDS}
        client = await nats.connect(server.url, **{**patient, **options})
        clients.append(client)
        return client

    yield _open
    for client in clients:
        await client.close()


async def settle(client: Client) -> None:
    """Wait until the server has processed everything the client was told to send.

    One flush is not enough: nats-py writes its PING past the commands that are still pending, so
    only a second PING comes after them.
    """
    await client.flush()
    await client.flush()


async def test_connect_learns_what_the_server_says(
    open_client: Open, server: ServerProcess
) -> None:
    client = await open_client(name="learner")
    assert client.is_connected
    assert client.connected_url is not None
    assert client.connected_url.port == server.port
    assert client.max_payload == 1048576
    assert client.client_id is not None
    assert client.client_id > 0
    version = client.connected_server_version
    assert (version.major, version.minor, version.patch) == (2, 15, 1)


async def test_publish_and_subscribe(open_client: Open, subject: str) -> None:
    subscriber, publisher = await open_client(), await open_client()
    subscription = await subscriber.subscribe(subject)
    await settle(subscriber)
    await publisher.publish(subject, b"hello", reply="reply.to")
    message = await subscription.next_msg(REPLY_SECONDS)
    assert (message.subject, message.data, message.reply) == (subject, b"hello", "reply.to")
    assert message.headers is None


async def test_wildcard_subscriptions(open_client: Open, subject: str) -> None:
    client = await open_client()
    one_token = await client.subscribe(f"{subject}.*")
    rest = await client.subscribe(f"{subject}.>")
    await client.publish(f"{subject}.a", b"1")
    await client.publish(f"{subject}.a.b", b"2")
    await settle(client)
    assert (await one_token.next_msg(REPLY_SECONDS)).data == b"1"
    assert [(await rest.next_msg(REPLY_SECONDS)).data for _ in range(2)] == [b"1", b"2"]
    assert one_token.pending_msgs == 0


async def test_callback_gets_messages_in_order(open_client: Open, subject: str) -> None:
    client = await open_client()
    received: list[bytes] = []
    complete = asyncio.Event()

    async def collect(message: Msg) -> None:
        received.append(message.data)
        if len(received) == 10_000:
            complete.set()

    await client.subscribe(subject, cb=collect)
    wanted = [b"%d" % number for number in range(10_000)]
    for payload in wanted:
        await client.publish(subject, payload)
    await settle(client)
    await asyncio.wait_for(complete.wait(), 30)
    assert received == wanted


async def test_queue_group_shares_the_messages(open_client: Open, subject: str) -> None:
    members = [await open_client() for _ in range(3)]
    counts: Counter[int] = Counter()
    complete = asyncio.Event()

    def count_for(number: int) -> Callable[[Msg], Awaitable[None]]:
        async def count(message: Msg) -> None:
            counts[number] += 1
            if counts.total() == 300:
                complete.set()

        return count

    for number, member in enumerate(members):
        await member.subscribe(subject, queue="workers", cb=count_for(number))
        await settle(member)
    publisher = await open_client()
    for _ in range(300):
        await publisher.publish(subject, b"job")
    await settle(publisher)
    await asyncio.wait_for(complete.wait(), REPLY_SECONDS)
    for member in members:
        await settle(member)
    assert counts.total() == 300
    assert set(counts) == {0, 1, 2}


@pytest.mark.parametrize("old_style", [False, True])
async def test_request_and_reply(open_client: Open, subject: str, old_style: bool) -> None:
    service, requester = await open_client(), await open_client()

    async def answer(message: Msg) -> None:
        await message.respond(b"re: " + message.data)

    await service.subscribe(subject, cb=answer)
    await settle(service)
    for number in range(20):
        payload = b"%d" % number
        reply = await requester.request(subject, payload, REPLY_SECONDS, old_style=old_style)
        assert reply.data == b"re: " + payload


async def test_requests_at_the_same_time(open_client: Open, subject: str) -> None:
    client = await open_client()

    async def answer(message: Msg) -> None:
        await message.respond(message.data * 2)

    await client.subscribe(subject, cb=answer)
    requests = [client.request(subject, b"%d," % number, REPLY_SECONDS) for number in range(200)]
    replies = await asyncio.gather(*requests)
    assert [reply.data for reply in replies] == [b"%d,%d," % (n, n) for n in range(200)]


async def test_request_without_responders_fails_at_once(open_client: Open, subject: str) -> None:
    client = await open_client()
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request(subject, b"anybody?", timeout=60)


async def test_request_without_an_answer_times_out(open_client: Open, subject: str) -> None:
    client = await open_client()
    subscription = await client.subscribe(subject)
    with pytest.raises(nats.errors.TimeoutError):
        await client.request(subject, b"hello?", timeout=0.05)
    assert (await subscription.next_msg(REPLY_SECONDS)).data == b"hello?"


async def test_headers_arrive(open_client: Open, subject: str) -> None:
    client = await open_client()
    subscription = await client.subscribe(subject)
    await client.publish(subject, b"data", headers={"Trace": "abc", "Other": "d e f"})
    await client.publish(subject, b"", headers={"Only": "header"})
    first = await subscription.next_msg(REPLY_SECONDS)
    second = await subscription.next_msg(REPLY_SECONDS)
    assert (first.data, first.headers) == (b"data", {"Trace": "abc", "Other": "d e f"})
    assert (second.data, second.headers) == (b"", {"Only": "header"})


async def test_automatic_unsubscription(open_client: Open, subject: str) -> None:
    client = await open_client()
    subscription = await client.subscribe(subject)
    await subscription.unsubscribe(limit=3)
    for number in range(5):
        await client.publish(subject, b"%d" % number)
    await settle(client)
    received = [(await subscription.next_msg(REPLY_SECONDS)).data for _ in range(3)]
    assert received == [b"0", b"1", b"2"]
    assert subscription.delivered <= 3
    with pytest.raises(nats.errors.Error):
        await subscription.next_msg(0.05)


async def test_unsubscribe_ends_delivery(open_client: Open, subject: str) -> None:
    client = await open_client(no_echo=False)
    received: list[bytes] = []

    async def collect(message: Msg) -> None:
        received.append(message.data)

    subscription = await client.subscribe(subject, cb=collect)
    await client.publish(subject, b"before")
    await settle(client)
    await subscription.unsubscribe()
    await client.publish(subject, b"after")
    await settle(client)
    assert b"after" not in received


async def test_no_echo(open_client: Open, subject: str) -> None:
    quiet, other = await open_client(no_echo=True), await open_client()
    subscription = await quiet.subscribe(subject)
    await settle(quiet)
    await quiet.publish(subject, b"mine")
    await settle(quiet)
    await other.publish(subject, b"theirs")
    assert (await subscription.next_msg(REPLY_SECONDS)).data == b"theirs"


async def test_payload_over_the_limit_is_refused_by_the_client(
    open_client: Open, subject: str
) -> None:
    client = await open_client()
    with pytest.raises(nats.errors.MaxPayloadError):
        await client.publish(subject, b"x" * (client.max_payload + 1))
    await settle(client)


async def test_payload_of_the_limit_arrives(open_client: Open, subject: str) -> None:
    client = await open_client()
    subscription = await client.subscribe(subject)
    payload = bytes(range(256)) * (client.max_payload // 256)
    await client.publish(subject, payload)
    assert (await subscription.next_msg(REPLY_SECONDS)).data == payload


async def test_server_errors_reach_the_error_callback(open_client: Open) -> None:
    errors: list[Exception] = []
    reported = asyncio.Event()

    async def on_error(error: Exception) -> None:
        errors.append(error)
        reported.set()

    client = await open_client(error_cb=on_error)
    # The client checks subjects itself, so the server is asked with a queue name it refuses.
    await client.subscribe("anything", queue="_sys_")
    await settle(client)
    await asyncio.wait_for(reported.wait(), REPLY_SECONDS)
    assert "permissions violation" in str(errors[0]).lower()


async def test_flush_and_round_trip_time(open_client: Open) -> None:
    client = await open_client()
    for _ in range(20):
        await client.flush(REPLY_SECONDS)
    assert 0 < await client.rtt() < REPLY_SECONDS


async def test_drain_handles_what_has_arrived_and_closes(open_client: Open, subject: str) -> None:
    client, publisher = await open_client(), await open_client()
    received: list[bytes] = []

    async def collect(message: Msg) -> None:
        received.append(message.data)

    await client.subscribe(subject, cb=collect)
    await settle(client)
    for number in range(500):
        await publisher.publish(subject, b"%d" % number)
    await settle(publisher)
    await client.drain()
    assert client.is_closed
    assert received == [b"%d" % number for number in range(500)]


async def test_drained_subscription_leaves_the_connection_open(
    open_client: Open, subject: str
) -> None:
    client = await open_client()
    subscription = await client.subscribe(subject)
    await subscription.drain()  # type: ignore[no-untyped-call]
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request(subject, b"", timeout=REPLY_SECONDS)
    assert client.is_connected
