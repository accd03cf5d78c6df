"""What a leaf node with permissions can do at its hub, by every name that a message can have.

A delivered message carries a second subject behind its reply: `LMSG <route> $JS.ACK...@<shown>`.
nats-server asks for permission on the route alone and acts on the subject shown; here that is an
intended difference, and each test that meets it says so.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers_ops import publish, replies, request

from harness import RawClient, wait_for
from leaf_kit import Node, RawLeaf, hub_config

ACK = "$JS.ACK.S.c.1.1.1.1.1"
LONG_ACK = "$JS.ACK.hub.hash.S.c.1.1.1.1.1.token"
CONFIG = """
jetstream { store_dir: "STORE", domain: hub }
accounts {
  A {
    jetstream: enabled
    mappings: { "m.*": "secret.$1" }
    exports: [ {service: "svc.echo"}, {stream: "out.>"} ]
    users: [
      {user: free, password: pw}
      {user: info, password: pw, permissions: {publish: ["$JS.API.INFO", "b.ok", "svc.echo"]}}
      {user: mapped, password: pw, permissions: {publish: {deny: "secret.>"}}}
      {user: outer, password: pw, permissions: {publish: {deny: "m.>"}}}
      {user: acker, password: pw, permissions: {publish: "c.ok", subscribe: ["dlv", "_INBOX.>"]}}
      {user: oneway, password: pw, permissions: {publish: "to.hub", subscribe: "to.leaf"}}
      {user: notboth, password: pw, permissions: {
        publish: {deny: "to.leaf"}, subscribe: {deny: "to.hub"}}}
      {user: d1, password: pw, permissions: {subscribe: {deny: "secret bad"}}}
      {user: d2, password: pw, permissions: {subscribe: {deny: "* bad"}}}
      {user: d3, password: pw, permissions: {subscribe: {deny: "secret"}}}
      {user: w1, password: pw, permissions: {subscribe: "secret v1"}}
      {user: w2, password: pw, permissions: {subscribe: ["*", "secret v1"]}}
    ]
  }
  I {
    imports: [
      {service: {account: A, subject: "svc.echo"}, to: "my.echo"}
      {stream: {account: A, subject: "out.>"}, prefix: in}
    ]
    users: [
      {user: ifree, password: pw}
      {user: inside, password: pw, permissions: {subscribe: {deny: "in.out.secret"}}}
      {user: outside, password: pw, permissions: {subscribe: {deny: "out.secret"}}}
    ]
  }
}
"""
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def hub(shared_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("hub")
    config = hub_config("compression: off", CONFIG.replace("STORE", str(folder)))
    node = Node(shared_kind, folder, "hub", config)
    yield node
    node.stop()


@pytest.fixture
def dial(hub: Node) -> Iterator[Dial]:
    opened: list[RawLeaf] = []

    def connect(user: str, **fields: object) -> RawLeaf:
        peer = RawLeaf(hub.leaf_port)
        opened.append(peer)
        peer.login(user=user, name=f"leaf{next(_numbers)}", **{"pass": "pw"}, **fields)
        peer.quiet_ping()
        return peer

    yield connect
    for peer in opened:
        peer.close()
    hub.wait_linked(0)


@pytest.fixture
def join(hub: Node) -> Iterator[Callable[..., RawClient]]:
    opened: list[RawClient] = []

    def connect(user: str, *subscriptions: str) -> RawClient:
        client = RawClient(hub.port)
        opened.append(client)
        client.connect(user=user, **{"pass": "pw"})
        lines = [f"SUB {what} {number}\r\n" for number, what in enumerate(subscriptions, 1)]
        assert replies(client, "".join(lines)) == []
        return client

    yield connect
    for client in opened:
        replies(client, "".join(f"UNSUB {number}\r\n" for number in range(9)))
        client.close()


Dial = Callable[..., RawLeaf]
Join = Callable[..., RawClient]


def is_official(hub: Node) -> bool:
    return hub.process.kind == "official"


def ask(client: RawClient, call: str, body: object = None) -> dict[str, Any]:
    """The answer of the API."""
    answer: dict[str, Any] = json.loads(
        request(client, f"$JS.API.{call}", "" if body is None else json.dumps(body))[1]
    )
    return answer


def messages(client: RawClient) -> list[str]:
    """The control lines of the messages that have come, without their sizes."""
    return [
        line.decode().rpartition(" ")[0]
        for line in replies(client, "")
        if line.startswith((b"MSG ", b"HMSG "))
    ]


# ---------------------------------------------------------------- queues


@pytest.mark.parametrize(
    ("user", "interest", "messages"),
    [
        ("d1", "secret", ["secret"]),
        ("d1", "secret bad", []),
        ("d1", "secret v1", ["secret | v1"]),
        ("d1", "> bad", ["other | bad", "a.b | bad"]),
        ("d1", ">", ["secret", "other", "a.b"]),
        ("d2", "* bad", []),
        ("d2", "> bad", ["a.b | bad"]),
        ("d2", "* v1", ["secret | v1", "other | v1"]),
        ("d3", "> bad", ["other | bad", "a.b | bad"]),
        ("d3", "secret bad", None),
        ("w1", "secret", None),
        ("w1", "secret bad", None),
        ("w1", "> v1", []),
        ("w2", "secret", None),
        ("w2", "*", ["other"]),
        ("w2", "other v1", ["other | v1"]),
    ],
)
def test_rules_with_queues(
    dial: Dial, join: Join, user: str, interest: str, messages: list[str] | None
) -> None:
    """None: asking for it ends the connection."""
    client, peer = join("free"), dial(user)
    weight = " 1" if " " in interest else ""
    peer.send(f"LS+ {interest}{weight}\r\nPING\r\n")
    if messages is None:
        lines = peer.read_to_end()
        assert b"-ERR 'Permissions Violation for Subscription" in lines
        return
    peer.read_until(b"PONG")
    client.send("".join(publish(subject, "x") for subject in ("secret", "other", "a.b")))
    client.ping()
    got = [line.decode() for line in peer.quiet_ping() if line.startswith(b"LMSG")]
    assert got == [f"LMSG {message} 1" for message in messages]


# ---------------------------------------------------------------- roles


@pytest.mark.parametrize("user", ["oneway", "notboth"])
def test_leaf_node_that_claims_to_be_the_hub_keeps_its_permissions(
    dial: Dial, join: Join, user: str
) -> None:
    client, peer = join("free", "to.hub", "to.leaf"), dial(user, is_hub=True)
    peer.send("LS+ to.>\r\nLMSG to.leaf 1\r\nx\r\nLMSG to.hub 1\r\nx\r\n")
    assert not [line for line in peer.quiet_ping() if line.startswith(b"-ERR")]
    assert messages(client) == ["MSG to.hub 1"]
    replies(client, publish("to.hub", "x") + publish("to.leaf", "x"))
    got = [line for line in peer.quiet_ping() if line.startswith(b"LMSG")]
    assert got == [b"LMSG to.leaf 1"]


# ---------------------------------------------------------------- the subject shown


def ways(route: str, shown: str) -> list[str]:
    """Each way to send a message that shows another subject."""
    return [
        f"LMSG {route} {ACK}@{shown} 2\r\n{{}}\r\n",
        f"LMSG {route} {LONG_ACK}@{shown} 2\r\n{{}}\r\n",
        f"LMSG {route} + {ACK}@{shown} group 2\r\n{{}}\r\n",
        f"HMSG {route} {ACK}@{shown} 12 14\r\nNATS/1.0\r\n\r\n{{}}\r\n",
    ]


@pytest.mark.parametrize("way", range(4))
def test_services_of_the_server_do_not_act_on_the_subject_shown(
    hub: Node, dial: Dial, join: Join, way: int
) -> None:
    """Intended difference: nats-server deletes the stream."""
    client, peer = join("free"), dial("info")
    ask(client, "STREAM.CREATE.GOOD", {"name": "GOOD", "subjects": ["good"], "storage": "memory"})
    peer.send(ways("$JS.API.INFO", "$JS.API.STREAM.DELETE.GOOD")[way])
    peer.quiet_ping()
    if is_official(hub):
        wait_for(lambda: not ask(client, "STREAM.NAMES")["streams"])
        return
    # Requests are answered in their order, so the other one would be over by now.
    assert ask(client, "STREAM.NAMES")["streams"] == ["GOOD"]
    ask(client, "STREAM.DELETE.GOOD")


@pytest.mark.parametrize("way", range(4))
def test_streams_do_not_store_what_its_sender_may_not_publish(
    hub: Node, dial: Dial, join: Join, way: int
) -> None:
    """Intended difference: nats-server stores it under the subject shown."""
    client, peer = join("free"), dial("info")
    ask(client, "STREAM.CREATE.B", {"name": "B", "subjects": ["b.>"], "storage": "memory"})
    peer.send(ways("b.ok", "foreign.subject")[way])
    peer.quiet_ping()

    def subjects() -> Any:
        state = ask(client, "STREAM.INFO.B", {"subjects_filter": ">"})["state"]
        return state.get("subjects")

    found = wait_for(subjects)
    assert found == {"foreign.subject" if is_official(hub) else "b.ok": 1}
    ask(client, "STREAM.DELETE.B")


def test_streams_store_the_subject_shown_if_its_sender_may_publish_there(
    dial: Dial, join: Join
) -> None:
    client, peer = join("free"), dial("free")
    ask(client, "STREAM.CREATE.B", {"name": "B", "subjects": ["b.>"], "storage": "memory"})
    peer.send(ways("b.ok", "foreign.subject")[0])
    peer.quiet_ping()
    asked = {"subjects_filter": ">"}
    found = wait_for(lambda: ask(client, "STREAM.INFO.B", asked)["state"].get("subjects"))
    assert found == {"foreign.subject": 1}
    ask(client, "STREAM.DELETE.B")


def test_subscribers_are_not_misled_by_the_subject_shown(hub: Node, dial: Dial, join: Join) -> None:
    """A subscriber of the deliver subject sees what the message was published on. One of the
    subject shown would take it for a request by somebody who may send one. Intended difference:
    nats-server shows it to both.
    """
    service, inbox = join("free", "svc.>"), join("free", "svc.echo")
    peer = dial("info")
    peer.send(ways("svc.echo", "svc.admin")[0])
    peer.quiet_ping()
    assert messages(inbox) == [f"MSG svc.admin 1 {ACK}"]
    seen = "svc.admin" if is_official(hub) else "svc.echo"
    assert messages(service) == [f"MSG {seen} 1 {ACK}"]


def test_other_servers_are_not_misled_by_the_subject_shown(
    hub: Node, dial: Dial, join: Join
) -> None:
    """Intended difference: nats-server passes on what its sender may not publish to."""
    peer, other = dial("info"), dial("free")
    other.send("LS+ svc.>\r\n")
    other.quiet_ping()
    peer.send(ways("svc.echo", "svc.admin")[0])
    shown = "@svc.admin" if is_official(hub) else ""
    assert other.read_until(b"LMSG")[-1] == f"LMSG svc.echo {ACK}{shown} 2".encode()


def test_invalid_subject_is_not_shown(hub: Node, dial: Dial, join: Join) -> None:
    """Intended difference: nats-server shows anything."""
    inbox, peer = join("free", "svc.echo"), dial("info")
    peer.send(ways("svc.echo", "a..b")[0] + ways("svc.echo", "a.>")[0])
    peer.quiet_ping()
    seen = ["a..b", "a.>"] if is_official(hub) else ["svc.echo", "svc.echo"]
    assert messages(inbox) == [f"MSG {subject} 1 {ACK}" for subject in seen]


def test_subject_shown_does_not_cross_to_a_service_of_another_account(
    hub: Node, dial: Dial, join: Join
) -> None:
    """Intended difference: by nats-server, a service that exports `svc.echo` alone is asked for
    `svc.admin`.
    """
    service, peer = join("free", "svc.>"), dial("ifree")
    peer.send(ways("my.echo", "svc.admin")[0])
    peer.quiet_ping()
    line, _, _ = service.read_message()
    assert line.split()[1] == ("svc.admin" if is_official(hub) else "svc.echo")


def test_subject_shown_does_not_cross_with_a_stream_of_another_account(
    hub: Node, dial: Dial, join: Join
) -> None:
    """What a leaf node of the exporter shows is not taken for a message of the importer. Intended
    difference: nats-server shows it to some subscribers and not to others.
    """
    everything, peer = join("ifree", ">"), dial("free")
    peer.send(ways("out.x", "private")[0])
    peer.quiet_ping()
    (line,) = messages(everything)
    if not is_official(hub):
        assert line == f"MSG in.out.x 1 {ACK}"


# ---------------------------------------------------------------- mappings and imports


def test_mapping_does_not_lead_to_what_is_denied(hub: Node, dial: Dial, join: Join) -> None:
    """Intended difference: nats-server asks for permission before it maps, and never after."""
    client, peer = join("free", "secret.*"), dial("mapped")
    peer.send("LMSG m.x 1\r\nx\r\n")
    assert not [line for line in peer.quiet_ping() if line.startswith(b"-ERR")]
    assert messages(client) == (["MSG secret.x 1"] if is_official(hub) else [])


def test_subject_before_a_mapping_must_be_allowed(dial: Dial, join: Join) -> None:
    client, peer = join("free", "secret.*"), dial("outer")
    peer.send("LMSG m.x 1\r\nx\r\n")
    assert b"-ERR 'Permissions Violation for Publish" in peer.read_to_end()
    assert messages(client) == []


@pytest.mark.parametrize(
    ("user", "subjects"), [("inside", ["in.out.ok"]), ("outside", ["in.out.secret", "in.out.ok"])]
)
def test_imports_are_checked_by_the_name_that_the_leaf_node_receives(
    dial: Dial, join: Join, user: str, subjects: list[str]
) -> None:
    client, peer = join("free"), dial(user)
    peer.send("LS+ in.>\r\n")
    peer.quiet_ping()
    client.send(publish("out.secret", "x") + publish("out.ok", "x"))
    client.ping()
    got = [line.decode().split()[1] for line in peer.quiet_ping() if line.startswith(b"LMSG")]
    assert got == subjects


# ---------------------------------------------------------------- acknowledgements


def work_queue(client: RawClient) -> None:
    """A stream whose messages are gone when they are acknowledged, with one in it."""
    config = {"name": "W", "subjects": ["w"], "storage": "memory", "retention": "workqueue"}
    assert "error" not in ask(client, "STREAM.CREATE.W", config)
    request(client, "w", "work")


def consumer(client: RawClient, **fields: object) -> None:
    config = {"durable_name": "C", "ack_policy": "explicit", **fields}
    body = {"stream_name": "W", "config": config}
    assert "error" not in ask(client, "CONSUMER.CREATE.W.C", body)


def stored(client: RawClient) -> int:
    return int(ask(client, "STREAM.INFO.W")["state"]["messages"])


def test_only_what_was_delivered_there_is_acknowledged(hub: Node, dial: Dial, join: Join) -> None:
    """Intended difference: nats-server takes acknowledgements of messages that others received, and
    sends the next message to whoever asks with `+NXT`.
    """
    client, peer = join("free"), dial("acker")
    work_queue(client)
    consumer(client)
    _, _, message = pulled(client)
    assert message == b"work"
    peer.send("LS+ _INBOX.thief\r\n")
    peer.quiet_ping()
    peer.send("LMSG $JS.ACK.W.C.1.1.1.1.0 _INBOX.thief 4\r\n+NXT\r\n")
    assert not [line for line in peer.quiet_ping() if line.startswith(b"-ERR")]
    if is_official(hub):
        wait_for(lambda: stored(client) == 0)
    else:
        assert stored(client) == 1
    ask(client, "STREAM.DELETE.W")


def pulled(client: RawClient) -> tuple[str, bytes, bytes]:
    """The next message of the consumer."""
    number = next(_numbers)
    client.send(f"SUB pull.{number} p{number}\r\nUNSUB p{number} 1\r\n")
    client.send(publish("$JS.API.CONSUMER.MSG.NEXT.W.C", "1", f"pull.{number}"))
    return client.read_message()


def test_what_was_delivered_there_is_acknowledged_after_a_new_connection(
    hub: Node, dial: Dial, join: Join
) -> None:
    client, peer = join("free"), dial("acker")
    work_queue(client)
    peer.send("LS+ dlv\r\n")
    peer.quiet_ping()
    consumer(client, deliver_subject="dlv")
    line = peer.read_until(b"LMSG dlv")[-1].decode().split()
    reply, _, subject = line[2].partition("@")
    assert (subject, reply.split(".")[:4]) == ("w", ["$JS", "ACK", "W", "C"])
    peer.close()
    hub.wait_linked(0)
    again = dial("acker")
    again.send(f"LMSG {reply} 4\r\n+ACK\r\n")
    again.quiet_ping()
    wait_for(lambda: stored(client) == 0)
    ask(client, "STREAM.DELETE.W")
