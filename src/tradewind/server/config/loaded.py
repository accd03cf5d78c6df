"""The result of loading a configuration file. The module is separate from the parser, which a start
without a file does not need.
"""

from __future__ import annotations

import msgspec

from tradewind.errors import ConfigError
from tradewind.options import ServerOptions


class LoadedConfig(msgspec.Struct, frozen=True):
    """The content of a configuration file. `warnings` do not stop a start but fail a `-t`, as in
    nats-server.
    """

    options: ServerOptions
    warnings: tuple[ConfigError, ...]
