"""Compare two sets of options to decide whether a reload is possible.

Owns the list of settings that can be reloaded and the log texts about them, which are those of
nats-server because tools watch for them. It never applies a change: `server.lifecycle.app` does.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tradewind.durations import format_duration
from tradewind.errors import ConfigError
from tradewind.options import (
    LeafAuthorizationOptions,
    LeafOptions,
    OperatorOptions,
    ServerOptions,
    TlsOptions,
    WebsocketOptions,
)

_Say = Callable[[object], str]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _listed(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) and value else "none"


def _duration(value: object) -> str:
    return format_duration(value) if isinstance(value, int) else str(value)


# Reloadable, in the order in which changes are reported: option -> name in the log, and its form.
_RELOADABLE: dict[str, tuple[str, _Say]] = {
    "debug": ("debug", _plain),
    "trace": ("trace", _plain),
    "trace_verbose": ("trace_verbose", _plain),
    "trace_headers": ("trace_headers", _plain),
    "logtime": ("logtime", _plain),
    "logtime_utc": ("logtime_utc", _plain),
    "log_file": ("log_file", _plain),
    "syslog": ("syslog", _plain),
    "remote_syslog": ("remote_syslog", _plain),
    "max_traced_msg_len": ("max_traced_msg_len", _plain),
    "pid_file": ("pid_file", _plain),
    "ports_file_dir": ("ports_file_dir", _plain),
    "client_advertise": ("client_advertise", _plain),
    "known_servers": ("known_servers", _listed),
    "max_connections": ("max_connections", _plain),
    "max_control_line_bytes": ("max_control_line", _plain),
    "max_payload_bytes": ("max_payload", _plain),
    "ping_interval_ns": ("ping_interval", _duration),
    "ping_max": ("ping_max", _plain),
    "write_deadline_ns": ("write_deadline", _duration),
}
# Reloadable, but reported separately below.
_SPECIAL = (
    "authorization",
    "accounts",
    "mappings",
    "tls",
    "server_tags",
    "server_metadata",
    "trusted_proxies",
    "no_fast_producer_stall",
    "config_file",
    "config_digest",
    "notices",
)
# nats-server's names of the other options, where they differ from ours in CamelCase.
_NAMES = {
    "http_host": "HTTPHost",
    "http_port": "HTTPPort",
    "https_port": "HTTPSPort",
    "http_base_path": "HTTPBasePath",
    "log_size_limit_bytes": "LogSizeLimit",
    "log_files_max": "LogMaxFiles",
    "max_pending_bytes": "MaxPending",
    "max_subscriptions": "MaxSubs",
    "max_subscription_tokens": "MaxSubTokens",
    "lame_duck_duration_ns": "LameDuckDuration",
    "lame_duck_grace_ns": "LameDuckGracePeriod",
    "disable_sublist_cache": "NoSublistCache",
    "allow_non_tls": "AllowNonTLS",
    "leafnodes": "LeafNode",
}
# Their values hold users and passwords, or are too long for a line.
_VALUE_NOT_SHOWN = ("websocket", "jetstream", "operator", "leafnodes", "opentelemetry")


def describe_changes(old: ServerOptions, new: ServerOptions) -> list[str]:
    """The changes, as the log lists them after "Reloaded: "; ConfigError if one needs a restart."""
    for name in ServerOptions.__struct_fields__:
        if name in _RELOADABLE or name in _SPECIAL:
            continue
        if _fixed_part(old, name) != _fixed_part(new, name):
            raise ConfigError(_refusal(name, old, new))
    if old.authorization.callout != new.authorization.callout:
        raise ConfigError("config reload not supported for AuthCallout")
    lines = [
        f"{shown} = {say(getattr(new, name))}"
        for name, (shown, say) in _RELOADABLE.items()
        if getattr(old, name) != getattr(new, name)
    ]
    return lines + _access_changes(old, new) + _tls_changes(old.tls, new.tls) + _others(old, new)


def _fixed_part(options: ServerOptions, name: str) -> object:
    """The part of an option that needs a restart: all of it, except for parts of a few blocks."""
    value = getattr(options, name)
    if isinstance(value, OperatorOptions):
        return replace(value, preload={})
    if isinstance(value, LeafOptions):
        reloadable = {"tls": None, "remotes": (), "reconnect_ns": 0, "min_version": ""}
        return replace(value, authorization=LeafAuthorizationOptions(), **reloadable)
    if isinstance(value, WebsocketOptions):
        return replace(value, tls=None, known_servers=())
    return value


def _refusal(name: str, old: ServerOptions, new: ServerOptions) -> str:
    if name == "jetstream" and old.jetstream.store_dir != new.jetstream.store_dir:
        return "config reload not supported for jetstream storage directory"
    camel = name.removesuffix("_bytes").replace("_", " ").title().replace(" ", "")
    shown = _NAMES.get(name, "JetStream" if name == "jetstream" else camel)
    text = f"config reload not supported for {shown}"
    if name in _VALUE_NOT_SHOWN:
        return text
    say = _duration if name.endswith("_ns") else _plain
    return f"{text}: old={say(getattr(old, name))}, new={say(getattr(new, name))}"


def _access_changes(old: ServerOptions, new: ServerOptions) -> list[str]:
    before, after = old.authorization, new.authorization
    changes = {
        "authorization users": (before.users, before.default_permissions)
        != (after.users, after.default_permissions),
        "accounts": (old.accounts, old.mappings) != (new.accounts, new.mappings),
        "authorization username": before.user != after.user,
        "authorization password": before.password != after.password,
        "authorization token": before.token != after.token,
        f"authorization timeout = {_duration(after.timeout_ns)}": before.timeout_ns
        != after.timeout_ns,
    }
    return [line for line, changed in changes.items() if changed]


def _tls_changes(old: TlsOptions | None, new: TlsOptions | None) -> list[str]:
    # A reload always reads the certificate files again: they may have been renewed in place.
    if new is not None:
        pins = old.pinned_certs if old is not None else frozenset()
        changed = pins != new.pinned_certs
        return ["tls = enabled", *([f"{len(new.pinned_certs)} pinned_certs"] if changed else [])]
    return ["tls = disabled"] if old is not None else []


def _others(old: ServerOptions, new: ServerOptions) -> list[str]:
    lines = []
    if old.server_tags != new.server_tags:
        lines.append("tags")
    if old.server_metadata != new.server_metadata:
        lines.append("metadata")
    if old.no_fast_producer_stall != new.no_fast_producer_stall:
        will = "will not" if new.no_fast_producer_stall else "will"
        lines.append(f"fast producers {will} be stalled")
    for change, keys in (
        ("removed", [key for key in old.trusted_proxies if key not in new.trusted_proxies]),
        ("added", [key for key in new.trusted_proxies if key not in old.trusted_proxies]),
    ):
        if keys:
            lines.append(f"proxies trusted keys {_listed(tuple(keys))} were {change}")
    if old.leafnodes != new.leafnodes:
        lines.append("leafnodes")
    if _websocket_servers(old) != _websocket_servers(new):
        lines.append(f"websocket known_servers = {_listed(_websocket_servers(new))}")
    return lines


def _websocket_servers(options: ServerOptions) -> tuple[str, ...]:
    return options.websocket.known_servers if options.websocket is not None else ()
