"""The monitoring ports of a running server: one for HTTP, one for HTTPS.

Owns their servers from start to stop, the applications that are served beside the pages, and the
certificate of HTTPS, which a reload can change. The content of the pages is up to `monitor`, which
is imported only if there is a port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.errors import ServerStartError
from tradewind.options import LOOPBACK, ServerOptions
from tradewind.own_addresses import address_text
from tradewind.server.monitoring.logs import Log

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from tradewind.monitor.facade import MonitorView
    from tradewind.monitor.http import MonitorServer
    from tradewind.monitor.pages import Guest
    from tradewind.server.tls.tls import RenewableContext, ServerContext


class MonitorPorts:
    """The monitoring ports of one server. `servers` and `urls` list those that have started."""

    def __init__(self, view: MonitorView, log: Log) -> None:
        self._view = view
        self._log = log
        self._guests: list[Guest] = []
        self._tls: RenewableContext | None = None
        self.servers: list[MonitorServer] = []
        self.urls: list[str] = []

    def add_guest(self, label: str, path: str, application: ASGIApp) -> None:
        """Serve an application below a path, with a link on the index; must precede `start`."""
        from tradewind.monitor.pages import Guest

        if any(guest.path == path for guest in self._guests):
            raise ValueError(f"path {path!r} of a monitoring application is already taken")
        self._guests.append(Guest(label, path, application))

    async def start(self, options: ServerOptions) -> None:
        """Bind the configured ports; ServerStartError if that fails."""
        if options.https_port:
            from tradewind.server.tls.tls import renewable_context

            secure = monitor_tls(options)
            if secure is None:
                raise ServerStartError("https_port needs a tls block with a certificate")
            self._tls = renewable_context(secure)
        if options.http_port:
            await self._start("http", options, options.http_port, None)
        if options.https_port:
            await self._start("https", options, options.https_port, self._tls)

    async def _start(
        self, scheme: str, options: ServerOptions, port: int, context: RenewableContext | None
    ) -> None:
        from tradewind.monitor.http import MonitorServer

        host = options.http_host or LOOPBACK
        server = MonitorServer(
            self._view, host, port, context, options.http_base_path, self._guests
        )
        try:
            bound = await server.start()
        except ServerStartError as error:
            raise ServerStartError(f"Can't start monitoring: {error}") from None
        self.servers.append(server)
        self._log.notice(f"Starting {scheme} monitor on {address_text(host, bound)}")
        self.urls += server.urls

    def set_tls(self, context: ServerContext | None) -> None:
        """Use this certificate for later connections, if HTTPS has a port."""
        if self._tls is not None and context is not None:
            self._tls.current = context


def monitor_tls(options: ServerOptions) -> ServerContext | None:
    """The TLS context for the pages. As on nats-server, no client certificate is requested: pages
    have no login.
    """
    if options.tls is None or not options.https_port:
        return None
    from tradewind.server.tls.tls import server_context

    return server_context(options.tls, asks_client=False)
