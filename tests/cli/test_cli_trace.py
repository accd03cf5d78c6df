"""`trace`, against both servers, and how traces of several servers are drawn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cli_outcome import Cli
from harness import ServerProcess
from tradewind.cli.messaging.trace import document_tree, is_received, tree_lines
from tradewind.sync import connect

if TYPE_CHECKING:
    from tradewind.sync import Connection


@pytest.fixture
def connection(js_server: ServerProcess) -> Iterator[Connection]:
    with connect(f"nats://127.0.0.1:{js_server.port}", name="shop") as made:
        yield made


def test_trace_shows_clients_and_streams_without_delivering(
    cli: Cli, connection: Connection
) -> None:
    streams = connection.jetstream_manager().streams
    streams.add(name="ORDERS", subjects=["orders.>"], storage="memory")
    subscription = connection.subscribe("orders.*", queue="workers")
    connection.flush()
    outcome = cli("trace", "orders.new", "apples").ok()
    lines = outcome.out.splitlines()
    assert re.fullmatch(
        r"orders\.new: \d+ B from client \d+.*, account \$G, server \S+", lines[0]
    ), lines
    assert sorted(line[3:] for line in lines[1:]) == [
        f'client {connection.info.client_id} "shop" by orders.*, queue workers',
        "stream ORDERS: orders.new",
    ]
    assert [line[:2] for line in lines[1:]] == ["├─", "└─"]
    assert streams.info("ORDERS").state.messages == 0
    with pytest.raises(TimeoutError):
        subscription.next(timeout=0.05)


def test_trace_delivers_if_asked(cli: Cli, connection: Connection) -> None:
    subscription = connection.subscribe("greet")
    connection.flush()
    outcome = cli("trace", "greet", "hello", "--deliver", "-H", "A:1", "--timestamp").ok()
    message = subscription.next(timeout=60)
    assert (message.data, message.headers["A"]) == (b"hello", "1")
    assert re.search(r"└─ \d{4}-\d\d-\d\dT\S+Z  client ", outcome.out)


def test_trace_of_a_message_that_nobody_gets_ends_with_1(cli: Cli) -> None:
    outcome = cli("trace", "nobody")
    assert (outcome.code, outcome.out.splitlines()[1]) == (1, "└─ nobody is listening")


def test_trace_gives_the_events_as_json(cli: Cli, connection: Connection) -> None:
    connection.subscribe("alone")  # others may still listen to what tests before this one used
    connection.flush()
    (document,) = cli("trace", "alone", "--json").ok().json
    assert [event["type"] for event in document["events"]] == ["in", "eg"]


@pytest.mark.parametrize("kind", ["official", "tradewind"])
def test_trace_says_what_is_not_allowed(
    offline: Cli, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "server.conf"
    config.write_text(
        "authorization { users: [ {user: u, password: p, permissions: {publish: {deny: denied}}}, "
        "{user: v, password: p, permissions: {publish: {allow: allowed}}} ] }"
    )
    server = ServerProcess(kind, ["-a", "127.0.0.1", "-p", "-1", "-c", str(config)])
    try:
        server.wait_ready()
        monkeypatch.setenv("NATS_URL", f"nats://127.0.0.1:{server.port}")
        outcome = offline("trace", "denied", "--user", "u", "--password", "p")
        assert outcome.code == 1
        assert outcome.out.endswith(': Permissions Violation for Publish to "denied"\n')
        # Where traces would go is not allowed either, so there is none.
        outcome = offline("trace", "allowed", "--user", "v", "--password", "p")
        assert outcome.code == 1
        assert "Permissions Violation for Publish to" in outcome.err
    finally:
        server.stop()


def trace(server: str, events: list[dict[str, Any]], hop: str = "", hops: int = 0) -> Any:
    header = {"Nats-Trace-Hop": [hop]} if hop else {}
    request = {"header": header, "msgsize": 5}
    return {"server": {"name": server}, "request": request, "hops": hops, "events": events}


def test_traces_of_a_cluster_are_one_tree() -> None:
    documents = [
        trace(
            "one",
            [
                {"type": "in", "kind": 0, "cid": 1, "acc": "A", "subj": "a"},
                {"type": "si", "acc": "B", "from": "a", "to": "b"},
                {"type": "eg", "kind": 1, "cid": 9, "name": "two", "hop": "1"},
                {"type": "js", "stream": "S", "error": "maximum bytes exceeded"},
            ],
            hops=1,
        ),
        trace(
            "two",
            [
                {"type": "in", "kind": 1, "cid": 4, "name": "one", "acc": "B", "subj": "b"},
                {"type": "sm", "to": "c"},
                {"type": "se", "acc": "C", "to": "d"},
                {"type": "eg", "kind": 0, "cid": 5, "acc": "C", "sub": "c"},
                {"type": "js", "stream": "T", "subject": "c", "nointerest": True},
                {"type": "later", "x": 1},
            ],
            hop="1",
        ),
    ]
    assert list(tree_lines(document_tree(documents))) == [
        "a: 5 B from client 1, account A, server one",
        "└─ service of account B: a becomes b",
        '   ├─ route 9 "two"',
        '   │  └─ b: 5 B from route 4 "one", account B, server two',
        "   │     └─ mapped to c",
        "   │        ├─ account C imports it as d",
        "   │        ├─ client 5, account C by c",
        "   │        ├─ stream T: c is not kept: no consumer is interested in it",
        '   │        └─ later: {"type":"later","x":1}',
        "   └─ stream S: maximum bytes exceeded",
    ]
    assert is_received(documents)
    assert not is_received(documents[:1])
