"""Leaf nodes with permissions: which acknowledgements they may send, and what they may show."""

from __future__ import annotations

import pytest

from tradewind.broker.leaf_session import CONSUMERS_MAX
from tradewind.options import LeafOptions, ServerOptions
from tradewind.route.permission_rules import PermissionRules
from tradewind.testing import User, UserGate
from tradewind.testing.in_process import FakeConnection, InProcessServer

CONNECT = b'CONNECT {"user":"free","pass":"pw","verbose":false,"pedantic":false}\r\n'
ENDS = "1.1.1.1.0"


@pytest.fixture
def server() -> InProcessServer:
    """The leaf node of user `edge` may publish to `ok` alone."""
    rules = PermissionRules(publish_allow=("ok",))
    return InProcessServer(
        ServerOptions(server_name="hub", leafnodes=LeafOptions(port=1)),
        gate=UserGate([User("free", "pw", "$G"), User("edge", "pw", "$G", rules)]),
    )


def dial(server: InProcessServer, name: str = "edge") -> FakeConnection:
    peer = server.connect_leaf(name=name, user="edge", **{"pass": "pw"})
    peer.send(b"LS+ dlv\r\n")
    peer.take()
    return peer


def deliver(server: InProcessServer, consumer: str) -> None:
    """A consumer delivers to the leaf node."""
    server.broker.accounts["$G"].publish("dlv", b"x", f"$JS.ACK.{consumer}.{ENDS}")


def acknowledged(server: InProcessServer, peer: FakeConnection, subject: str) -> bool:
    """Whether an acknowledgement of the leaf node reaches its subject."""
    listener = server.connect(CONNECT + b"SUB $JS.ACK.> 1\r\n")
    peer.send(f"LMSG {subject} 4\r\n+ACK\r\n".encode())
    assert not peer.session.is_closed
    return subject.encode() in listener.take()


@pytest.mark.parametrize("consumer", ["S.c", "domain.hash.S.c"])
def test_only_consumers_that_delivered_are_acknowledged(
    server: InProcessServer, consumer: str
) -> None:
    peer = dial(server)
    assert not acknowledged(server, peer, f"$JS.ACK.{consumer}.{ENDS}")
    deliver(server, consumer)
    assert acknowledged(server, peer, f"$JS.ACK.{consumer}.{ENDS}")
    assert acknowledged(server, peer, f"$JS.ACK.{consumer}.2.7.9.1.0")
    assert not acknowledged(server, peer, f"$JS.ACK.other.c.{ENDS}")
    assert not acknowledged(server, peer, f"$JS.ACK.{consumer}d.{ENDS}")
    assert not acknowledged(server, peer, f"$JS.ACK.{consumer}")


def test_newest_consumers_are_remembered_by_user(server: InProcessServer) -> None:
    peer = dial(server)
    for number in range(CONSUMERS_MAX + 2):
        deliver(server, f"S.c{number}")
    for link in (peer, dial(server, "again")):
        assert not acknowledged(server, link, f"$JS.ACK.S.c1.{ENDS}")
        assert acknowledged(server, link, f"$JS.ACK.S.c2.{ENDS}")
        assert acknowledged(server, link, f"$JS.ACK.S.c{CONSUMERS_MAX + 1}.{ENDS}")


@pytest.mark.parametrize("head", ["LMSG ok", "LMSG ok +"])
def test_subject_shown_is_not_taken_for_one_that_was_published(
    server: InProcessServer, head: str
) -> None:
    everything = server.connect(CONNECT + b"SUB > 1\r\nSUB ok 2\r\nSUB ok q 3\r\n")
    peer = dial(server)
    groups = " q" if head.endswith("+") else ""
    peer.send(f"{head} $JS.ACK.S.c.{ENDS}@secret{groups} 1\r\nx\r\n".encode())
    shown = sorted(line for line in everything.take().split(b"\r\n") if line.startswith(b"MSG"))
    reply = f" $JS.ACK.S.c.{ENDS} 1"
    expected = ["MSG ok 1", "MSG secret 2", *(["MSG secret 3"] if groups else [])]
    assert shown == [f"{line}{reply}".encode() for line in expected]
