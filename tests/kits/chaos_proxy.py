"""A TCP proxy that misbehaves on command: cuts, stalls, splits, and half-open connections.

It runs in the event loop of the test. Clients connect to `url`.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

READ_BYTES = 65536


class ChaosProxy:
    """Forwards bytes to a server on the loopback address.

    `piece_bytes` cuts everything into pieces of at most so many bytes; 0 leaves it alone.
    """

    def __init__(self, port: int, piece_bytes: int = 0) -> None:
        self._target = port
        self._piece_bytes = piece_bytes
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._accepting = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._flowing.set()
        while self._tasks:
            # Again each time: a connection that was being made has begun to forward.
            self.cut()
            await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Reset all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    def refuse(self, *, refusing: bool) -> None:
        """Close new connections at once, or accept them again."""
        self._accepting = not refusing

    def stall(self) -> None:
        """Forward nothing and say nothing, as a network that swallows everything."""
        self._flowing.clear()

    def resume(self) -> None:
        """Forward again, what was held back first."""
        self._flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if not self._accepting:
            writer.transport.abort()
            return
        dialling = asyncio.create_task(self._dial(reader, writer))
        self._tasks.add(dialling)
        dialling.add_done_callback(self._tasks.discard)

    async def _dial(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server is down, and so is its proxy
            writer.transport.abort()
            return
        for source, sink in ((reader, server_writer), (server_reader, writer)):
            self._writers.add(sink)
            task = asyncio.create_task(self._forward(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(READ_BYTES):
                await self._flowing.wait()
                step = self._piece_bytes or len(data)
                for start in range(0, len(data), step):
                    sink.write(data[start : start + step])
                    await sink.drain()
                    if self._piece_bytes:
                        await asyncio.sleep(0)
        except OSError:
            pass
        finally:
            self._writers.discard(sink)
            sink.transport.abort()
