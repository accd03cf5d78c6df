"""Commands that run in an event loop: connections, interruption, and errors from the server.

Owns running a command with `asyncio`, and its end: a command that runs until Ctrl-C then ends
successfully. Most commands need none of this and use `settings.connect`.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from tradewind.cli.frame.output import note
from tradewind.cli.frame.settings import current
from tradewind.visible_text import visible

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.core.connect_options import ConnectSettings
    from tradewind.client.events import Event

Result = TypeVar("Result")


def stamp(text: str) -> None:
    """A line about what is going on, with the time of day, on the error output."""
    note(f"{time.strftime('%H:%M:%S')} {visible(text)}")


class Troubles:
    """Errors of a connection that no call reports, such as missing permissions.

    Other events of the connection, such as its loss, are printed at once.
    """

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def on_event(self, event: Event) -> None:
        """For the option of the same name of `connect`."""
        from tradewind.client.events import Closed, Connected, ErrorEvent

        if isinstance(event, ErrorEvent):
            self.errors.append(event.error)
        elif not isinstance(event, Connected | Closed):
            stamp(str(event))

    def check(self) -> None:
        """Raise the first error, if there was one; after a flush it is known."""
        if self.errors:
            raise self.errors[0]


async def connect_async(
    servers: str | None = None, **settings: Unpack[ConnectSettings]
) -> Connection:
    """A connection as the shared flags say; `servers` and other arguments win over them."""
    from tradewind.client.connection import connect

    shared = current()
    made: ConnectSettings = {**shared.connect_settings(), **settings}
    return await connect(servers or shared.servers, context=shared.context, **made)


def run_async(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a command in an event loop; Ctrl-C ends it as an interruption."""
    return asyncio.run(main)


def run_until_stopped(main: Coroutine[Any, Any, None]) -> None:
    """Run a command that ends by Ctrl-C or SIGTERM, or by itself; both ends are good ones.

    The command is cancelled, so it can finish what it has in hand.
    """

    async def watched() -> None:
        task = asyncio.create_task(main)
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()

        def stop() -> None:
            stopped.set()
            task.cancel()

        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop)
        try:
            await task
        except asyncio.CancelledError:
            if not stopped.is_set():
                raise

    asyncio.run(watched())
