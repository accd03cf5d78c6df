"""Credentials that a browser sends as cookies with its WebSocket request.

Owns parsing the Cookie header as nats-server (Go's net/http) does. It never makes decisions: the
gate checks these credentials like any others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from tradewind.broker.identity import Credentials
from tradewind.options import WebsocketOptions

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_VALUE = re.compile(r"[ !#-:<-\[\]-~]*\Z")  # printable ASCII without quote, semicolon and backslash


def parse_cookies(lines: Iterable[str]) -> dict[str, str]:
    """Name to value of Cookie header lines.

    A malformed cookie is dropped; of several cookies with the same name, the last one counts.
    """
    cookies: dict[str, str] = {}
    for line in lines:
        for part in line.split(";"):
            name, equals, value = part.strip(" \t").partition("=")
            if len(value) > 1 and value[0] == value[-1] == '"':
                value = value[1:-1]
            if equals and _NAME.match(name) and _VALUE.match(value):
                cookies[name] = value
    return cookies


def credentials_from_cookies(
    options: WebsocketOptions, cookies: Mapping[str, str], credentials: Credentials
) -> Credentials:
    """`credentials` with each value that CONNECT left empty taken from its cookie, if sent."""
    sources = {
        "user": options.user_cookie,
        "password": options.pass_cookie,
        "token": options.token_cookie,
        "jwt": options.jwt_cookie,
    }
    found = {
        field: cookies[name]
        for field, name in sources.items()
        if name and name in cookies and not getattr(credentials, field)
    }
    return replace(credentials, **found)  # only its str fields
