"""Which configurations are taken, what is filled in, and what the others are told.

The cases are in tests/cases; see tests/kits/js_cases.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers_js import ApiClient

from harness import wait_for
from js_cases import BodyCase, ConfigCase, body_cases, config_cases

CASES_PER_TEST = 40


def without_version(config: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in config["metadata"].items() if key != "_nats.ver"}
    return {**config, "metadata": metadata}


def runs(cases: list[Any]) -> list[Any]:
    """Many cases for each test: pytest needs more time for a test than the servers for a case."""
    starts = range(0, len(cases), CASES_PER_TEST)
    return [
        pytest.param(cases[start : start + CASES_PER_TEST], id=f"from {start}") for start in starts
    ]


def refusal_in(answer: dict[str, Any]) -> list[Any] | None:
    return list(answer["error"].values()) if "error" in answer else None


@pytest.mark.parametrize("cases", runs(config_cases()))
def test_configurations(js: ApiClient, cases: list[ConfigCase]) -> None:
    found, wanted = [], []
    for case in cases:
        for subject, body in case.setup:
            js.done(subject, body)
        answer = js.request(case.subject, case.body)
        js.delete_streams()
        assert case.error or case.config
        expected = case.error or without_version(case.config or {})
        wanted.append((str(case), case.body, expected))
        outcome = refusal_in(answer) or without_version(answer["config"])
        found.append((str(case), case.body, outcome))
    assert found == wanted


@pytest.mark.parametrize("cases", runs(body_cases()))
def test_bodies(js: ApiClient, cases: list[BodyCase]) -> None:
    found = []
    for case in cases:
        js.done("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        answer = js.request(case.subject, case.body)
        js.delete_streams()
        found.append((case.subject, case.body, refusal_in(answer)))
    assert found == [(case.subject, case.body, case.error) for case in cases]


def test_texts_are_bounded_in_bytes(js: ApiClient) -> None:
    js.done("STREAM.CREATE.S", {"name": "S", "description": "x" * 4096})
    assert js.error("STREAM.UPDATE.S", {"name": "S", "description": "é" * 2049}) == [
        500,
        10052,
        "stream description is too long, maximum allowed is 4096",
    ]
    # 16 bytes are taken by the level that the server stores.
    js.done("STREAM.UPDATE.S", {"name": "S", "metadata": {"a": "x" * (131072 - 17)}})
    assert js.error("STREAM.UPDATE.S", {"name": "S", "metadata": {"a": "x" * (131072 - 16)}}) == [
        500,
        10052,
        "stream metadata exceeds maximum size of 131072 bytes",
    ]
    long_description = {"stream_name": "S", "config": {"description": "x" * 4097}}
    assert js.error("CONSUMER.CREATE.S", long_description) == [
        400,
        10107,
        "consumer description is too long, maximum allowed is 4096",
    ]
    long_metadata = {"stream_name": "S", "config": {"metadata": {"a": "x" * 131072}}}
    assert js.error("CONSUMER.CREATE.S", long_metadata) == [
        400,
        10135,
        "consumer metadata exceeds maximum size of 128KB",
    ]


def test_a_deliver_subject_in_use_cannot_be_changed(js: ApiClient) -> None:
    js.done("STREAM.CREATE.S", {"name": "S"})
    config = {"durable_name": "c", "deliver_subject": "out"}
    js.done("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    js.raw.send("SUB out 2\r\n")
    wait_for(lambda: js.done("CONSUMER.INFO.S.c").get("push_bound"), "somebody who listens")
    changed = {"stream_name": "S", "config": {**config, "deliver_subject": "other"}}
    refusal = [400, 10013, "consumer name already in use"]
    assert js.error("CONSUMER.CREATE.S.c", changed) == refusal
    js.raw.send("UNSUB 2\r\n")
    wait_for(lambda: not js.done("CONSUMER.INFO.S.c").get("push_bound"), "nobody who listens")
    assert js.error("CONSUMER.CREATE.S.c", changed) is None
