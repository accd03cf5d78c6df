"""The beginning of both demos: the settings, the server and the stream of orders.

Owns the choice of free ports. The module needs no extra: the demo runs without Spark, too.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import tradewind
from tradewind.errors import ServerStartError
from tradewind.pipelines.demo.orders import STREAM, SUBJECTS
from tradewind.pipelines.errors import JobError
from tradewind.private_files import replace_private
from tradewind.spark.processes.local_master import LOCAL_MASTER

if TYPE_CHECKING:
    from tradewind.pipelines.demo.screen import DemoMoment
    from tradewind.server.embedded import ServerThread
    from tradewind.sync import Connection

# The server takes a port that is free, and says which.
ANY_PORT: Final = -1
SERVER_NAME: Final = "tradewind-demo"
SYSTEM_USER: Final = "system"
PASSWORD_BYTES: Final = 16
CONFIG_FILE: Final = "demo.conf"
# Clients become the user of the global account without a login; its password is never used.
CONFIG: Final = """
authorization {{ users: [ {{ user: demo, password: "{password}" }} ] }}
no_auth_user: demo
accounts {{ $SYS {{ users: [ {{ user: system, password: "{password}" }} ] }} }}
"""


@dataclass(frozen=True)
class DemoSettings:
    """The settings of a demo, as the command line gives them."""

    folder: Path
    port: int = 4222
    monitor_port: int = 8222
    seconds: float | None = None
    orders_per_second: float = 40.0
    master: str = LOCAL_MASTER
    program: str = "tradewind"


def _nothing(_text: str) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Screen:
    """How the job is shown: lines as they come, and the picture of a moment."""

    say: Callable[[str], None]
    draw: Callable[[DemoMoment], None]
    # A line that replaces itself, until something else is drawn; called from another thread.
    wait: Callable[[str], None] = _nothing


# Given the url of the server, and that with a login of the system account: something beside it,
# with the address at which people find it.
Companion = Callable[[str, str], AbstractContextManager[str]]


class DemoServer(msgspec.Struct, frozen=True):
    """The running server; `system_url` has a login of the system account."""

    thread: ServerThread
    system_url: str

    @property
    def url(self) -> str:
        """The address for clients, which need no login."""
        return self.thread.url

    @property
    def monitor_url(self) -> str:
        """The address of the monitoring pages."""
        return self.thread.monitor_url


def start_server(settings: DemoSettings, opened: ExitStack, screen: Screen) -> DemoServer:
    """The server on the ports that were asked for, or on free ones if these are taken.

    Clients need no login. The system account has one with a new password, for the dashboard.
    """
    port, monitor_port = settings.port, settings.monitor_port
    if port > 0 and _is_taken(port):
        screen.say(f"Port {port} is taken; the server takes a free one.")
        port = ANY_PORT
    if monitor_port <= 0 or _is_taken(monitor_port):
        monitor_port = ANY_PORT
    password = secrets.token_hex(PASSWORD_BYTES)
    config = settings.folder / CONFIG_FILE
    replace_private(config, CONFIG.format(password=password).encode())
    try:
        server = opened.enter_context(
            tradewind.serve(
                str(config),
                host="127.0.0.1",
                port=port,
                http_port=monitor_port,
                jetstream=str(settings.folder / "store"),
                server_name=SERVER_NAME,
            )
        )
    except ServerStartError as error:
        raise JobError(f"the server could not be started: {error}") from None
    finally:
        config.unlink(missing_ok=True)
    screen.say(
        f"Tradewind listens on {server.url}, monitoring is on {server.monitor_url},"
        f" everything is kept in {settings.folder}"
    )
    system_url = server.url.replace("://", f"://{SYSTEM_USER}:{password}@", 1)
    return DemoServer(server, system_url)


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def ensure_stream(connection: Connection) -> None:
    """Create the stream of the orders unless it is there."""
    streams = connection.jetstream_manager().streams
    # A list is asked for, since a request for a missing stream would count as refused.
    if STREAM not in streams.names().all():
        streams.add(name=STREAM, subjects=list(SUBJECTS), allow_direct=True)
