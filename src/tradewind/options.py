"""Every setting of a server, typed, with its default, for flags, files and embedding.

Owns names, units and defaults. `server.config` fills these from a file, `server.lifecycle.flags`
from the command line; everything else only reads them. Units are part of the names: `_ns`
nanoseconds, `_bytes` bytes. Passwords and tokens are `Secret`, which is always printed as
asterisks.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tradewind.durations import MINUTE_NS, SECOND_NS
from tradewind.route.permission_rules import PermissionRules
from tradewind.route.remapping import MappingRule
from tradewind.route.sharing import Export, Import

MIB = 1024 * 1024

DEFAULT_PORT = 4222
DEFAULT_MONITOR_PORT = 8222
LOOPBACK = "127.0.0.1"
GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"


class Secret:
    """A string that cannot be printed by accident; `reveal()` is the only way to its text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself; must be called only where it is compared or hashed."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


NO_SECRET = Secret("")


class UserOptions(msgspec.Struct, frozen=True):
    """One user of an account: by password, by nkey, or by TLS certificate (a name only)."""

    user: str = ""
    password: Secret = NO_SECRET
    nkey: str = ""
    permissions: PermissionRules | None = None
    connection_types: frozenset[str] = frozenset()  # empty: any
    proxy_required: bool = False


class CalloutOptions(msgspec.Struct, frozen=True):
    """The block `authorization.auth_callout`: a service of `account` decides about all logins
    except those of `users`. `issuer` is the key that signs its responses, `xkey` its curve key
    (empty: nothing is encrypted). With `allowed_accounts` it decides only about users of these
    accounts and about unknown ones.
    """

    issuer: str
    users: tuple[str, ...]
    account: str = GLOBAL_ACCOUNT
    xkey: str = ""
    allowed_accounts: frozenset[str] = frozenset()


class AuthorizationOptions(msgspec.Struct, frozen=True):
    """The `authorization {}` block, or --user, --pass, --auth. `users` are members of `$G`.

    `defined` distinguishes an empty block from none: the former refuses clients without
    credentials. `proxy_required` is about the single user or the token.
    """

    user: str = ""
    password: Secret = NO_SECRET
    token: Secret = NO_SECRET
    timeout_ns: int = 0  # 0: 2 s, or the TLS timeout plus 1 s
    users: tuple[UserOptions, ...] = ()
    default_permissions: PermissionRules | None = None
    callout: CalloutOptions | None = None
    defined: bool = False
    proxy_required: bool = False


class TraceRule(msgspec.Struct, frozen=True):
    """The destination of traces for messages with a sampled traceparent, and the sampled
    percentage.
    """

    destination: str
    sampling: int = 100


class AccountOptions(msgspec.Struct, frozen=True):
    """One entry of `accounts {}`. A limit of -1 means none."""

    name: str
    users: tuple[UserOptions, ...] = ()
    default_permissions: PermissionRules | None = None
    max_connections: int = -1
    max_subscriptions: int = -1
    max_payload_bytes: int = -1
    max_leafnodes: int = -1
    nkey: str = ""  # its public key, if it has one
    mappings: tuple[MappingRule, ...] = ()
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
    trace_rule: TraceRule | None = None
    jetstream: bool = False
    # Only the limits in the file: max_memory, max_file, max_streams, max_consumers,
    # max_template_streams, max_ack_pending, memory_max_stream_bytes, store_max_stream_bytes,
    # max_bytes_required (0 or 1).
    jetstream_limits: dict[str, int] = msgspec.field(default_factory=dict)


class TlsOptions(msgspec.Struct, frozen=True):
    """A `tls {}` block or the --tls flags.

    `handshake_first_ns`: None sends INFO first, 0 expects TLS first, else the time to wait for TLS.
    `more_certs` are further pairs of files: a client is shown the first certificate for the name it
    asks for, or that of `cert_file`.
    """

    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    verify: bool = False
    verify_and_map: bool = False
    timeout_ns: int = 2 * SECOND_NS
    handshake_first_ns: int | None = None
    min_version: str = "1.2"
    cipher_suites: tuple[str, ...] = ()  # names as in Go; empty: the defaults
    pinned_certs: frozenset[str] = frozenset()
    more_certs: tuple[tuple[str, str], ...] = ()
    connection_rate_limit: int = 0  # handshakes per second; 0: any number


