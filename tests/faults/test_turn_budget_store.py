"""Very many subjects and messages in one stream, beside which nobody waits.

By processor time, as in `test_turn_budget`. A guard against growth, at sizes that take seconds to
make; how the steps are divided is tested in `test_narrow_filters` and `test_engine_ack_all`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import ServerProcess
from turn_budget_kit import Client, consumer, memory_stream

# Of a real server 50 ms; a busy machine takes longer for the same work.
BUDGET_MS = 100
SUBJECTS = 300_000

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A stream of many subjects in memory; the server ends if a turn is too long."""
    strict = {"TRADEWIND_STRICT_TURNS": "1", "TRADEWIND_TURN_BUDGET_MS": str(BUDGET_MS)}
    folder: Path = tmp_path_factory.mktemp("store")
    server = ServerProcess("tradewind", ["-p", "-1", "-js", "-sd", str(folder)], strict)
    try:
        server.wait_ready()
        with Client(server.port) as peer:
            peer.connect()
            peer.send("SUB r 1\r\n")
            memory_stream(peer, allow_direct=True)
            # 5,000 new subjects in one write: the table of all of them grows meanwhile.
            for start in range(0, SUBJECTS, 5000):
                numbers = range(start, start + 5000)
                peer.send("".join(f"PUB s.{number % 50}.{number} 1\r\nx\r\n" for number in numbers))
                peer.ping()
        yield server
    finally:
        server.stop()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.port) as peer:
        peer.connect()
        peer.send("SUB r 1\r\n")
        yield peer
        # It has not ended because of a turn that was too long.
        peer.ping()


@pytest.mark.parametrize(
    ("pattern", "count"), [("s.7.>", SUBJECTS // 50), ("s.7.7", 1), ("s.x.>", 0), ("s.*.7", 1)]
)
@pytest.mark.parametrize("policy", ["all", "last_per_subject"])
def test_consumer_of_few_subjects(client: Client, pattern: str, count: int, policy: str) -> None:
    answer = consumer(
        client, "C", filter_subject=pattern, deliver_policy=policy, ack_policy="explicit"
    )
    assert answer["num_pending"] == count
    client.api("CONSUMER.DELETE.S.C")


def test_pages_and_purges_of_few_subjects(client: Client) -> None:
    body = {"subjects_filter": "s.8.>"}
    assert len(client.api("STREAM.INFO.S", body)["state"]["subjects"]) == SUBJECTS // 50
    assert client.api("STREAM.PURGE.S", {"filter": "s.8.>"})["purged"] == SUBJECTS // 50
    assert client.api("STREAM.PURGE.S", {"filter": "s.x.>"})["purged"] == 0
    assert client.api("STREAM.PURGE.S", {"filter": "s.*.9"})["purged"] == 1


def test_purge_and_deletion_of_all(client: Client) -> None:
    assert client.api("STREAM.PURGE.S")["purged"] > SUBJECTS * 9 // 10
    client.publish_all([f"s.{number}" for number in range(50_000)])
    assert client.api("STREAM.DELETE.S")["success"]


def test_acknowledgement_of_all_messages_kept_by_interest(client: Client) -> None:
    body = {"name": "I", "subjects": ["i"], "storage": "memory", "retention": "interest"}
    client.api("STREAM.CREATE.I", body)
    config = {"durable_name": "C", "ack_policy": "all", "max_ack_pending": -1}
    client.api("CONSUMER.DURABLE.CREATE.I.C", {"stream_name": "I", "config": config})
    count = 100_000
    client.publish_all(["i"] * count)
    client.send("SUB got 2\r\n")
    reply = ""
    for _ in range(count // 5000):
        client.send('PUB $JS.API.CONSUMER.MSG.NEXT.I.C got 14\r\n{"batch":5000}\r\n')
        for _ in range(5000):
            reply = client.read_message()[0].split()[3]
    client.send(f"PUB {reply} r 4\r\n+ACK\r\n")
    client.read_message()
    while client.api("STREAM.INFO.I")["state"]["messages"]:
        client.ping()
    client.api("STREAM.DELETE.I")
