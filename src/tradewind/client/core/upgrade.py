"""The HTTP upgrade that starts a WebSocket connection, on the client side.

Owns the request and the check of the response. It never touches a socket.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping

from tradewind.client.core.first_lines import END_OF_HEAD, FirstLines
from tradewind.client.errors import ClientError
from tradewind.errors import ProtocolError

RESPONSE_BYTES_MAX = 1 << 16
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Upgrade:
    """One upgrade. `fields` are the headers of the response, by their names in lower case."""

    def __init__(self, host: str, path: str, headers: Mapping[str, str]) -> None:
        self._request = (host, path or "/", dict(headers))
        self._key = base64.b64encode(secrets.token_bytes(16))
        self._response = FirstLines(
            "the response to the WebSocket upgrade", END_OF_HEAD, RESPONSE_BYTES_MAX
        )
        self.fields: dict[str, str] = {}

    def request(self) -> bytes:
        """The HTTP request that asks for the upgrade."""
        host, path, headers = self._request
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {self._key.decode()}",
            "Sec-WebSocket-Version: 13",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode()

    def feed(self, data: bytes) -> bytes | None:
        """Take bytes of the response; returns those after it once it has accepted the upgrade."""
        complete = self._response.feed(data)
        if complete is None:
            return None
        head, rest = complete
        status, *lines = head.decode("latin-1").split("\r\n")
        self.fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        if not status.startswith("HTTP/1.1 101"):
            raise ClientError(f"the server refused the WebSocket upgrade: {status[:200]}")
        digest = hashlib.sha1(self._key + _GUID, usedforsecurity=False).digest()
        if self.fields.get("sec-websocket-accept", "") != base64.b64encode(digest).decode():
            raise ProtocolError("the response to the WebSocket upgrade does not match the request")
        return rest
