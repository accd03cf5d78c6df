"""Limits of an account on connections, subscriptions and payload; other accounts have their own."""

from __future__ import annotations

import pytest
from helpers_ops import (
    connect_line,
    login,
    next_message,
    open_client,
    publish,
    refusal,
    replies,
    shared_server,
)

from harness import RawClient, ServerProcess, wait_for

TOO_MANY_CONNECTIONS = b"-ERR 'maximum account active connections exceeded'\r\n"

server = shared_server("""
max_payload: 1000
accounts {
  FEW { limits: { max_connections: 2 }, users: [ {user: few, password: pw} ] }
  SUBS { limits: { max_subscriptions: 3 }, users: [ {user: subs, password: pw} ] }
  SMALL { limits: { max_payload: 10 }, users: [ {user: small, password: pw} ] }
  FREE { users: [ {user: free, password: pw} ] }
}
""")


def enter(server: ServerProcess, user: str) -> RawClient | None:
    """A login that may be refused because connections of an earlier test are still closing."""
    client = open_client(server)
    client.send(connect_line(user, "pw") + "PING\r\n")
    if client.read_line() == b"PONG":
        return client
    client.close()
    return None


def test_connection_over_the_limit_is_refused_and_others_live(server: ServerProcess) -> None:
    first = wait_for(lambda: enter(server, "few"), "a first connection")
    second = wait_for(lambda: enter(server, "few"), "a second connection")
    assert refusal(server, connect_line("few", "pw")) == TOO_MANY_CONNECTIONS
    assert replies(first, "") == replies(second, "") == []
    with login(server, "free", "pw") as stranger:
        assert replies(stranger, "") == []
    second.close()
    third = wait_for(lambda: enter(server, "few"), "room after one has left")
    third.close()
    first.close()


def test_subscription_over_the_limit_is_refused_and_the_connection_lives(
    server: ServerProcess,
) -> None:
    with login(server, "subs", "pw") as client:
        answers = replies(client, "SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nSUB d 4\r\n")
        assert answers == [b"-ERR 'maximum subscriptions exceeded'"]
        assert replies(client, publish("d", "lost")) == []
        client.send(publish("a", "kept"))
        assert next_message(client)[2] == b"kept"


def test_unsubscribing_makes_room(server: ServerProcess) -> None:
    with login(server, "subs", "pw") as client:
        wait_for(lambda: replies(client, "SUB a 1\r\n") == [], "the last subscriptions to go")
        assert replies(client, "SUB b 2\r\nSUB c 3\r\nUNSUB 1\r\nSUB d 4\r\n") == []
        client.send(publish("d", "got it"))
        assert next_message(client)[0][1:3] == ["d", "4"]


def test_payload_limit_of_the_account_is_announced_after_login(server: ServerProcess) -> None:
    with open_client(server) as client:
        assert client.info["max_payload"] == 1000
    with login(server, "small", "pw") as client:
        assert client.info["max_payload"] == 10
    with login(server, "free", "pw") as client:
        assert client.info["max_payload"] == 1000


@pytest.mark.parametrize(("user", "size"), [("small", 10), ("free", 1000)])
def test_payload_at_the_limit_is_delivered(server: ServerProcess, user: str, size: int) -> None:
    with login(server, user, "pw") as client:
        client.send("SUB edge 1\r\n" + publish("edge", "x" * size))
        assert len(next_message(client)[2]) == size


@pytest.mark.parametrize(("user", "size"), [("small", 11), ("free", 1001)])
def test_payload_over_the_limit_closes(server: ServerProcess, user: str, size: int) -> None:
    with login(server, user, "pw") as client:
        client.send(publish("edge", "x" * size))
        client.expect_closed("-ERR 'Maximum Payload Violation'\r\n")


def test_limit_of_subscriptions_counts_for_each_connection(server: ServerProcess) -> None:
    with login(server, "subs", "pw") as first, login(server, "subs", "pw") as second:
        for client in (first, second):
            assert replies(client, "SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n") == []
        refused = [b"-ERR 'maximum subscriptions exceeded'"]
        assert replies(first, "SUB d 4\r\n") == replies(second, "SUB d 4\r\n") == refused
