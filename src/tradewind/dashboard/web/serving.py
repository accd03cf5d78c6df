"""Run the dashboard as a process or in a thread: address, TLS, start and stop.

Owns the checks of its settings: a dashboard that listens beyond this machine requires a login, and
TLS unless it is explicitly disabled.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import uvicorn

from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.data.history_file import HistoryFile
from tradewind.dashboard.data.machine import Machine
from tradewind.dashboard.data.pipeline_data import PipelineShelf
from tradewind.dashboard.data.runs import LaunchCommand, Runs
from tradewind.dashboard.data.workspace import server_names
from tradewind.dashboard.web.guard import LOOPBACK_NAMES, Guard, Policy
from tradewind.dashboard.web.running import RunRules
from tradewind.dashboard.web.sessions import Sessions
from tradewind.dashboard.web.web_app import build_application
from tradewind.errors import ConfigError, ServerStartError
from tradewind.own_addresses import Sockets, address_text, is_wildcard, listen_on

DEFAULT_PORT: Final = 8280
CONNECTIONS_MAX: Final = 256
HEADER_BYTES_MAX: Final = 32 * 1024
KEEP_ALIVE_SECONDS: Final = 20
STOP_SECONDS: Final = 1
BACKLOG: Final = 128
CONTEXTS_MAX: Final = 16
UNFINISHED: Final = "ASGI callable returned without completing response."


@dataclass(frozen=True)
class DashboardSettings:
    """The listening address, the visitors who are admitted, and the connection to NATS."""

    options: ConnectOptions = field(default_factory=ConnectOptions)
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    is_read_only: bool = False
    needs_login: bool = False
    https_cert_file: str = ""
    https_key_file: str = ""
    allow_plain_http: bool = False
    allowed_hosts: tuple[str, ...] = ()
    # Files of pipelines, or folders of such files.
    pipelines: tuple[str, ...] = ()
    allow_run: bool = False
    # Other servers that visitors can switch to, by the names of their contexts.
    contexts: Mapping[str, ConnectOptions] = field(default_factory=dict)
    # The file in which the charts of a day are saved.
    history_path: str = ""
    # A login of the system account for the figures of servers, which all visitors then see.
    system_options: ConnectOptions | None = None
    launching: LaunchCommand | None = None

    def __post_init__(self) -> None:
        if bool(self.https_cert_file) != bool(self.https_key_file):
            raise ConfigError("--https-cert and --https-key must be given together")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port must be from 0 to 65535, not {self.port}")
        if not self.is_local and not self.https_cert_file and not self.allow_plain_http:
            raise ConfigError(
                f"--host {self.host}: logins would be sent in clear text; specify --https-cert and "
                "--https-key, or --plain-http if something in front of it does TLS"
            )
        if self.history_path and self.asks_login:
            raise ConfigError(
                "--history: not with logins, since each visitor may see only what the login may"
            )
        if len(self.contexts) > CONTEXTS_MAX:
            raise ConfigError(f"--also: at most {CONTEXTS_MAX} contexts, not {len(self.contexts)}")
        _ = self.run_rules

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the dashboard."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def asks_login(self) -> bool:
        """Whether visitors have to log in."""
        return self.needs_login or not self.is_local

    @property
    def run_rules(self) -> RunRules:
        """The rules for running programs on this machine."""
        return RunRules(self.is_read_only, self.asks_login, self.allow_run)

    def history(self) -> HistoryFile | None:
        """The file of the charts' history; ConfigError if it cannot be used."""
        if not self.history_path:
            return None
        return HistoryFile(self.history_path, server_names(self.options.servers))

    def machine(self) -> Machine:
        """The pipelines of this machine, and how programs are started here.

        Pipelines that already run are shown only to their own user, not to every visitor who can
        log in.
        """
        shelf = PipelineShelf(self.pipelines, finds_running=not self.asks_login)
        return Machine(
            shelf, Runs(self.launching or LaunchCommand(environment=self._environment()))
        )

    def _environment(self) -> dict[str, str]:
        servers = self.options.servers
        return {"NATS_URL": servers if isinstance(servers, str) else ",".join(servers)}

    def policy(self) -> Policy:
        """The host names that the dashboard accepts."""
        names = {*LOOPBACK_NAMES, *(name.lower() for name in self.allowed_hosts)}
        if not self.is_local:
            names |= {self.host.lower(), socket.gethostname().lower()}
        return Policy(frozenset(names), "https" if self.https_cert_file else "http")


class Dashboard(uvicorn.Server):
    """One dashboard; `url` is known as soon as it is created."""

    def __init__(self, settings: DashboardSettings) -> None:
        self.settings = settings
        context = _tls(settings)
        self._machine = settings.machine()
        self._sockets = _bind(settings.host, settings.port)
        self.port: int = self._sockets[0].getsockname()[1]
        self.sessions: Sessions | None = None
        self._on_ready: Callable[[], None] = lambda: None
        super().__init__(self._config(context))

    @property
    def url(self) -> str:
        """The URL for a browser."""
        host = self.settings.host
        shown = "127.0.0.1" if is_wildcard(host) else host
        return f"{self.settings.policy().scheme}://{address_text(shown, self.port)}/"

    async def run_async(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until stopped by a signal or by `should_exit`."""
        settings = self.settings
        sessions = Sessions(
            settings.options,
            needs_login=settings.asks_login,
            history=settings.history(),
            system_options=settings.system_options,
            contexts=settings.contexts,
        )
        self.sessions = sessions
        application = build_application(
            sessions,
            self._machine,
            settings.run_rules,
            is_secure=bool(settings.https_cert_file),
            port=self.port,
        )
        self.config.app = Guard(application, settings.policy())
        self._on_ready = on_ready
        sessions.start()
        try:
            await self.serve(self._sockets)
        finally:
            await sessions.close()
            await self._machine.close()
            for listening in self._sockets:
                listening.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, and report that visitors are admitted."""
        await super().startup(sockets)
        self._on_ready()

    def _config(self, context: ssl.SSLContext | None) -> uvicorn.Config:
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        more: dict[str, Any] = {}
        if context is not None:
            more["ssl_context_factory"] = lambda *_: context
        return uvicorn.Config(
            _nothing,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
            **more,
        )


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record is worth logging: a file that failed on its way is unfinished on purpose,
    and its page says why.
    """
    return record.getMessage() != UNFINISHED


async def _nothing(_scope: Any, _receive: Any, _send: Any) -> None:
    """Do nothing: stands for the application until the loop is running in which it can be
    created.
    """


@contextlib.contextmanager
def running_dashboard(settings: DashboardSettings) -> Iterator[Dashboard]:
    """A dashboard in its own thread, ready when the block begins."""
    dashboard = Dashboard(settings)
    ready = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(dashboard.run_async(ready.set))
        except BaseException as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="dashboard", daemon=True)
    thread.start()
    ready.wait()
    if failures:
        raise failures[0]
    try:
        yield dashboard
    finally:
        dashboard.should_exit = True
        thread.join()


def _bind(host: str, port: int) -> Sockets:
    try:
        return listen_on(host, port, BACKLOG)
    except socket.gaierror as error:
        raise ServerStartError(f"--host {host}: {error.strerror or error}") from None
    except OSError as error:
        place = address_text(host, port)
        raise ServerStartError(
            f"the dashboard cannot listen on {place}: {error.strerror}; choose another --port"
        ) from None


def _tls(settings: DashboardSettings) -> ssl.SSLContext | None:
    if not settings.https_cert_file:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.https_cert_file, settings.https_key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--https-cert, --https-key: {error}") from None
    return context
