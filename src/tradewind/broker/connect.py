"""CONNECT: from JSON to options, with the merge rules of nats-server.

Owns the field names and defaults of CONNECT. A repeated CONNECT changes only the fields it
contains; `null` means absent; keys are case-insensitive; unknown keys are ignored; a wrong type is
an error of the peer.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tradewind.errors import JSON_ERRORS, ProtocolError

_PROTOCOL_INT_MAX = 2**63


class ConnectRequest(msgspec.Struct, frozen=True):
    """What a client said of itself. The defaults hold until it says anything: a bare telnet is
    verbose and pedantic.
    """

    verbose: bool = True
    pedantic: bool = True
    tls_required: bool = False
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    user: str = ""
    password: str = ""
    token: str = ""
    nkey: str = ""
    signature: str = ""
    jwt: str = ""
    name: str = ""
    lang: str = ""
    version: str = ""
    account: str = ""
    new_account: bool = False
    proxy_signature: str = ""

    def __repr__(self) -> str:
        """Without anything that is secret."""
        return (
            f"ConnectRequest(user={self.user!r}, nkey={self.nkey!r}, name={self.name!r},"
            f" lang={self.lang!r}, version={self.version!r})"
        )


# JSON name -> (field, type)
_FIELDS: dict[str, tuple[str, type]] = {
    "verbose": ("verbose", bool),
    "pedantic": ("pedantic", bool),
    "tls_required": ("tls_required", bool),
    "echo": ("echo", bool),
    "headers": ("headers", bool),
    "no_responders": ("no_responders", bool),
    "protocol": ("protocol", int),
    "user": ("user", str),
    "pass": ("password", str),
    "auth_token": ("token", str),
    "nkey": ("nkey", str),
    "sig": ("signature", str),
    "jwt": ("jwt", str),
    "name": ("name", str),
    "lang": ("lang", str),
    "version": ("version", str),
    "account": ("account", str),
    "new_account": ("new_account", bool),
    "proxy_sig": ("proxy_signature", str),
}


def parse_connect(argument: bytes, current: ConnectRequest) -> ConnectRequest:
    """Merge the JSON of a CONNECT into `current`; ProtocolError when it is not as it should be."""
    try:
        document: Any = msgspec.json.decode(argument.decode("utf-8", "replace"))
    except JSON_ERRORS as error:
        raise ProtocolError(f"CONNECT is not valid JSON: {error}") from None
    if document is None:
        return current
    if not isinstance(document, dict):
        raise ProtocolError("CONNECT takes a JSON object")
    changes: dict[str, Any] = {}
    for key, value in document.items():
        entry = _FIELDS.get(key.lower())
        if entry is None or value is None:
            continue
        name, kind = entry
        too_large = isinstance(value, int) and abs(value) >= _PROTOCOL_INT_MAX
        if type(value) is not kind or too_large:
            raise ProtocolError(f"CONNECT field {key!r} takes a {kind.__name__}")
        changes[name] = value
    return msgspec.structs.replace(current, **changes)
