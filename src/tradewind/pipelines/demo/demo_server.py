"""The beginning of both demos: the settings, the server and the stream of orders.

Owns the choice of free ports. The module needs no extra: the demo runs without Spark, too.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tradewind
from tradewind.client.api_errors import StreamNotFoundError
from tradewind.errors import ServerStartError
from tradewind.pipelines.demo.orders import STREAM, SUBJECTS
from tradewind.pipelines.errors import JobError
from tradewind.spark.processes.local_master import LOCAL_MASTER

if TYPE_CHECKING:
    from tradewind.pipelines.demo.screen import DemoMoment
    from tradewind.server.embedded import ServerThread
    from tradewind.sync import Connection

# The server takes a port that is free, and says which.
ANY_PORT: Final = -1


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


@dataclass(frozen=True)
class Screen:
    """How the job is shown: lines as they come, and the picture of a moment."""

    say: Callable[[str], None]
    draw: Callable[[DemoMoment], None]


# Given the url of the server: something beside it, with the address at which people find it.
Companion = Callable[[str], AbstractContextManager[str]]


def start_server(settings: DemoSettings, opened: ExitStack, screen: Screen) -> ServerThread:
    """The server on the ports that were asked for, or on free ones if these are taken."""
    port, monitor_port = settings.port, settings.monitor_port
    if port > 0 and _is_taken(port):
        screen.say(f"Port {port} is taken; the server takes a free one.")
        port = ANY_PORT
    if monitor_port <= 0 or _is_taken(monitor_port):
        monitor_port = ANY_PORT
    try:
        server = opened.enter_context(
            tradewind.serve(
                port=port, http_port=monitor_port, jetstream=str(settings.folder / "store")
            )
        )
    except ServerStartError as error:
        raise JobError(f"the server could not be started: {error}") from None
    screen.say(
        f"Tradewind listens on {server.url}, monitoring is on {server.monitor_url},"
        f" everything is kept in {settings.folder}"
    )
    return server


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
    try:
        streams.info(STREAM)
    except StreamNotFoundError:
        streams.add(name=STREAM, subjects=list(SUBJECTS))
