"""Operator mode in a configuration file: operators, resolvers, preloaded accounts.

Owns the keys and the checks of single values. Checks between settings are in
`server.operators.start_checks`; the contents of JWTs are checked in `server.operators.trust`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tradewind.options import OperatorOptions, ResolverOptions
from tradewind.server.config.reader import (
    Reader,
    Table,
    duration,
    expect,
    fault,
    integer_from,
    text,
    texts,
    truth,
)
from tradewind.server.config.transport import read_tls
from tradewind.server.config.tree import ConfigNode

FILE_BYTES_MAX = 1 << 20
CACHE_COUNT_DEFAULT = 1000
_URL = re.compile(r"url\((?P<url>[^)]*)\)", re.IGNORECASE)
_WRONG_RESOLVER = (
    'error parsing account resolver, should be MEM or  URL("url") or a map containing dir and type '
    "state=[FULL|CACHE])"
)
_PREFIX = "operator_"


def operator_table(reader: Reader) -> Table:
    """The top-level keys; `take_operator` combines their values."""

    def resolver(node: ConfigNode, key: str) -> ResolverOptions:
        return _resolver(reader, node, key)

    def resolver_tls(node: ConfigNode, key: str) -> object:
        return read_tls(reader, node, key)

    operators = (f"{_PREFIX}operators", _operators)
    return {
        **dict.fromkeys(
            ("operator", "operators", "root", "roots", "root_operator", "root_operators"), operators
        ),
        "resolver": (f"{_PREFIX}resolver", resolver),
        "account_resolver": (f"{_PREFIX}resolver", resolver),
        "accounts_resolver": (f"{_PREFIX}resolver", resolver),
        "resolver_tls": (f"{_PREFIX}tls", resolver_tls),
        "resolver_preload": (f"{_PREFIX}preload", _preload),
        "resolver_pinned_accounts": (f"{_PREFIX}pinned_accounts", _pinned_accounts),
        "trusted": (f"{_PREFIX}trusted_keys", _trusted_keys),
        "trusted_keys": (f"{_PREFIX}trusted_keys", _trusted_keys),
        "default_sentinel": (f"{_PREFIX}default_sentinel", text),
    }


def take_operator(fields: dict[str, Any]) -> None:
    """Replace the fields that the table has set by a single field `operator`, if there are any."""
    found = {
        name.removeprefix(_PREFIX): fields.pop(name)
        for name in list(fields)
        if name.startswith(_PREFIX)
    }
    if not found:
        return
    tls = found.pop("tls", None)
    resolver = found.get("resolver")
    if tls is not None and resolver is not None:
        from msgspec.structs import replace

        found["resolver"] = replace(resolver, tls=tls)
    fields["operator"] = OperatorOptions(**found)


def _operators(node: ConfigNode, key: str) -> tuple[str, ...]:
    """The operators' JWTs, given directly or as names of files that hold one."""
    items = node.value if isinstance(node.value, list) else [node]
    return tuple(_operator(item, key) for item in items)


def _operator(node: ConfigNode, key: str) -> str:
    # Loaded when it is needed: servers without an operator start sooner.
    from tradewind.jwt import JwtError, OperatorClaims, decode_as
    from tradewind.jwt.claim_files import read_token

    value = text(node, key)
    try:
        token = value if value.startswith("eyJ") else read_token(_read_file(value))
        decode_as(OperatorClaims, token)
    except (OSError, UnicodeDecodeError, JwtError) as error:
        reason = str(error)
        if isinstance(error, OSError):
            reason = f"open {value}: {(error.strerror or str(error)).lower()}"
        raise fault(node, f"error parsing operator JWT: {reason}") from None
    return token


def _read_file(name: str) -> str:
    path = Path(name)
    if path.stat().st_size > FILE_BYTES_MAX:
        raise OSError(f"more than {FILE_BYTES_MAX} bytes")
    return path.read_text(encoding="utf-8")


def _preload(node: ConfigNode, key: str) -> dict[str, str]:
    from tradewind.jwt import AccountClaims, JwtError, decode_as

    tokens: dict[str, str] = {}
    for name, child in expect(node, key, dict, "a block of account keys and their JWTs").items():
        token = text(child, f"{key}.{name}")
        try:
            decode_as(AccountClaims, token)
        except JwtError as error:
            raise fault(child, f"invalid account JWT: {name}: {error}") from None
        tokens[name] = token
    return tokens


def _pinned_accounts(node: ConfigNode, key: str) -> frozenset[str]:
    from tradewind.nkeys import ACCOUNT, is_public

    keys = texts(node, key)
    for name in keys:
        if not is_public(name, ACCOUNT):
            raise fault(node, f'pinned account key "{name}" is not a valid public account nkey')
    return frozenset(keys)


def _trusted_keys(node: ConfigNode, key: str) -> tuple[str, ...]:
    from tradewind.nkeys import OPERATOR, is_public

    keys = texts(node, key)
    for name in keys:
        if not is_public(name, OPERATOR):
            raise fault(node, f'trust key "{name}" required to be a valid public operator nkey')
    return keys


# ---------------------------------------------------------------- resolvers


def _resolver(reader: Reader, node: ConfigNode, key: str) -> ResolverOptions:
    if isinstance(node.value, str):
        if node.value.upper() in ("MEM", "MEMORY"):
            return ResolverOptions()
        if match := _URL.fullmatch(node.value.strip()):
            return ResolverOptions("url", url=match["url"].strip().strip("\"'"))
        raise fault(node, _WRONG_RESOLVER)
    if not isinstance(node.value, dict):
        raise fault(node, _WRONG_RESOLVER)
    fields = reader.fields(
        node,
        key,
        {
            "type": ("kind", text),
            "dir": ("folder", text),
            "url": ("url", text),
            "allow_delete": ("allow_delete", truth),
            "hard_delete": ("hard_delete", truth),
            "limit": ("count_max", integer_from(0)),
            "interval": ("sync_interval_ns", _positive_duration),
            "timeout": ("fetch_timeout_ns", _positive_duration),
            "ttl": ("time_to_live_ns", _positive_duration),
        },
    )
    kind = fields.pop("kind", "").lower()
    kind = "memory" if kind == "mem" else kind
    if kind == "memory":
        return ResolverOptions()
    if kind == "url" and fields.get("url"):
        return ResolverOptions("url", url=fields["url"])
    if kind not in ("full", "cache"):
        raise fault(node, _WRONG_RESOLVER)
    _check_folder(node, kind, fields)
    if kind == "cache":
        fields.setdefault("count_max", CACHE_COUNT_DEFAULT)
    return ResolverOptions(kind, **fields)


def _check_folder(node: ConfigNode, kind: str, fields: dict[str, Any]) -> None:
    if not fields.get("folder"):
        raise fault(node, "dir has no value and needs to point to a directory")
    folder = Path(fields["folder"])
    if folder.exists() and not folder.is_dir():
        raise fault(node, f"dir {fields['folder']!r} is not a directory")
    if kind == "cache":
        for field, name in (
            ("allow_delete", "allow_delete"),
            ("sync_interval_ns", "sync"),
            ("hard_delete", "hard_delete"),
        ):
            if fields.get(field):
                raise fault(node, f"CACHE does not accept {name}")
    elif "time_to_live_ns" in fields:
        raise fault(node, "FULL does not accept ttl")
    if fields.get("hard_delete") and not fields.get("allow_delete"):
        raise fault(node, "hard_delete has no effect without delete")


def _positive_duration(node: ConfigNode, key: str) -> int:
    value = duration(node, key)
    if value <= 0:
        raise fault(node, f"{key} must be a duration above 0")
    return value
