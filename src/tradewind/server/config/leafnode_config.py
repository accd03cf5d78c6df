"""The `leafnodes` block: the listener for leaf nodes, and the servers to connect to.

Owns its keys. It never checks whether the accounts it names exist; `checks` does, once the whole
file is read.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from tradewind.broker.leaf_compression import MODES
from tradewind.broker.leaves import version_numbers
from tradewind.client.errors import OptionsError
from tradewind.errors import ConfigError
from tradewind.nkeys import KeyPair, NkeyError
from tradewind.options import (
    NO_SECRET,
    CompressionOptions,
    LeafAuthorizationOptions,
    LeafOptions,
    LeafProxyOptions,
    LeafRemoteOptions,
    LeafUserOptions,
    RemoteTlsOptions,
    Secret,
    TlsOptions,
    UserOptions,
)
from tradewind.server.config.leaf_urls import leaf_address
from tradewind.server.config.reader import (
    Reader,
    address,
    duration,
    expect,
    fault,
    ignored,
    port,
    seconds,
    secret,
    spread_address,
    text,
    texts,
    truth,
)
from tradewind.server.config.remote_config import read_remote_tls
from tradewind.server.config.transport import read_tls
from tradewind.server.config.tree import ConfigNode
from tradewind.subjects import is_valid_subject

VERSION_MIN = (2, 8, 0)
THRESHOLDS_MAX = 3
_PROXY_PORTS = {"http": 80, "https": 443}
_MODE_NAMES = {
    "disabled": "off",
    "disable": "off",
    "enabled": "s2_auto",
    "enable": "s2_auto",
    "on": "s2_auto",
    "auto": "s2_auto",
    "fast": "s2_fast",
    "better": "s2_better",
    "best": "s2_best",
    **{mode: mode for mode in MODES},
}


def read_leafnodes(reader: Reader, node: ConfigNode, key: str) -> LeafOptions:
    """The options of the whole `leafnodes` block."""

    def tls(child: ConfigNode, name: str) -> TlsOptions:
        return read_tls(reader, child, name)

    def remotes(child: ConfigNode, name: str) -> tuple[LeafRemoteOptions, ...]:
        return _remotes(reader, child, name)

    def login(child: ConfigNode, name: str) -> LeafAuthorizationOptions:
        return _authorization(reader, child, name)

    advertise, isolate = ("advertise", text), ("isolate", truth)
    reconnect, version = ("reconnect_ns", reader.duration_or_seconds), ("min_version", _version)
    fields: dict[str, Any] = reader.fields(
        node,
        key,
        {
            "listen": ("listen", address),
            "port": ("port", port),
            "host": ("host", text),
            "net": ("host", text),
            "advertise": advertise,
            "leafnode_advertise": advertise,
            "no_advertise": ("no_advertise", truth),
            "authorization": ("authorization", login),
            "authentication": ("authorization", login),
            "tls": ("tls", tls),
            "compression": ("compression", read_compression),
            "min_version": version,
            "minimum_version": version,
            "isolate_leafnode_interest": isolate,
            "isolate": isolate,
            "reconnect": reconnect,
            "reconnect_delay": reconnect,
            "reconnect_interval": reconnect,
            "dial_timeout": ("dial_timeout_ns", reader.duration_or_seconds),
            "write_deadline": ("write_deadline_ns", reader.duration_or_seconds),
            "write_timeout": ("", ignored),
            "remotes": ("remotes", remotes),
        },
    )
    spread_address(fields, "listen", "host", "port")
    for field in ("host", "reconnect_ns"):
        if not fields.get(field, True):
            del fields[field]
    dial_timeout_ns = fields.pop("dial_timeout_ns", 0)
    options = LeafOptions(**fields)
    if dial_timeout_ns:
        from msgspec.structs import replace

        options = replace(
            options,
            remotes=tuple(
                replace(remote, dial_timeout_ns=dial_timeout_ns) for remote in options.remotes
            ),
        )
    return options


def _authorization(reader: Reader, node: ConfigNode, key: str) -> LeafAuthorizationOptions:
    def users(child: ConfigNode, name: str) -> tuple[LeafUserOptions, ...]:
        items = expect(child, name, list, "a list of users")
        return tuple(_user(reader, item, f"each of {name}") for item in items)

    fields = reader.fields(
        node,
        key,
        {
            **_USER,
            "account": ("account", text),
            "timeout": ("timeout_ns", seconds),
            "users": ("users", users),
            "proxy_required": ("proxy_required", truth),
        },
    )
    own = ("user", "password", "nkey", "proxy_required")
    single = {name: fields.pop(name) for name in own if name in fields}
    if single.get("proxy_required") and not (single.get("user") or single.get("nkey")):
        raise fault(node, f"{key}: proxy_required is about a user; set it for each of them")
    single = single if single.keys() - {"proxy_required"} else {}
    if single and "users" in fields:
        raise fault(node, f"{key} has both a single user and a users list: choose one")
    account = fields.get("account", "")
    if single:
        fields["users"] = (LeafUserOptions(UserOptions(**single), account),)
    return LeafAuthorizationOptions(**fields)


def _user(reader: Reader, node: ConfigNode, key: str) -> LeafUserOptions:
    fields = reader.fields(
        node,
        key,
        {**_USER, "account": ("account", text), "proxy_required": ("proxy_required", truth)},
    )
    account = fields.pop("account", "")
    if not fields.get("user") and not fields.get("nkey"):
        raise fault(node, f"{key} needs a user or an nkey")
    return LeafUserOptions(UserOptions(**fields), account)


_USER = {
    "user": ("user", text),
    "username": ("user", text),
    "password": ("password", secret),
    "pass": ("password", secret),
    "nkey": ("nkey", text),
}


def read_compression(node: ConfigNode, key: str) -> CompressionOptions:
    """The compression of a mode, a boolean, or a block with a mode and the thresholds of its
    levels.
    """
    if isinstance(node.value, dict):
        return _compression_block(Reader(), node, key)
    return CompressionOptions(_mode(node, key))


def _compression_block(reader: Reader, node: ConfigNode, key: str) -> CompressionOptions:
    thresholds = ("thresholds_ns", _thresholds)
    fields = reader.fields(
        node,
        key,
        {
            "mode": ("mode", _mode),
            "rtt_thresholds": thresholds,
            "thresholds": thresholds,
            "rtts": thresholds,
            "rtt": thresholds,
        },
    )
    reader.finish()
    return CompressionOptions(**fields)


def _mode(node: ConfigNode, key: str) -> str:
    if isinstance(node.value, bool):
        return "s2_auto" if node.value else "off"
    word = expect(node, key, str, f"one of {', '.join(MODES)}")
    mode = _MODE_NAMES.get(word.lower())
    if mode is None:
        raise fault(node, f"{key} must be one of {', '.join(MODES)}, not {word!r}")
    return mode


def _thresholds(node: ConfigNode, key: str) -> tuple[int, ...]:
    items = expect(node, key, list, "a list of durations")
    found = tuple(duration(item, f"each entry of {key}") for item in items)
    if len(found) > THRESHOLDS_MAX or list(found) != sorted(found) or min(found, default=0) < 0:
        raise fault(node, f"{key} takes up to {THRESHOLDS_MAX} durations, each above the last")
    return found


def _version(node: ConfigNode, key: str) -> str:
    version = text(node, key)
    if version_numbers(version) < VERSION_MIN:
        raise fault(node, f'{key} must be a version from "2.8.0" on, not {version!r}')
    return version


# ---------------------------------------------------------------------- remotes


def _remotes(reader: Reader, node: ConfigNode, key: str) -> tuple[LeafRemoteOptions, ...]:
    found: list[LeafRemoteOptions] = []
    for item in expect(node, key, list, "a list of blocks, one for each server or cluster"):
        try:
            remote = _remote(reader, item, f"each of {key}")
        except ConfigError as error:
            reader.errors.append(error)
            continue
        if remote is None:
            continue
        if any(
            (one.account, one.urls, one.credentials)
            == (remote.account, remote.urls, remote.credentials)
            for one in found
        ):
            reader.errors.append(fault(item, f"duplicate remote in {key}: one connection is made"))
            continue
        found.append(remote)
    return tuple(found)


def _remote(reader: Reader, node: ConfigNode, key: str) -> LeafRemoteOptions | None:
    def tls(child: ConfigNode, what: str) -> RemoteTlsOptions:
        return read_remote_tls(reader, child, what, is_leaf=True)

    urls, account = ("urls", _urls), ("account", text)
    credentials, seed = ("credentials", text), ("nkey_seed", _seed)
    randomize, isolate = ("no_randomize", truth), ("isolate", truth)
    compress, masking = ("ws_compression", truth), ("ws_no_masking", truth)
    fields = reader.fields(
        node,
        key,
        {
            "url": urls,
            "urls": urls,
            "account": account,
            "local": account,
            "credentials": credentials,
            "creds": credentials,
            "nkey": seed,
            "seed": seed,
            "tls": ("tls", tls),
            "deny_imports": ("deny_imports", _subjects),
            "deny_import": ("deny_imports", _subjects),
            "deny_exports": ("deny_exports", _subjects),
            "deny_export": ("deny_exports", _subjects),
            "hub": ("hub", truth),
            "no_randomize": randomize,
            "dont_randomize": randomize,
            "ignore_discovered_servers": ("ignore_discovered", truth),
            "compression": ("compression", read_compression),
            "first_info_timeout": ("first_info_timeout_ns", reader.duration_or_seconds),
            "dial_timeout": ("dial_timeout_ns", reader.duration_or_seconds),
            "ws_compression": compress,
            "ws_compress": compress,
            "websocket_compression": compress,
            "websocket_compress": compress,
            "ws_no_masking": masking,
            "websocket_no_masking": masking,
            "isolate_leafnode_interest": isolate,
            "isolate": isolate,
            "request_isolation": ("request_isolation", truth),
            # Concerns the leaders of replicated streams, and there are none here.
            "jetstream_cluster_migrate": ("", ignored),
            "js_cluster_migrate": ("", ignored),
            "disabled": ("disabled", truth),
            "proxy": ("proxy", read_proxy),
        },
    )
    if "urls" not in fields:
        named = {name.lower() for name in expect(node, key, dict, "a block: { ... }")}
        if named & {"url", "urls"}:
            return None  # the error has been recorded already
        raise fault(node, f'{key} needs a url, such as "nats-leaf://hub.example.com:7422"')
    if fields.get("credentials") and fields.get("nkey_seed"):
        raise fault(node, f"{key} has credentials and an nkey: give only one of them")
    return LeafRemoteOptions(**fields)


def read_proxy(node: ConfigNode, key: str) -> LeafProxyOptions | None:
    """The options of a remote's `proxy` block; None if the block is empty."""
    reader = Reader()
    user, password = ("user", text), ("password", secret)
    fields = reader.fields(
        node,
        key,
        {
            "url": ("url", secret),
            "username": user,
            "password": password,
            "timeout": ("timeout_ns", reader.duration_or_seconds),
        },
    )
    reader.finish()
    if not fields:
        return None
    if "url" not in fields:
        raise fault(node, f'{key} needs a url, such as "http://proxy.example.com:3128"')
    try:
        parts = urlsplit(fields.pop("url").reveal())
        host, number = parts.hostname, parts.port
    except ValueError:
        host, number, parts = None, None, urlsplit("")
    if parts.scheme not in _PROXY_PORTS or not host or number == 0:
        raise fault(node, f"the url of {key} must be http://HOST:PORT or https://HOST:PORT")
    if parts.username and "user" not in fields and "password" not in fields:
        fields["user"] = unquote(parts.username)
        fields["password"] = Secret(unquote(parts.password or ""))
    if bool(fields.get("user")) != bool(fields.get("password", NO_SECRET).reveal()):
        raise fault(node, f"{key} needs both of username and password, or none of them")
    return LeafProxyOptions(
        host, number or _PROXY_PORTS[parts.scheme], parts.scheme == "https", **fields
    )


def _urls(node: ConfigNode, key: str) -> tuple[Secret, ...]:
    found = texts(node, key)
    if not found:
        raise fault(node, f"{key} must not be empty")
    kinds = set()
    for url in found:
        try:
            kinds.add(leaf_address(url).is_websocket)
        except OptionsError as error:
            raise fault(node, f"{key}: {error}") from None
    if len(kinds) > 1:
        raise fault(node, f"{key}: either all urls are ws:// or wss://, or none is")
    return tuple(map(Secret, found))


def _seed(node: ConfigNode, key: str) -> Secret:
    found = secret(node, key)
    try:
        KeyPair.from_seed(found.reveal())
    except NkeyError as error:
        raise fault(node, f"{key} must be the seed of a user's nkey: {error}") from None
    return found


def _subjects(node: ConfigNode, key: str) -> tuple[str, ...]:
    found = texts(node, key)
    for subject in found:
        if not is_valid_subject(subject):
            raise fault(node, f"{key}: {subject!r} is not a subject")
    return found
