"""Credentials that a browser sends as cookies with its websocket request.

Owns reading the Cookie header the way nats-server (Go's net/http) reads it. It never decides
anything: what it finds goes to the gate like any other credential.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tradewind.broker.identity import Credentials
from tradewind.server.options import WebsocketOptions

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_VALUE = re.compile(r"[ !#-:<-\[\]-~]*\Z")  # printable ASCII without quote, semicolon and backslash


def credentials_from_cookies(
    options: WebsocketOptions, cookie_header: str, credentials: Credentials
) -> Credentials:
    """`credentials` with each value that CONNECT left empty taken from its cookie, if sent."""
    sources = {
        "user": options.user_cookie,
        "password": options.pass_cookie,
        "token": options.token_cookie,
        "jwt": options.jwt_cookie,
    }
    wanted = {field: name for field, name in sources.items() if name}
    if not wanted or not cookie_header:
        return credentials
    cookies = _parse(cookie_header)
    filled = {
        field: cookies[name]
        for field, name in wanted.items()
        if name in cookies and not getattr(credentials, field)
    }
    return replace(credentials, **filled)  # type: ignore[arg-type]  # only its str fields


def _parse(header: str) -> dict[str, str]:
    """Name to value; a malformed cookie is dropped, of several with one name the last counts."""
    cookies: dict[str, str] = {}
    for part in header.split(";"):
        name, _, value = part.strip(" \t").partition("=")
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if _NAME.match(name) and _VALUE.match(value):
            cookies[name] = value
    return cookies
