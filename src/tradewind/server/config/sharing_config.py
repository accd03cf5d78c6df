"""The `exports` and `imports` lists of an account.

Owns their syntax, with the error texts of nats-server where these are helpful. It never matches
imports with exports, which `route.sharing_rules` does once all accounts are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.durations import parse_duration_ns
from tradewind.errors import ConfigError
from tradewind.options import AccountOptions
from tradewind.route.sharing import (
    CHUNKED,
    RESPONSE_THRESHOLD_DEFAULT_NS,
    SAMPLING_BY_HEADERS,
    SINGLETON,
    STREAMED,
    Export,
    Import,
    ServiceExport,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
)
from tradewind.route.sharing_rules import Shares, check_sharing
from tradewind.server.config.reader import (
    Reader,
    expect,
    fault,
    integer,
    text,
    texts,
    truth,
)
from tradewind.server.config.tree import ConfigNode

_RESPONSE_TYPES = {
    "single": SINGLETON,
    "singleton": SINGLETON,
    "stream": STREAMED,
    "chunk": CHUNKED,
    "chunked": CHUNKED,
}


class SharingReader:
    """Reads both lists; every wrong entry is reported as an error of its own."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        # The location of each entry, for errors that are found later.
        self._nodes: dict[int, ConfigNode] = {}

    def exports(self, node: ConfigNode, key: str) -> tuple[Export, ...]:
        """The entries of the list `exports`."""
        return tuple(self._items(node, key, self._export))

    def imports(self, node: ConfigNode, key: str) -> tuple[Import, ...]:
        """The entries of the list `imports`."""
        return tuple(self._items(node, key, self._import))

    def check(self, accounts: Mapping[str, AccountOptions]) -> None:
        """Report mismatches between accounts as errors of the configuration."""
        shares = {name: Shares(one.exports, one.imports) for name, one in accounts.items()}
        for problem in check_sharing(shares):
            self._reader.errors.append(fault(self._nodes[id(problem.item)], problem.text))

    def _items(self, node: ConfigNode, key: str, read: Any) -> list[Any]:
        found = []
        for item in expect(node, key, list, "a list of blocks: [ {...}, {...} ]"):
            try:
                value = read(item)
            except ConfigError as error:
                self._reader.errors.append(error)
            else:
                if value is not None:
                    self._nodes[id(value)] = item
                    found.append(value)
        return found

    # ---------------------------------------------------------------- exports

    def _export(self, node: ConfigNode) -> Export | None:
        response = ("response_type", _response_type)
        threshold = ("response_threshold_ns", _threshold)
        fields = self._reader.fields(
            node,
            "an export",
            {
                "stream": ("stream", text),
                "service": ("service", text),
                "accounts": ("accounts", _names),
                "account_token_position": ("account_token_position", _position),
                "response": response,
                "response_type": response,
                "threshold": threshold,
                "response_threshold": threshold,
                "response_max_time": threshold,
                "response_time": threshold,
                "latency": ("latency", self._latency),
                "allow_trace": ("allow_trace", truth),
            },
        )
        if not _has_kind(node, fields, "an export"):
            return None
        common: dict[str, Any] = {
            "accounts": frozenset(fields.get("accounts", ())) or None,
            "account_token_position": fields.get("account_token_position", 0),
        }
        if "stream" in fields:
            for name, shown in _SERVICE_ONLY.items():
                if name in fields:
                    raise fault(node, f"Detected {shown} directive on non-service")
            return StreamExport(fields["stream"], **common)
        return ServiceExport(
            fields["service"],
            **common,
            **{name: fields[name] for name in _SERVICE_ONLY if name in fields},
        )

    def _latency(self, node: ConfigNode, key: str) -> ServiceLatency:
        if isinstance(node.value, str):
            return ServiceLatency(node.value)
        fields = self._reader.fields(
            node, key, {"subject": ("subject", text), "sampling": ("sampling", _sampling)}
        )
        if "subject" not in fields:
            raise fault(node, "Latency subject required, but missing")
        return ServiceLatency(**fields)

    # ---------------------------------------------------------------- imports

    def _import(self, node: ConfigNode) -> Import | None:
        fields = self._reader.fields(
            node,
            "an import",
            {
                "stream": ("stream", self._origin),
                "service": ("service", self._origin),
                "prefix": ("prefix", text),
                "to": ("to", text),
                "share": ("share", truth),
                "allow_trace": ("allow_trace", truth),
            },
        )
        if not _has_kind(node, fields, "an import"):
            return None
        if "stream" in fields:
            account, subject = fields.pop("stream")
            if fields.get("prefix") and fields.get("to"):
                raise fault(node, "Stream import can not have a 'prefix' and a 'to' property")
            if "share" in fields:
                raise fault(node, "share is for the import of a service, not of a stream")
            return StreamImport(account, subject, **fields)
        account, subject = fields.pop("service")
        if "allow_trace" in fields:
            raise fault(node, "Detected allow_trace directive on a non-stream")
        if "prefix" in fields:
            raise fault(node, "prefix is for the import of a stream: use to for a service")
        return ServiceImport(account, subject, **fields)

    def _origin(self, node: ConfigNode, key: str) -> tuple[str, str]:
        fields = self._reader.fields(
            node, key, {"account": ("account", text), "subject": ("subject", text)}
        )
        if not fields.get("account") or not fields.get("subject"):
            raise fault(node, "Expect an account name and a subject")
        return fields["account"], fields["subject"]


