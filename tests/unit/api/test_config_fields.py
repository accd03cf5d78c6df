"""Each field of a configuration is written to disk, read again, shown, and has a flag.

The values are made from the annotations, so a new field is tested without a change here.
"""

from __future__ import annotations

import types
import typing
from enum import Enum
from typing import Any

import msgspec
import pytest

from tradewind.api.base import ApiStruct, Duration, Time, encode
from tradewind.api.configs import (
    consumer_config_from_dict,
    consumer_config_to_dict,
    stream_config_from_dict,
    stream_config_to_dict,
)
from tradewind.api.consumer_types import AckPolicy, ConsumerConfig
from tradewind.api.stream_types import PersistMode, StreamConfig
from tradewind.api.versioning import consumer_level, stream_level
from tradewind.store.format.meta import (
    ConsumerMeta,
    StreamMeta,
    decode_consumer_meta,
    decode_stream_meta,
    encode_consumer_meta,
    encode_stream_meta,
)

MOMENT = "2026-01-02T03:04:05Z"
STREAM_FIELDS = StreamConfig.__struct_fields__
CONSUMER_FIELDS = ConsumerConfig.__struct_fields__


def hints_of(struct: type[ApiStruct]) -> dict[str, Any]:
    return typing.get_type_hints(struct, include_extras=True)


def filled(struct: type[ApiStruct]) -> ApiStruct:
    """A struct of which no field has its default, and no field of a struct in it."""
    values = {name: sample(hint) for name, hint in hints_of(struct).items()}
    for name, value in values.items():
        default = getattr(struct(), name)
        if value == default:
            values[name] = next(each for each in type(value) if each != default)
    return struct(**values)


def sample(hint: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return sample(next(each for each in arguments if each is not type(None)))
    if origin is typing.Annotated:
        return MOMENT if hint == Time else sample(arguments[0])
    if origin is list:
        return [sample(arguments[0])] * 2
    if origin is dict:
        return {"b": sample(arguments[1]), "a": sample(arguments[1])}
    if issubclass(hint, ApiStruct):
        return filled(hint)
    if issubclass(hint, Enum):
        return next(iter(hint))
    return {bool: True, int: 3_600_000_000_000, str: "text"}[hint]


def with_only(struct: type[ApiStruct], name: str) -> Any:
    """The configuration in which this field alone is not its default."""
    return struct(**{name: getattr(filled(struct), name)})


def test_no_sample_is_a_default() -> None:
    for struct in (StreamConfig, ConsumerConfig):
        config, plain = filled(struct), struct()
        for name in struct.__struct_fields__:
            assert getattr(config, name) != getattr(plain, name), name


@pytest.mark.parametrize("config", [StreamConfig(), filled(StreamConfig)], ids=["plain", "filled"])
def test_a_stream_is_written_to_disk_like_in_a_response(config: StreamConfig) -> None:
    data = encode_stream_meta(StreamMeta(stream_config_to_dict(config)))
    assert data == encode(config)
    meta = decode_stream_meta(data)
    assert meta.unknown_fields == ()
    assert stream_config_from_dict(meta.config) == config


@pytest.mark.parametrize(
    "config", [ConsumerConfig(), filled(ConsumerConfig)], ids=["plain", "filled"]
)
def test_a_consumer_is_written_to_disk_like_in_a_response(config: ConsumerConfig) -> None:
    data = encode_consumer_meta(ConsumerMeta("C", consumer_config_to_dict(config)))
    assert data == b'{"Name":"C",%b' % encode(config)[1:]
    meta = decode_consumer_meta(data)
    assert meta.unknown_fields == ()
    assert consumer_config_from_dict(meta.config) == config


def test_zero_values_are_omitted_on_disk_like_in_a_response() -> None:
    for name in STREAM_FIELDS:
        config = with_only(StreamConfig, name)
        data = encode_stream_meta(StreamMeta(stream_config_to_dict(config)))
        assert data == encode(config), name
    for name in CONSUMER_FIELDS:
        consumer = with_only(ConsumerConfig, name)
        data = encode_consumer_meta(ConsumerMeta("C", consumer_config_to_dict(consumer)))
        assert data == b'{"Name":"C",%b' % encode(consumer)[1:], name


def test_fields_require_the_api_levels_of_the_official_server() -> None:
    """Levels as nats-server 2.15.1 stores them; every other field requires level 0."""
    streams = {name: stream_level(with_only(StreamConfig, name)) for name in STREAM_FIELDS}
    assert {name: level for name, level in streams.items() if level} == {
        "allow_msg_ttl": 1,
        "subject_delete_marker_ttl": 1,
        "allow_msg_counter": 2,
        "allow_atomic": 2,
        "allow_msg_schedules": 2,
        "persist_mode": 2,
        "allow_batched": 4,
    }
    consumers = {name: consumer_level(with_only(ConsumerConfig, name)) for name in CONSUMER_FIELDS}
    assert {name: level for name, level in consumers.items() if level} == {
        "pause_until": 1,
        "priority_groups": 1,
        "priority_policy": 1,
        "priority_timeout": 1,
    }
    assert consumer_level(ConsumerConfig(ack_policy=AckPolicy.FLOW_CONTROL)) == 4
    assert consumer_level(ConsumerConfig(pause_until="0001-01-01T00:00:00Z")) == 0
    assert stream_level(StreamConfig(persist_mode=PersistMode.DEFAULT)) == 0
    assert stream_level(filled(StreamConfig)) == 4


def test_a_field_that_is_missing_on_disk_would_be_noticed() -> None:
    """The server takes a stream with such a field offline, so the tests above must not be blind."""

    class NewerConfig(StreamConfig, frozen=True, kw_only=True):
        newer: Duration = 0

    data = encode_stream_meta(StreamMeta(msgspec.to_builtins(filled(NewerConfig))))
    assert decode_stream_meta(data).unknown_fields == ("newer",)
