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
# Next to each other in that order: the fields that differ between connections.
OWN_FIELDS = frozenset(("client_id", "client_ip", "nonce"))
# A client_id that no connection has: stands for the own fields of a connection.
_PLACE = -(2**53)
_PLACE_BYTES = b'"client_id":%d' % _PLACE
# More lines than this are not kept; there is one for each account of clients.
FRAMES_MAX = 256
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
    return b"INFO " + _escaped(_encode(ordered)) + b" \r\n"


def _escaped(data: bytes) -> bytes:
    for character, escape in _ESCAPES:
        data = data.replace(character, escape)
    return data


class ListenerInfo(msgspec.Struct):
    """The fields that differ between listeners: filled in by the server after binding them."""

    host: str = ""
    port: int = 0
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    connect_urls: tuple[str, ...] = ()
    ping_interval_ns: int = 0  # 0: the server's


# The INFO line of one kind of connection: what is before and after its own fields.
_Frame = tuple[bytes, bytes]


class CommonInfo(msgspec.Struct):
    """The part of INFO that all connections share."""

    server_id: str
    server_name: str
    headers: bool = True
    jetstream: bool = False
    domain: str = ""
    xkey: str = ""  # with which services of auth callouts encrypt their responses
    listeners: dict[str, ListenerInfo] = msgspec.field(default_factory=dict)
    # Lines that were sent lately, without the fields of a connection. The key has all other values.
    frames: dict[tuple[Any, ...], _Frame] = msgspec.field(default_factory=dict)

    def listener(self, connection_type: str) -> ListenerInfo:
        """The fields of one kind of listener, created on first use."""
        return self.listeners.setdefault(connection_type, ListenerInfo())

    def line(self, connection_type: str, own: dict[str, Any], **extra: Any) -> bytes:
        """The INFO line of one connection; `own` has the fields that no other connection has."""
        assert own.keys() <= OWN_FIELDS, own.keys() - OWN_FIELDS
        key = (
            self.server_id,
            self.server_name,
            self.headers,
            self.jetstream,
            self.domain,
            self.xkey,
            self.listener("STANDARD").tls_verify,
            *msgspec.structs.astuple(self.listener(connection_type)),
            *extra.items(),
        )
        frame = self.frames.get(key)
        if frame is None:
            if len(self.frames) >= FRAMES_MAX:
                self.frames.clear()
            frame = self.frames[key] = self._frame(connection_type, extra)
        before, after = frame
        shown = {name: value for name, value in own.items() if value}
        return before + _escaped(_encode(shown))[1:-1] + after

    def _frame(self, connection_type: str, extra: dict[str, Any]) -> _Frame:
        line = encode_info({**self._fields(connection_type), **extra, "client_id": _PLACE})
        before, _, after = line.partition(_PLACE_BYTES)
        return before, after

    def _fields(self, connection_type: str) -> dict[str, Any]:
        """The fields that connections of one listener share."""
        listener = self.listener(connection_type)
        return {
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
        }