_SERVICE_ONLY = {
    "response_type": "response",
    "response_threshold_ns": "response",
    "latency": "latency",
    "allow_trace": "allow_trace",
}


def _has_kind(node: ConfigNode, fields: dict[str, Any], what: str) -> bool:
    """Whether an entry names exactly one of stream and service; False after reporting an error."""
    block = expect(node, what, dict, "a block: { ... }")
    kinds = [key.lower() for key in block if key.lower() in ("stream", "service")]
    if len(kinds) == 2:
        raise fault(node, f"Detected {kinds[1]} but already saw a {kinds[0]}")
    if not kinds:
        raise fault(node, f"{what} must name a stream or a service")
    return kinds[0] in fields


def _names(node: ConfigNode, key: str) -> tuple[str, ...]:
    expect(node, key, list, "a list of accounts: [ A, B ]")
    return texts(node, key)


def _response_type(node: ConfigNode, key: str) -> str:
    word = text(node, key)
    if word.lower() not in _RESPONSE_TYPES:
        raise fault(node, f'Unknown response type: "{word}": must be singleton, stream or chunked')
    return _RESPONSE_TYPES[word.lower()]


def _threshold(node: ConfigNode, key: str) -> int:
    value = node.value
    wanted = "Expected response threshold to be a parseable time duration"
    if not isinstance(value, str):
        raise fault(node, f'{wanted} such as "2s" in {key}, not {node.type_name}')
    parsed = parse_duration_ns(value)
    if parsed is None:
        raise fault(node, f'{wanted}, got "{value}": {key} is a text such as "2s"')
    if parsed < 0:
        raise fault(node, f"{key} must not be negative")
    return parsed or RESPONSE_THRESHOLD_DEFAULT_NS


def _position(node: ConfigNode, key: str) -> int:
    value = integer(node, key)
    if not 0 <= value <= 255:
        raise fault(node, f"{key} must count tokens from 1, not be {value}")
    return value


def _sampling(node: ConfigNode, key: str) -> int:
    value = node.value
    if isinstance(value, str):
        if value.lower() == "headers":
            return SAMPLING_BY_HEADERS
        if value.removesuffix("%").isdecimal():
            value = int(value.removesuffix("%")[:9])
    if not isinstance(value, int) or isinstance(value, bool):
        raise fault(node, f"{key} must be a percentage from 1 to 100, or headers")
    if not 1 <= value <= 100:
        raise fault(node, "bad sampling percentage, should be 1-100")
    return value
