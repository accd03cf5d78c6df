"""What a configuration file says, without the parser that a start without a file can do without."""

from __future__ import annotations

import msgspec

from tradewind.errors import ConfigError
from tradewind.options import ServerOptions


class LoadedConfig(msgspec.Struct, frozen=True):
    """What a file says. `warnings` do not stop a start but fail a `-t`, as in nats-server."""

    options: ServerOptions
    warnings: tuple[ConfigError, ...]
