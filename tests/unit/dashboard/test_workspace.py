"""The connection of a login: what it says of itself, and what it hears."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tradewind.client.core.connect_options import ConnectOptions
from tradewind.client.events import Reconnected
from tradewind.dashboard.data.advisories import SUBJECTS
from tradewind.dashboard.data.catalog import NAMES_KEY
from tradewind.dashboard.data.samplers import Question
from tradewind.dashboard.data.workspace import Workspace

INFO = b'INFO {"server_id":"X","version":"2.14.0","max_payload":1048576,"headers":true}\r\n'


class FakeServer:
    """A server that answers the login, and everything else when it may."""

    def __init__(self) -> None:
        self.subscribed: list[str] = []
        self.pings = 0
        self.may_answer = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        while line := (await reader.readline()).decode().split():
            if line[0] == "SUB":
                self.subscribed.append(line[1])
            elif line[0] == "PING":
                self.pings += 1
                if self.pings > 1:
                    await self.may_answer.wait()
                writer.write(b"PONG\r\n")
        writer.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_it_is_connected_when_the_server_knows_what_it_wants_to_hear() -> None:
    fake = FakeServer()
    async with await asyncio.start_server(fake.serve, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        workspace = Workspace(ConnectOptions(servers=f"nats://127.0.0.1:{port}"))
        workspace.start()
        await until(lambda: fake.pings > 1)
        assert set(SUBJECTS) <= set(fake.subscribed)
        assert workspace.link.state == "connecting"
        assert workspace.connection.is_connected, "pages may ask already"
        fake.may_answer.set()
        await workspace.wait_started()
        assert workspace.link.state == "connected"
        await workspace.close()


async def test_streams_are_asked_for_anew_when_the_server_was_away() -> None:
    """What happened to them meanwhile was not heard."""
    workspace = Workspace(ConnectOptions(servers="nats://127.0.0.1:1"))
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        return asked

    question = Question(NAMES_KEY, ask, 30.0)
    for _ in range(2):
        assert (await workspace.samplers.see(question)).value == 1
    workspace._on_event(Reconnected("nats://127.0.0.1:1"))
    assert (await workspace.samplers.see(question)).value == 2
    await workspace.close()
