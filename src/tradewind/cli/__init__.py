"""The command line: `tradewind`, for any NATS server.

`frame` describes how to add a command. Commands use the client library and never import the broker
or the engine, so they work with nats-server too.
"""

from __future__ import annotations

from tradewind.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tradewind.cli.main import run

__all__ = ["run"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {"run": "tradewind.cli.main"})
