"""Formats of values in monitoring documents: Go durations, RFC 3339 times, and JSON as nats-server
writes it.

Owns text formats only. `UNSET` fields are omitted from a document, which corresponds to Go's
`omitempty`: the builder decides field by field with `present`, because msgspec's own
`omit_defaults` applies to a whole type.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from tradewind.durations import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODER = msgspec.json.Encoder()
_T = TypeVar("_T")


def present(value: _T) -> _T | UnsetType:
    """The value, or UNSET if it is empty, zero or False."""
    return value or UNSET


def number(value: float) -> float | int:
    """A whole float as an int, so that it is written as `2` and not as `2.0`."""
    return int(value) if value == int(value) else value


def uptime(duration_ns: int) -> str:
    """A duration in whole seconds, with the units that matter: `18s`, `1m2s`, `3d0h0m1s`,
    `1y0d5h0m0s`.
    """
    minutes, seconds = divmod(max(duration_ns, 0) // SECOND_NS, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    years, days = divmod(days, 365)
    if years:
        return f"{years}y{days}d{hours}h{minutes}m{seconds}s"
    if days:
        return f"{days}d{hours}h{minutes}m{seconds}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def rounded_rtt_ns(rtt_ns: int) -> int:
    """The round trip time as shown: below a millisecond in whole microseconds."""
    return rtt_ns - rtt_ns % MICROSECOND_NS if MICROSECOND_NS < rtt_ns < MILLISECOND_NS else rtt_ns


@lru_cache(maxsize=4096)
def _whole_seconds(seconds: int) -> str:
    """The time up to the seconds; cached, because a page repeats the same few: this is most of the
    cost of a timestamp.
    """
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def timestamp(time_ns: int) -> str:
    """The time in RFC 3339 in UTC, with as many of nine fractional digits as it has."""
    seconds, fraction = divmod(time_ns, SECOND_NS)
    digits = f"{fraction:09d}".rstrip("0")
    return f"{_whole_seconds(seconds)}.{digits}Z" if digits else f"{_whole_seconds(seconds)}Z"


def _html_safe(document: bytes) -> bytes:
    """Escape the characters that start markup; in JSON they only occur inside strings."""
    return document.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def _readable(value: Any) -> Any:
    """The same plain data with a replacement character for everything that is not text."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_readable(key): _readable(inner) for key, inner in value.items()}
    return [_readable(inner) for inner in value] if isinstance(value, list) else value


def _encode(document: Any) -> bytes:
    """The document as JSON. Subjects are bytes on the wire and need not be text: that must not make
    the page fail.
    """
    try:
        return _ENCODER.encode(document)
    except UnicodeEncodeError:
        return _ENCODER.encode(_readable(msgspec.to_builtins(document)))


def compact_json(document: Any) -> bytes:
    """The document in one line, as in replies and events of the system account."""
    return _html_safe(_encode(document))


def indented_json(document: Any) -> bytes:
    """The document with two spaces per level, as on the HTTP pages."""
    return _html_safe(msgspec.json.format(_encode(document), indent=2))
