"""Deny rules where a receiver sees another subject than the one it subscribed to, and when they
change: messages of consumers, imports, reloads.
"""

from __future__ import annotations

import json

import pytest
from helpers_ops import login, publish, reload, replies, request, shared_server

from harness import RawClient, ServerProcess, StartServer, wait_for

CONFIG = """
jetstream { store_dir: "STORE" }
accounts {
  A {
    jetstream: enabled
    exports: [ {stream: "out.>"} ]
    users: [
      {user: free, password: pw}
      {user: noorders, password: pw, permissions: {subscribe: {deny: "orders.>"}}}
      {user: nodeliver, password: pw, permissions: {subscribe: {deny: "dlv.x"}}}
      {user: badless, password: pw, permissions: {subscribe: {deny: "dlv.x bad"}}}
    ]
  }
  I {
    imports: [ {stream: {account: A, subject: "out.>"}, prefix: in} ]
    users: [
      {user: inside, password: pw, permissions: {subscribe: {deny: "in.out.secret"}}}
      {user: outside, password: pw, permissions: {subscribe: {deny: "out.secret"}}}
      {user: queueless, password: pw, permissions: {subscribe: {deny: "in.out.secret bad"}}}
    ]
  }
}
"""
server = shared_server(CONFIG)


def subjects(client: RawClient) -> list[str]:
    """The subjects of the messages that have come."""
    return [
        line.decode().split()[1]
        for line in replies(client, "")
        if line.startswith((b"MSG ", b"HMSG "))
    ]


def subscribed(server: ServerProcess, user: str, *subscriptions: str) -> RawClient:
    client = login(server, user, "pw")
    lines = [f"SUB {what} {sid}\r\n" for sid, what in enumerate(subscriptions, 1)]
    assert replies(client, "".join(lines)) == []
    return client


@pytest.fixture(scope="module")
def orders(server: ServerProcess) -> ServerProcess:
    """A stream whose consumer delivers to `dlv.x`."""
    with login(server, "free", "pw") as client:
        stream = {"name": "ORDERS", "subjects": ["orders.>"], "storage": "memory"}
        request(client, "$JS.API.STREAM.CREATE.ORDERS", json.dumps(stream))
        config = {"durable_name": "C", "deliver_subject": "dlv.x", "ack_policy": "none"}
        body = {"stream_name": "ORDERS", "config": config}
        answer = request(client, "$JS.API.CONSUMER.CREATE.ORDERS.C", json.dumps(body))[1]
        assert b"error" not in answer
    return server


def delivered(server: ServerProcess, user: str, *subscriptions: str) -> list[str]:
    """What a user receives when the consumer delivers a message."""
    with subscribed(server, user, *subscriptions) as client, login(server, "free", "pw") as owner:
        replies(owner, "SUB dlv.x 1\r\n")
        owner.send(publish("orders.1", "x"))
        wait_for(lambda: "orders.1" in subjects(owner))
        found = subjects(client)
        replies(client, "".join(f"UNSUB {sid}\r\n" for sid in range(1, 4)))
        replies(owner, "UNSUB 1\r\n")
    return found


def test_deny_rule_holds_for_the_subject_that_is_shown(orders: ServerProcess) -> None:
    """As soon as a subscription is wider than the rule, it holds for all of the connection."""
    assert delivered(orders, "noorders", ">") == []
    assert delivered(orders, "noorders", "dlv.*") == ["orders.1"]
    assert delivered(orders, "noorders", "dlv.x") == ["orders.1"]
    assert delivered(orders, "noorders", "dlv.*", "*.1") == []


def test_deny_rule_holds_for_the_deliver_subject(orders: ServerProcess) -> None:
    """Intended difference: nats-server looks at the subject that is shown alone."""
    is_official = orders.kind == "official"
    assert delivered(orders, "nodeliver", "*.x") == (["orders.1"] if is_official else [])
    assert delivered(orders, "badless", "*.x") == ["orders.1"]


@pytest.mark.parametrize(
    ("user", "subscription", "received"),
    [
        ("inside", ">", ["in.out.ok"]),
        ("inside", "in.out.*", ["in.out.ok"]),
        ("outside", ">", ["in.out.secret", "in.out.ok"]),
        ("queueless", "> bad", ["in.out.ok"]),
        ("queueless", "in.*.* bad", ["in.out.ok"]),
        ("queueless", "> good", ["in.out.secret", "in.out.ok"]),
        ("queueless", ">", ["in.out.secret", "in.out.ok"]),
    ],
)
def test_imports_are_checked_by_the_name_that_the_receiver_sees(
    server: ServerProcess, user: str, subscription: str, received: list[str]
) -> None:
    with subscribed(server, user, subscription) as client, login(server, "free", "pw") as owner:
        assert replies(owner, publish("out.secret", "x") + publish("out.ok", "x")) == []
        assert subjects(client) == received
        replies(client, "UNSUB 1\r\n")


USERS = (
    "accounts {{ A {{ users: [ {{user: free, password: pw}}, {{user: u, password: pw{}}} ] }} }}\n"
)


def test_queue_that_is_denied_by_a_reload_receives_no_more(start: StartServer) -> None:
    server = start(USERS.format(""))
    with subscribed(server, "u", "> bad", "> good") as client, login(server, "free", "pw") as other:
        replies(other, publish("secret", "x"))
        assert subjects(client) == ["secret", "secret"]
        rules = ', permissions: {subscribe: {deny: ["secret bad"]}}'
        assert "Reloaded" in reload(server, USERS.format(rules))
        replies(other, publish("secret", "x") + publish("a", "x"))
        assert subjects(client) == ["secret", "a", "a"]
        assert "Reloaded" in reload(server, USERS.format(""))
        replies(other, publish("secret", "x"))
        assert subjects(client) == ["secret", "secret"]
