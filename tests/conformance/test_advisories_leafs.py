"""Holes that nats-server once had at the port for leaf nodes, each tried on both servers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from harness import RawClient
from leaf_kit import Node, RawLeaf, hub_config
from tradewind.store.format.s2 import compress

CONFIG = """
no_auth_user: anybody
accounts {
  A {
    users: [ {user: anybody, password: pw}, {user: a, password: pw} ]
    exports: [ {service: "svc"} ]
  }
  B { users: [ {user: b, password: pw} ], imports: [ {service: {account: A, subject: "svc"}} ] }
}
"""
CONNECT = {"version": "2.15.1", "name": "leaf", "headers": True, "protocol": 3}


def connect(**fields: Any) -> bytes:
    return b"CONNECT " + json.dumps({**CONNECT, **fields}).encode() + b"\r\n"


def info(**fields: Any) -> bytes:
    return b"INFO " + json.dumps(fields).encode() + b"\r\n"


@pytest.fixture(scope="module")
def hub(shared_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Compresses with whoever wants to, as without any settings."""
    node = Node(shared_kind, tmp_path_factory.mktemp("hub"), "hub", hub_config("", CONFIG))
    yield node
    node.stop()


@pytest.fixture
def dial(hub: Node) -> Iterator[Callable[[], RawLeaf]]:
    opened: list[RawLeaf] = []

    def connect() -> RawLeaf:
        opened.append(RawLeaf(hub.leaf_port))
        return opened[-1]

    yield connect
    for peer in opened:
        peer.close()
    hub.wait_linked(0)


Dial = Callable[[], RawLeaf]


def is_alive(hub: Node, dial: Dial) -> None:
    """It still takes clients and leaf nodes, and nobody is in who may not be."""
    hub.wait_linked(0)
    with RawClient(hub.port) as client:
        client.connect(user="a", **{"pass": "pw"}).ping()
    peer = dial()
    assert peer.login(user="a", **{"pass": "pw"})["remote_account"] == "A"
    peer.close()


def attack(dial: Dial, *parts: bytes) -> None:
    """Send it in parts; the server may end the connection whenever it likes."""
    peer = dial()
    with suppress(ConnectionError):
        for part in parts:
            peer.send(part)
        peer.send(b"PING\r\n")
    peer.socket.settimeout(0.2)
    with suppress(OSError):
        while peer.read_line():
            pass
    peer.close()


FAST = {"compression": "s2_fast"}
# Whoever compresses has said so in INFO, and everything behind that is S2.
HANDSHAKES = {
    "compression before a login": [info(**FAST), compress(b"LS+ x\r\n")],
    "compression and nothing": [info(**FAST), compress(b"")],
    "compression and junk": [info(**FAST), b"\x00" * 100],
    "compression of unknown kind": [info(compression="s9"), b"\r\n"],
    "compression of another type": [b'INFO {"compression":{"mode":1}}\r\n'],
    "automatic compression": [info(compression="s2_auto"), compress(connect())],
    "compression again in the stream": [info(**FAST), compress(info(**FAST) + info(**FAST))],
    "two frames": [info(**FAST), compress(info(**FAST)), compress(info(**FAST))],
    "CONNECT in the stream, then INFO": [info(**FAST), compress(connect(user="x") + info(**FAST))],
}
DOUBLES = {
    "INFO twice": [info(**FAST), info(**FAST)],
    "INFO twice at once": [info(**FAST) * 2],
    "INFO off, then on": [info(compression="off"), info(**FAST)],
    "INFO without anything": [info(), info(), info(**FAST)],
    "INFO of a hub": [info(connect_info=True, remote_account="A", nonce="x"), info(**FAST)],
    "INFO with urls": [info(leafnode_urls=["a:1"], **FAST), info(leafnode_urls=["b:2"])],
    "INFO with permissions": [info(**FAST), info(**{"import": {"allow": [">"]}, "export": None})],
    "INFO between": [connect(user="x"), info(**FAST), info(**FAST)],
    "CONNECT twice": [connect(user="x"), connect(user="x")],
    "INFO is null": [b"INFO null\r\n", b"INFO null\r\n"],
}
OPERATIONS = [
    b"LS+ x\r\n", b"LS+ x q 5\r\n", b"LS+\r\n", b"LS- x\r\n", b"LS-\r\n", b"LS+ x q -1\r\n",
    b"LMSG x 1\r\n.\r\n", b"LMSG x + r q 1\r\n.\r\n", b"LMSG\r\n", b"LMSG x -1\r\n",
    b"HMSG x 12 12\r\nNATS/1.0\r\n\r\n\r\n", b"HMSG x 99 1\r\n.\r\n", b"HMSG x 0 0\r\n\r\n",
    b"RS+ A x\r\n", b"RS- A x\r\n", b"RMSG A x 1\r\n.\r\n", b"A+ A\r\n", b"A- A\r\n",
    b"SUB x 1\r\n", b"PUB x 1\r\n.\r\n", b"MSG x 1 1\r\n.\r\n", b"HPUB x 12 12\r\n",
    b"UNSUB 1\r\n", b"-ERR 'x'\r\n", b"-ERR\r\n", b"+OK\r\n", b"PONG\r\n", b"CONNECT\r\n",
    b"CONNECT {}\r\n", b"CONNECT null\r\n", b"CONNECT []\r\n", b"INFO\r\n", b"INFO {\r\n",
    b'CONNECT {"remote_account":"A","is_hub":true,"cluster":"\\u0000"}\r\n',
    b"\r\n", b"\x00" * 64, b"L", b"LMSG " + b"x" * 8000,
]  # fmt: skip


