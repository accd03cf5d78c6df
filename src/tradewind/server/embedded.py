"""A server inside another program: as an async context manager, or in its own thread.

Owns the translation from keyword arguments to options, and the life of the thread. The server is
the same one that `tradewind-server` runs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from os import PathLike, fspath
from typing import Any

from msgspec.structs import replace

from tradewind.clock import Clock, ShiftedClock
from tradewind.durations import SECOND_NS
from tradewind.errors import ConfigError, ServerStartError
from tradewind.options import JetStreamOptions, ServerOptions
from tradewind.server.config.load import load_config_file
from tradewind.server.lifecycle.app import ServerApp
from tradewind.server.monitoring.logs import Log, open_log

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0
_SETTINGS = frozenset(ServerOptions.__struct_fields__)


def embedded_options(config: str | None, settings: dict[str, Any]) -> ServerOptions:
    """Options from a configuration file and keyword arguments; by default, loopback and any free
    port.
    """
    base = load_config_file(config).options if config else ServerOptions(host="127.0.0.1", port=-1)
    for name in settings:
        if name not in _SETTINGS:
            near = get_close_matches(name, _SETTINGS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"unknown setting {name!r}{hint}")
    if settings.get("port") == 0:
        settings = {**settings, "port": -1}
    if "jetstream" in settings:
        settings = {**settings, "jetstream": _jetstream(settings["jetstream"], base.jetstream)}
    return replace(base, **settings)


def _jetstream(wanted: object, base: JetStreamOptions) -> JetStreamOptions:
    """The JetStream options for True, a folder, or complete options."""
    if isinstance(wanted, JetStreamOptions):
        return wanted
    if isinstance(wanted, bool):
        return replace(base, enabled=wanted)
    if isinstance(wanted, str | PathLike):
        return replace(base, enabled=True, store_dir=fspath(wanted))
    raise ConfigError(
        f"jetstream must be true, false, a folder or JetStreamOptions, not {wanted!r}"
    )


class NullSink:
    """A log sink that drops every line: an embedded server logs nothing unless asked to."""

    def write(self, level: str, prefix: str, text: str) -> None:
        """Drop the line."""

    def reopen(self) -> bool:
        """Do nothing: there is no file."""
        return False

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class Server(ServerApp):
    """A server in the running event loop.

    >>> async with tradewind.Server() as server:          # doctest: +SKIP
    ...     client = await nats.connect(server.url)

    Keyword arguments are the names of `tradewind.options.ServerOptions`; `config` is the path of a
    configuration file that they override. Without any, the server listens on a free port of
    127.0.0.1 and logs nothing; `log=True` logs to stderr. `jetstream="folder"` stores streams
    there. `clock` is for tests, see `tradewind.testing`.
    """

    def __init__(
        self,
        config: str | None = None,
        *,
        log: bool = False,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        options = embedded_options(config, settings)
        super().__init__(
            options,
            open_log(options) if log else Log(options, NullSink()),
            lambda: embedded_options(config, settings),
            clock,
        )


class ServerThread:
    """A running server, as seen from other threads."""

    def __init__(
        self,
        url: str,
        port: int,
        websocket_url: str,
        monitor_url: str,
        server: Server,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.url = url
        self.port = port
        self.websocket_url = websocket_url
        self.monitor_url = monitor_url
        self._server = server
        self._loop = loop

    def advance(self, seconds: float) -> None:
        """Advance the clock of a server that was started with a `ShiftedClock`; timers that are due
        have fired when this returns.
        """
        future = asyncio.run_coroutine_threadsafe(self._advance(seconds), self._loop)
        future.result(START_SECONDS_MAX)

    async def _advance(self, seconds: float) -> None:
        clock = self._server.broker.clock
        if not isinstance(clock, ShiftedClock):
            raise ConfigError("advance requires a server with clock=ShiftedClock()")
        clock.shift_ns(round(seconds * SECOND_NS))
        self._server.turns.tick()

    def reload(self) -> None:
        """Read the configuration file again."""
        future = asyncio.run_coroutine_threadsafe(self._server.reload(), self._loop)
        future.result(START_SECONDS_MAX)


@contextmanager
def serve(
    config: str | None = None,
    *,
    log: bool = False,
    clock: Clock | None = None,
    **settings: Any,
) -> Iterator[ServerThread]:
    """Run a server in a thread for the duration of a `with` block.

    >>> with tradewind.serve(port=0) as server:           # doctest: +SKIP
    ...     print(server.url)

    Takes the same arguments as `Server`.
    """
    embedded_options(config, settings)  # a bad setting fails here, not in the thread
    ready = threading.Event()
    state: dict[str, Any] = {}

    async def main() -> None:
        server = Server(config, log=log, clock=clock, **settings)
        stop = asyncio.Event()
        try:
            async with server:
                state["handle"] = ServerThread(
                    server.url,
                    server.port,
                    server.websocket_url,
                    server.monitor_url,
                    server,
                    asyncio.get_running_loop(),
                )
                state["stop"] = stop
                ready.set()
                await stop.wait()
        except BaseException as error:
            state["error"] = error
            ready.set()
            raise

    def run() -> None:
        import uvloop

        # The error of a failed start is raised to the caller below.
        new_loop = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=new_loop) as runner, suppress(ServerStartError):
            runner.run(main())

    thread = threading.Thread(target=run, name="tradewind-server", daemon=True)
    thread.start()
    if not ready.wait(START_SECONDS_MAX):
        raise ServerStartError(f"the server did not start within {START_SECONDS_MAX:g} s")
    if "error" in state:
        thread.join(STOP_SECONDS_MAX)
        raise state["error"]
    handle: ServerThread = state["handle"]
    try:
        yield handle
    finally:
        handle._loop.call_soon_threadsafe(state["stop"].set)
        thread.join(STOP_SECONDS_MAX)
