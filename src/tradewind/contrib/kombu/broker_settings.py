"""The settings of the transport: the URL, `transport_options`, and what they make of a connection.

Owns the names, the defaults and the checks. An unknown option is an error with a hint, except
those that kombu reads itself.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from tradewind.client.errors import OptionsError
from tradewind.contrib.kombu.queue_subjects import PRIORITY_MAX

DEFAULT_PORT: Final = 4222
DEFAULT_URL: Final = f"nats://127.0.0.1:{DEFAULT_PORT}"
DEFAULT_STREAM: Final = "KOMBU"
SCHEMES: Final = ("nats", "tls", "ws", "wss")
VISIBILITY_SECONDS_MIN: Final = 1.0
# What kombu.Connection and Celery take from the same mapping.
_OTHERS: Final = (
    "client_properties",
    "confirm_publish",
    "connect_retries_timeout",
    "errback",
    "global_keyprefix",
    "heartbeat",
    "interval_max",
    "interval_start",
    "interval_step",
    "login_method",
    "max_retries",
    "polling_interval",
)
_STREAM: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class BrokerSettings(msgspec.Struct, kw_only=True):
    """The members of `transport_options`, and the stream that the path of the URL names.

    `visibility_timeout` is the number of seconds after which a message goes to another worker when
    its own was killed; the time is renewed while a worker lives. `connect` has the options of
    `tradewind.connect`, such as `credentials`.
    """

    stream: str = DEFAULT_STREAM
    visibility_timeout: float = 60.0
    max_deliver: int = -1
    replicas: int = 1
    priority_steps: tuple[int, ...] = (0, 3, 6, 9)
    server_delays: bool = True
    expires_min: float = 5.0
    connect: dict[str, Any] = {}

    @property
    def priority_max(self) -> int:
        """The most urgent priority."""
        return PRIORITY_MAX

    @property
    def heartbeat_seconds(self) -> float:
        """How often a worker tells that it still works on its messages."""
        return self.visibility_timeout / 3


def settings_of(stream: str, options: Mapping[str, Any]) -> BrokerSettings:
    """The settings by the path of a URL and its transport options; OptionsError names what is
    wrong.
    """
    names = {each.name for each in msgspec.structs.fields(BrokerSettings)}
    given = {name: value for name, value in options.items() if name not in _OTHERS}
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(names))}"
            raise OptionsError(f"transport_options: unknown option {name!r}; {hint}")
    if stream:
        given["stream"] = stream
    try:
        settings = msgspec.convert(given, BrokerSettings)
    except msgspec.ValidationError as error:
        raise OptionsError(f"transport_options: {error}") from None
    if not _STREAM.fullmatch(settings.stream):
        raise OptionsError(
            f"stream {settings.stream[:70]!r} (the path of the URL): 1 to 64 letters, digits, "
            "'-' and '_'"
        )
    if not VISIBILITY_SECONDS_MIN <= settings.visibility_timeout < 1e9:
        raise OptionsError(
            f"visibility_timeout: at least {VISIBILITY_SECONDS_MIN:g} second, not "
            f"{settings.visibility_timeout!r}"
        )
    if not 0 <= settings.expires_min < 1e9:
        raise OptionsError(f"expires_min: seconds from 0 on, not {settings.expires_min!r}")
    if settings.max_deliver == 0 or settings.max_deliver < -1:
        raise OptionsError(f"max_deliver: at least 1, or -1, not {settings.max_deliver}")
    steps = settings.priority_steps
    in_order = list(steps) == sorted(set(steps))
    if not steps or steps[0] != 0 or steps[-1] > PRIORITY_MAX or not in_order:
        raise OptionsError(
            f"priority_steps: 0 and then rising numbers up to {PRIORITY_MAX}, not {list(steps)}"
        )
    return settings


def server_of_parts(host: str | None, port: int | None) -> str:
    """The address of a server of which kombu has split the URL."""
    name = f"[{host}]" if host and ":" in host else host or "127.0.0.1"
    return f"nats://{name}:{port or DEFAULT_PORT}"


def server_url(url: str) -> str:
    """The address of the server, or several, without the path that names the stream."""
    if not url:
        return DEFAULT_URL
    servers = []
    for each in url.split(","):
        text = each if "://" in each else f"nats://{each}"
        scheme, _, rest = text.partition("://")
        if scheme == "tradewind":
            scheme = "nats"
        if scheme not in SCHEMES:
            raise OptionsError(
                f"broker url: scheme {scheme!r} is none of tradewind, {', '.join(SCHEMES)}"
            )
        address = re.split(r"[/?#]", rest, maxsplit=1)[0]
        servers.append(f"{scheme}://{address}" if address else DEFAULT_URL)
    return ",".join(servers)


def stream_of(url: str) -> str:
    """The stream that the path of a URL names; empty if it names none."""
    last = url.rpartition(",")[2]
    return urlsplit(last).path.strip("/") if "://" in last else ""


def masked_url(url: str, mask: str) -> str:
    """A URL without its password or token, for logs."""
    masked = []
    for each in url.split(","):
        scheme, mark, rest = each.partition("://")
        login, at, place = rest.rpartition("@")
        user, colon, _ = login.partition(":")
        shown = f"{user}:{mask}" if colon else mask
        masked.append(f"{scheme}{mark}{shown}@{place}" if at else each)
    return ",".join(masked)


def tls_options(value: object) -> dict[str, Any]:
    """The options of `connect` for Celery's `broker_use_ssl`; OptionsError if one is unknown."""
    if not value:
        return {}
    if value is True or isinstance(value, ssl.SSLContext):
        return {"tls": value}
    names = {"ca_certs": "tls_ca_file", "certfile": "tls_cert_file", "keyfile": "tls_key_file"}
    if not isinstance(value, Mapping):
        raise OptionsError(f"ssl: True or a mapping, not {type(value).__name__}")
    made: dict[str, Any] = {"tls": True}
    for name, given in value.items():
        plain = str(name).removeprefix("ssl_")
        if plain == "cert_reqs":
            if given not in (ssl.CERT_REQUIRED, "CERT_REQUIRED", "required"):
                raise OptionsError("ssl: cert_reqs must be CERT_REQUIRED; servers are verified")
        elif plain in names:
            made[names[plain]] = given
        else:
            raise OptionsError(f"ssl: {name!r} is none of {', '.join(sorted(names))}")
    return made
