"""INFO: the description of the server, for all connections and for one connection.

Owns the field names, their order and when they are omitted. It never decides anything.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from tradewind._version import __version__
from tradewind.wire import ops

# Go clients never read it, tools print it: it names what the server runs on.
RUNTIME = f"python{sys.version.split()[0]}"
_encode = msgspec.json.Encoder().encode


class ListenerInfo(msgspec.Struct):
    """What differs between listeners: filled in by the server when it has bound them."""

    host: str = ""
    port: int = 0
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    connect_urls: tuple[str, ...] = ()
    ping_interval_ns: int = 0  # 0: the server's


class CommonInfo(msgspec.Struct):
    """The part of INFO that all connections share."""

    server_id: str
    server_name: str
    headers: bool = True
    jetstream: bool = False
    domain: str = ""
    xkey: str = ""  # by which services of auth callouts encrypt their answers
    listeners: dict[str, ListenerInfo] = msgspec.field(default_factory=dict)

    def listener(self, connection_type: str) -> ListenerInfo:
        """The part of one kind of listener, made on first use."""
        return self.listeners.setdefault(connection_type, ListenerInfo())

    def line(self, connection_type: str, **extra: Any) -> bytes:
        """The INFO line; whatever is empty, zero or false is left out, except what clients always
        expect.
        """
        listener = self.listener(connection_type)
        optional = {
            "jetstream": self.jetstream,
            "tls_required": listener.tls_required,
            "tls_verify": listener.tls_verify,
            "tls_available": listener.tls_available,
            "connect_urls": listener.connect_urls,
            "domain": self.domain,
            "xkey": self.xkey,
            **extra,
        }
        fields = {
            "server_id": self.server_id,
            "server_name": self.server_name,
            "version": ops.NATS_VERSION,
            "proto": ops.PROTOCOL_VERSION,
            "go": RUNTIME,
            "tradewind": __version__,
            "host": listener.host,
            "port": listener.port,
            "headers": self.headers,
            **{key: value for key, value in optional.items() if value},
            "api_lvl": ops.JETSTREAM_API_LEVEL,
        }
        return b"INFO " + _encode(fields) + b" \r\n"
