"""Helpers for tests of the client library: connections that are closed, events, and a count of
leftovers.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import tradewind
from harness import ServerProcess, StartServer
from tradewind.client.core.subscription import Subscription
from tradewind.client.events import Event
from tradewind.client.jetstream import JetStream

SECONDS = 20.0


class Events:
    """Collects the events of a connection; `wait` gives the next one of a kind."""

    def __init__(self) -> None:
        self.all: list[Event] = []
        self._changed = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.all.append(event)
        self._changed.set()

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.all if isinstance(event, kind)]

    async def wait(self, kind: type[Event], count: int = 1) -> Any:
        async with asyncio.timeout(SECONDS):
            while len(self.of(kind)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.of(kind)[count - 1]


async def eventually(condition: Callable[[], Any], what: str, seconds: float = SECONDS) -> None:
    """Wait for something that no event tells."""
    for _ in range(int(seconds * 100)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"waited {seconds} s in vain for {what}")


def is_of_proxy(task: asyncio.Task[Any]) -> bool:
    """Whether a ChaosProxy started it."""
    return "ChaosProxy" in repr(task.get_coro())


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[tradewind.Connection]:
    """A connection that leaves neither tasks nor subscriptions behind."""
    before = asyncio.all_tasks()
    connection = await tradewind.connect(url, **options)
    try:
        yield connection
    finally:
        await connection.close()
    left = {task for task in asyncio.all_tasks() - before if not is_of_proxy(task)}
    assert not left, f"tasks are left: {left}"
    assert not connection._wire.registered()
    assert not len(connection.replies)


async def collect(subscription: Subscription, count: int) -> list[bytes]:
    """The payloads of the next messages."""
    return [(await subscription.next(SECONDS)).data for _ in range(count)]


@asynccontextmanager
async def jetstream(server: ServerProcess, **options: Any) -> AsyncIterator[JetStream]:
    """JetStream on a server with no streams; those that the test makes are removed."""
    async with connected(server.url, **options) as connection:
        js = connection.jetstream(timeout=SECONDS)
        try:
            yield js
        finally:
            if not connection.is_closed:
                async for name in js.manager.streams.names():
                    await js.manager.streams.delete(name)


async def fill(js: JetStream, stream: str, count: int, first: int = 1) -> None:
    """A stream in memory (unless it exists) with numbered messages on `<stream>.<number>`."""
    await js.manager.streams.add(name=stream, subjects=[f"{stream}.>"], storage="memory")
    for number in range(first, first + count):
        await js.publish_async(f"{stream}.{number}", b"%d" % number)
    await js.publish_async_completed()


@asynccontextmanager
async def lent_jetstream(server: ServerProcess) -> AsyncIterator[JetStream]:
    """The same for a fixture, which runs in another task: it cannot count the test's tasks."""
    connection = await tradewind.connect(server.url)
    js = connection.jetstream(timeout=SECONDS)
    try:
        yield js
        for name in await js.manager.streams.names().all():
            await js.manager.streams.delete(name)
    finally:
        await connection.close()
    assert not connection._wire.registered()
    assert not len(connection.replies)


async def no_consumers(js: JetStream, stream: str) -> None:
    """Wait until a stream has no consumers."""
    for _ in range(int(SECONDS * 20)):
        if not await js.manager.consumers.names(stream).all():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{stream} still has consumers")


class Restartable:
    """A server with JetStream that can be ended and started again on the same port and folder."""

    def __init__(self, start: StartServer, folder: Path) -> None:
        self._start = start
        self._flags = ["-js", "-sd", str(folder)]
        self.server: ServerProcess = start("", *self._flags)
        self._port = self.server.port

    async def restart(self, ending: signal.Signals) -> None:
        """End the server and start it again."""
        self.server.signal(ending)
        await asyncio.to_thread(self.server.wait)
        flags = [*self._flags, "-a", "127.0.0.1", "-p", str(self._port)]
        self.server = await asyncio.to_thread(self._start, "", *flags)
