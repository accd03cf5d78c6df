"""Answers of the API are what our types write, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from helpers_js import ApiClient

from tradewind.api.base import ApiStruct, encode
from tradewind.api.endpoints import NATS_ENDPOINTS
from tradewind.api.errors import ApiError
from tradewind.api.responses import encode_error, type_of

RESPONSES: dict[str, type[ApiStruct]] = {
    type_of(endpoint.response): endpoint.response
    for endpoint in NATS_ENDPOINTS
    if endpoint.response
}


def again(answer: bytes) -> bytes:
    """An answer, decoded to our types and encoded again."""
    document: dict[str, Any] = json.loads(answer)
    response = RESPONSES[document["type"]]
    if "error" in document:
        return encode_error(response, ApiError.from_dict(document["error"]))
    return encode(msgspec.json.decode(answer, type=response))


@pytest.mark.parametrize(
    "endpoint",
    [
        endpoint
        for endpoint in NATS_ENDPOINTS
        if endpoint.response and endpoint.name != "consumer_reset"
    ],
    ids=lambda endpoint: endpoint.name,
)
def test_a_refusal_for_want_of_a_stream(js: ApiClient, endpoint: Any) -> None:
    subject = endpoint.subject_for("NONE", "none", "none").removeprefix("$JS.API.")
    bodies: dict[str, dict[str, Any]] = {
        "stream_create": {"name": "other"},
        "stream_restore": {"config": {}},
        "stream_msg_get": {"seq": 1},
        "stream_msg_delete": {"seq": 1},
        "stream_snapshot": {"deliver_subject": "out"},
        "consumer_unpin": {"group": "g"},
    }
    answer = js.ask(subject, bodies.get(endpoint.name, b""))
    assert again(answer) == answer


def test_answers_about_a_stream(js: ApiClient) -> None:
    config = {
        "name": "S",
        "description": "<&>\u2028",
        "subjects": ["s.>"],
        "max_msgs_per_subject": 5,
        "republish": {"dest": "again.>", "headers_only": True},
        "subject_transform": {"src": "s.*", "dest": "t.$1"},
        "metadata": {"b": "1", "a": "2"},
        "consumer_limits": {"max_ack_pending": 5},
    }
    answers = [js.ask("STREAM.CREATE.S", config)]
    for number in range(3):
        js.raw.send(f"PUB s.{number} answers 2\r\nhi\r\n")
        js.raw.read_message()
    js.raw.send("HPUB s.9 answers 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n")
    js.raw.read_message()
    for subject, body in (
        ("STREAM.UPDATE.S", {**config, "description": "other"}),
        ("STREAM.MSG.GET.S", {"seq": 1}),
        ("STREAM.MSG.GET.S", {"seq": 4}),
        ("STREAM.MSG.DELETE.S", {"seq": 2}),
        ("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">"}),
        ("STREAM.INFO.S", {}),
        ("STREAM.LIST", {}),
        ("STREAM.NAMES", {}),
        ("STREAM.NAMES", {"subject": "none"}),
        ("STREAM.LIST", {"subject": "none"}),
        ("STREAM.PURGE.S", {"filter": "t.1"}),
        ("INFO", {}),
        ("STREAM.DELETE.S", {}),
    ):
        answers.append(js.ask(subject, body))
    for answer in answers:
        assert b'"error"' not in answer
        assert again(answer) == answer


def test_answers_about_consumers(js: ApiClient) -> None:
    js.done("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    configs: list[tuple[str, dict[str, Any]]] = [
        ("pull", {"durable_name": "pull", "ack_policy": "explicit", "backoff": [1, 2]}),
        ("push", {"deliver_subject": "out", "idle_heartbeat": 10**9, "flow_control": True}),
        ("timed", {"deliver_policy": "by_start_time", "opt_start_time": "2026-01-01T00:00:00.5Z"}),
        ("many", {"filter_subjects": ["s.a", "s.b"], "metadata": {"z": "1", "a": "2"}}),
    ]
    answers = [
        js.ask(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
        for name, config in configs
    ]
    for subject, body in (
        ("CONSUMER.INFO.S.pull", {}),
        ("CONSUMER.NAMES.S", {}),
        ("CONSUMER.LIST.S", {}),
        ("CONSUMER.PAUSE.S.pull", {"pause_until": "2036-01-01T00:00:00.10Z"}),
        ("CONSUMER.INFO.S.pull", {}),
        ("CONSUMER.PAUSE.S.pull", {}),
        ("CONSUMER.DELETE.S.pull", {}),
    ):
        answers.append(js.ask(subject, body))
    for answer in answers:
        assert b'"error"' not in answer
        assert again(answer) == answer
