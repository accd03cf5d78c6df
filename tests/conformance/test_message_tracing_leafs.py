"""Traces of messages that come from another server over a leaf connection, or go on to one.

Both ends of the connection: a raw peer, so that every byte that crosses is seen. What two servers
make of it together is in tests/interop/test_leafnodes_tracing.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers_sharing import forget
from helpers_tracing import DEST, ONLY, SAMPLED, traced

from harness import RawClient
from leaf_kit import Node, RawLeaf, hub_config

TRACING, WITHOUT = 3, 2  # versions of the protocol of servers
STAND_IN = re.compile(rb"_R_\.\w{6}\.\w{6}")
NOT_UNDERSTOOD = (
    "Message delivered but remote does not support message tracing "
    "so no trace event generated from there"
)
CONFIG = """
max_payload: 1000
accounts {
  A {
    users: [
      {user: a, password: pw}
      {user: narrow, password: pw, permissions: {
        publish: {allow: ["data.>"]}, subscribe: {allow: [">"], deny: ["out.no"]} }}
    ]
    mappings: { "m": "data.mapped" }
    exports: [ {service: "svc", allow_trace: true}, {service: "closed"}, {stream: "ex.>"} ]
  }
  B {
    users: [ {user: b, password: pw} ]
    msg_trace: {dest: "traces", sampling: 1}
    imports: [
      {service: {account: A, subject: "svc"}}, {service: {account: A, subject: "closed"}}
      {stream: {account: A, subject: "ex.>"}}
    ]
  }
}
"""
Peers = Callable[..., RawLeaf]


@pytest.fixture(scope="module")
def hub(shared_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(shared_kind, tmp_path_factory.mktemp("hub"), "hub", hub_config("", CONFIG))
    yield node
    node.stop()


@pytest.fixture
def peers(hub: Node) -> Iterator[Peers]:
    """peers("user", "LS+ subject") gives a server at the other end, closed after the test."""
    opened: list[RawLeaf] = []

    def dial(user: str, *lines: str, name: str = "leaf", protocol: int = TRACING) -> RawLeaf:
        peer = RawLeaf(hub.leaf_port)
        opened.append(peer)
        peer.login(user=user, name=name, protocol=protocol, **{"pass": "pw"})
        peer.send("".join(f"{line}\r\n" for line in lines))
        peer.quiet_ping()
        return peer

    yield dial
    for one in opened:
        one.close()
    hub.wait_linked(0)


@pytest.fixture
def client(hub: Node) -> Iterator[Callable[..., RawClient]]:
    """client("user", "subject") gives a client that has subscribed to it."""
    opened: dict[RawClient, list[str]] = {}

    def connect(user: str, *subjects: str) -> RawClient:
        one = RawClient(hub.port).connect(user=user, **{"pass": "pw"})
        opened[one] = [str(number) for number in range(len(subjects))]
        for number, subject in enumerate(subjects):
            one.send(f"SUB {subject} {number}\r\n")
        one.ping()
        return one

    yield connect
    for one, sids in opened.items():
        forget(one, *sids)
        one.close()


Client = Callable[..., RawClient]


def hmsg(subject: str, *lines: str, body: str = "p", reply: str = "") -> bytes:
    """A message with these lines of a header, as servers send it to each other."""
    return traced(subject, *lines, body=body, reply=reply).replace(b"HPUB", b"HMSG", 1)


def events(client: RawClient, subject: str = "traces") -> list[dict[str, Any]]:
    """What the next message tells, which is a trace; without times and ids of connections."""
    document = trace(client, subject)
    for event in document["events"]:
        assert event.pop("ts")
        if "kind" in event:
            assert event.pop("cid") > 0
    found: list[dict[str, Any]] = document["events"]
    return found


def trace(client: RawClient, subject: str = "traces") -> dict[str, Any]:
    line, _, body = client.read_message()
    assert line.split()[:2] == ["MSG", subject], line
    document: dict[str, Any] = json.loads(body)
    return document


def header_to(peer: RawLeaf, subject: str) -> bytes:
    """The header of the next message that the server sends to its peer."""
    line = peer.read_until(b"HMSG ")[-1].split()
    assert line[1] == subject.encode(), line
    return peer.read_exact(int(line[-1]) + 2)[: int(line[-2])]


def came(subject: str, **fields: Any) -> dict[str, Any]:
    return {"type": "in", "kind": 4, "name": "leaf", "acc": "A", "subj": subject, **fields}


def published(subject: str, account: str = "A") -> dict[str, Any]:
    return {"type": "in", "kind": 0, "acc": account, "subj": subject}


def went(hop: str, name: str = "leaf", **fields: Any) -> dict[str, Any]:
    """To another server."""
    return {"type": "eg", "kind": 4, "name": name, "hop": hop, **fields}


def got(sub: str, **fields: Any) -> dict[str, Any]:
    """To a client."""
    return {"type": "eg", "kind": 0, "sub": sub, **fields}


# ---------------------------------------------------------------------- what comes


def test_message_of_another_server_is_traced_and_delivered(peers: Peers, client: Client) -> None:
    listener, receiver, peer = client("a", "traces"), client("a", "data.x"), peers("a")
    peer.send(hmsg("data.x", DEST, "Nats-Trace-Hop: 1"))
    header = b"NATS/1.0\r\nNats-Trace-Dest: traces\r\nNats-Trace-Hop: 1\r\n\r\n"
    assert receiver.read_message()[1] == header
    document = trace(listener)
    assert "hops" not in document
    assert document["request"] == {
        "header": {"Nats-Trace-Dest": ["traces"], "Nats-Trace-Hop": ["1"]},
        "msgsize": len(header) + 1,
    }
    peer.send(hmsg("data.x", DEST, ONLY))
    assert events(listener) == [came("data.x"), got("data.x")]
    receiver.ping()  # it was only traced


def test_subject_of_another_server_is_mapped(peers: Peers, client: Client) -> None:
    listener, peer = client("a", "traces", "data.mapped"), peers("a")
    peer.send(hmsg("m", DEST, ONLY))
    assert events(listener) == [
        came("m"), {"type": "sm", "to": "data.mapped"}, got("data.mapped")
    ]  # fmt: skip


def test_trace_goes_back_to_the_server_that_asks_for_it(peers: Peers) -> None:
    peer = peers("a", "LS+ traces")
    peer.send(hmsg("nobody", DEST))
    line = peer.read_until(b"LMSG ")[-1]
    assert line.split()[1] == b"traces"
    document = json.loads(peer.read_exact(int(line.split()[-1]) + 2)[:-2])
    assert [event["type"] for event in document["events"]] == ["in"]


def test_sampling_is_for_the_server_of_the_publisher_to_do(peers: Peers, client: Client) -> None:
    """The account has one of a hundred traced; what another server sends was chosen there."""
    listener, peer = client("b", "traces"), peers("b")
    for _ in range(20):
        peer.send(hmsg("nobody", SAMPLED))
    for _ in range(20):
        assert events(listener) == [came("nobody", acc="B")]


@pytest.mark.parametrize("account", ["B", "ZZ"])
def test_another_server_cannot_choose_the_account_of_a_trace(
    peers: Peers, client: Client, account: str
) -> None:
    receiver, listener, peer = client("a", "data.x"), client("b", "traces"), peers("a")
    peer.send(hmsg("data.x", DEST, f"Nats-Trace-Origin-Account: {account}"))
    assert receiver.read_message()[1].endswith(b"\r\nNats-Trace-Dest: trace disabled\r\n\r\n")
    listener.ping()


@pytest.mark.parametrize("only", [(), (ONLY,)], ids=["delivered", "only"])
@pytest.mark.parametrize("subject", ["secret", "_R_.aaaaaa.bbbbbb", "$NRG.x", "_GR_.a.b"])
def test_2026_20_traces_go_only_where_the_other_server_may_publish(
    peers: Peers, client: Client, subject: str, only: tuple[str, ...]
) -> None:
    """The message is not processed at all, and the connection stays."""
    listener, peer = client("a", ">"), peers("narrow")
    peer.send(hmsg("data.x", f"Nats-Trace-Dest: {subject}", *only))
    denied = f"-ERR 'Permissions Violation for Publish to \"{subject}\"'"
    assert peer.read_until(b"-ERR")[-1] == denied.encode()
    peer.send("LMSG data.after 0\r\n\r\n")
    assert listener.read_message()[0] == "MSG data.after 0 0"
    peer.send(hmsg("data.x", "Nats-Trace-Dest: data.allowed", ONLY))
    assert events(listener, "data.allowed") == [came("data.x"), got(">")]


def test_destination_that_is_no_subject_is_no_destination(peers: Peers, client: Client) -> None:
    receiver, peer = client("a", ">"), peers("a")
    peer.send(hmsg("data.only", "Nats-Trace-Dest: a.*", ONLY))
    peer.send(hmsg("data.x", "Nats-Trace-Dest: a.*"))
    assert receiver.read_message()[0].startswith("HMSG data.x ")


def test_message_that_may_not_come_has_a_trace(peers: Peers, client: Client) -> None:
    listener, peer = client("a", "data.traces"), peers("narrow")
    peer.send(hmsg("else", "Nats-Trace-Dest: data.traces"))
    assert b'Permissions Violation for Publish to "else"' in peer.read_to_end()
    assert events(listener, "data.traces") == [came("else")]


# ---------------------------------------------------------------------- what goes on


def test_servers_that_get_a_message_are_numbered(peers: Peers, client: Client) -> None:
    """A number that a client brings is not believed."""
    listener = client("a", "traces")
    peer = peers("a", "LS+ out.*", "LS+ out.x", "LS+ out.x q 1")
    listener.send(traced("out.x", DEST, "Nats-Trace-Hop: 7", "B: c"))
    header = b"NATS/1.0\r\nNats-Trace-Dest: traces\r\nB: c\r\nNats-Trace-Hop: 1\r\n\r\n"
    assert header_to(peer, "out.x") == header
    document = trace(listener)
    assert document["hops"] == 1
    assert document["request"]["header"]["Nats-Trace-Hop"] == ["7"]
    second = peers("a", "LS+ out.x", name="second")
    listener.send(traced("out.x", DEST, ONLY))
    hops = {
        re.search(rb"Hop: (\d)", header_to(one, "out.x"))[1]  # type: ignore[index]
        for one in (peer, second)
    }
    assert hops == {b"1", b"2"}
    found = events(listener)
    assert found[0] == published("out.x")
    assert [(event["kind"], event["hop"]) for event in found[1:]] == [(4, "1"), (4, "2")]
    assert {event["name"] for event in found[1:]} == {"leaf", "second"}


def test_number_is_put_behind_that_of_the_server_before(peers: Peers, client: Client) -> None:
    listener, peer = client("a", "traces"), peers("a", "LS+ out.x", name="from")
    to = peers("a", "LS+ out.x", name="to")
    peer.send(hmsg("out.x", DEST, "Nats-Trace-Hop: 3.1"))
    assert b"\r\nNats-Trace-Hop: 3.1.1\r\n\r\n" in header_to(to, "out.x")
    assert events(listener) == [came("out.x", name="from"), went("3.1.1", "to")]
    assert not any(line.startswith(b"HMSG") for line in peer.quiet_ping())


def test_largest_message_does_not_grow_beyond_what_the_other_server_takes(
    hub: Node, peers: Peers, client: Client
) -> None:
    """nats-server sends more than max_payload then, and the server that gets it ends the
    connection, which others use, too.
    """
    listener, peer = client("a", "traces"), peers("a", "LS+ out.x")
    message = traced("out.x", DEST, body="x" * (1000 - len(b"NATS/1.0\r\n\r\n") - len(DEST) - 2))
    assert message.startswith(b"HPUB out.x 37 1000\r\n")
    listener.send(message)
    has_hop = hub.process.kind == "official"
    assert (b"Nats-Trace-Hop" in header_to(peer, "out.x")) == has_hop
    assert events(listener) == [published("out.x"), went("1")]


def test_server_without_traces_gets_no_message_that_is_only_traced(
    peers: Peers, client: Client
) -> None:
    listener, peer = client("a", "traces"), peers("a", "LS+ out.x", protocol=WITHOUT)
    listener.send(traced("out.x", DEST))
    assert header_to(peer, "out.x").endswith(b"\r\nNats-Trace-Hop: 1\r\n\r\n")
    assert events(listener) == [published("out.x"), went("1", error=NOT_UNDERSTOOD)]
    listener.send(traced("out.x", DEST, ONLY))
    refused = "Not delivered because remote does not support message tracing"
    assert events(listener) == [published("out.x"), went("1", error=refused)]
    assert peer.quiet_ping() == []


def test_server_that_may_not_have_a_message_is_named(peers: Peers, client: Client) -> None:
    listener, peer = client("a", "traces"), peers("narrow", "LS+ out.*")
    listener.send(traced("out.no", DEST))
    refused = "Not delivered because subscription denies this subject"
    assert events(listener) == [published("out.no"), went("1", error=refused)]
    assert peer.quiet_ping() == []


def test_message_that_is_sampled_goes_on_with_its_number(peers: Peers, client: Client) -> None:
    listener, peer = client("b", "traces"), peers("b", "LS+ out.x")
    origin = peers("b", name="origin")
    origin.send(hmsg("out.x", SAMPLED))
    assert (
        header_to(peer, "out.x") == f"NATS/1.0\r\n{SAMPLED}\r\nNats-Trace-Hop: 1\r\n\r\n".encode()
    )
    assert events(listener) == [came("out.x", name="origin", acc="B"), went("1")]


def test_message_without_a_trace_goes_on_as_it_is(peers: Peers, client: Client) -> None:
    publisher, peer = client("a"), peers("a", "LS+ out.x")
    for lines in (("Nats-Trace-Hop: 3",), ("Nats-Trace-Dest: trace disabled",), (SAMPLED,)):
        publisher.send(traced("out.x", *lines))
        assert header_to(peer, "out.x") == f"NATS/1.0\r\n{lines[0]}\r\n\r\n".encode()


# ---------------------------------------------------------------------- accounts


def test_stream_that_another_account_imports(peers: Peers, client: Client) -> None:
    """Servers get it with its header, whether the import lets traces through or not."""
    listener, peer = client("a", "traces"), peers("b", "LS+ ex.x")
    listener.send(traced("ex.x", DEST, ONLY))
    assert header_to(peer, "ex.x").endswith(b"\r\nNats-Trace-Hop: 1\r\n\r\n")
    assert events(listener) == [published("ex.x"), went("1", acc="B")]


def test_trace_of_a_service_comes_back_to_whoever_asked(peers: Peers, client: Client) -> None:
    """The server that answers is told a stand-in, which leads to the destination, each time."""
    listener, peer = client("b", "traces"), peers("a", "LS+ svc")
    listener.send(traced("svc", DEST, reply="inbox"))
    header = header_to(peer, "svc")
    stand_in = STAND_IN.search(header)
    assert stand_in is not None
    assert header.endswith(b"\r\nNats-Trace-Hop: 1\r\n\r\n")
    crossing = {"type": "si", "acc": "A", "from": "svc", "to": "svc"}
    assert events(listener) == [published("svc", "B"), crossing, went("1", acc="A")]
    for number in range(3):
        peer.send(b"LMSG %b 1\r\n%d\r\n" % (stand_in[0], number))
        assert listener.read_message() == ("MSG traces 0 1", b"", b"%d" % number)


def test_trace_ends_at_a_service_that_does_not_let_it_through(peers: Peers, client: Client) -> None:
    listener, peer = client("b", "traces"), peers("a", "LS+ closed")
    listener.send(traced("closed", DEST, ONLY))
    crossing = {"type": "si", "acc": "A", "from": "closed", "to": "closed"}
    assert events(listener) == [published("closed", "B"), crossing]
    assert peer.quiet_ping() == []
    listener.send(traced("closed", DEST))
    assert header_to(peer, "closed").endswith(b"\r\nNats-Trace-Dest: trace disabled\r\n\r\n")
