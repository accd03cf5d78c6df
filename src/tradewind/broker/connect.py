"""CONNECT: from JSON to options, with the merge rules of nats-server.

Owns the field names and defaults of CONNECT. A repeated CONNECT changes only the fields it
contains; `null` means absent; keys are case-insensitive; unknown keys are ignored; a wrong type is
an error of the peer, also where a later key of the same name has the right one.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from tradewind.errors import JSON_ERRORS, ProtocolError

if TYPE_CHECKING:
    from json import JSONDecoder

# Python reads no longer integers, and Go accepts none that needs more bits.
_INTEGER_CHARACTERS_MAX: Final = 20
_INTEGER: Final = re.compile(r"-?\d+\Z")


class ConnectRequest(msgspec.Struct, frozen=True):
    """The fields of a client's CONNECT. The defaults apply until a field is sent: a bare telnet is
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
        """A text without the secrets."""
        return (
            f"ConnectRequest(user={self.user!r}, nkey={self.nkey!r}, name={self.name!r},"
            f" lang={self.lang!r}, version={self.version!r})"
        )


class _Number(str):
    """The text of a number: for fields that are not used, any number is valid."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """The members of an object, including those with equal names."""

    __slots__ = ()


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
    # Other servers send these; a client may, if they are well-formed.
    "remote_account": ("", str),
    "import": ("", dict),
    "export": ("", dict),
}


def parse_connect(argument: bytes, current: ConnectRequest) -> ConnectRequest:
    """Merge the JSON of a CONNECT into `current`; ProtocolError if it is not valid."""
    try:
        document: Any = _decoder().decode(argument.decode("utf-8", "replace"))
    except JSON_ERRORS as error:
        raise ProtocolError(f"CONNECT is not valid JSON: {error}") from None
    if document is None:
        return current
    if type(document) is not _Members:
        raise ProtocolError("CONNECT takes a JSON object")
    changes: dict[str, Any] = {}
    for key, value in document:
        entry = _FIELDS.get(folded(key))
        if entry is None or value is None:
            continue
        name, kind = entry
        checked = _checked(value, kind)
        if checked is None:
            raise ProtocolError(f"CONNECT field {key!r} takes a {kind.__name__}")
        if name:
            changes[name] = checked
    return msgspec.structs.replace(current, **changes)


@cache
def _decoder() -> JSONDecoder:
    # Loaded with the first CONNECT: a server starts sooner without it.
    from json import JSONDecoder

    return JSONDecoder(
        object_pairs_hook=_Members,
        parse_int=_Number,
        parse_float=_Number,
        parse_constant=_refuse_constant,
    )


def folded(key: str) -> str:
    """A key in the form for comparisons: Go takes the long s for an s, and the sign for Kelvin for
    a K.
    """
    return key.lower().replace("\u017f", "s")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _checked(value: Any, kind: type) -> Any:
    """The value if it is of this kind, else None."""
    if kind is int:
        return _integer(value)
    if kind is str:
        return _text(value) if type(value) is str else None
    if kind is dict:
        return value if _are_subject_rules(value) else None
    return value if type(value) is kind else None


def _text(value: str) -> str:
    if value.isascii():
        return value
    from tradewind.api.go_json import join_halves

    return join_halves(value)


def _integer(value: Any) -> int | None:
    if type(value) is not _Number or not _INTEGER.match(value):
        return None
    number = int(value) if len(value) <= _INTEGER_CHARACTERS_MAX else 1 << 63
    return number if -(1 << 63) <= number < 1 << 63 else None


def _are_subject_rules(value: Any) -> bool:
    """Whether a value is an object whose `allow` and `deny` are lists of subjects."""
    return type(value) is _Members and all(
        rules is None
        or (type(rules) is list and all(rule is None or type(rule) is str for rule in rules))
        for name, rules in value
        if folded(name) in ("allow", "deny")
    )
