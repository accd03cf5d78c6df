"""The `opentelemetry` block: where to send spans. nats-server does not have it.

Owns its keys.
"""

from __future__ import annotations

from tradewind.errors import TradewindError
from tradewind.options import OpenTelemetryOptions, Secret
from tradewind.server.config.reader import Reader, duration, expect, fault, integer_from, text
from tradewind.server.config.tree import ConfigNode


def telemetry(reader: Reader, node: ConfigNode, key: str) -> OpenTelemetryOptions:
    """The options of the block, or of an endpoint alone."""
    if isinstance(node.value, str):
        return OpenTelemetryOptions(_endpoint(node, key))
    fields = reader.fields(
        node,
        key,
        {
            "endpoint": ("endpoint", _endpoint),
            "sampling": ("sampling", integer_from(0, 100)),
            "service_name": ("service_name", text),
            "headers": ("headers", _headers),
            "timeout": ("timeout_ns", _timeout),
        },
    )
    if "endpoint" not in fields:
        raise fault(node, f"{key} has no endpoint: name a url like http://127.0.0.1:4318")
    return OpenTelemetryOptions(**fields)


def _endpoint(node: ConfigNode, key: str) -> str:
    from tradewind.otel.exporter import check_endpoint

    value = text(node, key)
    try:
        check_endpoint(value)
    except TradewindError as error:
        raise fault(node, str(error)) from None
    return value


def _headers(node: ConfigNode, key: str) -> dict[str, Secret]:
    found = expect(node, key, dict, "a block of names and values")
    made = {}
    for name, child in found.items():
        value = text(child, name)
        if not name.isascii() or not value.isascii() or not (name + value).isprintable():
            raise fault(child, f"{key}: {name!r} is not a valid HTTP header")
        made[name] = Secret(value)
    return made


def _timeout(node: ConfigNode, key: str) -> int:
    value = duration(node, key)
    if value <= 0:
        raise fault(node, f"{key} must be longer than 0")
    return value
