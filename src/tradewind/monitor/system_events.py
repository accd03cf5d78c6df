"""Events of the system account: connects and disconnects, server statistics, and shutdown.

Owns the event documents, their sequence and their timing. An event without a subscriber is never
built. It only publishes; requests are answered by `system_answers`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from tradewind.durations import SECOND_NS
from tradewind.monitor.accountz import account_stat
from tradewind.monitor.facade import MonitorView
from tradewind.monitor.formats import compact_json, number, present, rounded_rtt_ns, timestamp
from tradewind.monitor.monitor_documents import AccountStat, PerKind, Traffic
from tradewind.monitor.varz import (
    FEATURE_FLAGS,
    cluster_name,
    per_kind,
    subscription_total,
)
from tradewind.nkeys import USER, is_public
from tradewind.options import GLOBAL_ACCOUNT
from tradewind.wire.ops import CLOSED_AUTHENTICATION_FAILURE, NATS_VERSION

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account
    from tradewind.broker.contracts import ClosedSession
    from tradewind.broker.identity import Identity
    from tradewind.broker.session import Session

STATSZ_INTERVAL_NS = 10 * SECOND_NS
ACCOUNT_INTERVAL_NS = 30 * SECOND_NS
# The number of accounts whose event is published in one turn.
ACCOUNTS_AT_ONCE_MAX = 256

# The flags of nats-server 2.15 with JetStream: it has JetStream, exchanges stream states as bytes,
# and can have streams whose servers communicate in the account of the stream.
JETSTREAM_FLAGS = 1 | 2 | 4
# The account of another server that has not logged in.
NO_ACCOUNT = "N/A"

_TYPE_PREFIX = "io.nats.server.advisory.v1."
_ID_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 22


class SystemEventServer(msgspec.Struct, kw_only=True):
    """The server that publishes; `seq` grows by one with each message that carries it."""

    name: str
    host: str
    id: str
    cluster: str | UnsetType = UNSET
    domain: str | UnsetType = UNSET
    ver: str
    tags: list[str] | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    feature_flags: dict[str, bool]
    jetstream: bool
    flags: int
    seq: int
    time: str


class SystemEventClient(msgspec.Struct, kw_only=True):
    """The client that an event is about."""

    start: str
    host: str
    id: int
    acc: str
    user: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    lang: str | UnsetType = UNSET
    ver: str | UnsetType = UNSET
    rtt: int | UnsetType = UNSET
    stop: str | UnsetType = UNSET
    issuer_key: str | UnsetType = UNSET
    name_tag: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    client_type: str | UnsetType = UNSET


class TypedEvent(msgspec.Struct, kw_only=True):
    """The common first fields of all advisories."""

    type: str
    id: str
    timestamp: str
    server: SystemEventServer


class ConnectEvent(TypedEvent, kw_only=True):
    """The event of a client that logged in."""

    client: SystemEventClient


class DisconnectEvent(TypedEvent, kw_only=True):
    """The event of a client that left or was refused. Seen from the client: `sent` is what it
    published.
    """

    client: SystemEventClient
    sent: Traffic
    received: Traffic
    reason: str


class AccountConnections(TypedEvent, kw_only=True):
    """The number of connections of an account; the fields of an AccountStat follow."""

    acc: str
    name: str
    conns: int
    leafnodes: int
    total_conns: int
    num_subscriptions: int
    sent: Any
    received: Any
    slow_consumers: int


class ServerStats(msgspec.Struct, kw_only=True):
    """The figures of a STATSZ message."""

    start: str
    mem: int
    cores: int
    cpu: float
    connections: int
    total_connections: int
    active_accounts: int
    subscriptions: int
    sent: Traffic
    sent_to_clients: Traffic
    received: Traffic
    received_from_clients: Traffic
    slow_consumers: int
    slow_consumer_stats: PerKind | UnsetType = UNSET
    stale_connections: int | UnsetType = UNSET
    stale_connection_stats: PerKind | UnsetType = UNSET
    stalled_clients: int | UnsetType = UNSET
    active_servers: int = 1
    jetstream: Any = UNSET
    gomaxprocs: int


class StatszMessage(msgspec.Struct, kw_only=True):
    """A STATSZ message, as an event and as a response."""

    server: SystemEventServer
    statsz: ServerStats


def event_id() -> str:
    """A unique name of an event: 22 characters, like the ids of nats-server."""
    number_left = int.from_bytes(os.urandom(17), "big")
    characters = []
    for _ in range(_ID_LENGTH):
        number_left, digit = divmod(number_left, len(_ID_ALPHABET))
        characters.append(_ID_ALPHABET[digit])
    return "".join(characters)


def _client_info(
    connection: Session | ClosedSession, account_name: str, identity: Identity | None
) -> SystemEventClient:
    """The description of a client. The JWT itself is omitted: that of a bearer is a password."""
    client = SystemEventClient(
        start=timestamp(connection.start_ns),
        host=connection.remote_ip,
        id=connection.cid,
        acc=account_name,
        user=present(connection.user),
        name=present(connection.name),
        lang=present(connection.lang),
        ver=present(connection.version),
        name_tag=account_name,
        kind=connection.kind,
    )
    if connection.kind == "Client":
        client.client_type = connection.client_type
    if not connection.is_connected and connection.kind == "Leafnode":
        client.acc, client.name_tag = NO_ACCOUNT, UNSET
    if identity is not None and identity.claims is not None:
        client.issuer_key = identity.claims.iss
        client.name_tag = identity.account_title
        client.tags = present(list(identity.claims.nats.tags or ()))
    elif connection.is_connected and is_public(connection.user, USER):
        client.issuer_key = account_name
    return client


def _account_name(connection: Session | ClosedSession) -> str:
    """The account of a client; one that was refused before it had an account counts as the global
    account's.
    """
    return connection.account.name if connection.account is not None else GLOBAL_ACCOUNT


class SystemEvents:
    """Publishes events in the system account; does nothing without one."""

    def __init__(self, view: MonitorView) -> None:
        self._view = view
        self._broker = view.broker
        self._sequence = 0
        self._statsz_due_ns = self._broker.now_ns() + STATSZ_INTERVAL_NS
        self._account_due_ns: dict[str, int] = {}

    def server_info(self) -> SystemEventServer:
        """This server, with the next sequence number."""
        self._sequence += 1
        broker, options = self._broker, self._broker.options
        return SystemEventServer(
            name=broker.server_name,
            host=self._view.listening.host or options.host,
            id=broker.server_id,
            cluster=present(cluster_name(broker)),
            domain=present(options.jetstream.domain if self._view.jetstream is not None else ""),
            ver=NATS_VERSION,
            tags=present(list(options.server_tags)),
            metadata=present(dict(sorted(options.server_metadata.items()))),
            feature_flags={**FEATURE_FLAGS, **options.feature_flags},
            jetstream=self._view.jetstream is not None,
            flags=JETSTREAM_FLAGS if self._view.jetstream is not None else 0,
            seq=self._sequence,
            time=timestamp(broker.now_ns()),
        )

    def statsz(self) -> StatszMessage:
        """The present statistics of the server."""
        broker, totals, usage = self._broker, self._broker.totals, self._view.usage()
        sent = Traffic(msgs=totals.out_msgs, bytes=totals.out_bytes)
        received = Traffic(msgs=totals.in_msgs, bytes=totals.in_bytes)
        leafs = broker.leaf_traffic()
        slow, stale = totals.slow_consumers, totals.stale_connections
        jetstream = self._view.jetstream
        stats = ServerStats(
            start=timestamp(broker.start_ns),
            mem=usage.memory_bytes,
            cores=usage.cores,
            cpu=number(usage.cpu_percent),
            connections=len(broker.sessions),
            total_connections=totals.total_connections,
            active_accounts=sum(account.session_count > 0 for account in broker.accounts.values()),
            subscriptions=subscription_total(broker),
            sent=sent,
            sent_to_clients=Traffic(
                msgs=sent.msgs - leafs.out_msgs, bytes=sent.bytes - leafs.out_bytes
            ),
            received=received,
            received_from_clients=Traffic(
                msgs=received.msgs - leafs.in_msgs, bytes=received.bytes - leafs.in_bytes
            ),
            slow_consumers=slow,
            slow_consumer_stats=per_kind(slow, totals.slow_leaves) if slow else UNSET,
            stale_connections=present(stale),
            stale_connection_stats=per_kind(stale, totals.stale_leaves) if stale else UNSET,
            stalled_clients=present(totals.stalled_clients),
            jetstream=jetstream.statsz() if jetstream is not None else UNSET,
            gomaxprocs=usage.cores_usable,
        )
        return StatszMessage(server=self.server_info(), statsz=stats)

    def account_connections(self, account: Account) -> AccountConnections:
        """The present number of connections of an account."""
        stat: AccountStat = account_stat(self._broker, account)
        return AccountConnections(
            **self._typed("account_connections"),
            acc=stat.acc,
            name=stat.name,
            conns=stat.conns,
            leafnodes=stat.leafnodes,
            total_conns=stat.total_conns,
            num_subscriptions=stat.num_subscriptions,
            sent=stat.sent,
            received=stat.received,
            slow_consumers=stat.slow_consumers,
        )

    # ---------------------------------------------------------------- called by the broker

    def on_connect(self, session: Session) -> None:
        """Called when a client was accepted."""
        name = _account_name(session)
        self._account_changed(name)
        subject = f"$SYS.ACCOUNT.{name}.CONNECT"
        if self._wanted(subject):
            client = _client_info(session, name, self._broker.identity_of(session.cid))
            self._publish(subject, ConnectEvent(**self._typed("client_connect"), client=client))

    def on_disconnect(self, closed: ClosedSession) -> None:
        """Called when a connection ended, or a login was refused and its connection closed."""
        name = _account_name(closed)
        if closed.is_connected:
            self._account_changed(name)
        subject = f"$SYS.ACCOUNT.{name}.DISCONNECT"
        if self._wanted(subject):
            self._publish(subject, self._disconnect(closed, name, closed.stop_ns, closed.reason))

    def on_auth_error(self, session: Session, reason: str, told: Account | None = None) -> None:
        """Called when a login was refused: notify its account and the system account. The reason
        stays in the server's log, except for members of the account `told`, whose service has
        refused the login.

        A connection that was never a member of an account counts as the global account's. The
        account of clients without credentials is not notified: the claimed name does not concern
        it.
        """
        own = self._broker.account_of(session) or self._broker.accounts.get(GLOBAL_ACCOUNT)
        account = told or own
        name = own.name if own is not None else GLOBAL_ACCOUNT
        now_ns = self._broker.now_ns()
        subject = "$SYS.ACCOUNT.CLIENT.AUTH.ERR"
        if account is not None and self._broker.system_account and account.has_interest(subject):
            shown = reason if told is not None else CLOSED_AUTHENTICATION_FAILURE
            event = self._disconnect(session, name, now_ns, shown)
            account.publish(subject, compact_json(event))
        subject = f"$SYS.SERVER.{self._broker.server_id}.CLIENT.AUTH.ERR"
        if self._wanted(subject):
            shown = CLOSED_AUTHENTICATION_FAILURE
            self._publish(subject, self._disconnect(session, name, now_ns, shown))

    # ---------------------------------------------------------- called by the timer and the server

    def tick(self, now_ns: int) -> int:
        """Publish due events, or a part of them; `now_ns` is the wall clock. Returns the time of
        the next call.
        """
        if now_ns >= self._statsz_due_ns:
            self._statsz_due_ns = now_ns + STATSZ_INTERVAL_NS
            subject = f"$SYS.SERVER.{self._broker.server_id}.STATSZ"
            if self._wanted(subject):
                self._publish(subject, self.statsz())
        due = [name for name, due_ns in self._account_due_ns.items() if now_ns >= due_ns]
        for name in due[:ACCOUNTS_AT_ONCE_MAX]:
            self._account_changed(name)
        return min([self._statsz_due_ns, *self._account_due_ns.values()])

    def announce_shutdown(self) -> None:
        """Called when the server is about to end."""
        self._announce("SHUTDOWN")

    def announce_lame_duck(self) -> None:
        """Called when the server begins to disconnect its clients."""
        self._announce("LAMEDUCK")

    # ---------------------------------------------------------------- publishing

    def _announce(self, what: str) -> None:
        subject = f"$SYS.SERVER.{self._broker.server_id}.{what}"
        if self._wanted(subject):
            self._publish(subject, self.server_info())

    def _typed(self, kind: str) -> dict[str, Any]:
        return {
            "type": _TYPE_PREFIX + kind,
            "id": event_id(),
            "timestamp": timestamp(self._broker.now_ns()),
            "server": self.server_info(),
        }

    def _disconnect(
        self, connection: Session | ClosedSession, account_name: str, stop_ns: int, reason: str
    ) -> DisconnectEvent:
        identity = self._broker.identity_of(connection.cid)
        client = _client_info(connection, account_name, identity)
        if connection.kind == "Client":
            client.rtt = present(rounded_rtt_ns(connection.rtt_ns))
        client.stop = timestamp(stop_ns)
        return DisconnectEvent(
            **self._typed("client_disconnect"),
            client=client,
            sent=Traffic(msgs=connection.in_msgs, bytes=connection.in_bytes),
            received=Traffic(msgs=connection.out_msgs, bytes=connection.out_bytes),
            reason=reason,
        )

    def _account_changed(self, name: str) -> None:
        """Publish the number of connections now, and again later while there are any."""
        account = self._broker.accounts.get(name)
        if account is None or account.session_count == 0:
            self._account_due_ns.pop(name, None)
        else:
            self._account_due_ns[name] = self._broker.now_ns() + ACCOUNT_INTERVAL_NS
        if account is None:
            return
        system = self._broker.system_account
        if system is None:
            return
        subjects = (f"$SYS.SERVER.ACCOUNT.{name}.CONNS", f"$SYS.ACCOUNT.{name}.SERVER.CONNS")
        wanted = [subject for subject in subjects if system.has_interest(subject)]
        if not wanted:
            return
        event = self.account_connections(account)
        self._publish(wanted[0], event)
        for subject in wanted[1:]:  # the same event under its older or newer name
            event.server = self.server_info()
            self._publish(subject, event)

    def _wanted(self, subject: str) -> bool:
        account = self._broker.system_account
        return account is not None and account.has_interest(subject)

    def _publish(self, subject: str, event: Any) -> None:
        account = self._broker.system_account
        assert account is not None
        account.publish(subject, compact_json(event))
