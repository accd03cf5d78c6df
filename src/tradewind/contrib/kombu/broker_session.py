"""One connection of kombu or Celery to a server, used by blocking code.

Owns the connection and the queues behind it; both live in the thread that all blocking clients of
the process share. In the child of a fork a session is dead and closes without touching the socket.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tradewind.client.blocking import shared_thread
from tradewind.client.connection import Connection, connect
from tradewind.client.errors import ClientError
from tradewind.client.jetstream import JetStream

Result = TypeVar("Result")
FLUSH_SECONDS = 2.0


class BrokerSession:
    """A connection and its JetStream context. `is_usable` is false in a forked process too."""

    js: JetStream

    def __init__(self, servers: str, options: dict[str, Any]) -> None:
        self._process = os.getpid()
        self._thread = shared_thread()
        self._connection: Connection = self.run(_connect(servers, options))
        self.js = self._connection.jetstream()

    @property
    def is_usable(self) -> bool:
        """Whether calls can still succeed."""
        return self._process == os.getpid() and not self._connection.is_closed

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine of the client."""
        result: Result = self._thread.run(work)
        return result

    def flush(self) -> None:
        """Wait until acknowledgements have reached the server, if it is there."""
        if self.is_usable and self._connection.is_connected:
            with suppress(ClientError):
                self.run(self._connection.flush(FLUSH_SECONDS))

    def close(self) -> None:
        """Close the connection, once."""
        if self.is_usable:
            self.flush()
            with suppress(ClientError):
                self.run(self._connection.close())


async def _connect(servers: str, options: dict[str, Any]) -> Connection:
    return await connect(servers, **options)
