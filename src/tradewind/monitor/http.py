"""Serve the monitoring pages from the server's event loop.

Owns the listening socket and the limits per HTTP client: header size, number of connections, and
the time for one request and its response. It never installs signal handlers and never writes an
access log; the contents of pages are in `pages`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tradewind.errors import ServerStartError
from tradewind.interfaces import reachable_urls
from tradewind.monitor.facade import MonitorView
from tradewind.monitor.pages import Guest, build_application
from tradewind.options import LOOPBACK
from tradewind.own_addresses import Sockets, listen_on, listen_reason

HEADER_BYTES_MAX = 16 * 1024
CONNECTIONS_MAX = 256
KEEP_ALIVE_SECONDS = 5
# From the end of one response (or the connect) to the end of the next: also ends clients that send
# or read too slowly.
REQUEST_SECONDS = 30.0
STOP_SECONDS = 2
_BACKLOG = 128


class _BoundedProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for each request together with its response."""

    request_seconds = REQUEST_SECONDS
    _deadline: asyncio.TimerHandle | None = None

    def _restart_deadline(self) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(self.request_seconds, self.transport.abort)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called when a client has connected."""
        super().connection_made(transport)
        self._restart_deadline()

    def on_response_complete(self) -> None:
        """Called when a response was written."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._restart_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection has closed."""
        self._stop_deadline()
        super().connection_lost(exc)


class _EmbeddedServer(uvicorn.Server):
    """uvicorn inside another program, which handles the signals and the shutdown."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signal handlers unchanged."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, and set `ready` once connections are accepted."""
        await super().startup(sockets)
        self.ready.set_result(None)

    async def main_loop(self) -> None:
        """Wake once a second for the Date header, instead of ten times."""
        while not self._stopping.is_set():
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)

    def ask_to_stop(self) -> None:
        """Let `serve` return soon."""
        self.should_exit = True
        self._stopping.set()


def _bind(host: str, port: int) -> Sockets:
    """Listen on all addresses; ServerStartError with the text that tools know from nats-server."""
    try:
        return listen_on(host, port, _BACKLOG)
    except OSError as error:
        reason = listen_reason(host, port, error)
        raise ServerStartError(f"can't listen to the monitor port: {reason}") from error


class MonitorServer:
    """The monitoring listener. An empty `host` means loopback only, `port` -1 or 0 any free
    port.
    """

    def __init__(
        self,
        view: MonitorView,
        host: str,
        port: int,
        ssl_context: ssl.SSLContext | None = None,
        base_path: str = "",
        guests: Sequence[Guest] = (),
    ) -> None:
        self._view = view
        self._host = host or LOOPBACK
        self._port = port
        self._ssl_context = ssl_context
        self._base_path = base_path
        self._guests = guests
        self.urls: list[str] = []  # of all addresses, once it has started
        self._server: _EmbeddedServer | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Start serving; returns the bound port. Raises ServerStartError if the address is not
        available.
        """
        sockets = _bind(self._host, self._port)
        port: int = sockets[0].getsockname()[1]
        self.urls = reachable_urls(sockets, "http" if self._ssl_context is None else "https")
        server = _EmbeddedServer(self._config())
        task = asyncio.create_task(server.serve(sockets), name="monitor")
        await asyncio.wait({task, server.ready}, return_when=asyncio.FIRST_COMPLETED)
        if not server.ready.done():
            for listening in sockets:
                listening.close()
            await task
        self._server, self._task = server, task
        return port

    async def stop(self) -> None:
        """Close the listener and all connections; does nothing if it never started."""
        server, task = self._server, self._task
        self._server = self._task = None
        if server is not None and task is not None:
            server.ask_to_stop()
            await task

    def _config(self) -> uvicorn.Config:
        settings: dict[str, Any] = {}
        context = self._ssl_context
        if context is not None:
            settings["ssl_context_factory"] = lambda *_: context
        return uvicorn.Config(
            build_application(self._view, self._base_path, self._guests),
            http=_BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
            **settings,
        )
