"""Builds /connz: selects, sorts and pages connections, and describes only the requested page.

Owns the options of the page. It copies figures from the broker and keeps no state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tradewind.durations import format_duration
from tradewind.monitor import certificate_details
from tradewind.monitor.formats import present, rounded_rtt_ns, timestamp, uptime
from tradewind.monitor.monitor_documents import Connz, ConnzConnection, SubscriptionDetail
from tradewind.monitor.page_options import STATE_ANY, STATE_CLOSED, STATE_OPEN, ConnzOptions, paged
from tradewind.monitor.parameters import PageError, quoted
from tradewind.monitor.views import (
    BrokerView,
    ClosedSessionView,
    ConnectionView,
    SessionView,
    SubscriptionView,
)
from tradewind.options import GLOBAL_ACCOUNT
from tradewind.subjects import collides_with_any

if TYPE_CHECKING:
    from tradewind.broker.identity import Identity

AnyConnection: TypeAlias = SessionView | ClosedSessionView
SortKey: TypeAlias = Callable[[AnyConnection, int], int | str]

# Lists of subscriptions can dwarf the connections that hold them: a page ends early once it lists
# this many.
SUBSCRIPTIONS_LISTED_MAX = 50_000


def _stop_ns(connection: ConnectionView, now_ns: int) -> int:
    stop_ns: int = getattr(connection, "stop_ns", now_ns)
    return stop_ns


def _reason(connection: ConnectionView) -> str:
    reason: str = getattr(connection, "reason", "")
    return reason


# What is compared, at the time of the page. Ties keep the order of connection ids.
SORTS: dict[str, SortKey] = {
    "cid": lambda c, _: c.cid,
    "start": lambda c, _: c.start_ns,
    "subs": lambda c, _: c.subscription_count,
    "pending": lambda c, _: c.pending_bytes,
    "msgs_to": lambda c, _: c.out_msgs,
    "msgs_from": lambda c, _: c.in_msgs,
    "bytes_to": lambda c, _: c.out_bytes,
    "bytes_from": lambda c, _: c.in_bytes,
    "last": lambda c, _: c.last_activity_ns,
    "idle": lambda c, now_ns: _stop_ns(c, now_ns) - c.last_activity_ns,
    "uptime": lambda c, now_ns: _stop_ns(c, now_ns) - c.start_ns,
    "stop": lambda c, now_ns: _stop_ns(c, now_ns),
    "reason": lambda c, _: _reason(c),
    "rtt": lambda c, _: c.rtt_ns,
}
# All others show the largest first.
_SORTS_ASCENDING = ("cid", "start", "uptime", "reason")
_SORTS_OF_CLOSED = ("stop", "reason")


def subscription_detail(
    subscription: SubscriptionView, *, with_account: bool
) -> SubscriptionDetail:
    """One subscription as /connz and /subsz list it."""
    detail = SubscriptionDetail(
        subject=subscription.subject,
        qgroup=present(subscription.queue),
        sid=subscription.sid,
        msgs=subscription.msgs,
        max=present(subscription.max_msgs),
        cid=subscription.cid,
    )
    if with_account:
        detail.account = detail.account_tag = subscription.account
    return detail


def _describe(connection: AnyConnection, options: ConnzOptions, now_ns: int) -> ConnzConnection:
    end_ns = _stop_ns(connection, now_ns)
    document = ConnzConnection(
        cid=connection.cid,
        kind=connection.kind,
        type=connection.client_type,
        ip=connection.remote_ip,
        port=connection.remote_port,
        start=timestamp(connection.start_ns),
        last_activity=timestamp(connection.last_activity_ns),
        stop=present(timestamp(end_ns) if end_ns != now_ns else ""),
        reason=present(_reason(connection)),
        rtt=format_duration(rounded_rtt_ns(connection.rtt_ns)),
        uptime=uptime(end_ns - connection.start_ns),
        idle=uptime(end_ns - connection.last_activity_ns),
        pending_bytes=connection.pending_bytes,
        in_msgs=connection.in_msgs,
        out_msgs=connection.out_msgs,
        in_bytes=connection.in_bytes,
        out_bytes=connection.out_bytes,
        stalls=present(connection.stalls),
        subscriptions=connection.subscription_count,
        name=present(connection.name),
        lang=present(connection.lang),
        version=present(connection.version),
        tls_version=present(connection.tls_version),
        tls_cipher_suite=present(connection.tls_cipher),
    )
    if options.auth:
        _add_identity(document, connection)
    return document


def _add_identity(document: ConnzConnection, connection: ConnectionView) -> None:
    peers = [certificate_details.describe_peer(der) for der in connection.tls_peer_certs]
    document.tls_peer_certs = present([peer for peer in peers if peer is not None])
    document.authorized_user = present(connection.user)
    account = connection.account
    if account is not None:
        document.account = present(account.name if account.name != GLOBAL_ACCOUNT else "")
        document.name_tag = account.name


def _add_claims(document: ConnzConnection, identity: Identity | None) -> None:
    """What the JWT of a user says. The JWT itself is not shown: that of a bearer is a password."""
    if identity is not None and identity.claims is not None:
        document.issuer_key = identity.claims.iss
        document.name_tag = identity.account_title
        document.tags = present(list(identity.claims.nats.tags or ()))


def _add_subscriptions(
    document: ConnzConnection, connection: ConnectionView, options: ConnzOptions
) -> int:
    """Gives how many were listed."""
    if options.subscriptions_detail:
        subscriptions = connection.subscriptions()
        details = [subscription_detail(s, with_account=False) for s in subscriptions]
        document.subscriptions_list_detail = present(details)
        return len(details)
    subjects = list(connection.subscription_subjects())
    document.subscriptions_list = present(subjects)
    return len(subjects)


def _validate(options: ConnzOptions) -> None:
    if options.sort and options.sort not in SORTS:
        raise PageError(f"invalid sorting option: {quoted(options.sort)[1:-1]}")
    if options.sort in _SORTS_OF_CLOSED and options.state != STATE_CLOSED:
        raise PageError(f"sort by {options.sort} only valid on closed connections")
    if options.filter_subject and not options.acc:
        raise PageError("filter by subject only valid with account filtering")
    if options.state not in (STATE_OPEN, STATE_CLOSED, STATE_ANY):
        raise PageError(f"invalid state {options.state}: 0 is open, 1 closed, 2 any")


def _candidates(broker: BrokerView, options: ConnzOptions) -> list[AnyConnection]:
    """All connections in the asked state and account; their number is the page's `total`."""
    chosen: list[AnyConnection] = []
    if options.state != STATE_CLOSED:
        chosen.extend(broker.sessions.values())
    if options.state != STATE_OPEN:
        chosen.extend(broker.closed)
    if options.acc:
        chosen = [c for c in chosen if c.account is not None and c.account.name == options.acc]
    return chosen


