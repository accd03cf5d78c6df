import asyncio
import socket
from typing import Any

from tradewind.server.links.turn_loop import TurnLoop

class SocketSet:
    @property
    def count(self) -> int: ...
    def __init__(self, turns: TurnLoop, loop: asyncio.AbstractEventLoop) -> None: ...
    def connect(
        self,
        connection: socket.socket,
        peer: tuple[Any, ...] | None,
        protocol: asyncio.BaseProtocol,
    ) -> SocketTransport: ...
    def stop(self) -> None: ...

class SocketTransport(asyncio.Transport):
    keeps_descriptor: bool
