"""The log lines of a start, in the words of nats-server, because other tools read them."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tradewind._version import __version__
from tradewind.broker.broker import Broker
from tradewind.broker.contracts import BrokerLog
from tradewind.options import ServerOptions
from tradewind.wire import ops


def log_start(
    log: BrokerLog, broker: Broker, options: ServerOptions, notices: Iterable[str]
) -> None:
    """Log the name, the versions and the notices of the configuration."""
    log.notice("Starting nats-server")
    log.notice(f"  Version:  {ops.NATS_VERSION}")
    log.notice(f"  Server:   Tradewind {__version__}")
    log.debug(f"  Python:   {sys.version.split()[0]}")
    log.notice(f"  Name:     {broker.server_name}")
    log.notice(f"  ID:       {broker.server_id}")
    for notice in (*options.notices, *notices):
        log.warn(notice)
    if options.config_file:
        log.notice(f"Using configuration file: {options.config_file} ({options.config_digest})")
