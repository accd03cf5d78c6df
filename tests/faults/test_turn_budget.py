"""Requests as large as they may be, beside which nobody waits: the server ends if a turn is long.

By processor time, and ten times the budget of a real server, so that a slow machine passes too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import RawClient, ServerProcess

BUDGET_MS = 500
STRICT = {"TRADEWIND_STRICT_TURNS": "1", "TRADEWIND_TURN_BUDGET_MS": str(BUDGET_MS)}


class Client(RawClient):
    """Asks the API and publishes."""

    def api(self, endpoint: str, body: Any = None) -> dict[str, Any]:
        text = b"" if body is None else json.dumps(body).encode()
        self.send(f"PUB $JS.API.{endpoint} r {len(text)}\r\n".encode() + text + b"\r\n")
        answer: dict[str, Any] = json.loads(self.read_message()[2])
        return answer

    def publish_all(self, subjects: list[str]) -> None:
        for start in range(0, len(subjects), 1000):
            part = subjects[start : start + 1000]
            self.send("".join(f"PUB {subject} 1\r\nx\r\n" for subject in part))
            self.ping()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    server = ServerProcess("tradewind", ["-p", "-1", "-js", "-sd", str(tmp_path)], STRICT)
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


def memory_stream(client: Client, **config: Any) -> None:
    body = {"name": "S", "subjects": ["s.>"], "storage": "memory", **config}
    assert "error" not in client.api("STREAM.CREATE.S", body)


def consumer(client: Client, name: str, **config: Any) -> dict[str, Any]:
    body = {"stream_name": "S", "config": {"name": name, "durable_name": name, **config}}
    return client.api(f"CONSUMER.DURABLE.CREATE.S.{name}", body)


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
