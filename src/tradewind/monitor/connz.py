"""Build /connz: select, sort and page connections, and describe only the requested page.

Owns the options of the page. It copies figures from the broker and has no state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET

from tradewind import nkeys
from tradewind.broker.identity import ShownClaims, shown_claims
from tradewind.durations import format_duration
from tradewind.monitor import certificate_details
from tradewind.monitor.accountz import account_title
from tradewind.monitor.formats import present, rounded_rtt_ns, timestamp, uptime
from tradewind.monitor.monitor_documents import (
    Connz,
    ConnzConnection,
    ProxyInfo,
    SubscriptionDetail,
)
from tradewind.monitor.page_options import STATE_ANY, STATE_CLOSED, STATE_OPEN, ConnzOptions, paged
from tradewind.monitor.parameters import PageError, quoted
from tradewind.monitor.stepping import Stepped
from tradewind.options import GLOBAL_ACCOUNT
from tradewind.subjects import collides_with_any

if TYPE_CHECKING:
    from tradewind.broker.accounts import SubscriptionInfo
    from tradewind.broker.broker import Broker
    from tradewind.broker.contracts import ClosedSession
    from tradewind.broker.leaf_session import LeafSession
    from tradewind.broker.session import Session

AnyConnection: TypeAlias = "Session | LeafSession | ClosedSession"
SortKey: TypeAlias = Callable[["AnyConnection", int], int | str]

CLIENT = "Client"
# Lists of subscriptions can dwarf the connections that hold them: a page ends early once it lists
# this many.
SUBSCRIPTIONS_LISTED_MAX = 50_000
# The number of subscriptions, or connections, in one step.
SUBSCRIPTIONS_STEP = 4096
CONNECTIONS_STEP = 1024


def _stop_ns(connection: Session | ClosedSession, now_ns: int) -> int:
    stop_ns: int = getattr(connection, "stop_ns", now_ns)
    return stop_ns


def _reason(connection: Session | ClosedSession) -> str:
    reason: str = getattr(connection, "reason", "")
    return reason


# The sort keys, at the time of the page. Ties keep the order of connection ids.
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
# All other orders show the largest first.
_SORTS_ASCENDING = ("cid", "start", "uptime", "reason")
_SORTS_OF_CLOSED = ("stop", "reason")


def subscription_detail(subscription: SubscriptionInfo, title: str = "") -> SubscriptionDetail:
    """One subscription as in /connz or, with the title of its account, /subsz. Interest of a leaf
    node has no id of its own.
    """
    words = filter(None, (subscription.subject, subscription.queue))
    detail = SubscriptionDetail(
        subject=subscription.subject,
        qgroup=present(subscription.queue),
        sid=subscription.sid or " ".join(words),
        msgs=subscription.msgs,
        max=present(subscription.max_msgs),
        cid=subscription.cid,
    )
    if title:
        detail.account = subscription.account
        detail.account_tag = title
    return detail


def _describe(connection: AnyConnection, options: ConnzOptions, now_ns: int) -> ConnzConnection:
    end_ns = _stop_ns(connection, now_ns)
    is_dialled: bool = getattr(connection, "is_solicited", False)
    document = ConnzConnection(
        cid=connection.cid,
        kind=connection.kind,
        type=present(connection.client_type if connection.kind == CLIENT else ""),
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
        # The peer that was dialled has sent no CONNECT, from which nats-server takes this.
        name=UNSET if is_dialled else present(connection.name),
        lang=present(connection.lang),
        version=UNSET if is_dialled else present(connection.version),
        tls_version=present(connection.tls_version),
        tls_cipher_suite=present(connection.tls_cipher),
    )
    if options.auth:
        _add_identity(document, connection)
    return document


def _add_identity(document: ConnzConnection, connection: Session | ClosedSession) -> None:
    peers = [certificate_details.describe_peer(der) for der in connection.tls_peer_certs]
    document.tls_peer_certs = present([peer for peer in peers if peer is not None])
    document.authorized_user = present(connection.user)
    account = connection.account
    if account is not None:
        is_named = account.name != GLOBAL_ACCOUNT
        document.account = present(account.name if is_named else "")
        if is_named or document.stop is UNSET:
            document.name_tag = account.name


def _add_claims(document: ConnzConnection, claims: ShownClaims | None, *, with_auth: bool) -> None:
    """Add the claims of a user's JWT, and the key that admitted the user. The JWT itself is
    omitted: that of a bearer is a password. Closed connections are shown with the name of the user.
    """
    if claims is None:
        return
    document.issuer_key = present(claims.issuer_key)
    if title := claims.account_title if with_auth else claims.name:
        document.name_tag = title
    document.tags = present(list(claims.tags))


def _add_subscriptions(
    document: ConnzConnection,
    connection: Session | ClosedSession,
    options: ConnzOptions,
    title: str,
) -> Stepped[int]:
    """Add the subscriptions; returns their number. Subscriptions that change meanwhile may be
    missing.
    """
    details: list[SubscriptionDetail] = []
    subjects: list[str] = []
    for offset in range(0, connection.subscription_count, SUBSCRIPTIONS_STEP):
        part = connection.subscriptions(SUBSCRIPTIONS_STEP, offset)
        if options.subscriptions_detail:
            details += [subscription_detail(s, title) for s in part]
        else:
            subjects += [s.subject for s in part]
        yield
    document.subscriptions_list_detail = present(details)
    document.subscriptions_list = present(subjects)
    return len(details) + len(subjects)


def _claims_of(broker: Broker, connection: AnyConnection) -> ShownClaims | None:
    claims: ShownClaims | None = getattr(connection, "claims", None)
    if claims is None:  # an open one has none, and a closed one has no identity
        claims = shown_claims(broker.identity_of(connection.cid))
    if claims is None and connection.account is not None:
        is_key = nkeys.is_public(connection.user, nkeys.USER)
        return ShownClaims(connection.account.name) if is_key else None
    return claims


def _account_title(broker: Broker, connection: Session | ClosedSession) -> str:
    return account_title(broker, connection.account.name) if connection.account is not None else ""


def _validate(options: ConnzOptions) -> None:
    if options.sort and options.sort not in SORTS:
        raise PageError(f"invalid sorting option: {quoted(options.sort)[1:-1]}")
    if options.sort in _SORTS_OF_CLOSED and options.state != STATE_CLOSED:
        raise PageError(f"sort by {options.sort} only valid on closed connections")
    if options.filter_subject and not options.acc:
        raise PageError("filter by subject only valid with account filtering")


def _candidates(broker: Broker, options: ConnzOptions) -> list[AnyConnection]:
    """All connections in the requested state and account; their number is the page's `total`. Empty
    for a state that does not exist.
    """
    chosen: list[AnyConnection] = []
    if options.state in (STATE_OPEN, STATE_ANY):
        chosen.extend(broker.sessions.values())
        chosen.extend(leaf for leaf in broker.leaf_sessions.values() if leaf.is_ready)
    if options.state in (STATE_CLOSED, STATE_ANY):
        chosen.extend(broker.closed)
    if options.acc:
        chosen = [
            c
            for c in chosen
            if c.account is not None
            and c.account.name == options.acc
            and not broker.is_undecided(c.cid)
        ]
    return chosen


def _filtered(chosen: list[AnyConnection], options: ConnzOptions) -> Stepped[list[AnyConnection]]:
    if options.cid:
        return [c for c in chosen if c.cid == options.cid][:1]
    if options.mqtt_client:
        return []
    if options.user:
        chosen = [c for c in chosen if c.user == options.user]
        yield
    if options.filter_subject:
        wanted = options.filter_subject
        kept: list[AnyConnection] = []
        for connection in chosen:
            kept += [connection] if (yield from _wants(connection, wanted)) else []
        chosen = kept
    return chosen


def _wants(connection: AnyConnection, subject: str) -> Stepped[bool]:
    """Whether a subscription of the connection overlaps with a subject."""
    for offset in range(0, connection.subscription_count, SUBSCRIPTIONS_STEP):
        part = connection.subscriptions(SUBSCRIPTIONS_STEP, offset)
        yield
        if collides_with_any(subject, [s.subject for s in part]):
            return True
    return False


def _sorted(
    chosen: list[AnyConnection], options: ConnzOptions, now_ns: int
) -> Stepped[list[AnyConnection]]:
    """The connections in the requested order; ties are in the order of connection ids, in either
    direction.
    """
    if options.sort in ("", "cid"):
        return sorted(chosen, key=lambda c: c.cid)
    key = SORTS[options.sort]
    chosen = sorted(chosen, key=lambda c: c.cid)
    keys: list[tuple[Any, int]] = []
    for number, connection in enumerate(chosen):
        keys.append((key(connection, now_ns), number))
        if number % CONNECTIONS_STEP == 0:
            yield
    keys.sort(key=lambda pair: pair[0], reverse=options.sort not in _SORTS_ASCENDING)
    return [chosen[number] for _, number in keys]


def build_connz(broker: Broker, options: ConnzOptions, now_ns: int) -> Stepped[Connz]:
    """The page, in steps; raises PageError for options that contradict each other."""
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
    yield
    chosen = yield from _filtered(candidates, options)
    chosen = yield from _sorted(chosen, options, now_ns)
    connections: list[ConnzConnection] = []
    listed = 0
    for connection in chosen[options.offset : options.offset + options.limit]:
        document = _describe(connection, options, now_ns)
        closed_key: str | None = getattr(connection, "proxy_key", None)
        key = broker.proxy_key(connection.cid) if closed_key is None else closed_key
        document.proxy = ProxyInfo(key=key) if key else UNSET
        if options.auth or document.stop is not UNSET:
            _add_claims(document, _claims_of(broker, connection), with_auth=options.auth)
        if options.subscriptions or options.subscriptions_detail:
            # For closed connections, nats-server names the account each time.
            title = "" if document.stop is UNSET else _account_title(broker, connection)
            listed += yield from _add_subscriptions(document, connection, options, title)
        connections.append(document)
        yield
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
