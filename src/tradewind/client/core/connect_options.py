"""The options of `connect`: every option with its default, checked once.

Owns the checks and the TLS context; the options are interpreted where they are used.
`ConnectSettings` lists the same names for type checkers.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Final, TypedDict

from tradewind.client.core.addresses import DEFAULT_URL
from tradewind.client.errors import OptionsError
from tradewind.client.events import Event
from tradewind.subjects import is_valid_literal

EventHandler = Callable[[Event], Awaitable[None] | None]
# Subject, request and answer.
ApiObserver = Callable[[str, bytes, bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """All options of a connection; times are in seconds, sizes in bytes."""

    servers: str | Sequence[str] = DEFAULT_URL
    name: str = ""  # shown in the server's monitoring

    # Login
    user: str = ""
    password: str = field(default="", repr=False)
    token: str | Callable[[], str] = field(default="", repr=False)
    nkey_seed: str = field(default="", repr=False)
    nkey_file: str = ""
    credentials: str = ""  # path of a .creds file
    user_jwt: str = field(default="", repr=False)  # with nkey_seed, instead of a file

    # TLS
    tls: bool | ssl.SSLContext = False
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_hostname: str = ""  # the name in the certificate, if it is not the host of the url
    tls_handshake_first: bool = False

    # Servers and reconnecting
    connect_timeout: float = 5.0
    reconnect: bool = True
    reconnect_attempts_max: int | None = None  # rounds over all servers; None: no limit
    reconnect_wait: float = 0.1  # doubled with each round ...
    reconnect_wait_max: float = 5.0  # ... up to this, and spread by up to half
    wait_for_server: bool = False  # the first connection is tried as often as later ones
    randomize_servers: bool = True
    discover_servers: bool = True
    ping_interval: float = 30.0
    pings_unanswered_max: int = 2
    websocket_headers: Mapping[str, str] = field(default_factory=dict)

    # Messages
    echo: bool = True  # own messages come back to own subscriptions
    inbox_prefix: str = "_INBOX"
    timeout: float = 5.0  # the default of requests, flush and so on
    drain_timeout: float = 30.0
    pending_bytes_max: int = 64 << 20
    reconnect_pending_bytes_max: int = 8 << 20
    subscription_messages_max: int = 524_288
    subscription_bytes_max: int = 64 << 20
    on_event: EventHandler | None = None

    # What a context file says about JetStream
    jetstream_domain: str = ""
    jetstream_api_prefix: str = ""
    # Is shown every request to the JetStream API; it runs in the loop and must be quick.
    on_api_call: ApiObserver | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None or item.default not in ("", None):
                _check_type(item.name, str(item.type), value)
        for name in ("connect_timeout", "reconnect_wait", "ping_interval", "timeout"):
            if not getattr(self, name) > 0:
                raise OptionsError(f"{name}: more than 0 seconds, not {getattr(self, name)}")
        for name in (
            "pings_unanswered_max",
            "pending_bytes_max",
            "reconnect_pending_bytes_max",
            "subscription_messages_max",
            "subscription_bytes_max",
        ):
            if getattr(self, name) < 1:
                raise OptionsError(f"{name}: at least 1, not {getattr(self, name)}")
        if not is_valid_literal(self.inbox_prefix):
            raise OptionsError(
                f"inbox_prefix: a subject without wildcards, not {self.inbox_prefix!r}"
            )
        given = [name for name in ("credentials", "nkey_file", "nkey_seed") if getattr(self, name)]
        if len(given) > 1:
            raise OptionsError(f"{given[0]} and {given[1]}: use only one of them")
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            raise OptionsError("tls_cert_file and tls_key_file: specify both or neither")

    @property
    def wants_tls(self) -> bool:
        """Whether any option asks for TLS; a url or the server may do so too."""
        files = self.tls_ca_file or self.tls_cert_file
        return bool(self.tls or files or self.tls_handshake_first)

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context that was given, or one made of the files."""
        if isinstance(self.tls, ssl.SSLContext):
            return self.tls
        try:
            context = ssl.create_default_context(cafile=self.tls_ca_file or None)
            if self.tls_cert_file:
                context.load_cert_chain(self.tls_cert_file, self.tls_key_file)
        except (OSError, ssl.SSLError) as error:
            named = ", ".join(filter(None, (self.tls_ca_file, self.tls_cert_file)))
            raise OptionsError(f"TLS files {named}: {error}") from None
        return context


class ConnectSettings(TypedDict, total=False):
    """The keyword arguments of `connect`; ConnectOptions describes them."""

    name: str
    user: str
    password: str
    token: str | Callable[[], str]
    nkey_seed: str
    nkey_file: str
    credentials: str
    user_jwt: str
    tls: bool | ssl.SSLContext
    tls_ca_file: str
    tls_cert_file: str
    tls_key_file: str
    tls_hostname: str
    tls_handshake_first: bool
    connect_timeout: float
    reconnect: bool
    reconnect_attempts_max: int | None
    reconnect_wait: float
    reconnect_wait_max: float
    wait_for_server: bool
    randomize_servers: bool
    discover_servers: bool
    ping_interval: float
    pings_unanswered_max: int
    websocket_headers: Mapping[str, str]
    echo: bool
    inbox_prefix: str
    timeout: float
    drain_timeout: float
    pending_bytes_max: int
    reconnect_pending_bytes_max: int
    subscription_messages_max: int
    subscription_bytes_max: int
    on_event: EventHandler | None
    jetstream_domain: str
    jetstream_api_prefix: str
    on_api_call: ApiObserver | None


def _check_type(name: str, kind: str, value: object) -> None:
    """OptionsError if a plain option has another type. Values may be secret: none is repeated."""
    if kind not in _PLAIN:
        return
    types, right = _PLAIN[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise OptionsError(f"{name} must be {right}, not {type(value).__name__}")


# The types of options as annotated, and what they are for people.
_PLAIN: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "str": ((str,), "a text"),
    "bool": ((bool,), "True or False"),
    "int": ((int,), "a whole number"),
    "int | None": ((int,), "a whole number or None"),
    "float": ((int, float), "a number of seconds"),
}
_NAMES = frozenset(item.name for item in fields(ConnectOptions))


def make_options(base: ConnectOptions, settings: Mapping[str, Any]) -> ConnectOptions:
    """`base` with these settings changed; an unknown name is an error with a hint."""
    for name in settings:
        if name not in _NAMES:
            near = get_close_matches(name, _NAMES, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionsError(f"unknown option {name!r}{hint}")
    return replace(base, **settings)
