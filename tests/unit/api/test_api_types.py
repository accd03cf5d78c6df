"""The JSON of every type is that of the official server, byte for byte.

`official_responses.jsonl` holds answers of nats-server 2.15.1.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tradewind.api import responses
from tradewind.api.base import ApiStruct, encode
from tradewind.api.configs import (
    consumer_config_from_dict,
    consumer_config_to_dict,
    stream_config_from_dict,
    stream_config_to_dict,
)
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.errors import ApiError
from tradewind.api.request_types import ConsumerCreateRequest, StreamConfigRequest
from tradewind.api.responses import encode_error, type_of
from tradewind.api.stream_types import PersistMode, StreamConfig, StreamSource
from tradewind.store.format.meta import StreamMeta, decode_stream_meta, encode_stream_meta

OFFICIAL = (Path(__file__).parent / "official_responses.jsonl").read_text().splitlines()
RESPONSES: dict[str, type[ApiStruct]] = {
    type_of(value): value
    for value in vars(responses).values()
    if isinstance(value, type) and issubclass(value, ApiStruct) and value.__struct_config__.tag
}
SUCCESSES = [line for line in OFFICIAL if '"error"' not in line]
REFUSALS = [line for line in OFFICIAL if '"error"' in line]


def kind(line: str) -> str:
    return str(json.loads(line)["type"]).removeprefix(responses.TYPE_PREFIX)


@pytest.mark.parametrize("line", SUCCESSES, ids=kind)
def test_a_response_survives_decoding_and_encoding(line: str) -> None:
    response = msgspec.json.decode(line, type=RESPONSES[json.loads(line)["type"]])
    assert encode(response).decode() == line


@pytest.mark.parametrize("line", REFUSALS, ids=kind)
def test_a_refusal_has_the_members_of_the_official_server(line: str) -> None:
    document = json.loads(line)
    error = ApiError.from_dict(document["error"])
    assert encode_error(RESPONSES[document["type"]], error).decode() == line


def test_unknown_members_of_a_response_are_ignored() -> None:
    line = '{"type":"io.nats.jetstream.api.v1.stream_delete_response","success":true,"new":[1]}'
    assert msgspec.json.decode(line, type=responses.StreamDeleteResponse).success


def test_text_is_escaped_as_go_does() -> None:
    config = ConsumerConfig(name='a<b>&\u2028\u2029\x7f"\\\x01\b\f\n')
    assert rb'"name":"a\u003cb\u003e\u0026\u2028\u2029' in encode(config)
    assert b'\x7f\\"\\\\\\u0001\\b\\f\\n"' in encode(config)


def test_a_configuration_goes_through_meta_inf() -> None:
    config = StreamConfig(
        name="S",
        subjects=["a.>"],
        mirror=StreamSource(name="M", opt_start_time="2026-01-01T00:00:00+02:00"),
        persist_mode=PersistMode.ASYNC,
        metadata={"b": "1", "a": "2"},
    )
    data = encode_stream_meta(StreamMeta(stream_config_to_dict(config), 5))
    meta = decode_stream_meta(data)
    assert meta.unknown_fields == ()
    assert stream_config_from_dict(meta.config) == config
    assert data == b'{"Created":"1970-01-01T00:00:00.000000005Z",%b' % encode(config)[1:]


def test_unknown_members_of_a_configuration_are_kept() -> None:
    document = {
        "name": "S",
        "new": {"x": 1},
        "mirror": {"name": "M", "newer": 2},
        "storage": "file",
    }
    config = stream_config_from_dict(document)
    kept = stream_config_to_dict(config, document)
    assert kept["new"] == {"x": 1}
    assert kept["mirror"] == {"name": "M", "newer": 2}
    assert consumer_config_to_dict(ConsumerConfig(), {"later": True})["later"] is True


def test_a_configuration_that_does_not_fit_names_the_member() -> None:
    with pytest.raises(ValueError, match=r"\$\.max_msgs"):
        stream_config_from_dict({"name": "S", "max_msgs": "many"})
    with pytest.raises(ValueError, match=r"\$\.ack_policy"):
        consumer_config_from_dict({"ack_policy": "sometimes"})


def test_an_empty_persist_mode_is_the_default() -> None:
    assert stream_config_from_dict({"name": "S", "persist_mode": ""}).persist_mode == "default"
    assert b"persist_mode" not in encode(StreamConfig(persist_mode=PersistMode.DEFAULT))


def test_requests_carry_the_configuration_and_how_to_take_it() -> None:
    assert encode(StreamConfigRequest(name="S", pedantic=True)).endswith(b',"pedantic":true}')
    request = ConsumerCreateRequest(stream_name="S", config=ConsumerConfig(name="C"))
    assert encode(request) == (
        b'{"stream_name":"S","config":{"name":"C","deliver_policy":"all","ack_policy":"none",'
        b'"replay_policy":"instant","num_replicas":0},"action":""}'
    )


def test_a_server_that_tells_no_level_has_none() -> None:
    """nats-server before 2.11; a client must not take its own level for that of the server."""
    answer = b'{"memory": 0, "storage": 0, "api": {"total": 3, "errors": 0}}'
    assert msgspec.json.decode(answer, type=responses.AccountInfo).api.level == 0
