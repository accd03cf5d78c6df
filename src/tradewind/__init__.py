"""Tradewind: a NATS-compatible server in Python, and a client for it and any other.

`connect` connects to a server. `Server` and `serve` run a NATS-compatible server inside a
program; `tradewind-server` runs it as a process. Names are imported on first use, so that importing
the package costs nothing.
"""

from __future__ import annotations

from tradewind._version import __version__

TYPE_CHECKING = False  # as in typing, which takes longer to import than everything here
if TYPE_CHECKING:
    from typing import Any

    from tradewind.client.connection import Connection, connect
    from tradewind.client.running.retries import GiveUp, Retry, RetryLater, Skip
    from tradewind.server.embedded import Server, ServerThread, serve
    from tradewind.worker.worker_app import Worker

_LAZY = {
    "Connection": "tradewind.client.connection",
    "GiveUp": "tradewind.client.running.retries",
    "Retry": "tradewind.client.running.retries",
    "RetryLater": "tradewind.client.running.retries",
    "Server": "tradewind.server.embedded",
    "ServerThread": "tradewind.server.embedded",
    "Skip": "tradewind.client.running.retries",
    "Worker": "tradewind.worker.worker_app",
    "connect": "tradewind.client.connection",
    "serve": "tradewind.server.embedded",
}

__all__ = [
    "Connection",
    "GiveUp",
    "Retry",
    "RetryLater",
    "Server",
    "ServerThread",
    "Skip",
    "Worker",
    "__version__",
    "connect",
    "serve",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name == "sync":
        return importlib.import_module("tradewind.sync")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
