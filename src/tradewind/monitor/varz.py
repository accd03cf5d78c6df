"""Build /varz: general information about the server, its settings and totals. The module has no
state and never shows a secret.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind._version import __version__
from tradewind.durations import MILLISECOND_NS, SECOND_NS
from tradewind.monitor.formats import number, present, timestamp, uptime
from tradewind.monitor.monitor_documents import (
    DiskWait,
    PerKind,
    TurnExcess,
    TurnsOfKind,
    Varz,
    WebsocketSettings,
)
from tradewind.monitor.process_usage import ProcessUsage
from tradewind.options import ServerOptions, TlsOptions
from tradewind.wire.ops import NATS_VERSION, PROTOCOL_VERSION

if TYPE_CHECKING:
    from tradewind.jwt import OperatorClaims
    from tradewind.monitor.views import BrokerView, TurnWatchView

# The feature flags of nats-server 2.15 with their defaults, which the configuration may change.
FEATURE_FLAGS: Final = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,
    "js_snapshot_sources": False,
}
_AUTH_TIMEOUT_NS = 2 * SECOND_NS
_TLS_TIMEOUT_NS = 2 * SECOND_NS


class ListenAddresses(msgspec.Struct):
    """The addresses that clients really connect to: configured ports may be -1. Filled in by the
    code that opens the listeners.
    """

    host: str = ""
    port: int = 0
    websocket_port: int = 0
    leaf_port: int = 0
    connect_urls: tuple[str, ...] = ()  # those of INFO
    websocket_urls: tuple[str, ...] = ()


def auth_required(options: ServerOptions) -> bool:
    """Whether logins are checked, even if `no_auth_user` replaces missing credentials."""
    rules = options.authorization
    return bool(
        (options.operator is not None and options.operator.is_active)
        or rules.user
        or rules.token
        or rules.users
        or any(account.users for account in options.accounts.values())
    )


def auth_timeout_seconds(options: ServerOptions) -> float:
    """The time that a client has for its login; with TLS one second more than for the handshake."""
    if options.authorization.timeout_ns:
        return number(options.authorization.timeout_ns / SECOND_NS)
    if options.tls is not None:
        return number((options.tls.timeout_ns + SECOND_NS) / SECOND_NS)
    return number(_AUTH_TIMEOUT_NS / SECOND_NS)


def _certificate_end(tls: TlsOptions | None) -> str:
    if tls is None or not tls.cert_file:
        return ""
    from tradewind.monitor import certificate_details

    return certificate_details.expiry_of_file(tls.cert_file)


def _websocket_settings(options: ServerOptions, listening: ListenAddresses) -> WebsocketSettings:
    websocket = options.websocket
    if websocket is None:
        return WebsocketSettings()
    return WebsocketSettings(
        host=websocket.host,
        port=listening.websocket_port or websocket.port,
        advertise=present(websocket.advertise),
        no_auth_user=present(websocket.no_auth_user),
        jwt_cookie=present(websocket.jwt_cookie),
        handshake_timeout=present(websocket.handshake_timeout_ns),
        no_tls=present(websocket.no_tls),
        same_origin=present(websocket.same_origin),
        allowed_origins=present(list(websocket.allowed_origins)),
        compression=present(websocket.compression),
        tls_cert_not_after=present(_certificate_end(websocket.tls)),
    )


def _leaf_settings(options: ServerOptions, listening: ListenAddresses) -> dict[str, Any]:
    if options.leafnodes is None:
        return {}
    from tradewind.monitor.leafz import leaf_settings

    return leaf_settings(options, listening)


def cluster_name(broker: BrokerView) -> str:
    """The cluster name: a server that dials others as a leaf node is its own cluster, with its own
    name.
    """
    leafnodes = broker.options.leafnodes
    return broker.server_name if leafnodes is not None and leafnodes.remotes else ""


def subscription_total(broker: BrokerView) -> int:
    """The number of all client subscriptions."""
    return sum(account.subscription_count for account in broker.accounts.values())


def _usage(usage: ProcessUsage) -> dict[str, Any]:
    """The resources of the machine that the process uses."""
    return {
        "mem": usage.memory_bytes,
        "cores": usage.cores,
        "gomaxprocs": usage.cores_usable,
        "cpu": number(usage.cpu_percent),
    }


def _counters(broker: BrokerView) -> dict[str, Any]:
    """The totals since the start; traffic that is not of leaf nodes is of clients."""
    totals, leafs = broker.totals, broker.leaf_traffic()
    return {
        "total_connections": totals.total_connections,
        "in_msgs": totals.in_msgs,
        "in_bytes": totals.in_bytes,
        "in_client_msgs": totals.in_msgs - leafs.in_msgs,
        "in_client_bytes": totals.in_bytes - leafs.in_bytes,
        "out_msgs": totals.out_msgs,
        "out_bytes": totals.out_bytes,
        "out_client_msgs": totals.out_msgs - leafs.out_msgs,
        "out_client_bytes": totals.out_bytes - leafs.out_bytes,
        "slow_consumers": totals.slow_consumers,
        "stale_connections": totals.stale_connections,
        "stalled_clients": totals.stalled_clients,
    }


def per_kind(total: int, leafs: int) -> PerKind:
    """A count of connections that are either clients or leaf nodes."""
    return PerKind(clients=total - leafs, leafs=leafs)


def _labels(options: ServerOptions) -> dict[str, Any]:
    """The description of the server, and in operator mode the trusted operators."""
    tokens = options.operator.operators if options.operator is not None else ()
    return {
        "tags": present(list(options.server_tags)),
        "metadata": present(dict(sorted(options.server_metadata.items()))),
        "trusted_operators_jwt": present(list(tokens)),
        "trusted_operators_claim": present([_operator_claims(token) for token in tokens]),
    }


@lru_cache(maxsize=16)
def _operator_claims(token: str) -> OperatorClaims:
    """The claims of a trusted operator; the configuration has been checked, so they can be
    decoded.
    """
    from tradewind.jwt.claims import OperatorClaims
    from tradewind.jwt.codec import decode_as

    return decode_as(OperatorClaims, token)


def _turns(watch: TurnWatchView) -> TurnExcess:
    return TurnExcess(
        budget_ms=number(watch.budget_ns / MILLISECOND_NS),
        longest_ms=number(round(watch.longest_ns / MILLISECOND_NS, 1)),
        over_budget=sum(kind.count for kind in watch.kinds.values()),
        kinds={
            name: TurnsOfKind(
                count=kind.count, longest_ms=number(round(kind.longest_ns / MILLISECOND_NS, 1))
            )
            for name, kind in sorted(watch.kinds.items())
        },
    )


def build_varz(
    broker: BrokerView,
    listening: ListenAddresses,
    usage: ProcessUsage,
    request_counts: Mapping[str, int],
    jetstream: Any,
    now_ns: int,
) -> Varz:
    """The page; `jetstream` is the document of JetStream, an empty object if it is off."""
    options, totals, tls = broker.options, broker.totals, broker.options.tls
    system = broker.system_account
    return Varz(
        server_id=broker.server_id,
        server_name=broker.server_name,
        version=NATS_VERSION,
        tradewind_version=__version__,
        tradewind_internal_errors=broker.faults.total,
        proto=PROTOCOL_VERSION,
        go=f"python{sys.version.split()[0]}",
        host=listening.host or options.host,
        port=listening.port or options.port,
        auth_required=present(auth_required(options)),
        tls_required=present(tls is not None and not options.allow_non_tls),
        tls_verify=present(tls is not None and (tls.verify or tls.verify_and_map)),
        connect_urls=present(list(listening.connect_urls)),
        ws_connect_urls=present(list(listening.websocket_urls)),
        max_connections=options.max_connections,
        max_subscriptions=present(options.max_subscriptions),
        ping_interval=options.ping_interval_ns,
        ping_max=options.ping_max,
        http_host=options.http_host,
        http_port=options.http_port,
        http_base_path=options.http_base_path,
        https_port=options.https_port,
        auth_timeout=auth_timeout_seconds(options),
        max_control_line=options.max_control_line_bytes,
        max_payload=options.max_payload_bytes,
        max_pending=options.max_pending_bytes,
        cluster={},
        gateway={},
        leaf=_leaf_settings(options, listening),
        mqtt={},
        websocket=_websocket_settings(options, listening),
        jetstream=jetstream,
        tls_timeout=number((tls.timeout_ns if tls is not None else _TLS_TIMEOUT_NS) / SECOND_NS),
        write_deadline=options.write_deadline_ns,
        start=timestamp(broker.start_ns),
        now=timestamp(now_ns),
        uptime=uptime(now_ns - broker.start_ns),
        **_usage(usage),
        connections=len(broker.sessions),
        routes=0,
        remotes=0,
        leafnodes=sum(one.is_ready for one in broker.leaf_sessions.values()),
        **_counters(broker),
        subscriptions=subscription_total(broker),
        http_req_stats=dict(sorted(request_counts.items())),
        config_load_time=timestamp(broker.config_load_ns),
        config_digest=options.config_digest,
        feature_flags={**FEATURE_FLAGS, **options.feature_flags},
        **_labels(options),
        system_account=present(system.name if system is not None else ""),
        slow_consumer_stats=per_kind(totals.slow_consumers, totals.slow_leaves),
        stale_connection_stats=per_kind(totals.stale_connections, totals.stale_leaves),
        disk_io_wait_stats=DiskWait(),
        tls_cert_not_after=present(_certificate_end(tls)),
        tradewind_turns=_turns(broker.watch),
    )
