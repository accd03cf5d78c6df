"""Traces of messages that pass several servers: each server of either kind tells its part."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness import RawClient
from leaf_kit import PAIRINGS, Node, hub_config, joined, leaf_config

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.parametrize("kinds", PAIRINGS, ids=["-".join(pair) for pair in PAIRINGS]),
]
Kinds = tuple[str, str]


def publish(client: RawClient, subject: str, *, only: bool, reply: str = "") -> None:
    lines = ["NATS/1.0", "Nats-Trace-Dest: traces", *(["Nats-Trace-Only: true"] if only else [])]
    header = "\r\n".join([*lines, "", ""])
    size = len(header)
    client.send(f"HPUB {subject} {reply} {size} {size + 1}\r\n{header}p\r\n")


def traces(client: RawClient, count: int) -> dict[str, list[tuple[str, ...]]]:
    """Server -> what it tells: the type of each event, and where it leads to, by hop or subject."""
    found = {}
    for _ in range(count):
        document: dict[str, Any] = json.loads(client.read_message()[2])
        hop = document["request"]["header"].get("Nats-Trace-Hop", [""])[0]
        found[document["server"]["name"] + hop] = [
            (event["type"], *(event[key] for key in ("hop", "sub", "error") if event.get(key)))
            for event in document["events"]
        ]
    return found


def test_both_servers_tell_their_part(kinds: Kinds, tmp_path: Path) -> None:
    with joined(kinds, tmp_path) as (hub, leaf):
        for near, far in ((hub, leaf), (leaf, hub)):
            client, receiver = near.client(), far.client()
            client.send(f"SUB traces {near.name}\r\n")
            receiver.send(f"SUB data.{far.name} 1\r\n")
            near.wait_asked(f"data.{far.name}")
            far.wait_asked("traces")
            for only in (True, False):
                publish(client, f"data.{far.name}", only=only)
                assert traces(client, 2) == {
                    near.name: [("in",), ("eg", "1")],
                    f"{far.name}1": [("in",), ("eg", f"data.{far.name}")],
                }
            header = receiver.read_message()[1]
            assert b"Nats-Trace-Only" not in header
            assert b"Nats-Trace-Hop: 1" in header
            receiver.ping()
            client.close()


def test_hops_of_a_server_in_between(kinds: Kinds, tmp_path: Path) -> None:
    with ExitStack() as stack:

        def start(kind: str, name: str, config: str) -> Node:
            node = Node(kind, tmp_path, name, config)
            stack.callback(node.stop)
            return node

        top = start(kinds[0], "top", hub_config())
        between = (
            'leafnodes { listen: "127.0.0.1:-1", '
            f'remotes: [ {{ url: "nats-leaf://127.0.0.1:{top.leaf_port}" }} ] }}'
        )
        middle = start(kinds[1], "middle", between)
        end = start(kinds[0], "end", leaf_config(middle.leaf_port))
        middle.wait_linked(2)
        client, receiver = top.client(), end.client()
        receiver.send("SUB data 1\r\n")
        top.wait_asked("data")
        client.send("SUB traces 1\r\n")
        end.wait_asked("traces")
        publish(client, "data", only=True)
        assert traces(client, 3) == {
            "top": [("in",), ("eg", "1")],
            "middle1": [("in",), ("eg", "1.1")],
            "end1.1": [("in",), ("eg", "data")],
        }


def test_trace_of_a_request_to_another_account_and_server(kinds: Kinds, tmp_path: Path) -> None:
    accounts = """
    accounts {
      ASKS { users: [{user: asks, password: pw}]
             imports: [{service: {account: ANSWERS, subject: svc}, to: "my.svc"}] }
      ANSWERS { users: [{user: l, password: pw}], exports: [{service: svc, allow_trace: true}] }
    }
    """
    with joined(kinds, tmp_path, around_hub=accounts, login="l:pw@") as (hub, leaf):
        service, client = leaf.client(), hub.client(user="asks", **{"pass": "pw"})
        service.send("SUB svc 1\r\n")
        client.send("SUB traces 1\r\nSUB inbox 2\r\n")
        client.ping()
        hub.wait_asked("svc")
        publish(client, "my.svc", only=False, reply="inbox")
        reply = service.read_message()[0].split()[3]
        assert traces(client, 2) == {
            "hub": [("in",), ("si",), ("eg", "1")],
            "leaf1": [("in",), ("eg", "svc")],
        }
        service.send(f"PUB {reply} 1\r\n!\r\n")
        assert client.read_message() == ("MSG inbox 2 1", b"", b"!")
