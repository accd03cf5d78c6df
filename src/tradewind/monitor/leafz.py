"""Build /leafz, and the leaf node part of /varz.

Owns the options of the page. It copies figures from the broker and has no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import UNSET

from tradewind.durations import SECOND_NS, format_duration
from tradewind.monitor.connz import SUBSCRIPTIONS_LISTED_MAX, SUBSCRIPTIONS_STEP
from tradewind.monitor.formats import number, present, rounded_rtt_ns, timestamp
from tradewind.monitor.monitor_documents import Leaf, Leafz, ProxyInfo
from tradewind.monitor.parameters import boolean

if TYPE_CHECKING:
    from tradewind.broker.broker import Broker
    from tradewind.broker.leaf_session import LeafSession
    from tradewind.monitor.page_options import LeafzOptions
    from tradewind.monitor.stepping import Stepped
    from tradewind.monitor.varz import ListenAddresses
    from tradewind.options import LeafRemoteOptions, ServerOptions


def leafz_from_query(query: Mapping[str, str]) -> LeafzOptions:
    """The options of a query such as /leafz?subs=1&acc=A."""
    from tradewind.monitor.page_options import LeafzOptions

    return LeafzOptions(subscriptions=boolean(query, "subs"), account=query.get("acc", ""))


def build_leafz(broker: Broker, options: LeafzOptions, now_ns: int) -> Stepped[Leafz]:
    """The page /leafz, in steps."""
    chosen = [
        session
        for session in broker.leaf_sessions.values()
        if session.is_ready and options.account in ("", session.account.name)
    ]
    left = SUBSCRIPTIONS_LISTED_MAX
    leafs = []
    for session in chosen:
        listed: list[str] = []
        end = min(session.subscription_count, left) if options.subscriptions else 0
        for offset in range(0, end, SUBSCRIPTIONS_STEP):
            part = session.subscriptions(min(SUBSCRIPTIONS_STEP, end - offset), offset)
            listed += [one.subject for one in part]
            yield
        key = broker.proxy_key(session.cid)
        leafs.append(_leaf(session, listed, key))
        yield
        left = max(left - session.subscription_count, 0)
    return Leafz(
        server_id=broker.server_id, now=timestamp(now_ns), leafnodes=len(leafs), leafs=leafs
    )


def _leaf(session: LeafSession, listed: list[str], proxy_key: str) -> Leaf:
    return Leaf(
        id=session.cid,
        name=session.name,
        is_spoke=session.is_spoke,
        is_isolated=present(session.is_isolated),
        account=session.account.name,
        ip=session.remote_ip,
        port=session.remote_port,
        rtt=format_duration(rounded_rtt_ns(session.rtt_ns)),
        in_msgs=session.in_msgs,
        out_msgs=session.out_msgs,
        in_bytes=session.in_bytes,
        out_bytes=session.out_bytes,
        subscriptions=session.subscription_count,
        subscriptions_list=present(sorted(listed)),
        compression=present(session.compression),
        proxy=ProxyInfo(key=proxy_key) if proxy_key else UNSET,
    )


def leaf_settings(options: ServerOptions, listening: ListenAddresses) -> dict[str, Any]:
    """The object `leaf` of /varz; empty without leaf nodes."""
    leafnodes = options.leafnodes
    if leafnodes is None:
        return {}
    found: dict[str, Any] = {}
    tls = leafnodes.tls
    if leafnodes.port:
        found = {
            "host": leafnodes.host,
            "port": listening.leaf_port or leafnodes.port,
            "auth_timeout": number(leafnodes.auth_timeout_ns / SECOND_NS),
            "tls_timeout": number((tls.timeout_ns if tls else 2 * SECOND_NS) / SECOND_NS),
            "tls_required": tls is not None,
            "tls_verify": tls is not None and tls.verify,
        }
    remotes = [_remote(remote) for remote in leafnodes.remotes]
    return {
        **{key: value for key, value in found.items() if value},
        **({"remotes": remotes} if remotes else {}),
    }


def _remote(remote: LeafRemoteOptions) -> dict[str, Any]:
    """A remote that is dialled, without its login."""
    denied = {"exports": list(remote.deny_exports), "imports": list(remote.deny_imports)}
    shown = {
        "local_account": remote.account,
        "tls_timeout": number(remote.tls.timeout_ns / SECOND_NS) if remote.tls else 0,
        "urls": [urlsplit(url.reveal()).netloc.rpartition("@")[2] for url in remote.urls],
        "deny": {key: value for key, value in denied.items() if value},
    }
    return {key: value for key, value in shown.items() if value}
