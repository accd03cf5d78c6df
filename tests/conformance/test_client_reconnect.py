"""Our client loses its server, by force and by accident, and comes back."""

from __future__ import annotations

import asyncio
import signal

import pytest
from helpers_client import SECONDS, Events, collect, connected, eventually

import tradewind
from chaos_proxy import ChaosProxy
from harness import ServerProcess, StartServer
from tradewind.client.core.message import Msg
from tradewind.client.errors import (
    ConnectionClosedError,
    DisconnectedError,
    NoServersError,
    OperationTimeoutError,
    OptionsError,
    PendingLimitError,
    StaleConnectionError,
)
from tradewind.client.events import (
    Closed,
    Disconnected,
    LameDuck,
    Reconnected,
    ReconnectFailed,
)

FAST = {"reconnect_wait": 0.02, "reconnect_wait_max": 0.1}


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_subscriptions_and_requests_survive_a_restart(
    start: StartServer, ending: signal.Signals
) -> None:
    first = start()
    events = Events()
    async with connected(first.url, on_event=events, **FAST) as connection:

        async def answer(message: Msg) -> None:
            await message.respond(b"re: " + message.data)

        await connection.subscribe("ask", callback=answer)
        news = await connection.subscribe("news.*")
        few = await connection.subscribe("few", max_msgs=2)
        assert (await connection.request("ask", b"1")).data == b"re: 1"
        await connection.publish("few", b"1")
        await collect(few, 1)

        first.signal(ending)
        await events.wait(Disconnected)
        await asyncio.to_thread(first.wait)
        connection.publish("news.today", b"published while away")
        await asyncio.to_thread(start, "", "-a", "127.0.0.1", "-p", str(first.port))
        await events.wait(Reconnected)

        assert await collect(news, 1) == [b"published while away"]
        assert (await connection.request("ask", b"2")).data == b"re: 2"
        for number in range(2):
            await connection.publish("few", b"%d" % number)
        await connection.flush()
        assert [message.data async for message in few] == [b"0"]
        assert connection.stats.reconnects == 1


async def test_unsubscribed_and_new_subscriptions_while_away(start: StartServer) -> None:
    first = start()
    events = Events()
    async with connected(first.url, on_event=events, **FAST) as connection:
        old = await connection.subscribe("old")
        first.signal(signal.SIGKILL)
        await events.wait(Disconnected)
        await asyncio.to_thread(first.wait)
        await old.unsubscribe()
        new = await connection.subscribe("new")
        await asyncio.to_thread(start, "", "-a", "127.0.0.1", "-p", str(first.port))
        await connection.wait_connected(SECONDS)
        await connection.publish("old", b"unheard")
        await connection.publish("new", b"heard")
        assert await collect(new, 1) == [b"heard"]
        assert old.delivered_count == 0


async def test_pending_messages_are_bounded_while_away(start: StartServer) -> None:
    first = start()
    events = Events()
    options = {"on_event": events, "reconnect_pending_bytes_max": 10_000, **FAST}
    async with connected(first.url, **options) as connection:
        subscription = await connection.subscribe("kept")
        first.signal(signal.SIGKILL)
        await events.wait(Disconnected)
        await asyncio.to_thread(first.wait)
        sent = 0
        while connection.pending_bytes < 9_800:
            connection.publish("kept", bytes(100))
            sent += 1
        with pytest.raises(PendingLimitError, match=r"10000 .* while there is no connection"):
            connection.publish("kept", bytes(100))
        with pytest.raises(OperationTimeoutError):
            await connection.flush(0.05)
        await asyncio.to_thread(start, "", "-a", "127.0.0.1", "-p", str(first.port))
        assert len(await collect(subscription, sent)) == sent


async def test_another_server_of_the_list_takes_over(start: StartServer) -> None:
    servers = [start(), start()]
    events = Events()
    urls = [server.url for server in servers]
    async with connected(urls, on_event=events, randomize_servers=False, **FAST) as connection:
        assert connection.url == urls[0]
        subscription = await connection.subscribe("a")
        servers[0].signal(signal.SIGKILL)
        assert (await events.wait(Reconnected)).url == urls[1]
        await connection.publish("a", b"moved")
        assert await collect(subscription, 1) == [b"moved"]


async def test_first_connection_tries_all_servers(start: StartServer) -> None:
    server = start()
    urls = ["nats://127.0.0.1:1", server.url]
    async with connected(urls, randomize_servers=False) as connection:
        assert connection.url == server.url