class WebsocketOptions(msgspec.Struct, frozen=True):
    """The `websocket {}` block."""

    host: str = "0.0.0.0"
    port: int = 0
    advertise: str = ""
    known_servers: tuple[str, ...] = ()
    no_tls: bool = False
    tls: TlsOptions | None = None
    same_origin: bool = False
    allowed_origins: tuple[str, ...] = ()
    compression: bool = False
    handshake_timeout_ns: int = 2 * SECOND_NS
    jwt_cookie: str = ""
    user_cookie: str = ""
    pass_cookie: str = ""
    token_cookie: str = ""
    no_auth_user: str = ""
    authorization: AuthorizationOptions | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    ping_interval_ns: int = 0  # 0: the server's


class RemoteTlsOptions(msgspec.Struct, frozen=True):
    """The `tls {}` block of a remote, for which this server is the client."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    hostname: str = ""  # the name in the certificate, if it is not the host of the url
    handshake_first: bool = False
    insecure: bool = False  # the certificate of the server is not verified
    timeout_ns: int = 2 * SECOND_NS


class RemoteOptions(msgspec.Struct, frozen=True):
    """One entry of `jetstream.remotes {}`: a server whose streams can be mirrored and sourced.

    Streams of `account` reach it by `prefix`, as the `api` of their `external`. A URL may contain a
    login.
    """

    name: str
    urls: tuple[Secret, ...]
    prefix: str
    account: str = GLOBAL_ACCOUNT
    domain: str = ""  # of the API to use there; empty: that of the server itself
    user: str = ""
    password: Secret = NO_SECRET
    token: Secret = NO_SECRET
    nkey_file: str = ""
    credentials: str = ""
    tls: RemoteTlsOptions | None = None


class EncryptionOptions(msgspec.Struct, frozen=True):
    """The encryption of messages at rest; `previous_key` opens data that it has encrypted."""

    key: Secret
    previous_key: Secret = NO_SECRET
    cipher: str = "chacha"  # or "chachapoly", the same, or "aes"


class CompressionOptions(msgspec.Struct, frozen=True):
    """The compression of a leaf connection: off, accept, s2_auto, s2_fast, s2_better or s2_best.

    `thresholds_ns` are the round trip times from which s2_auto uses fast, better and best.
    """

    mode: str = "s2_auto"
    thresholds_ns: tuple[int, ...] = (10_000_000, 50_000_000, 100_000_000)


class LeafUserOptions(msgspec.Struct, frozen=True):
    """A user who may connect as a leaf node, and its account (empty: the global one)."""

    user: UserOptions
    account: str = ""


class LeafAuthorizationOptions(msgspec.Struct, frozen=True):
    """The `authorization {}` of leaf nodes. With `users`, no other user may connect."""

    users: tuple[LeafUserOptions, ...] = ()
    account: str = ""
    timeout_ns: int = 0  # 0: 2 s, or the TLS timeout plus 1 s


class LeafProxyOptions(msgspec.Struct, frozen=True):
    """The HTTP proxy in front of a remote."""

    host: str
    port: int
    is_secure: bool = False
    user: str = ""
    password: Secret = NO_SECRET
    timeout_ns: int = 0  # 0: that of the remote


class LeafRemoteOptions(msgspec.Struct, frozen=True):
    """One entry of `leafnodes.remotes`: a server to dial. A URL may contain a login."""

    urls: tuple[Secret, ...]
    account: str = GLOBAL_ACCOUNT
    credentials: str = ""
    nkey_seed: Secret = NO_SECRET
    tls: RemoteTlsOptions | None = None
    deny_imports: tuple[str, ...] = ()
    deny_exports: tuple[str, ...] = ()
    hub: bool = False
    no_randomize: bool = False
    ignore_discovered: bool = False
    compression: CompressionOptions = CompressionOptions()
    first_info_timeout_ns: int = SECOND_NS
    dial_timeout_ns: int = SECOND_NS
    ws_compression: bool = False
    ws_no_masking: bool = False
    isolate: bool = False
    request_isolation: bool = False
    proxy: LeafProxyOptions | None = None
    disabled: bool = False


class LeafOptions(msgspec.Struct, frozen=True):
    """The `leafnodes {}` block. Without a listener, the port is 0."""

    host: str = "0.0.0.0"
    port: int = 0
    advertise: str = ""
    no_advertise: bool = False
    authorization: LeafAuthorizationOptions = LeafAuthorizationOptions()
    tls: TlsOptions | None = None
    compression: CompressionOptions = CompressionOptions()
    min_version: str = ""
    isolate: bool = False
    reconnect_ns: int = SECOND_NS
    write_deadline_ns: int = 0  # 0: the server's
    remotes: tuple[LeafRemoteOptions, ...] = ()

    @property
    def auth_timeout_ns(self) -> int:
        """The time that a leaf node has to authenticate."""
        if self.authorization.timeout_ns:
            return self.authorization.timeout_ns
        return self.tls.timeout_ns + SECOND_NS if self.tls else 2 * SECOND_NS


class JetStreamOptions(msgspec.Struct, frozen=True):
    """The `jetstream` block. `sync_interval_ns` 0: acknowledged means synced (the default)."""

    enabled: bool = False
    store_dir: str = ""
    max_memory_bytes: int = -1
    max_file_bytes: int = -1
    domain: str = ""
    sync_interval_ns: int = 0
    strict: bool = True
    # Only the limits in the file: default_max_consumers, max_ack_pending, max_ha_assets,
    # max_request_batch, duplicate_window_ns, batch_max_inflight_per_stream,
    # batch_max_inflight_total, batch_max_msgs, batch_timeout_ns.
    limits: dict[str, int] = msgspec.field(default_factory=dict)
    max_buffered_bytes: int = 0  # per stream, waiting to be stored; 0: the default, as below
    max_buffered_msgs: int = 0
    request_queue_limit: int = 0  # API requests waiting
    info_queue_limit: int = 0
    max_concurrent_io: int = 0
    extension_hint: str = ""
    unique_tag: str = ""
    legacy_preview: bool = True
    remotes: tuple[RemoteOptions, ...] = ()
    encryption: EncryptionOptions | None = None  # None: new streams are not encrypted
    read_only: bool = False  # serve existing streams without any change
    chain_key: Secret = NO_SECRET  # seed that signs chains, or its file; empty: created once


class ResolverOptions(msgspec.Struct, frozen=True):
    """The source of account JWTs: `memory`, `url`, `full` or `cache` (both a folder)."""

    kind: str = "memory"
    url: str = ""
    folder: str = ""
    allow_delete: bool = False
    hard_delete: bool = False
    count_max: int = 0  # 0: any number
    sync_interval_ns: int = MINUTE_NS
    fetch_timeout_ns: int = 1_900_000_000
    time_to_live_ns: int = 0  # 0: until the JWT expires
    tls: TlsOptions | None = None  # for a url


class OperatorOptions(msgspec.Struct, frozen=True):
    """Operator mode: accounts and users are JWTs that the operators, or trusted keys, vouch for.

    `operators` are JWTs, `preload` maps keys of accounts to their JWTs. Without `pinned_accounts`
    every account may connect.
    """

    operators: tuple[str, ...] = ()
    trusted_keys: tuple[str, ...] = ()
    resolver: ResolverOptions | None = None
    preload: dict[str, str] = msgspec.field(default_factory=dict)
    pinned_accounts: frozenset[str] = frozenset()
    default_sentinel: str = ""

    @property
    def is_active(self) -> bool:
        """Whether any operator or key is trusted; a resolver alone changes nothing."""
        return bool(self.operators or self.trusted_keys)


class OpenTelemetryOptions(msgspec.Struct, frozen=True):
    """The `opentelemetry {}` block: the destination of spans. `headers` may hold a key of the
    collector.
    """

    endpoint: str
    sampling: int = 100
    service_name: str = "tradewind"
    headers: dict[str, Secret] = msgspec.field(default_factory=dict)
    timeout_ns: int = 10 * SECOND_NS


# Features that can be enabled before they become the default; nats-server knows more of them, which
# concern clusters.
FEATURE_FLAGS: Final = ("js_ack_fc_v2",)


class ServerOptions(msgspec.Struct, frozen=True):
    """All settings. Immutable: a reload builds a new instance and compares both."""

    host: str = "0.0.0.0"
    port: int = DEFAULT_PORT  # -1: any free port
    server_name: str = ""  # empty: made of the host's name and the server id
    client_advertise: str = ""
    known_servers: tuple[str, ...] = ()  # host:port of others, which INFO names too
    trusted_proxies: tuple[str, ...] = ()  # public nkeys
    server_tags: tuple[str, ...] = ()
    server_metadata: dict[str, str] = msgspec.field(default_factory=dict)
    # Monitoring: port 0 is off, -1 any free port.
    http_host: str = ""  # empty: the client host, but loopback where that is a wildcard
    http_port: int = 0
    https_port: int = 0
    http_base_path: str = ""
    # Logging
    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False
    trace_headers: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str = ""
    log_size_limit_bytes: int = 0
    log_files_max: int = 0
    max_traced_msg_len: int = 0
    syslog: bool = False
    remote_syslog: str = ""
    pid_file: str = ""
    ports_file_dir: str = ""
    # Limits
    max_control_line_bytes: int = 4096
    max_payload_bytes: int = MIB
    max_pending_bytes: int = 64 * MIB
    max_connections: int = 65536
    max_subscriptions: int = 0  # 0: none
    # The largest number that can be configured, far above that of any honest subject.
    max_subscription_tokens: int = 255
    max_closed_clients: int = 10_000
    ping_interval_ns: int = 2 * MINUTE_NS
    ping_max: int = 2
    write_deadline_ns: int = 10 * SECOND_NS
    write_timeout: str = "default"  # the effect of a missed deadline: default, close or retry
    lame_duck_duration_ns: int = 2 * MINUTE_NS
    lame_duck_grace_ns: int = 10 * SECOND_NS
    no_header_support: bool = False
    disable_sublist_cache: bool = False
    no_fast_producer_stall: bool = False
    # Who may enter
    authorization: AuthorizationOptions = AuthorizationOptions()
    accounts: dict[str, AccountOptions] = msgspec.field(default_factory=dict)
    mappings: tuple[MappingRule, ...] = ()  # of the account `$G`
    no_auth_user: str = ""
    operator: OperatorOptions | None = None
    system_account: str = SYSTEM_ACCOUNT  # empty: none
    tls: TlsOptions | None = None
    allow_non_tls: bool = False
    proxy_protocol: bool = False  # a proxy announces the address of the client
    websocket: WebsocketOptions | None = None
    leafnodes: LeafOptions | None = None
    default_js_domain: dict[str, str] = msgspec.field(default_factory=dict)  # account -> domain
    jetstream: JetStreamOptions = JetStreamOptions()
    opentelemetry: OpenTelemetryOptions | None = None
    feature_flags: dict[str, bool] = msgspec.field(default_factory=dict)
    # The origin of the options
    config_file: str = ""
    config_digest: str = ""
    notices: tuple[str, ...] = ()  # one line each, logged as warnings when the server starts

    @property
    def auth_timeout_ns(self) -> int:
        """The time that a connection has to authenticate."""
        if self.authorization.timeout_ns:
            return self.authorization.timeout_ns
        return self.tls.timeout_ns + SECOND_NS if self.tls else 2 * SECOND_NS
