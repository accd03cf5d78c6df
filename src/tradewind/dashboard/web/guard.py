"""Decide by its headers whether a request is answered at all, before anything else is done.

Owns the rules against forged requests and the headers of every response.

- The host must be a name of the dashboard, which prevents DNS rebinding. A numeric address is
  always accepted, because it cannot be rebound.
- A request that changes something must come from a page of the dashboard itself (and carry its
  token, see `sessions`); other sites may only link to it, not embed or fetch it.
- There is no WebSocket, so none can be opened from elsewhere.
- A response is sent after the body of its request has been read, within bounds: if a connection is
  closed with unread bytes, the system discards the response, and the browser never learns why a
  request was refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (
        b"content-security-policy",
        CONTENT_POLICY,
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not `no-referrer`: browsers would then hide the origin of our own forms.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
READING: Final = frozenset(("GET", "HEAD"))
METHODS: Final = READING | {"POST", "PUT"}
LOOPBACK_NAMES: Final = frozenset(("localhost",))
# How much of an unwanted body is read, and for how long, before its request is answered.
UNWANTED_BYTES_MAX: Final = 16 << 20
UNWANTED_SECONDS_MAX: Final = 5.0
# The destinations with which a document of another site would embed a page.
EMBEDDED: Final = frozenset(("iframe", "frame", "embed", "object"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a request is not answered."""

    status: int
    text: str


@dataclass(frozen=True, slots=True)
class Policy:
    """The host names of the dashboard, besides numeric addresses, and its scheme."""

    names: frozenset[str] = LOOPBACK_NAMES
    scheme: str = "http"


def host_name(host: str) -> str:
    """The name in a Host header, without the port; "" if the header is not valid."""
    try:
        parts = urlsplit(f"//{host}")
        has_more = parts.path or parts.query or parts.fragment or "@" in host
        _ = parts.port
    except ValueError:
        return ""
    return "" if has_more else (parts.hostname or "")


def is_address(name: str) -> bool:
    """Whether a name is a numeric address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def judge(method: str, headers: Mapping[str, str], policy: Policy) -> Refusal | None:
    """Why a request is refused; None if it is accepted. Names of headers are in lower case."""
    host = headers.get("host", "")
    name = host_name(host).lower()
    if not name or not (name in policy.names or is_address(name)):
        shown = host[:80] or "no name"
        return Refusal(
            421, f"The dashboard does not serve the host name {shown!r}; see --allow-host."
        )
    if method not in METHODS:
        return Refusal(405, f"{method[:20]} is not supported here.")
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and origin.lower() != f"{policy.scheme}://{host}".lower():
        return Refusal(403, "This request comes from a page of another site.")
    if method not in READING:
        if site not in (None, "same-origin", "none"):
            return Refusal(403, "This request comes from a page of another site.")
        return None
    is_visit = headers.get("sec-fetch-mode") in (None, "navigate")
    if site in ("cross-site", "same-site") and not is_visit:
        return Refusal(403, "Other sites may link to the dashboard, but not read it.")
    if headers.get("sec-fetch-dest") in EMBEDDED:
        return Refusal(403, "The dashboard is not shown inside another page.")
    return None


class Guard:
    """The ASGI application in front of all others."""

    def __init__(self, inner: ASGIApp, policy: Policy) -> None:
        self._inner = inner
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Judge a request, and answer it or pass it on."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        hosts = sum(name == b"host" for name, _ in scope["headers"])
        refusal = judge(scope["method"], headers, self._policy)
        if refusal is None and hosts != 1:
            refusal = Refusal(400, "Exactly one Host header is required.")

        body = _RequestBody(receive, headers)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                if scope["method"] not in READING:
                    await body.pass_over()
                given = {name for name, _ in message["headers"]}
                added = [pair for pair in HEADERS if pair[0] not in given]
                if b"cache-control" not in given:
                    added.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        if refusal is None:
            await self._inner(scope, body.receive, send_guarded)
            return
        text = refusal.text.encode()
        start = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(text)).encode()),
            (b"connection", b"close"),
        ]
        await send_guarded(
            {"type": "http.response.start", "status": refusal.status, "headers": start}
        )
        await send({"type": "http.response.body", "body": text})


class _RequestBody:
    """The body of a request as it is received; the unread rest can be discarded."""

    def __init__(self, receive: Receive, headers: Mapping[str, str]) -> None:
        self._receive = receive
        # A client that waits for "100 Continue" has not sent its body.
        self._is_done = "expect" in headers

    async def receive(self) -> Message:
        """Return the next part, as ASGI does."""
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._is_done = True
        return message

    async def pass_over(self) -> None:
        """Discard the rest, unless it is long or slow."""
        left = UNWANTED_BYTES_MAX
        try:
            async with asyncio.timeout(UNWANTED_SECONDS_MAX):
                while left > 0 and not self._is_done:
                    left -= len((await self.receive()).get("body", b""))
        except TimeoutError:
            return
