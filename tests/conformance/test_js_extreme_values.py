"""Every number and every time of every request at its extremes, on both servers at once.

What is accepted, how a refusal is worded and what is answered must be the same, and our server must
never say that it has met an error of its own. Differences on purpose are in a table, with their
reasons.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from helpers_fields import (
    CONSUMER,
    SETTINGS,
    STORED,
    VARIANTS,
    Case,
    Client,
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

NUMBERS = (0, -1, 1, 2**31, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64 - 1, 2**64, 10**30)
TIMES = (
    "0001-01-01T00:00:00.000000001Z",
    "0001-01-01T00:00:00+23:59",
    "1677-09-21T00:12:43.145224191Z",
    "1970-01-01T00:00:00Z",
    "2262-04-11T23:47:16.854775807Z",
    "2263-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "9999-12-31T23:59:59-23:59",
)
TIME_FIELDS = {"opt_start_time", "start_time", "up_to_time", "pause_until"}
HUGE = r"(4611686018427387904|9223372036854775807|9223372036854775808|18446744073709551615)"
FAR_TIME = r'"(1677|2263|9999)-.*"'
# Where the servers differ on purpose: the end of a subject, a label, and why.
KNOWN_BECAUSE = (
    # A sequence of ours has 62 bits; the two others of a record say what became of the message.
    (r"STREAM.(CREATE|UPDATE|RESTORE).Z", rf"(config\.)?first_seq = {HUGE}"),
    (r"STREAM.PURGE.Z", rf"seq = {HUGE}"),
    # nats-server counts nanoseconds since 1970 in 64 bits, and what is before 1678 or after 2262
    # wraps around: a start in year 9999 gets all messages. Here it gets those of that time: none.
    (r"STREAM.MSG.GET.[ZF]|DIRECT.GET.[ZF]", rf"(start_time|up_to_time) = {FAR_TIME}"),
    (r"CONSUMER.CREATE.[ZF].consumer", rf"config.opt_start_time = {FAR_TIME}"),
    # nats-server doubles the heartbeat to compare it, and the double wraps around.
    (r"MSG.NEXT.Z.consumer", r"idle_heartbeat = (4611686018427387904|9223372036854775807)"),
    # A nanosecond is over before nats-server looks for a message.
    (r"MSG.NEXT.Z.consumer", r"expires = 1"),
    # With its offset it is outside of the years 1 to 9999: nats-server answers with a time that no
    # client can read, or with nothing.
    (r"CONSUMER.PAUSE.Z.consumer", r'pause_until = "(0001-.*\+23:59|9999-.*-23:59)"'),
)


class KnownDifferences:
    """Those of the table."""

    def __contains__(self, case: object) -> bool:
        assert isinstance(case, tuple)
        subject, label = case
        return any(
            re.fullmatch(rf".*\.({end})", subject) and re.fullmatch(known, label)
            for end, known in KNOWN_BECAUSE
        )


KNOWN = KnownDifferences()


def values_of(struct: type[ApiStruct], path: tuple[str, ...]) -> tuple[Any, ...]:
    """The extremes of a field, if it is a number, a time or a list of numbers."""
    hint = hint_of(struct, path)
    if path[-1] in TIME_FIELDS:
        return TIMES
    if hint is int or int in typing.get_args(hint):
        lists = typing.get_origin(hint) is list
        return tuple([value] for value in NUMBERS) if lists else NUMBERS
    return ()


def bodies(struct: type[ApiStruct], base: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """All bodies for a request, each with a label."""
    for path in fields(struct):
        for value in values_of(struct, path):
            body = json.dumps(nested(path, value, base)).encode()
            yield f"{'.'.join(path)} = {json.dumps(value)}", body


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    with both_servers(tmp_path_factory.mktemp("both")) as servers:
        yield servers


@pytest.mark.parametrize("endpoint", NATS_ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_extremes_are_answered_alike(both: list[ServerProcess], endpoint: ApiEndpoint) -> None:
    _, base = SETTINGS[endpoint.name]
    found = differences(both, cases(endpoint, base, bodies), KNOWN)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "base"),
    [pytest.param(name, base, id=f"{name}, {label}") for name, label, base in VARIANTS],
)
def test_extremes_are_answered_alike_beside_other_fields(
    both: list[ServerProcess], name: str, base: dict[str, Any]
) -> None:
    found = differences(both, cases(ENDPOINT_BY_NAME[name], base, bodies), KNOWN)
    assert not found, "\n".join(found)


def test_updates_of_consumers_to_extremes_are_answered_alike(both: list[ServerProcess]) -> None:
    request = {"stream_name": "Z", "config": {**CONSUMER, "name": "consumer"}}
    before = (*STORED, api("CONSUMER.CREATE.Z.consumer", request))
    subject = "$JS.API.CONSUMER.CREATE.Z.consumer"
    wanted = [
        Case(label, subject, body, before) for label, body in bodies(ConsumerCreateRequest, request)
    ]
    found = differences(both, wanted, KNOWN)
    assert not found, "\n".join(found)


START = {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("consumer_create", {"stream_name": "F", "config": {**CONSUMER, **START}}),
        ("stream_msg_get", {}),
        ("direct_get", {"multi_last": ["f.>"]}),
        ("direct_get", {"start_time": "2020-01-01T00:00:00Z"}),
    ],
)
def test_extremes_are_answered_alike_about_messages_in_files(
    both: list[ServerProcess], name: str, base: dict[str, Any]
) -> None:
    for server in both:
        client = Client(server)
        client.ask(
            *api("STREAM.CREATE.F", {"name": "F", "subjects": ["f.>"], "allow_direct": True})
        )
        if json.loads(client.ask("$JS.API.STREAM.INFO.F")[1])["state"]["messages"] == 0:
            client.ask("f.a", b"one")
            client.ask("f.b", b"two")
        client.raw.close()
    endpoint = ENDPOINT_BY_NAME[name]
    subject = endpoint.subject_for("F", "consumer")
    before = (("$JS.API.CONSUMER.DELETE.F.consumer", b""),)
    wanted = [
        Case(label, subject, body, before)
        for label, body in bodies(endpoint.request or ApiStruct, base)
        if "time" in label
    ]
    found = differences(both, wanted, KNOWN)
    assert not found, "\n".join(found)


HEADER_FIELDS = (
    "Nats-Expected-Last-Sequence",
    "Nats-Expected-Last-Subject-Sequence",
    "Nats-TTL",
    "Nats-Required-Api-Level",
)
HEADER_VALUES = (
    *map(str, NUMBERS),
    "9223372036", "9223372037", "9" * 5000, "0" * 5000 + "1", "+1", "-0", "1.5", "1e3", "0x1",
    " ", "1 ", "292h", "2562047h47m16.854775807s", "2562047h47m16.854775808s", "-1s", "1ns",
    "never", "NEVER", "1d",
)  # fmt: skip


# nats-server takes a time to live above 2^64 - 1 for what is left of it in 64 bits.
WRAPPED = {("Nats-TTL", str(value)) for value in (2**64, 10**30)}


def header_answers(server: ServerProcess, field: str) -> list[object]:
    """What a publish is told, each value into a stream with one message."""
    client = Client(server)
    found: list[object] = []
    for value in HEADER_VALUES:
        if (field, value) in WRAPPED:
            continue
        config = {"name": "H", "subjects": ["h"], "storage": "memory", "allow_msg_ttl": True}
        client.ask(*api("STREAM.CREATE.H", config))
        client.ask("h", b"first")
        header = f"NATS/1.0\r\n{field}: {value}\r\n\r\n".encode()
        found.append((value[:30], client.ask("h", b"", header)[1]))
        client.ask("$JS.API.STREAM.DELETE.H")
    client.raw.close()
    return found


@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_extremes_in_the_header_of_a_publish_are_answered_alike(
    both: list[ServerProcess], field: str
) -> None:
    official, ours = (header_answers(server, field) for server in both)
    assert ours == official
