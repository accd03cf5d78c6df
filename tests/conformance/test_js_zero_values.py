"""Every field of every request with every value that means nothing, on both servers at once.

Clients of other languages send what their types hold when nobody has set it: a time of year 1, an
empty text, a duration of 0, null, an empty list. Which of these count as set is seen field by
field: the fields come from the types of `tradewind.api`, the two answers must be the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import pytest
from helpers_fields import (
    CONSUMER,
    SETTINGS,
    STORED,
    VARIANTS,
    ZERO_TIME,
    Case,
    api,
    both_servers,
    cases,
    differences,
    fields,
    hint_of,
    nested,
)

from harness import ServerProcess
from tradewind.api.base import ApiStruct
from tradewind.api.endpoint_row import ApiEndpoint
from tradewind.api.endpoints import ENDPOINT_BY_NAME, NATS_ENDPOINTS
from tradewind.api.request_types import ConsumerCreateRequest

# What may stand for nothing, and what other types hold instead.
ZEROS: tuple[Any, ...] = (
    None, "", 0, False, [], {}, ZERO_TIME, "0001-01-01T00:00:00+00:00", [""], [None], [{}], [0],
    {"": ""}, {"a": None},
)  # fmt: skip
BODIES = (b"", b"{}", b"null", b"[]", b'""', b"0", b"false", b" {} ")
# nats-server keeps an empty placement if it has an empty list of tags. In an update it takes an
# empty destination of republishing for ">", so that each message is stored again without an end.
KNOWN = {
    *((f"$JS.API.STREAM.{verb}.Z", "placement.tags = []") for verb in ("CREATE", "UPDATE")),
    *(
        ("$JS.API.STREAM.UPDATE.Z", f"republish{rest}")
        for rest in (" = {}", ".dest = null", '.dest = ""')
    ),
}


def zeros_of(struct: type[ApiStruct], path: tuple[str, ...]) -> tuple[Any, ...]:
    """The values for a field. Words of an enumeration that mean nothing are among them."""
    hint = hint_of(struct, path)
    is_enum = isinstance(hint, type) and issubclass(hint, StrEnum)
    return (*ZEROS, "none", "default", "undefined") if is_enum else ZEROS


def bodies(struct: type[ApiStruct], base: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """All bodies for a request, each with a label."""
    for body in BODIES:
        yield repr(body), body
    yield "base", json.dumps(base).encode()
    for path in fields(struct):
        for value in zeros_of(struct, path):
            yield (
                f"{'.'.join(path)} = {json.dumps(value)}",
                json.dumps(nested(path, value, base)).encode(),
            )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    with both_servers(tmp_path_factory.mktemp("both")) as servers:
        yield servers


@pytest.mark.parametrize("endpoint", NATS_ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_values_that_mean_nothing_are_answered_alike(
    both: list[ServerProcess], endpoint: ApiEndpoint
) -> None:
    _, base = SETTINGS[endpoint.name]
    found = differences(both, cases(endpoint, base, bodies), KNOWN)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "base"),
    [pytest.param(name, base, id=f"{name}, {label}") for name, label, base in VARIANTS],
)
def test_values_that_mean_nothing_are_answered_alike_beside_others(
    both: list[ServerProcess], name: str, base: dict[str, Any]
) -> None:
    found = differences(both, cases(ENDPOINT_BY_NAME[name], base, bodies), KNOWN)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "base",
    [
        {**CONSUMER, "name": "consumer"},
        {**CONSUMER, "name": "consumer", "durable_name": "consumer", "deliver_subject": "d"},
        {**CONSUMER, "name": "consumer", "filter_subjects": ["z.a", "z.b"], "metadata": {"a": "b"}},
        {**CONSUMER, "name": "consumer", "pause_until": "2100-01-01T00:00:00Z"},
    ],
    ids=["pull", "push", "filters", "paused"],
)
def test_updates_to_values_that_mean_nothing_are_answered_alike(
    both: list[ServerProcess], base: dict[str, Any]
) -> None:
    request = {"stream_name": "Z", "config": base}
    before = (*STORED, api("CONSUMER.CREATE.Z.consumer", request))
    subject = "$JS.API.CONSUMER.CREATE.Z.consumer"
    wanted = [
        Case(label, subject, body, before) for label, body in bodies(ConsumerCreateRequest, request)
    ]
    found = differences(both, wanted, KNOWN)
    assert not found, "\n".join(found)
