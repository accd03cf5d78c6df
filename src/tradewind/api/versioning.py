"""Version metadata of streams and consumers, and the features that require a version.

Owns the keys that begin with `_nats.`: the API level that an asset requires is stored with it; the
version and level of the server are added to responses and never stored.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tradewind.api.base import ApiStruct
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.field_shapes import Shape, shapes_of
from tradewind.api.responses import API_LEVEL
from tradewind.api.stream_types import StreamConfig
from tradewind.api.times import is_set_time

REQUIRED_LEVEL_KEY: Final = "_nats.req.level"
SERVER_LEVEL_KEY: Final = "_nats.level"
SERVER_VERSION_KEY: Final = "_nats.ver"
_LEVEL_FIELD: Final = b"\r\nNats-Required-Api-Level:"
_LEVEL: Final = re.compile(rb"([+-]?)0*([0-9]{1,19})")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
# Whether an identical configuration was asked for does not depend on these.
VERSION_KEYS: Final = (REQUIRED_LEVEL_KEY, SERVER_LEVEL_KEY, SERVER_VERSION_KEY)


def stream_level(config: StreamConfig) -> int:
    """The API level that a server needs for this stream."""
    return _required_level(config, StreamConfig)


def consumer_level(config: ConsumerConfig) -> int:
    """The API level that a server needs for this consumer.

    It is that of the request: a setting counts even if the server then corrects it.
    """
    return _required_level(config, ConsumerConfig)


def _required_level(config: ApiStruct, kind: type[ApiStruct]) -> int:
    return max(
        (
            shape.level
            for name, shape, default in _leveled_fields(kind)
            if _is_set(getattr(config, name), shape, default)
        ),
        default=0,
    )


@functools.cache
def _leveled_fields(kind: type[ApiStruct]) -> tuple[tuple[str, Shape, Any], ...]:
    """The fields that require a level, with their defaults."""
    plain = kind()
    return tuple(
        (name, shape, getattr(plain, name))
        for name, shape in shapes_of(kind).items()
        if shape.level
    )


def _is_set(value: Any, shape: Shape, default: Any) -> bool:
    if shape.level_values:
        return value in shape.level_values
    return is_set_time(value) if shape.kind == "time" else bool(value != default)


def stored_metadata(metadata: Mapping[str, str], level: int) -> dict[str, str]:
    """The metadata to store: without the keys that answers add, and with the required level."""
    return {**user_metadata(metadata), REQUIRED_LEVEL_KEY: str(level)}


def answered_metadata(metadata: Mapping[str, str], version: str) -> dict[str, str]:
    """The metadata in an answer about one asset."""
    return {**metadata, SERVER_VERSION_KEY: version, SERVER_LEVEL_KEY: str(API_LEVEL)}


def user_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """The metadata without the keys that servers write."""
    return {key: value for key, value in metadata.items() if key not in VERSION_KEYS}


def unsupported_reason(
    metadata: Mapping[str, str] | None, unknown_fields: Sequence[str]
) -> str | None:
    """The reason why an asset stored by another server stays offline here, in nats-server's words.

    It needs a higher API level, or has a setting that this version does not know: without it, the
    asset would behave otherwise than requested.
    """
    level = (metadata or {}).get(REQUIRED_LEVEL_KEY, "")
    unknown = unknown_fields[0].rpartition(".")[2] if unknown_fields else ""
    if level and (not _INTEGER.fullmatch(level) or int(level) > API_LEVEL):
        if unknown:
            return f'unsupported - config error: unknown field "{unknown}"'
        return f"unsupported - required API level: {level}, current API level: {API_LEVEL}"
    return f'decoding error: json: unknown field "{unknown}"' if unknown else None


def is_level_known(header: bytes) -> bool:
    """Whether the header of a request requires no more than this version of the API.

    As in the official server, a level that is not a number of 64 bits is above every level.
    """
    start = header.find(_LEVEL_FIELD)
    if start < 0:
        return True
    start += len(_LEVEL_FIELD)
    end = header.find(b"\r\n", start)
    value = header[start : end if end >= 0 else len(header)].lstrip(b" ")
    match = _LEVEL.fullmatch(value)
    return not value or (match is not None and -(2**63) <= int(match[1] + match[2]) <= API_LEVEL)
