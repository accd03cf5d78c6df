"""Configurations as plain dicts, as stored in meta.inf.

Owns the conversion in both directions. It never drops unknown fields: they are settings of a newer
server and must still be there when that server reads the folder again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from tradewind.api.base import ApiStruct
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.stream_types import StreamConfig

_Config = TypeVar("_Config", StreamConfig, ConsumerConfig)


def stream_config_from_dict(document: Mapping[str, Any]) -> StreamConfig:
    """Convert a dict to the typed configuration; ValueError names the member that does not fit."""
    return _convert(document, StreamConfig)


def stream_config_to_dict(
    config: StreamConfig, kept: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The dict for meta.inf, with the unknown members of `kept`, the dict it was made from."""
    return _to_dict(config, kept or {})


def consumer_config_from_dict(document: Mapping[str, Any]) -> ConsumerConfig:
    """Convert a dict to the typed configuration; ValueError names the member that does not fit."""
    return _convert(document, ConsumerConfig)


def consumer_config_to_dict(
    config: ConsumerConfig, kept: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The dict for meta.inf, with the unknown members of `kept`, the dict it was made from."""
    return _to_dict(config, kept or {})


def _convert(document: Mapping[str, Any], config_type: type[_Config]) -> _Config:
    try:
        return msgspec.convert(dict(document), config_type)
    except msgspec.ValidationError as error:
        raise ValueError(f"{config_type.__name__}: {error}") from None


def _to_dict(config: ApiStruct, kept: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(config)
    known = {name: getattr(config, name) for name in config.__struct_fields__}
    for name, value in kept.items():
        if name not in known:
            document[name] = value
        elif isinstance(known[name], ApiStruct) and isinstance(value, Mapping):
            document[name] = _to_dict(known[name], value)
    return document
