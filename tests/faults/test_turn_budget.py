"""Requests as large as they may be, beside which nobody waits: the server ends if a turn is long.

By processor time, and ten times the budget of a real server, so that a slow machine passes too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from harness import ServerProcess
from turn_budget_kit import BUDGET_MS, Client, consumer, memory_stream

# For requests that a byte must not make much longer: the slow decoder took 300 ms or more.
TIGHT_BUDGET_MS = 200


@pytest.fixture
def client(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    budget_ms = getattr(request, "param", BUDGET_MS)
    strict = {"TRADEWIND_STRICT_TURNS": "1", "TRADEWIND_TURN_BUDGET_MS": str(budget_ms)}
    server = ServerProcess("tradewind", ["-p", "-1", "-js", "-sd", str(tmp_path)], strict)
    try:
        server.wait_ready()
        with Client(server.port) as peer:
            peer.connect()
            peer.send("SUB r 1\r\n")
            yield peer
            # It has not ended because of a turn that was too long.
            peer.ping()
    finally:
        server.stop()


def test_consumer_with_thousands_of_filters_on_many_subjects(client: Client) -> None:
    memory_stream(client)
    client.publish_all([f"s.{number}" for number in range(50_000)])
    filters = [f"s.{number}" for number in range(3000)]
    answer = consumer(client, "C", filter_subjects=filters, ack_policy="explicit")
    assert answer["num_pending"] == 3000


def test_consumer_with_thousands_of_wildcards_on_many_subjects(client: Client) -> None:
    memory_stream(client)
    client.publish_all([f"s.{number}.x" for number in range(50_000)])
    filters = [f"s.{number}.*" for number in range(3000)]
    answer = consumer(client, "C", filter_subjects=filters, ack_policy="explicit")
    assert answer["num_pending"] == 3000


def overlapping(places: int, end: str = "") -> list[str]:
    """Every row of `a` and `*` of a length; a subject of `a` matches them all as far as it goes."""
    rows = [".".join(row) for row in product("a*", repeat=places)]
    return [f"s.{row}{end}{number if end else ''}" for number, row in enumerate(rows)]


@pytest.mark.slow
def test_direct_get_with_thousands_of_overlapping_patterns(client: Client) -> None:
    memory_stream(client, allow_direct=True)
    head = ".".join("a" * 13)
    client.publish_all([f"s.{head}.{number}" for number in range(20_000)])
    body = json.dumps({"multi_last": overlapping(13)}).encode()
    assert b"404 No Results" in client.get(body)
    body = json.dumps({"multi_last": [*overlapping(13, ".x"), f"s.{head}.777"]}).encode()
    assert b"Nats-Sequence: 778\r\n" in client.get(body)
    assert b"204 EOB" in client.read_message()[1]


@pytest.mark.slow
def test_direct_get_of_the_last_of_patterns_that_match_nothing(client: Client) -> None:
    memory_stream(client, allow_direct=True)
    client.publish_all([f"s.{number}.x" for number in range(200_000)])
    assert b"404" in client.get(b'{"last_by_subj":"s.*.y"}')
    assert b"404" in client.get(b'{"next_by_subj":"s.*.y","seq":1}')
    assert b"404" in client.get(b'{"next_by_subj":"s.*.y","seq":2,"batch":10}')


@pytest.mark.slow
def test_consumer_with_thousands_of_filters_that_begin_alike(client: Client) -> None:
    memory_stream(client)
    head = ".".join("a" * 11)
    client.publish_all([f"s.{head}.{number}" for number in range(20_000)])
    filters = overlapping(11, ".")
    answer = consumer(client, "C", filter_subjects=filters, ack_policy="explicit")
    assert answer["num_pending"] == 2048


@pytest.mark.slow
@pytest.mark.parametrize("client", [TIGHT_BUDGET_MS], indirect=True)
@pytest.mark.parametrize(
    "body",
    [
        b'{"id":"' + b"\\ud800" * 160_000 + b'"}',
        b'{"id":"' + b"\xff" * 979_000 + b'"}',
        b"{" + b",".join(b'"%d":1.0' % number for number in range(80_000)) + b"}",
        b'{"Batch":1,"x":[' + b"[]," * 300_000 + b"1]}",
        b'{"batch":' + b"9" * 979_000 + b"}",
        b'{"Multi_Last":[' + b'"\\u0061",' * 100_000 + b'"a"]}',
        b'{"start_time":"' + b"\x01" * 10 + b"0" * 979_000 + b'"}',
    ],
    ids=["halves", "bytes", "names", "lists", "digits", "subjects", "time"],
)
def test_large_requests_that_are_odd_json(client: Client, body: bytes) -> None:
    memory_stream(client, allow_direct=True)
    consumer(client, "C", ack_policy="explicit")
    assert b"408 " in client.get(body)
    assert b"400 Bad Request - " in client.pull("C", body)


@pytest.mark.slow
@pytest.mark.parametrize("client", [TIGHT_BUDGET_MS], indirect=True)
def test_many_small_requests_that_are_no_json(client: Client) -> None:
    memory_stream(client, allow_direct=True)
    consumer(client, "C", ack_policy="explicit")
    for subject in ("DIRECT.GET.S", "CONSUMER.MSG.NEXT.S.C"):
        body = b'{"x":[' + b"[1]," * 2000 + b"}"
        request = f"PUB $JS.API.{subject} r {len(body)}\r\n".encode() + body + b"\r\n"
        client.send(request * 50)
        for _ in range(50):
            assert b"NATS/1.0 40" in client.read_message()[1]
