"""The nats-py client survives a restart of the server, with its subscriptions."""

from __future__ import annotations

import asyncio
import signal

import nats
import pytest
from nats.aio.msg import Msg

from harness import StartServer

REPLY_SECONDS = 20


async def wait(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 20)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_client_reconnects_after_a_restart_on_the_same_port(
    start: StartServer, ending: signal.Signals
) -> None:
    first = start()
    disconnected, reconnected = asyncio.Event(), asyncio.Event()

    async def on_disconnect() -> None:
        disconnected.set()

    async def on_reconnect() -> None:
        reconnected.set()

    async def ignore(error: Exception) -> None:
        """Failed attempts while no server listens are expected."""

    client = await nats.connect(
        first.url,
        connect_timeout=REPLY_SECONDS,
        reconnect_time_wait=0.02,
        max_reconnect_attempts=-1,
        disconnected_cb=on_disconnect,
        reconnected_cb=on_reconnect,
        error_cb=ignore,
    )
    try:

        async def answer(message: Msg) -> None:
            await message.respond(b"re: " + message.data)

        await client.subscribe("ask", cb=answer)
        listening = await client.subscribe("news.*")
        assert (await client.request("ask", b"1", REPLY_SECONDS)).data == b"re: 1"

        first.signal(ending)
        await wait(disconnected)
        await asyncio.to_thread(first.wait)
        await asyncio.to_thread(start, "", "-a", "127.0.0.1", "-p", str(first.port))
        await wait(reconnected)

        assert (await client.request("ask", b"2", REPLY_SECONDS)).data == b"re: 2"
        await client.publish("news.today", b"back")
        assert (await listening.next_msg(REPLY_SECONDS)).data == b"back"
        assert client.stats["reconnects"] == 1
    finally:
        await client.close()


async def test_message_published_while_away_is_sent_after_reconnect(start: StartServer) -> None:
    first = start()
    disconnected = asyncio.Event()

    async def on_disconnect() -> None:
        disconnected.set()

    async def ignore(error: Exception) -> None:
        """Failed attempts while no server listens are expected."""

    client = await nats.connect(
        first.url,
        connect_timeout=REPLY_SECONDS,
        reconnect_time_wait=0.02,
        max_reconnect_attempts=-1,
        disconnected_cb=on_disconnect,
        error_cb=ignore,
    )
    try:
        subscription = await client.subscribe("later")
        await client.flush()
        first.signal(signal.SIGTERM)
        await wait(disconnected)
        await asyncio.to_thread(first.wait)
        await client.publish("later", b"kept")
        await asyncio.to_thread(start, "", "-a", "127.0.0.1", "-p", str(first.port))
        assert (await subscription.next_msg(20)).data == b"kept"
    finally:
        await client.close()


async def test_stop_closes_the_listener_and_the_connections(start: StartServer) -> None:
    server = start()
    closed = asyncio.Event()

    async def on_closed() -> None:
        closed.set()

    async def ignore(error: Exception) -> None:
        """The end of the connection is what this test waits for."""

    await nats.connect(
        server.url,
        allow_reconnect=False,
        connect_timeout=REPLY_SECONDS,
        closed_cb=on_closed,
        error_cb=ignore,
    )
    server.signal(signal.SIGTERM)
    await wait(closed)
    await asyncio.to_thread(server.wait)
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", server.port)
