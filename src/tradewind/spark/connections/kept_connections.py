"""A connection that a driver keeps while its query runs.

Owns a thread with an event loop in which the connection lives, so that it answers the server while
Spark is busy, and reconnects automatically. The first connection is tried only once, so that a
wrong address is reported immediately. Later the server is waited for.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

import uvloop

from tradewind.client.errors import ClientError
from tradewind.client.events import Disconnected, Event, Reconnected
from tradewind.spark.connections.patience import Patience

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.spark.providers.network import ReadAddress

logger = logging.getLogger(__name__)
RECONNECT_WAIT_SECONDS_MAX: Final = 0.5
# A server that has just come back may still be opening its streams.
JUST_BACK_SECONDS: Final = 10.0
_Result = TypeVar("_Result")


class KeptConnection:
    """Runs questions over one connection; it is made with the first one."""

    def __init__(self, address: ReadAddress) -> None:
        self._address = address
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._open = AsyncExitStack()
        self._connection: Connection | None = None
        self._stable_at = 0.0

    @property
    def is_just_back(self) -> bool:
        """Whether the server was away a moment ago: what is missing may come back."""
        return time.monotonic() < self._stable_at

    def run(self, work: Callable[[Connection], Awaitable[_Result]]) -> _Result:
        """Do what can be done twice; a server that goes away is waited for."""
        return self._submit(self._patiently(work))

    async def _patiently(self, work: Callable[[Connection], Awaitable[_Result]]) -> _Result:
        if self._connection is None or self._connection.is_closed:
            await self._open.aclose()
            self._connection = await self._open.enter_async_context(
                self._address.connected(
                    on_event=self._note, reconnect_wait_max=RECONNECT_WAIT_SECONDS_MAX
                )
            )
        patience = Patience(self._address.options.timeout_seconds)
        while True:
            try:
                return await work(self._connection)
            except ClientError as error:
                await patience.wait_after(error)

    def _note(self, event: Event) -> None:
        if isinstance(event, Disconnected):
            logger.warning(
                "server unreachable; waiting up to %d s",
                self._address.options.timeout_seconds,
            )
        elif isinstance(event, Reconnected):
            self._stable_at = time.monotonic() + JUST_BACK_SECONDS
            logger.warning("server reachable again")

    def _submit(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        if self._loop is None:
            self._loop = uvloop.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="tradewind-spark", daemon=True
            )
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Close the connection and end the thread; another question makes new ones."""
        if self._loop is None or self._thread is None:
            return
        self._submit(self._open.aclose())
        self._connection = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None