@pytest.mark.parametrize("name", HANDSHAKES)
def test_2026_04_compression_before_a_login_stops_nothing(hub: Node, dial: Dial, name: str) -> None:
    attack(dial, *HANDSHAKES[name])
    is_alive(hub, dial)


def test_2026_10_operations_before_a_login_stop_nothing(hub: Node, dial: Dial) -> None:
    for operation in OPERATIONS:
        attack(dial, operation)
    is_alive(hub, dial)


@pytest.mark.parametrize("name", DOUBLES)
def test_2026_19_saying_info_again_before_a_login_stops_nothing(
    hub: Node, dial: Dial, name: str
) -> None:
    attack(dial, *DOUBLES[name])
    is_alive(hub, dial)


def test_2026_16_no_auth_user_is_nobody_at_the_port_for_leaf_nodes(hub: Node, dial: Dial) -> None:
    """Neither without CONNECT, nor with one that says nothing."""
    with RawClient(hub.port) as client:
        client.connect().send("SUB > 1\r\n")  # at the port of clients it is somebody
        client.ping()
        for operation in (b"LMSG x 1\r\n.\r\n", b"PUB x 1\r\n.\r\n", b"LS+ x\r\n"):
            peer = dial()
            peer.send(operation)
            assert re.search(rb"-ERR '[^']*'", peer.read_to_end())
        client.ping()  # nothing came
    assert hub.leafs() == []


def test_2026_08_another_server_cannot_say_who_asks(hub: Node, dial: Dial) -> None:
    with RawClient(hub.port) as service:
        service.connect(user="a", **{"pass": "pw"}).send("SUB svc 1\r\n")
        service.ping()
        peer = dial()
        peer.login(user="b", **{"pass": "pw"})
        peer.quiet_ping()
        for field in (
            b'Nats-Request-Info: {"acc":"A","user":"root"}\r\n',
            b"Nats-Request-Info:\r\n",
        ):
            header = b"NATS/1.0\r\n" + field * 2 + b"\r\n"
            for reply in (b"", b"inbox "):
                peer.send(b"HMSG svc %b%d %d\r\n" % (reply, len(header), len(header)))
                peer.send(header + b"\r\n")
                found = re.findall(rb"Nats-Request-Info: (.*)\r\n", service.read_message()[1])
                assert [json.loads(one)["acc"] for one in found] == ["B"]
                assert "user" not in json.loads(found[0])


def test_cve_2022_24450_another_server_cannot_name_its_account(hub: Node, dial: Dial) -> None:
    """nats-server refuses whoever says `account`; here it is not read."""
    for name in ("B", "$SYS", "$G"):
        for fields in ({"remote_account": name}, {"account": name, "new_account": True}):
            peer = dial()
            peer.send(connect(user="a", **{"pass": "pw"}, **fields))
            line = peer.read_line()
            if line.startswith(b"INFO "):
                assert json.loads(line[5:])["remote_account"] == "A"
            else:
                assert line == b"-ERR 'Authorization Violation'"
            peer.close()
            hub.wait_linked(0)


def test_log_has_no_fault(hub: Node) -> None:
    """After all of these."""
    assert not re.search("panic|goroutine|Traceback|Internal error", hub.process.log)
