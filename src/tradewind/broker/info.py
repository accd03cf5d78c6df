"""INFO: the description of the server, for all connections and for one connection.

Owns the field names, their order and when they are omitted. It makes no decisions.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from tradewind._version import __version__
from tradewind.wire import ops

# Go clients never read it, tools print it: the runtime of the server.
RUNTIME = f"python{sys.version.split()[0]}"
_encode = msgspec.json.Encoder().encode
# In the order in which nats-server writes them, on connections of clients and of leaf nodes.
FIELD_ORDER = (
    *("server_id", "server_name", "version", "proto", "go", "tradewind", "host", "port"),
    *("headers", "auth_required", "tls_required", "tls_verify", "tls_available", "max_payload"),
    *("jetstream", "ip", "client_id", "client_ip", "nonce", "cluster", "domain", "connect_urls"),
    *("ldm", "compression", "connect_info", "remote_account", "acc_is_sys", "api_lvl", "xkey"),
    *("import", "export", "info_on_connect", "leafnode_urls"),
)
# Go escapes them in strings, and they are nowhere else.
_ESCAPES = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))
_KNOWN = frozenset(FIELD_ORDER)
_ALWAYS = frozenset(("host", "port", "headers", "max_payload", "leafnode_urls"))


def encode_info(fields: dict[str, Any]) -> bytes:
    """The line with these fields in their order, without those that are empty, zero or False,
    except for those that are always expected.
    """
    ordered = {
        name: fields[name]
        for name in FIELD_ORDER
        if name in fields and (fields[name] or name in _ALWAYS)
    }
    assert fields.keys() <= _KNOWN, fields.keys() - _KNOWN
    data = _encode(ordered)
    for character, escape in _ESCAPES:
        data = data.replace(character, escape)
    return b"INFO " + data + b" \r\n"


class ListenerInfo(msgspec.Struct):
    """The fields that differ between listeners: filled in by the server after binding them."""

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
    xkey: str = ""  # with which services of auth callouts encrypt their responses
    listeners: dict[str, ListenerInfo] = msgspec.field(default_factory=dict)

    def listener(self, connection_type: str) -> ListenerInfo:
        """The fields of one kind of listener, created on first use."""
        return self.listeners.setdefault(connection_type, ListenerInfo())

    def line(self, connection_type: str, **extra: Any) -> bytes:
        """The INFO line of one connection."""
        listener = self.listener(connection_type)
        return encode_info(
            {
                "server_id": self.server_id,
                "server_name": self.server_name,
                "version": ops.NATS_VERSION,
                "proto": ops.PROTOCOL_VERSION,
                "go": RUNTIME,
                "tradewind": __version__,
                "host": listener.host,
                "port": listener.port,
                "headers": self.headers,
                "jetstream": self.jetstream,
                "tls_required": listener.tls_required,
                # nats-server never mentions the certificates of the WebSocket listener.
                "tls_verify": self.listener("STANDARD").tls_verify,
                "tls_available": listener.tls_available,
                "connect_urls": listener.connect_urls,
                "domain": self.domain,
                "xkey": self.xkey,
                "api_lvl": ops.JETSTREAM_API_LEVEL,
                **extra,
            }
        )
