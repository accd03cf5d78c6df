"""The interfaces of the broker: its inputs, and the state it exposes.

Owns plain data classes and protocols, so that the server, the monitor and the tests need not import
each other.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

import msgspec

from tradewind.own_addresses import address_text

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account, SubscriptionInfo
    from tradewind.broker.identity import ShownClaims
    from tradewind.broker.router import Router
    from tradewind.broker.session import Session


class BrokerLog(Protocol):
    """The log of the broker."""

    debug_enabled: bool
    trace_enabled: bool

    def notice(self, text: str) -> None: ...  # noqa: D102
    def warn(self, text: str) -> None: ...  # noqa: D102
    def error(self, text: str) -> None: ...  # noqa: D102
    def debug(self, text: str) -> None: ...  # noqa: D102
    def trace(self, text: str) -> None: ...  # noqa: D102


class Observer(Protocol):
    """Is notified when connections open and close; the system account's events are made from
    that.
    """

    def on_connect(self, session: Session) -> None: ...  # noqa: D102
    def on_disconnect(self, closed: ClosedSession) -> None: ...  # noqa: D102
    def on_auth_error(  # noqa: D102
        self, session: Session, reason: str, told: Account | None
    ) -> None: ...


class Engine(Protocol):
    """The engine that stores messages: takes part in every turn, and has its own deadlines.

    If it has `turns`, an `EngineTurns`, these are called in its place.
    """

    def end_turn(self) -> None: ...  # noqa: D102
    def tick(self) -> None: ...  # noqa: D102
    def next_deadline_ns(self) -> int | None: ...  # noqa: D102


class RemoteAddress(msgspec.Struct, frozen=True):
    """The peer's address as the log and INFO show it."""

    ip: str
    port: int


class TlsFacts(msgspec.Struct, frozen=True):
    """The result of a TLS handshake."""

    version: str
    cipher: str
    certificate: bytes | None = None


class Totals(msgspec.Struct):
    """Server-wide counters since the start; those of messages are in the router."""

    router: Router
    total_connections: int = 0
    slow_consumers: int = 0
    stale_connections: int = 0
    stalled_clients: int = 0
    auth_failures: int = 0
    slow_leaves: int = 0
    stale_leaves: int = 0

    @property
    def in_msgs(self) -> int:
        """The number of messages received."""
        return self.router.in_msgs

    @property
    def out_msgs(self) -> int:
        """The number of messages sent."""
        return self.router.out_msgs

    @property
    def in_bytes(self) -> int:
        """The size of the messages received."""
        return self.router.in_bytes

    @property
    def out_bytes(self) -> int:
        """The size of the messages sent."""
        return self.router.out_bytes


class LeafTraffic(msgspec.Struct):
    """The traffic of leaf connections."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0

    def add(self, other: LeafTraffic | Session) -> None:
        """Add the traffic of one connection, or of several."""
        self.in_msgs += other.in_msgs
        self.in_bytes += other.in_bytes
        self.out_msgs += other.out_msgs
        self.out_bytes += other.out_bytes


class ClosedSession(msgspec.Struct, frozen=True):
    """A closed connection, as monitoring shows it; the attributes are named as those of an open
    Session.
    """

    cid: int
    kind: str
    client_type: str
    remote_ip: str
    remote_port: int
    start_ns: int
    last_activity_ns: int
    stop_ns: int
    reason: str
    rtt_ns: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    pending_bytes: int
    stalls: int
    subscription_count: int
    name: str
    lang: str
    version: str
    tls_version: str
    tls_cipher: str
    tls_peer_certs: tuple[bytes, ...]
    user: str
    account: Account | None  # None: its login has failed, or was never decided
    is_connected: bool
    subscription_list: tuple[SubscriptionInfo, ...]
    claims: ShownClaims | None = None
    is_solicited: bool = False
    proxy_key: str = ""

    def subscriptions(self, limit: int, offset: int = 0) -> list[SubscriptionInfo]:
        """Some of its subscriptions at the end; only the first few are recorded."""
        return list(self.subscription_list[offset : offset + limit])


# Recorded per closed connection for /connz?state=closed&subs=1.
CLOSED_SUBSCRIPTIONS_MAX = 16
_SAME_NAMES = tuple(
    name
    for name in ClosedSession.__struct_fields__
    if name
    not in (
        "account",
        "stop_ns",
        "reason",
        "subscription_list",
        "claims",
        "is_solicited",
        "proxy_key",
    )
)
_same_values = attrgetter(*_SAME_NAMES)


def closed_session(
    session: Session,
    account: Account | None,
    stop_ns: int,
    claims: ShownClaims | None,
    proxy_key: str,
) -> ClosedSession:
    """The record of a session that is about to close."""
    return ClosedSession(
        **dict(zip(_SAME_NAMES, _same_values(session), strict=True)),
        account=account,
        stop_ns=stop_ns,
        reason=session.close_reason,
        subscription_list=tuple(session.subscriptions(CLOSED_SUBSCRIPTIONS_MAX)),
        claims=claims,
        is_solicited=getattr(session, "is_solicited", False),
        proxy_key=proxy_key,
    )


def label(session: Session) -> str:
    """The name of a connection in the log."""
    options = session.options
    if session.kind == "Leafnode":
        return f"{address_text(session.remote_ip, session.remote_port)} - lid:{session.cid}"
    text = f"{address_text(session.remote_ip, session.remote_port)} - cid:{session.cid}"
    if session.is_connected:
        version = f"v{options.version}" if options.version else ""
        client = ":".join(part for part in (version, options.lang, options.name) if part)
        if client:
            text += f' - "{printable(client.encode("utf-8", "surrogateescape"))}"'
        if session.user:
            user = printable(session.user.encode("utf-8", "surrogateescape"))
            text += f' - "{session.account.name}/user:{user}"'
    return text


def printable(data: bytes) -> str:
    """A peer's bytes for a log line: control characters cannot forge lines."""
    return data.decode("utf-8", "replace").encode("unicode_escape").decode("ascii")