async def test_waiting_for_the_first_server(start: StartServer) -> None:
    first = start()
    first.stop()
    attempt = asyncio.create_task(
        tradewind.connect(first.url, wait_for_server=True, on_event=Events(), **FAST)
    )
    await asyncio.to_thread(start, "", "-a", "127.0.0.1", "-p", str(first.port))
    connection = await asyncio.wait_for(attempt, SECONDS)
    await connection.close()


async def test_reconnecting_gives_up_after_the_limit(start: StartServer) -> None:
    first = start()
    events = Events()
    async with connected(
        first.url, on_event=events, reconnect_attempts_max=2, **FAST
    ) as connection:
        subscription = await connection.subscribe("a")
        await connection.subscribe("asked")
        reader = asyncio.create_task(anext(subscription))
        waiting = asyncio.create_task(connection.request("asked", timeout=60))
        await connection.flush()
        first.stop()
        closed = await events.wait(Closed)
        assert isinstance(closed.error, NoServersError)
        assert len(events.of(ReconnectFailed)) == 2
        for task in (reader, waiting):
            with pytest.raises(ConnectionClosedError, match=r"127\.0\.0\.1"):
                await task
        with pytest.raises(ConnectionClosedError):
            await connection.wait_closed()
        assert connection.closed_error is closed.error


async def test_without_reconnect_the_loss_closes(start: StartServer) -> None:
    first = start()
    events = Events()
    async with connected(first.url, on_event=events, reconnect=False) as connection:
        first.signal(signal.SIGKILL)
        await events.wait(Closed)
        assert isinstance(connection.closed_error, DisconnectedError | OSError)


async def test_lame_duck_server_is_announced(start: StartServer) -> None:
    server = start("lame_duck_duration: 30s\nlame_duck_grace_period: 1s\n")
    events = Events()
    async with connected(server.url, on_event=events) as connection:
        await connection.flush()
        server.signal(signal.SIGUSR2)
        assert (await events.wait(LameDuck)).url == server.url


async def test_close_while_reconnecting(start: StartServer) -> None:
    first = start()
    events = Events()
    async with connected(first.url, on_event=events, **FAST) as connection:
        await connection.subscribe("a", callback=print)
        first.signal(signal.SIGKILL)
        await events.wait(Disconnected)
    assert events.all[-1] == Closed(None)


# ---------------------------------------------------------------------- by request


async def test_a_wanted_reconnect_moves_on_with_all_that_was_sent(start: StartServer) -> None:
    servers = [start(), start()]
    events = Events()
    urls = [server.url for server in servers]
    async with (
        connected(urls, on_event=events, randomize_servers=False, reconnect_wait=60) as connection,
        connected(urls[0]) as witness,
    ):
        heard = await witness.subscribe("last")
        await witness.flush()
        subscription = await connection.subscribe("a")
        connection.publish("last", bytes(500_000))
        await connection.reconnect(SECONDS)
        assert connection.url == urls[1]
        assert len((await collect(heard, 1))[0]) == 500_000
        await connection.publish("a", b"moved")
        assert await collect(subscription, 1) == [b"moved"]
        assert events.of(Disconnected) == [Disconnected(urls[0], None)]
        await connection.reconnect(SECONDS)
        assert connection.url == urls[0]
        assert connection.stats.reconnects == 2


async def test_a_wanted_reconnect_ends_a_long_pause(start: StartServer) -> None:
    first = start()
    events = Events()
    slow = {"reconnect_wait": 600, "reconnect_wait_max": 600}
    async with connected(first.url, on_event=events, **slow) as connection:
        first.signal(signal.SIGKILL)
        await events.wait(Disconnected)
        await asyncio.to_thread(first.wait)
        await asyncio.to_thread(start, "", "-a", "127.0.0.1", "-p", str(first.port))
        await connection.reconnect(SECONDS)
        assert connection.is_connected


async def test_new_servers_are_used_at_the_next_reconnect(start: StartServer) -> None:
    servers = [start(), start()]
    async with connected(servers[0].url, reconnect=False) as connection:
        connection.set_servers([servers[1].url])
        assert (connection.url, connection.servers) == (servers[0].url, [servers[1].url])
        await connection.flush()
        await connection.reconnect(SECONDS)
        assert connection.url == servers[1].url
        with pytest.raises(OptionsError, match="at least one URL"):
            connection.set_servers([])
        with pytest.raises(OptionsError, match="ftp"):
            connection.set_servers("ftp://127.0.0.1")
        connection.set_servers("nats://127.0.0.1:1")
        with pytest.raises(ConnectionClosedError, match=r"cannot connect: .*127\.0\.0\.1:1"):
            await connection.reconnect(SECONDS)
        assert connection.is_closed
        with pytest.raises(ConnectionClosedError):
            await connection.reconnect()


