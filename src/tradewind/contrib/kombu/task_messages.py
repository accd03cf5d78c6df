"""Messages of kombu as messages of a stream, and back.

Owns the headers in which the headers and properties of a message travel; the body is the payload,
unchanged. A message that another program has published without these headers is a plain body.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

import msgspec
from kombu.utils.json import dumps, loads

from tradewind.client.core.headers import Headers
from tradewind.client.errors import OptionsError

CONTENT_TYPE: Final = "Content-Type"
CONTENT_ENCODING: Final = "Content-Encoding"
HEADERS: Final = "Kombu-Headers"
PROPERTIES: Final = "Kombu-Properties"
TRANSIENT: Final = 1
_UNSENT: Final = ("delivery_tag", "body_encoding")
_JSON_CHARACTERS_MAX: Final = 1 << 20


class UnreadableTaskError(ValueError):
    """The headers of a message are not those of a message of kombu."""


class OutgoingTask(msgspec.Struct):
    """A message as it is published. `eta` is set if it shall be delivered later."""

    body: bytes
    headers: dict[str, str]
    priority: int
    ttl_seconds: float | None
    eta: datetime.datetime | None
    is_transient: bool


def encode_task(payload: dict[str, Any], priority_max: int) -> OutgoingTask:
    """The message of what kombu has prepared; OptionsError if a property cannot be right."""
    properties = {
        name: value
        for name, value in payload["properties"].items()
        if name not in _UNSENT and value is not None
    }
    headers = {HEADERS: dumps(payload.get("headers") or {}), PROPERTIES: dumps(properties)}
    for name, value in (
        (CONTENT_TYPE, payload.get("content-type")),
        (CONTENT_ENCODING, payload.get("content-encoding")),
    ):
        if value:
            headers[name] = str(value)
    body = payload["body"]
    if not isinstance(body, str | bytes | bytearray | memoryview):
        raise OptionsError(f"body: bytes or text, not {type(body).__name__}")
    return OutgoingTask(
        body=body.encode() if isinstance(body, str) else bytes(body),
        headers=headers,
        priority=_priority(properties.get("priority"), priority_max),
        ttl_seconds=ttl_of(properties),
        eta=_eta((payload.get("headers") or {}).get("eta")),
        is_transient=properties.get("delivery_mode") == TRANSIENT,
    )


def decode_task(body: bytes, headers: Headers, tag: str, *, redelivered: bool) -> dict[str, Any]:
    """The mapping that kombu makes a message of; UnreadableTaskError if the headers are damaged."""
    properties = _mapping(PROPERTIES, headers.get(PROPERTIES, ""))
    delivery_info = properties.get("delivery_info")
    if not isinstance(delivery_info, dict):
        delivery_info = {}
    delivery_info.setdefault("exchange", "")
    delivery_info.setdefault("routing_key", "")
    delivery_info["redelivered"] = redelivered
    properties["delivery_info"] = delivery_info
    properties["delivery_tag"] = tag
    return {
        "body": body,
        "content-type": headers.get(CONTENT_TYPE) or "application/data",
        "content-encoding": headers.get(CONTENT_ENCODING) or "binary",
        "headers": _mapping(HEADERS, headers.get(HEADERS, "")),
        "properties": properties,
    }


def ttl_of(properties: dict[str, Any]) -> float | None:
    """The seconds after which a message has expired, from AMQP's text of milliseconds."""
    text = properties.get("expiration")
    if text is None or text == "":
        return None
    try:
        milliseconds = float(text)
    except (TypeError, ValueError):
        milliseconds = -1.0
    if not 0 <= milliseconds < 1e15:  # also refuses NaN
        raise OptionsError(f"expiration: milliseconds from 0 on, not {str(text)[:40]!r}")
    return milliseconds / 1000


def _priority(value: object, priority_max: int) -> int:
    if value is None:
        return 0
    if not isinstance(value, int):
        raise OptionsError(f"priority: a whole number, not {str(value)[:40]!r}")
    return max(0, min(value, priority_max))


def _eta(value: object) -> datetime.datetime | None:
    """The time before which a worker would not start a task; None if it is not one."""
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError:
            return None
    # Without a time zone only the worker knows which one is meant.
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value
    return None


def _mapping(name: str, text: str) -> dict[str, Any]:
    if not text:
        return {}
    if len(text) > _JSON_CHARACTERS_MAX:
        raise UnreadableTaskError(
            f"header {name}: at most {_JSON_CHARACTERS_MAX} characters, not {len(text)}"
        )
    try:
        found = loads(text)
    except Exception as error:
        # Decoders of other libraries may be registered and raise anything.
        raise UnreadableTaskError(f"header {name}: a JSON object, not {text[:40]!r}") from error
    if not isinstance(found, dict):
        raise UnreadableTaskError(f"header {name}: a JSON object, not {text[:40]!r}")
    return found