def _filtered(chosen: list[AnyConnection], options: ConnzOptions) -> list[AnyConnection]:
    if options.cid:
        return [c for c in chosen if c.cid == options.cid][:1]
    if options.mqtt_client:
        return []
    if options.user:
        chosen = [c for c in chosen if c.user == options.user]
    if options.filter_subject:
        wanted = options.filter_subject
        chosen = [c for c in chosen if collides_with_any(wanted, c.subscription_subjects())]
    return chosen


def build_connz(broker: BrokerView, options: ConnzOptions, now_ns: int) -> Connz:
    """The page; raises PageError for options that contradict each other."""
    options = paged(options)
    _validate(options)
    if options.acc and options.acc not in broker.accounts:
        return Connz(
            server_id="",
            now=timestamp(now_ns),
            num_connections=0,
            total=0,
            offset=options.offset,
            limit=options.limit,
            connections=None,
        )
    if options.cid:
        options.offset, options.limit = 0, 1
    candidates = _candidates(broker, options)
    chosen = _filtered(candidates, options)
    chosen.sort(key=lambda c: c.cid)
    if options.sort not in ("", "cid"):
        key = SORTS[options.sort]
        chosen.sort(key=lambda c: key(c, now_ns), reverse=options.sort not in _SORTS_ASCENDING)
    connections: list[ConnzConnection] = []
    listed = 0
    for connection in chosen[options.offset : options.offset + options.limit]:
        document = _describe(connection, options, now_ns)
        if options.auth:
            _add_claims(document, broker.identity_of(connection.cid))
        if options.subscriptions or options.subscriptions_detail:
            listed += _add_subscriptions(document, connection, options)
        connections.append(document)
        if listed >= SUBSCRIPTIONS_LISTED_MAX:
            break
    return Connz(
        server_id=broker.server_id,
        now=timestamp(now_ns),
        num_connections=len(connections),
        total=len(candidates),
        offset=options.offset,
        limit=options.limit,
        connections=connections,
    )
