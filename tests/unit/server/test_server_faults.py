"""Faults around a real event loop: one connection ends by its own, the server ends by none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest
from tls_link_kit import CONNECT, RecordingLog, until

from tradewind.options import ServerOptions
from tradewind.server.lifecycle.app import ServerApp
from tradewind.server.monitoring.logs import Log

Patch = pytest.MonkeyPatch
SECONDS = 30
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
OPEN: list[asyncio.StreamWriter] = []  # the clients of the server that runs


class Broken(Exception):  # noqa: N818 - what a program never raises on purpose
    """What is injected."""


def fail(*_: object, **__: object) -> Any:
    raise Broken("injected")


async def fail_later(*_: object) -> None:
    raise Broken("injected")


@asynccontextmanager
async def running() -> AsyncIterator[ServerApp]:
    options = ServerOptions(
        host="127.0.0.1", port=-1, lame_duck_grace_ns=0, lame_duck_duration_ns=0
    )
    server = ServerApp(options, cast(Log, RecordingLog()))
    await server.start()
    try:
        yield server
    finally:
        await asyncio.wait_for(server.stop(), SECONDS)
        while OPEN:
            writer = OPEN.pop()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def open_socket(server: ServerApp) -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    OPEN.append(writer)
    return reader, writer


async def connect(server: ServerApp) -> Streams:
    reader, writer = await open_socket(server)
    await reader.readline()
    writer.write(CONNECT + b"PING\r\n")
    while await reader.readline() != b"PONG\r\n":
        pass
    return reader, writer


async def check_alive(streams: Streams) -> None:
    reader, writer = streams
    writer.write(b"SUB echo 1\r\nPUB echo 2\r\nhi\r\nUNSUB 1\r\n")
    async with asyncio.timeout(SECONDS):
        while await reader.readline() != b"hi\r\n":
            pass


def link_of(server: ServerApp, streams: Streams) -> Any:
    port = streams[1].get_extra_info("sockname")[1]
    return next(one.link for one in server.broker.sessions.values() if one.remote_port == port)


class UntimelyEngine:
    """An engine without work that fails to say when it will have some."""

    def end_turn(self) -> None:
        pass

    next_deadline_ns = staticmethod(fail)


class UnreliableTransport:
    """A transport that can be closed, but fails to say whether it is."""

    def __init__(self, transport: Any) -> None:
        self.abort = transport.abort

    is_closing = staticmethod(fail)


@pytest.mark.parametrize("method", ["flush", "data_done", "pause_writing"])
async def test_a_link_that_fails_ends_its_own_connection_only(
    method: str, monkeypatch: Patch
) -> None:
    async with running() as server:
        victim, bystander = await connect(server), await connect(server)
        link = link_of(server, victim)
        if method == "pause_writing":
            monkeypatch.setattr(server.broker, "write_blocked", fail)
            link.pause_writing()
        elif method == "data_done":
            monkeypatch.setattr(server.broker, "pong_received", fail)
            victim[1].write(b"PONG\r\n")
        else:
            link.use_transport(UnreliableTransport(link.transport))
            victim[1].write(b"PING\r\n")
        assert await asyncio.wait_for(victim[0].read(), SECONDS) == b""
        await check_alive(bystander)
        assert server.broker.faults.counts == {"session": 1}
        assert len(server.broker.sessions) == 1


async def test_a_session_that_cannot_be_opened_is_none(monkeypatch: Patch) -> None:
    async with running() as server:
        bystander = await connect(server)
        with monkeypatch.context() as patch:
            patch.setattr(server.broker, "open_session", fail)
            reader, _ = await open_socket(server)
            assert await asyncio.wait_for(reader.read(), SECONDS) == b""
        await check_alive(bystander)
        await check_alive(await connect(server))
        assert server.broker.faults.total == 1


async def test_a_fault_at_the_end_of_a_session_leaves_nothing_behind(monkeypatch: Patch) -> None:
    async with running() as server:
        victim, bystander = await connect(server), await connect(server)
        with monkeypatch.context() as patch:
            patch.setattr("tradewind.broker.broker.closed_session", fail)
            victim[1].close()
            await until(lambda: len(server.broker.sessions) == 1)
        await check_alive(bystander)


async def test_events_and_deadlines_are_tried_again_after_a_fault(monkeypatch: Patch) -> None:
    async with running() as server:
        bystander = await connect(server)
        with monkeypatch.context() as patch:
            patch.setattr(server.system, "tick", fail)
            server._event_tick()
            patch.setattr(server.broker, "tick", fail)
            patch.setattr(server.broker, "engine", UntimelyEngine())
            server.turns.tick()
        assert {"event", "tick", "timer"} <= set(server.broker.faults.counts)
        await check_alive(bystander)
        met = asyncio.Event()
        monkeypatch.setattr(server.broker, "tick", met.set)
        await asyncio.wait_for(met.wait(), SECONDS)


@pytest.mark.parametrize("way", ["stop", "lame duck"])
async def test_the_server_ends_whatever_fails_on_the_way(way: str, monkeypatch: Patch) -> None:
    async with running() as server:
        client = await connect(server)
        for owner, name in (
            (server.system, "announce_shutdown"),
            (server.system, "announce_lame_duck"),
            (server.system, "stop"),
            (server.broker, "session_closing"),
            (server.broker, "broadcast_info"),
            (server._passwords, "stop"),
        ):
            monkeypatch.setattr(owner, name, fail)
        monkeypatch.setattr(server._listener, "cancel_handshakes", fail_later)
        if way == "stop":
            await asyncio.wait_for(server.stop(), SECONDS)
        else:
            server.enter_lame_duck()
            await asyncio.wait_for(server.stopped.wait(), SECONDS)
        assert await asyncio.wait_for(client[0].read(), SECONDS) is not None
        assert server.broker.faults.counts["shutdown"] >= 3


async def test_what_the_loop_catches_is_counted_and_said_once() -> None:
    async with running() as server:
        log = cast(RecordingLog, server.log)
        for _ in range(9):
            server.loop_failed(asyncio.get_running_loop(), {"message": "a handle failed"})
        assert server.broker.faults.counts == {"event loop": 9}
        lines = [text for _, text in log.lines if "Internal error in" in text]
        assert len(lines) == 1