async def test_a_wanted_reconnect_is_one_for_several_callers(start: StartServer) -> None:
    events = Events()
    async with connected(start().url, on_event=events, **FAST) as connection:
        await asyncio.gather(*(connection.reconnect(SECONDS) for _ in range(10)))
        await connection.flush()
        assert connection.stats.reconnects == len(events.of(Reconnected)) == 1


# ---------------------------------------------------------------------- a network that misbehaves


@pytest.mark.parametrize("piece_bytes", [1, 7])
async def test_bytes_in_pieces_make_the_same_messages(
    server: ServerProcess, subject: str, piece_bytes: int
) -> None:
    async with ChaosProxy(server.port, piece_bytes) as proxy, connected(proxy.url) as connection:
        subscription = await connection.subscribe(subject)
        for number in range(20):
            await connection.publish(subject, b"x" * number, headers={"N": str(number)})
        for number in range(20):
            message = await subscription.next(SECONDS)
            assert (message.data, message.headers["N"]) == (b"x" * number, str(number))


async def test_cut_connection_is_made_again(server: ServerProcess, subject: str) -> None:
    events = Events()
    async with (
        ChaosProxy(server.port) as proxy,
        connected(proxy.url, on_event=events, **FAST) as connection,
    ):
        subscription = await connection.subscribe(subject)
        for count in range(1, 4):
            await connection.flush()
            proxy.cut()
            await events.wait(Reconnected, count)
            await connection.publish(subject, b"%d" % count)
            assert await collect(subscription, 1) == [b"%d" % count]
        assert proxy.connections == 4


async def test_flush_fails_when_the_connection_is_cut(server: ServerProcess) -> None:
    events = Events()
    async with (
        ChaosProxy(server.port) as proxy,
        connected(proxy.url, on_event=events, **FAST) as connection,
    ):
        proxy.stall()
        flush = asyncio.create_task(connection.flush(60))
        await eventually(lambda: connection._pongs, "the ping")
        proxy.cut()
        with pytest.raises(DisconnectedError, match="lost before the server answered"):
            await flush
        proxy.resume()
        await connection.wait_connected(SECONDS)


async def test_half_open_connection_is_found_by_pings(server: ServerProcess, subject: str) -> None:
    events = Events()
    async with (
        ChaosProxy(server.port) as proxy,
        connected(proxy.url, on_event=events, ping_interval=1, **FAST) as connection,
    ):
        subscription = await connection.subscribe(subject)
        await connection.flush()
        proxy.stall()
        lost = await events.wait(Disconnected)
        assert isinstance(lost.error, StaleConnectionError)
        proxy.resume()
        await events.wait(Reconnected)
        await connection.publish(subject, b"back")
        assert await collect(subscription, 1) == [b"back"]


async def test_server_that_says_nothing_ends_the_attempt(server: ServerProcess) -> None:
    async with ChaosProxy(server.port) as proxy:
        proxy.stall()
        with pytest.raises(NoServersError, match=r"no login within 0\.1 s"):
            await tradewind.connect(proxy.url, connect_timeout=0.1, on_event=Events())


async def test_server_that_hangs_up_ends_the_attempt(server: ServerProcess) -> None:
    async with ChaosProxy(server.port) as proxy:
        proxy.refuse(refusing=True)
        with pytest.raises(NoServersError, match=r"127\.0\.0\.1"):
            await tradewind.connect(proxy.url, on_event=Events())


async def test_stalled_server_slows_a_publisher_down(server: ServerProcess, subject: str) -> None:
    async with (
        ChaosProxy(server.port) as proxy,
        connected(proxy.url, pending_bytes_max=16 << 20) as connection,
    ):
        await connection.flush()
        proxy.stall()
        sent = 0

        async def publish() -> None:
            nonlocal sent
            while sent < 400:
                await connection.publish(subject, bytes(100_000))
                sent += 1

        publisher = asyncio.create_task(publish())
        seen: list[int] = []

        def is_full() -> bool:
            """It is paused, and all that was on the way to the proxy has come to rest."""
            seen.append(sent)
            assert connection._link is not None
            return connection._link.paused and seen[-20:] == [sent] * 20

        await eventually(is_full, "a full pipe")
        stopped = sent
        for _ in range(10):
            await asyncio.sleep(0)
        assert sent == stopped < 400
        while connection.pending_bytes < (16 << 20) - 100_100:
            connection.publish(subject, bytes(100_000))
        with pytest.raises(PendingLimitError, match="await each publish"):
            connection.publish(subject, bytes(100_000))
        proxy.resume()
        await asyncio.wait_for(publisher, SECONDS)
        await connection.flush(SECONDS)
        assert sent == 400
