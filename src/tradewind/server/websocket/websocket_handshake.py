"""The HTTP/1.1 upgrade that starts a WebSocket connection: request bytes in, one response out.

Owns the grammar and limits of the request, the checks of RFC 6455 section 4.2.1, the origin rules,
the negotiated options (compression, masking) and the details of the peer (cookies, forwarded
address, browser). It never touches a socket or a clock: the listener enforces the handshake
timeout, sends `response` and closes the connection if the request was refused. Statuses and texts
are those of nats-server. Unlike nats-server, the connection is closed after an error (with
`Connection: close`).
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tradewind.errors import ConfigError
from tradewind.options import WebsocketOptions
from tradewind.server.auth.cookies import parse_cookies

# The limit for data that an unauthenticated peer can make the server hold. nats-server allows 1
# MiB.
REQUEST_BYTES_MAX = 64 * 1024

ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY_BYTES = 16

Headers = dict[str, list[str]]  # lower-case name to the values of its lines, in order

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HOST = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:%\[\]]*")
_HTTP_VERSION = re.compile(r"HTTP/([0-9])\.([0-9])")
_END_OF_HEAD = re.compile(rb"\n\r?\n")
# A path or an absolute URL, in which every % starts an escape.
_TARGET = re.compile(r"(?:/|[A-Za-z][A-Za-z0-9+.\-]*://)(?:[!-$&-~\x80-\xff]|%[0-9A-Fa-f]{2})*")
_BLANKS = " \t"
_TOO_LARGE = f"the request has more than {REQUEST_BYTES_MAX} bytes"
# A longer value is cut in the log.
_SHOWN_URL_LENGTH_MAX = 128

_DEFLATE_ANSWER = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
# zlib cannot produce a raw stream with a window of 8 bits.
_WINDOW_BITS = frozenset(str(bits) for bits in range(9, 16))

STATUS_TEXTS = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    505: "HTTP Version Not Supported",
}


@dataclass(frozen=True, slots=True)
class HandshakeResult:
    """The result of a handshake. Send `response`; frames follow if `accepted`, else close and log
    `error`.
    """

    response: bytes
    accepted: bool
    error: str = ""
    compression: bool = False
    window_bits: int = 15  # for the frame encoder: the largest window that the peer can inflate
    no_masking: bool = False
    is_browser: bool = False
    fragment_compressed: bool = True  # Safari cannot read compressed messages in several frames
    client_ip: str = ""  # from X-Forwarded-For, valid; empty when there is none
    path: str = ""
    cookies: dict[str, str] = field(default_factory=dict, repr=False)  # may hold passwords


@dataclass(frozen=True, slots=True)
class _Request:
    """A well-formed request head; nothing about WebSocket has been checked."""

    method: str
    path: str  # as sent, still escaped, without the query
    host: str
    headers: Headers

    def first(self, name: str) -> str:
        """The first value of a header, or an empty text."""
        values = self.headers.get(name)
        return values[0] if values else ""

    def has_token(self, name: str, token: str) -> bool:
        """Whether the comma-separated values of a header contain the token, in any case."""
        return any(
            word.strip(" \t").lower() == token
            for value in self.headers.get(name, ())
            for word in value.split(",")
        )


class _RefusedError(Exception):
    """Leads to an error response. `text` is for the log; `detail` is added to the status line.

    A `malformed` request gets the short response of nats-server's HTTP library, any other request
    that of nats-server itself.
    """

    def __init__(
        self, status: int, text: str, *, malformed: bool = False, detail: str = ""
    ) -> None:
        self.status = status
        self.text = text
        self.malformed = malformed or bool(detail)
        self.detail = detail
        super().__init__(text)


class Handshake:
    """The upgrade of one connection: feed it until it returns its result."""

    def __init__(
        self,
        options: WebsocketOptions,
        tls: bool,  # noqa: FBT001
        *,
        leafnodes: bool = False,
    ) -> None:
        for name, value in options.headers.items():
            if not _TOKEN.fullmatch(name) or _CONTROL_CHARACTER.search(value):
                raise ConfigError(
                    f"websocket: header {name!r} must be one word with a value of one line"
                )
        try:
            self._allowed_origins = [_origin(url) for url in options.allowed_origins]
        except ValueError as error:
            raise ConfigError(f"websocket: unable to parse allowed origin: {error}") from None
        self._options = options
        self._tls = tls
        self._absent = ("mqtt",) if leafnodes else ("mqtt", "leafnode")
        self._head = bytearray()
        self._has_request_line = False

    def feed(self, data: bytes) -> HandshakeResult | None:
        """Take bytes; returns the result as soon as the request is complete or wrong, else None."""
        known = len(self._head)
        self._head += data[: REQUEST_BYTES_MAX + 1 - known]
        end = _END_OF_HEAD.search(self._head, max(known - 2, 0))  # it may straddle two chunks
        try:
            if end is None:
                self._check_beginning(known)
                return None
            return self._answer(end.start(), end.end())
        except _RefusedError as refused:
            has_body = not self._head.startswith(b"HEAD ")
            return HandshakeResult(_error_response(refused, has_body=has_body), False, refused.text)

    def _answer(self, head_bytes: int, request_bytes: int) -> HandshakeResult:
        """The result of a complete request: `head_bytes` of text, then the empty line."""
        if request_bytes > REQUEST_BYTES_MAX:
            raise _RefusedError(431, _TOO_LARGE, malformed=True)
        request = _parse_request(self._head[:head_bytes].decode("latin-1"))
        _check_upgrade(request, self._absent)
        self._check_origin(request)
        if len(self._head) > request_bytes:
            raise _RefusedError(400, "client sent data before handshake is complete")
        return _accept(request, self._options)

    def _check_origin(self, request: _Request) -> None:
        """Check the origin of the page, which browsers send; a request without one is not from a
        page, and passes.
        """
        same_origin = self._options.same_origin
        value = request.first("origin") or request.first("sec-websocket-origin")
        if not value or not (same_origin or self._allowed_origins):
            return
        try:
            origin = _origin(value)
            own = _origin(f"{'https' if self._tls else 'http'}://{request.host}")
        except ValueError as error:
            raise _RefusedError(403, f"origin not allowed: {error}") from None
        if same_origin and origin != own:
            raise _RefusedError(403, "origin not allowed: not same origin")
        if self._allowed_origins and origin not in self._allowed_origins:
            raise _RefusedError(403, "origin not allowed: not in the allowed list")

    def expire(self) -> bytes:
        """The bytes to send before closing at the handshake timeout; empty if nothing has
        arrived.
        """
        if not self._head:
            return b""
        return _error_response(_RefusedError(400, "handshake timeout", malformed=True))

    def _check_beginning(self, known: int) -> None:
        """Refuse as early as possible input that can never become a request, such as a TLS
        greeting.

        The first `known` bytes have been checked before.
        """
        if len(self._head) > REQUEST_BYTES_MAX:
            raise _RefusedError(431, _TOO_LARGE, malformed=True)
        if self._has_request_line or not self._head:
            return
        end = self._head.find(b"\n", known)
        if end >= 0:
            _parse_request_line(self._head[:end].decode("latin-1").removesuffix("\r"))
            self._has_request_line = True
        elif not _TOKEN.match(chr(self._head[0])):
            raise _RefusedError(
                400, "the first byte is not that of an HTTP request", malformed=True
            )


def _parse_request_line(line: str) -> tuple[str, str, int]:
    """The method, the target and the minor version of HTTP/1."""
    words = line.split(" ")
    if len(words) != 3 or not _TOKEN.fullmatch(words[0]):
        raise _RefusedError(400, "malformed HTTP request line", malformed=True)
    method, target, protocol = words
    version = _HTTP_VERSION.fullmatch(protocol)
    if version is None:
        raise _RefusedError(400, "malformed HTTP version", malformed=True)
    if not _TARGET.fullmatch(target):
        raise _RefusedError(400, "invalid request target", malformed=True)
    if version[1] != "1":
        raise _RefusedError(505, "HTTP version is not 1.x", detail="unsupported protocol version")
    return method, target, int(version[2])


def _parse_request(head: str) -> _Request:
    """Parse the request head, without the empty line at its end; lines may end in LF alone."""
    request_line, *lines = (line.removesuffix("\r") for line in head.split("\n"))
    method, target, minor_version = _parse_request_line(request_line)
    headers = _parse_header_lines(lines)
    hosts = headers.get("host", [])
    if len(hosts) > 1:
        raise _RefusedError(400, "more than one 'Host' in request", malformed=True)
    if not hosts and minor_version > 0:
        raise _RefusedError(400, "'Host' missing in request", detail="missing required Host header")
    host = hosts[0] if hosts else ""
    if not _HOST.fullmatch(host):
        raise _RefusedError(400, "malformed 'Host' in request", detail="malformed Host header")
    named_host, path = _split_target(target)
    return _Request(method, path, named_host or host, headers)


def _parse_header_lines(lines: Iterable[str]) -> Headers:
    """The fields of a request head. A folded line continues the value before it."""
    pieces: dict[str, list[list[str]]] = {}
    values: list[list[str]] = []  # the values of the field that a folded line continues
    for line in lines:
        if _CONTROL_CHARACTER.search(line):
            raise _RefusedError(400, "control character in a header", malformed=True)
        if line[:1] in (" ", "\t") and values:
            values[-1].append(line.strip(_BLANKS))
            continue
        name, colon, value = line.partition(":")
        if colon and " " in name.lstrip(_BLANKS):
            raise _RefusedError(400, "space in a header name", detail="invalid header name")
        if not colon or not _TOKEN.fullmatch(name):
            raise _RefusedError(400, "malformed header line", malformed=True)
        values = pieces.setdefault(name.lower(), [])
        values.append([value.strip(_BLANKS)])
    return {
        name: [" ".join(filter(None, value)) for value in values] for name, values in pieces.items()
    }


def _split_target(target: str) -> tuple[str, str]:
    """The host of an absolute target (empty for a path), and the path without the query."""
    host = ""
    if not target.startswith("/"):
        target = target.partition("://")[2]
        ends = [end for end in (target.find("/"), target.find("?")) if end >= 0]
        host = target[: min(ends, default=len(target))]
        target = target[len(host) :]
    return host, target.partition("?")[0] or "/"


def _check_upgrade(request: _Request, absent: tuple[str, ...]) -> None:
    """The requirements of RFC 6455 section 4.2.1, in the order and words of nats-server."""
    for name in absent:
        if request.path.endswith("/" + name):
            raise _RefusedError(404, f"{name} websocket endpoint not enabled")
    if request.method != "GET":
        raise _RefusedError(405, "request method must be GET")
    if not request.host:
        raise _RefusedError(400, "'Host' missing in request")
    if not request.has_token("upgrade", "websocket"):
        raise _RefusedError(400, "invalid value for header 'Upgrade'")
    if not request.has_token("connection", "upgrade"):
        raise _RefusedError(400, "invalid value for header 'Connection'")
    key = request.first("sec-websocket-key")
    if not key:
        raise _RefusedError(400, "key missing")
    try:
        key_bytes = len(base64.b64decode(key, validate=True))
    except ValueError:
        key_bytes = 0
    if key_bytes != KEY_BYTES:
        raise _RefusedError(400, "invalid websocket key")
    if not request.has_token("sec-websocket-version", "13"):
        raise _RefusedError(400, "invalid version")


def _origin(url: str) -> tuple[str, str, int]:
    """The scheme, host and port of a URL; ValueError if the text is not an absolute URL."""
    parts = urlsplit(url)
    if not parts.scheme:
        raise ValueError(f"{url[:_SHOWN_URL_LENGTH_MAX]!r} is not an absolute URL")
    default_port = 443 if parts.scheme == "https" else 80
    return parts.scheme, parts.hostname or "", parts.port or default_port


def _compression_offer(request: _Request) -> tuple[int, str] | None:
    """The window bits and the answer to the first offer of permessage-deflate that can be
    served.
    """
    for value in request.headers.get("sec-websocket-extensions", ()):
        for offer in value.split(","):
            words = [word.strip(_BLANKS).lower() for word in offer.split(";")]
            if "permessage-deflate" not in words:
                continue
            wanted = [word for word in words if word.startswith("server_max_window_bits")]
            if not wanted:
                return 15, _DEFLATE_ANSWER
            bits = wanted[0].partition("=")[2].strip(_BLANKS + '"')
            if bits in _WINDOW_BITS:
                return int(bits), f"{_DEFLATE_ANSWER}; server_max_window_bits={bits}"
    return None


def _forwarded_ip(request: _Request) -> str:
    """The single address in X-Forwarded-For; empty for a list, whose first entry has an unknown
    author.
    """
    value = request.first("x-forwarded-for")
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return ""
    return "" if "%" in value else value


def _accept(request: _Request, options: WebsocketOptions) -> HandshakeResult:
    key = request.first("sec-websocket-key").encode("latin-1")
    accept = base64.b64encode(hashlib.sha1(key + ACCEPT_GUID).digest()).decode()  # noqa: S324
    offer = _compression_offer(request) if options.compression else None
    no_masking = request.first("nats-no-masking") == "true"
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {accept}",
    ]
    if offer is not None:
        lines.append(f"Sec-WebSocket-Extensions: {offer[1]}")
    if no_masking:
        lines.append("Nats-No-Masking: true")
    lines += [f"{name}: {value}" for name, value in options.headers.items()]
    user_agent = request.first("user-agent")
    is_browser = user_agent.startswith("Mozilla/")
    # Chrome names Safari too, but only Safari has a Version/.
    is_safari = is_browser and "Version/" in user_agent and "Safari/" in user_agent
    return HandshakeResult(
        response="\r\n".join([*lines, "", ""]).encode(),
        accepted=True,
        compression=offer is not None,
        window_bits=offer[0] if offer is not None else 15,
        no_masking=no_masking,
        is_browser=is_browser,
        fragment_compressed=not is_safari,
        client_ip=_forwarded_ip(request),
        path=request.path,
        cookies=parse_cookies(request.headers.get("cookie", ())),
    )


def _error_response(refused: _RefusedError, *, has_body: bool = True) -> bytes:
    status_text = STATUS_TEXTS[refused.status]
    status = f"{refused.status} {status_text}" + (f": {refused.detail}" if refused.detail else "")
    lines = [f"HTTP/1.1 {status}", "Content-Type: text/plain; charset=utf-8"]
    body = status
    if not refused.malformed:
        body = status_text + "\n"
        lines += [
            "Sec-Websocket-Version: 13",
            "X-Content-Type-Options: nosniff",
            f"Content-Length: {len(body)}",
        ]
    lines.append("Connection: close")
    return ("\r\n".join([*lines, "", ""]) + (body if has_body else "")).encode()
