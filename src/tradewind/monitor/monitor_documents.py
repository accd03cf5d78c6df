"""The documents of the monitoring pages, field by field in the order of nats-server.

Owns names, order and types. A field whose type allows UNSET is omitted if empty (Go's `omitempty`);
all others are always present. The builders are in the module named after each page.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


class MonitorDocument(msgspec.Struct, kw_only=True, gc=False):
    """Base of all pages; fields are given by name. Documents are trees, which the garbage collector
    need not track.
    """


class PerKind(MonitorDocument):
    """A count for each kind of connection; this server has clients and leaf nodes."""

    clients: int = 0
    routes: int = 0
    gateways: int = 0
    leafs: int = 0


class DiskWait(MonitorDocument):
    """How often work waited for the disk, and for how long (nanoseconds)."""

    waiters: int = 0
    waits: int = 0
    wait_time: int = 0
    max_wait_time: int = 0


class TurnsOfKind(MonitorDocument):
    """Turns of the event loop above the budget that were mostly one kind of work."""

    count: int
    longest_ms: float


class TurnExcess(MonitorDocument):
    """The longest turns of the event loop, by processor time."""

    budget_ms: float
    longest_ms: float
    over_budget: int
    kinds: dict[str, TurnsOfKind]


class WebsocketSettings(MonitorDocument):
    """The websocket listener in /varz; an empty object without one."""

    host: str | UnsetType = UNSET
    port: int | UnsetType = UNSET
    advertise: str | UnsetType = UNSET
    no_auth_user: str | UnsetType = UNSET
    jwt_cookie: str | UnsetType = UNSET
    handshake_timeout: int | UnsetType = UNSET
    auth_timeout: float | UnsetType = UNSET
    no_tls: bool | UnsetType = UNSET
    same_origin: bool | UnsetType = UNSET
    allowed_origins: list[str] | UnsetType = UNSET
    compression: bool | UnsetType = UNSET
    tls_cert_not_after: str | UnsetType = UNSET


class Varz(MonitorDocument):
    """The page /varz: general information. `version` is that of the protocol, `tradewind_version`
    that of this server.
    """

    server_id: str
    server_name: str
    version: str
    tradewind_version: str
    tradewind_internal_errors: int
    proto: int
    go: str
    host: str
    port: int
    auth_required: bool | UnsetType
    tls_required: bool | UnsetType
    tls_verify: bool | UnsetType
    connect_urls: list[str] | UnsetType
    ws_connect_urls: list[str] | UnsetType
    max_connections: int
    max_subscriptions: int | UnsetType
    ping_interval: int
    ping_max: int
    http_host: str
    http_port: int
    http_base_path: str
    https_port: int
    auth_timeout: float
    max_control_line: int
    max_payload: int
    max_pending: int
    cluster: dict[str, Any]
    gateway: dict[str, Any]
    leaf: dict[str, Any]
    mqtt: dict[str, Any]
    websocket: WebsocketSettings
    jetstream: Any
    tls_timeout: float
    write_deadline: int
    start: str
    now: str
    uptime: str
    mem: int
    cores: int
    gomaxprocs: int
    cpu: float
    connections: int
    total_connections: int
    routes: int
    remotes: int
    leafnodes: int
    in_msgs: int
    in_bytes: int
    in_client_msgs: int
    in_client_bytes: int
    out_msgs: int
    out_bytes: int
    out_client_msgs: int
    out_client_bytes: int
    slow_consumers: int
    stale_connections: int
    stalled_clients: int
    subscriptions: int
    http_req_stats: dict[str, int]
    config_load_time: str
    config_digest: str
    tags: list[str] | UnsetType
    metadata: dict[str, str] | UnsetType
    feature_flags: dict[str, bool]
    trusted_operators_jwt: list[str] | UnsetType
    trusted_operators_claim: list[Any] | UnsetType
    system_account: str | UnsetType
    slow_consumer_stats: PerKind
    stale_connection_stats: PerKind
    disk_io_wait_stats: DiskWait
    tls_cert_not_after: str | UnsetType
    tradewind_turns: TurnExcess


class SubscriptionDetail(MonitorDocument, kw_only=True):
    """One subscription; the account is included only where subscriptions of several can be
    listed.
    """

    account: str | UnsetType = UNSET
    account_tag: str | UnsetType = UNSET
    subject: str
    qgroup: str | UnsetType = UNSET
    sid: str
    msgs: int
    max: int | UnsetType = UNSET
    cid: int


class PeerCertificate(msgspec.Struct, kw_only=True, frozen=True):
    """A certificate that a client presented."""

    subject: str
    spki_sha256: str
    cert_sha256: str


class ProxyInfo(MonitorDocument):
    """The trusted proxy through which a connection has come."""

    key: str


class ConnzConnection(MonitorDocument):
    """One connection in /connz."""

    cid: int
    kind: str
    type: str | UnsetType
    ip: str
    port: int
    start: str
    last_activity: str
    stop: str | UnsetType
    reason: str | UnsetType
    rtt: str
    uptime: str
    idle: str
    pending_bytes: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    stalls: int | UnsetType
    subscriptions: int
    name: str | UnsetType
    lang: str | UnsetType
    version: str | UnsetType
    tls_version: str | UnsetType
    tls_cipher_suite: str | UnsetType
    tls_peer_certs: list[PeerCertificate] | UnsetType = UNSET
    authorized_user: str | UnsetType = UNSET
    account: str | UnsetType = UNSET
    subscriptions_list: list[str] | UnsetType = UNSET
    subscriptions_list_detail: list[SubscriptionDetail] | UnsetType = UNSET
    issuer_key: str | UnsetType = UNSET
    name_tag: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    proxy: ProxyInfo | UnsetType = UNSET


class Connz(MonitorDocument):
    """The page /connz: a part of the connections; `total` counts all of them."""

    server_id: str
    now: str
    num_connections: int
    total: int
    offset: int
    limit: int
    connections: list[ConnzConnection] | None


class SublistStats(MonitorDocument):
    """Figures of a routing table."""

    num_subscriptions: int = 0
    num_cache: int = 0
    num_inserts: int = 0
    num_removes: int = 0
    num_matches: int = 0
    cache_hit_rate: float = 0
    max_fanout: int = 0
    avg_fanout: float = 0


class Subsz(MonitorDocument):
    """The page /subsz: the routing tables, and on request a page of their subscriptions."""

    server_id: str
    now: str
    num_subscriptions: int
    num_cache: int
    num_inserts: int
    num_removes: int
    num_matches: int
    cache_hit_rate: float
    max_fanout: int
    avg_fanout: float
    total: int
    offset: int
    limit: int
    subscriptions_list: list[SubscriptionDetail] | UnsetType


class MappingTarget(MonitorDocument):
    """One destination of a mapping; the weights of a source are added up."""

    subject: str
    weight: int
    cluster: str | UnsetType


class SharedLatency(MonitorDocument):
    """The requests to a service that are measured, and the subject of the results."""

    sampling: int | str
    results: str


class SharedExport(MonitorDocument, kw_only=True):
    """An export of an account."""

    subject: str
    type: str
    token_req: bool | UnsetType = UNSET
    response_type: str | UnsetType = UNSET
    service_latency: SharedLatency | UnsetType = UNSET
    approved_accounts: list[str] | UnsetType = UNSET


class SharedImport(MonitorDocument, kw_only=True):
    """An import of an account; a pending response has `type` 2."""

    subject: str
    account: str
    to: str | UnsetType = UNSET
    local_subject: str
    type: str | int
    invalid: bool
    share: bool
    tracking: bool
    latency: SharedLatency | UnsetType = UNSET


class AccountDetail(MonitorDocument):
    """One account in /accountz."""

    account_name: str
    update_time: str
    is_system: bool | UnsetType
    expired: bool
    complete: bool
    jetstream_enabled: bool
    leafnode_connections: int
    client_connections: int
    subscriptions: int
    mappings: dict[str, list[MappingTarget]] | UnsetType
    exports: list[SharedExport] | UnsetType
    imports: list[SharedImport] | UnsetType
    jwt: str | UnsetType
    issuer_key: str | UnsetType
    name_tag: str
    tags: list[str] | UnsetType
    decoded_jwt: Any
    sublist_stats: SublistStats
    responses: dict[str, SharedImport] | UnsetType


class Accountz(MonitorDocument):
    """The page /accountz: all account names, or one account."""

    server_id: str
    now: str
    system_account: str | UnsetType
    accounts: list[str] | UnsetType = UNSET
    account_detail: AccountDetail | UnsetType = UNSET


class Traffic(MonitorDocument):
    """Messages and bytes."""

    msgs: int = 0
    bytes: int = 0


class AccountTraffic(Traffic):
    """Messages and bytes of an account; among other servers, only leaf nodes have a share here."""

    gateways: Traffic = msgspec.field(default_factory=Traffic)
    routes: Traffic = msgspec.field(default_factory=Traffic)
    leafs: Traffic = msgspec.field(default_factory=Traffic)


class AccountStat(MonitorDocument):
    """Counters of one account."""

    acc: str
    name: str
    conns: int
    leafnodes: int
    total_conns: int
    num_subscriptions: int
    sent: AccountTraffic
    received: AccountTraffic
    slow_consumers: int


class AccountStatz(MonitorDocument):
    """The page /accstatz: counters per account."""

    server_id: str
    now: str
    account_statz: list[AccountStat]


class Routez(MonitorDocument):
    """The page /routez: no routes on a single server."""

    server_id: str
    server_name: str
    now: str
    num_routes: int = 0
    routes: list[Any] = msgspec.field(default_factory=list)


class Leaf(MonitorDocument, kw_only=True):
    """One connection to another server."""

    id: int
    name: str
    is_spoke: bool
    is_isolated: bool | UnsetType = UNSET
    account: str
    ip: str
    port: int
    rtt: str
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    subscriptions: int
    subscriptions_list: list[str] | UnsetType = UNSET
    compression: str | UnsetType = UNSET
    proxy: ProxyInfo | UnsetType = UNSET


class Leafz(MonitorDocument):
    """The page /leafz."""

    server_id: str
    now: str
    leafnodes: int = 0
    leafs: list[Leaf] = msgspec.field(default_factory=list)


class Gatewayz(MonitorDocument):
    """The page /gatewayz: no gateways on a single server."""

    server_id: str
    now: str
    outbound_gateways: dict[str, Any] = msgspec.field(default_factory=dict)
    inbound_gateways: dict[str, Any] = msgspec.field(default_factory=dict)


class JetStreamApiStats(MonitorDocument):
    """Requests to the JetStream API."""

    level: int = 0
    total: int = 0
    errors: int = 0


class JszLimits(MonitorDocument):
    """The limits of JetStream in /jsz."""

    max_memory: int = 0
    max_storage: int = 0


class JszDisabled(MonitorDocument, kw_only=True):
    """The page /jsz of a server without JetStream: only zeros and `disabled`."""

    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    accounts: int = 0
    ha_assets: int = 0
    api: JetStreamApiStats = msgspec.field(default_factory=JetStreamApiStats)
    server_id: str
    now: str
    disabled: bool = True
    config: JszLimits = msgspec.field(default_factory=JszLimits)
    streams: int = 0
    consumers: int = 0
    messages: int = 0
    bytes: int = 0
    total: int = 0


class HealthError(MonitorDocument, kw_only=True):
    """One problem in a detailed health report."""

    type: str
    account: str | UnsetType = UNSET
    stream: str | UnsetType = UNSET
    consumer: str | UnsetType = UNSET
    error: str


class Health(MonitorDocument):
    """The page /healthz. `status_code` is set only in replies of the system account: over HTTP it
    is the status line.
    """

    status: str
    status_code: int | UnsetType = UNSET
    error: str | UnsetType = UNSET
    errors: list[HealthError] | UnsetType = UNSET
