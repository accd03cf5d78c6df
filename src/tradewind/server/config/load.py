"""Loads a configuration file into `ServerOptions`: the top-level keys, and the combined blocks.

Owns the table of top-level keys. It never reads the contents of blocks, which is up to `access`,
`transport`, `jetstream` and others. Unsupported keys of nats-server are in `absent`, and checks of
several keys in `checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from tradewind.durations import SECOND_NS
from tradewind.errors import ConfigError
from tradewind.options import (
    DEFAULT_PORT,
    FEATURE_FLAGS,
    JetStreamOptions,
    LeafOptions,
    OpenTelemetryOptions,
    ServerOptions,
    TlsOptions,
    WebsocketOptions,
)
from tradewind.server.config.absent import (
    FEATURE_FLAGS_NOTICE,
    NOTICES,
    PROFILING_NOTICE,
    REFUSED_TOP,
    ignored_block,
    noticed,
    refused,
)
from tradewind.server.config.access import AccessReader
from tradewind.server.config.grammar import parse_file
from tradewind.server.config.jetstream_config import read_jetstream
from tradewind.server.config.known_servers import known_servers
from tradewind.server.config.loaded import LoadedConfig
from tradewind.server.config.mappings import MappingsReader
from tradewind.server.config.operator_config import operator_table, take_operator
from tradewind.server.config.reader import (
    Reader,
    Table,
    address,
    duration,
    expect,
    fault,
    ignored,
    integer_from,
    port,
    size,
    spread_address,
    text,
    text_map,
    texts,
    truth,
)
from tradewind.server.config.transport import read_tls, read_websocket
from tradewind.server.config.tree import ConfigNode, digest

LAME_DUCK_DURATION_MIN_NS = 30 * SECOND_NS
WRITE_TIMEOUTS = ("default", "close", "retry")


def load_config_file(path: str, environ: Mapping[str, str] | None = None) -> LoadedConfig:
    """Read a file with everything it includes. Raises ConfigError with all errors of the file."""
    root = parse_file(path, environ)
    if not root:
        raise ConfigError("the configuration is empty", path)
    reader = Reader()
    fields = reader.fields(ConfigNode(root, path, 1), "", _table(reader))
    reader.finish()
    warnings = tuple(reader.warnings)
    options = ServerOptions(
        **_assemble(fields),
        config_file=path,
        config_digest=digest(root),
        notices=(*(str(warning) for warning in warnings), *reader.notices),
    )
    if options.operator is not None and options.operator.is_active:
        # Loaded when it is needed: servers without an operator start sooner.
        from tradewind.server.operators.trust import system_account_of

        options = replace(options, system_account=system_account_of(options))
    return LoadedConfig(options, warnings)


def _assemble(fields: dict[str, Any]) -> dict[str, Any]:
    """Turn fields as read into fields of `ServerOptions`."""
    spread_address(fields, "listen", "host", "port")
    spread_address(fields, "http", "http_host", "http_port")
    spread_address(fields, "https", "http_host", "https_port")
    if fields.pop("no_system_account", False):
        fields["system_account"] = ""
    if fields.get("trace_verbose") or fields.get("trace_headers"):
        fields["trace"] = True
    if fields.get("port") == 0:
        fields["port"] = DEFAULT_PORT
    # A zero means "not set" for these, as in nats-server.
    for field in _ZERO_IS_DEFAULT:
        if not fields.get(field, True):
            del fields[field]
    jetstream = fields.pop("jetstream", {})
    store_dir = fields.pop("store_dir", "")
    if store_dir:
        jetstream["store_dir"] = store_dir
    fields["jetstream"] = JetStreamOptions(**jetstream)
    take_operator(fields)
    return fields


_ZERO_IS_DEFAULT = (
    "host",
    "max_control_line_bytes",
    "max_payload_bytes",
    "max_pending_bytes",
    "max_connections",
    "max_closed_clients",
    "ping_interval_ns",
    "ping_max",
    "write_deadline_ns",
    "lame_duck_grace_ns",
)


def _table(reader: Reader) -> Table:
    access = AccessReader(reader)
    mappings = MappingsReader(reader)

    def tls(node: ConfigNode, key: str) -> TlsOptions:
        return read_tls(reader, node, key)

    def websocket(node: ConfigNode, key: str) -> WebsocketOptions:
        return read_websocket(reader, access, node, key)

    def leafnodes(node: ConfigNode, key: str) -> LeafOptions:
        # Loaded when it is needed: a server that runs alone starts sooner.
        from tradewind.server.config.leafnode_config import read_leafnodes

        return read_leafnodes(reader, node, key)

    blocks: Table = {
        "leafnodes": ("leafnodes", leafnodes),
        "leaf": ("leafnodes", leafnodes),
        "default_js_domain": ("default_js_domain", text_map),
        "authorization": ("authorization", access.authorization),
        "proxies": ("trusted_proxies", partial(_proxies, reader)),
        "accounts": ("accounts", access.accounts),
        "mappings": ("mappings", mappings.read),
        "maps": ("mappings", mappings.read),
        "tls": ("tls", tls),
        "websocket": ("websocket", websocket),
        "opentelemetry": ("opentelemetry", partial(_telemetry, reader)),
        "ws": ("websocket", websocket),
    }
    return {
        **_ADDRESSES,
        **_LOGGING,
        **_LIMITS,
        **_ACCESS,
        **blocks,
        **_storage(reader),
        **operator_table(reader),
        "feature_flags": ("feature_flags", partial(_feature_flags, reader)),
        **_timing(reader),
        **_elsewhere(reader),
        **refused(REFUSED_TOP),
    }


def _proxies(reader: Reader, node: ConfigNode, key: str) -> tuple[str, ...]:
    # Loaded when it is needed: other servers start sooner without it.
    from tradewind.server.config.proxy_config import read_proxies

    return read_proxies(reader, node, key)


def _storage(reader: Reader) -> Table:
    """The keys `jetstream` and the top-level `store_dir`, which may not both name a folder."""
    seen: list[str] = []

    def once(node: ConfigNode, folder: str) -> str:
        if folder and seen:
            raise fault(node, "store_dir is set twice: at the top level and in the jetstream block")
        seen.extend([folder] if folder else [])
        return folder

    def store_dir(node: ConfigNode, key: str) -> str:
        return once(node, text(node, key))

    def jetstream(node: ConfigNode, key: str) -> dict[str, Any]:
        fields = read_jetstream(reader, node, key)
        once(node, fields.get("store_dir", ""))
        return fields

    return {
        "jetstream": ("jetstream", jetstream),
        "store_dir": ("store_dir", store_dir),
        "storedir": ("store_dir", store_dir),
    }


def _timing(reader: Reader) -> Table:
    return {
        "ping_interval": ("ping_interval_ns", reader.duration_or_seconds),
        "write_deadline": ("write_deadline_ns", reader.duration_or_seconds),
        "lame_duck_duration": ("lame_duck_duration_ns", _lame_duck_duration),
        "lame_duck_grace_period": ("lame_duck_grace_ns", _lame_duck_grace),
    }


def _elsewhere(reader: Reader) -> Table:
    """The keys of features that this server does not have, and does not need to refuse."""
    blocks = ("cluster", "gateway", "mqtt")
    others = {name: text for name, text in NOTICES.items() if name not in blocks}
    others.update(prof_port=PROFILING_NOTICE, prof_block_rate=PROFILING_NOTICE)
    return {
        **{name: ("", ignored_block(reader, name)) for name in blocks},
        **{name: ("", noticed(reader, line)) for name, line in others.items()},
    }


def _telemetry(reader: Reader, node: ConfigNode, key: str) -> OpenTelemetryOptions:
    from tradewind.server.config.telemetry_config import telemetry

    return telemetry(reader, node, key)


def _feature_flags(reader: Reader, node: ConfigNode, key: str) -> dict[str, bool]:
    """The flags that are known here; each of the others gets a line in the log."""
    flags = expect(node, key, dict, "a block of flags")
    found = {name: truth(value, name) for name, value in flags.items()}
    reader.notices += [
        f"{key}: {FEATURE_FLAGS_NOTICE.format(name)}" for name in found if name not in FEATURE_FLAGS
    ]
    return {name: value for name, value in found.items() if name in FEATURE_FLAGS}


def _server_name(node: ConfigNode, key: str) -> str:
    name = text(node, key)
    if any(map(str.isspace, name)):
        raise fault(node, f"{key} must not contain spaces")
    return name


def _server_tags(node: ConfigNode, key: str) -> tuple[str, ...]:
    """The tags in lower case and without duplicates, as in nats-server."""
    return tuple(dict.fromkeys(tag.strip().lower() for tag in texts(node, key)))


def _lame_duck_duration(node: ConfigNode, key: str) -> int:
    value = duration(node, key)
    if value < LAME_DUCK_DURATION_MIN_NS:
        raise fault(node, f"{key} must be at least 30 seconds")
    return value


def _lame_duck_grace(node: ConfigNode, key: str) -> int:
    value = duration(node, key)
    if value < 0:
        raise fault(node, f"{key} must not be negative")
    return value


def _write_timeout(node: ConfigNode, key: str) -> str:
    name = expect(node, key, str, f"one of {', '.join(WRITE_TIMEOUTS)}")
    if name not in WRITE_TIMEOUTS:
        raise fault(node, f"{key} must be one of {', '.join(WRITE_TIMEOUTS)}, not {name!r}")
    return name


_ADDRESSES: Table = {
    "listen": ("listen", address),
    "port": ("port", port),
    "host": ("host", text),
    "net": ("host", text),
    "server_name": ("server_name", _server_name),
    "client_advertise": ("client_advertise", text),
    "known_servers": ("known_servers", known_servers),
    "server_tags": ("server_tags", _server_tags),
    "server_metadata": ("server_metadata", text_map),
    "http": ("http", address),
    "https": ("https", address),
    "http_port": ("http_port", port),
    "monitor_port": ("http_port", port),
    "https_port": ("https_port", port),
    "http_base_path": ("http_base_path", text),
    "pidfile": ("pid_file", text),
    "pid_file": ("pid_file", text),
    "ports_file_dir": ("ports_file_dir", text),
}
_LOGGING: Table = {
    "debug": ("debug", truth),
    "trace": ("trace", truth),
    "trace_verbose": ("trace_verbose", truth),
    "trace_headers": ("trace_headers", truth),
    "logtime": ("logtime", truth),
    "logtime_utc": ("logtime_utc", truth),
    "logfile": ("log_file", text),
    "log_file": ("log_file", text),
    "logfile_size_limit": ("log_size_limit_bytes", size),
    "log_size_limit": ("log_size_limit_bytes", size),
    "logfile_max_num": ("log_files_max", integer_from(0)),
    "log_max_num": ("log_files_max", integer_from(0)),
    "syslog": ("syslog", truth),
    "remote_syslog": ("remote_syslog", text),
    "max_traced_msg_len": ("max_traced_msg_len", integer_from(0)),
}
_MAX_CONNECTIONS = ("max_connections", integer_from(-1, 2**63 - 1))
_MAX_SUBSCRIPTIONS = ("max_subscriptions", integer_from(0, 2**63 - 1))
_MAX_TOKENS = ("max_subscription_tokens", integer_from(1, 255))
_LIMITS: Table = {
    "max_control_line": ("max_control_line_bytes", integer_from(0)),
    "max_payload": ("max_payload_bytes", integer_from(-1)),
    "max_pending": ("max_pending_bytes", integer_from(0, 2**63 - 1)),
    "max_connections": _MAX_CONNECTIONS,
    "max_conn": _MAX_CONNECTIONS,
    "max_subscriptions": _MAX_SUBSCRIPTIONS,
    "max_subs": _MAX_SUBSCRIPTIONS,
    "max_subscription_tokens": _MAX_TOKENS,
    "max_sub_tokens": _MAX_TOKENS,
    "max_closed_clients": ("max_closed_clients", integer_from(0)),
    "ping_max": ("ping_max", integer_from(0)),
    "write_timeout": ("write_timeout", _write_timeout),
    "no_header_support": ("no_header_support", truth),
    "disable_sublist_cache": ("disable_sublist_cache", truth),
    "no_sublist_cache": ("disable_sublist_cache", truth),
    "no_fast_producer_stall": ("no_fast_producer_stall", truth),
    # How often failing connections to other servers are logged: whenever the reason changes.
    "connect_error_reports": ("", ignored),
    "reconnect_error_reports": ("", ignored),
}
_ACCESS: Table = {
    "no_auth_user": ("no_auth_user", text),
    "system_account": ("system_account", text),
    "system": ("system_account", text),
    "no_system_account": ("no_system_account", truth),
    "no_system": ("no_system_account", truth),
    "no_sys_acc": ("no_system_account", truth),
    "allow_non_tls": ("allow_non_tls", truth),
    "proxy_protocol": ("proxy_protocol", truth),
}
