"""How many connections, subscriptions and tokens a server takes when the configuration says so."""

from __future__ import annotations

import itertools
import json

import pytest

from harness import RawClient, ServerProcess, StartServer, wait_for

CONNECTIONS_EXCEEDED = b"-ERR 'maximum connections exceeded'\r\n"
SUBSCRIPTIONS_EXCEEDED = "-ERR 'maximum subscriptions exceeded'\r\n"


def refused(server: ServerProcess) -> bool:
    """Whether the server turns a new connection away; it must do so with INFO and -ERR."""
    with RawClient(server.port) as client:
        client.send("PING\r\n")
        line = client.read_line() + b"\r\n"
        if line == CONNECTIONS_EXCEEDED:
            client.expect_closed()
            return True
        assert line == b"PONG\r\n"
        return False


def occupy(server: ServerProcess) -> RawClient:
    """A connection that certainly counts: INFO alone may be sent before the server counts it."""
    client = RawClient(server.port)
    client.ping()
    return client


@pytest.mark.parametrize("limit", [1, 3])
def test_connection_over_the_limit_gets_info_and_error(start: StartServer, limit: int) -> None:
    server = start(f"max_connections: {limit}\n")
    clients = [occupy(server) for _ in range(limit)]
    with RawClient(server.port, read_info=False) as extra:
        info, rest = extra.read_to_end().split(b"\r\n", 1)
    assert info.startswith(b"INFO {")
    assert json.loads(info[5:])["server_id"] == clients[0].info["server_id"]
    assert rest == CONNECTIONS_EXCEEDED
    for client in clients:
        client.connect()
        client.close()


def test_closed_connection_makes_room(start: StartServer) -> None:
    server = start("max_connections: 1\n")
    with occupy(server) as only:
        assert refused(server)
        only.socket.shutdown(1)
        only.expect_closed()
    wait_for(lambda: not refused(server), "the place of the closed connection")


def test_refused_connection_is_logged(start: StartServer) -> None:
    server = start("max_connections: 1\n")
    with occupy(server):
        assert refused(server)
    server.wait_for_log(r"\[ERR\] 127\.0\.0\.1:\d+ - cid:\d+ - maximum connections exceeded")


def test_subscription_over_the_limit_is_refused(start: StartServer) -> None:
    server = start("max_subscriptions: 2\n")
    with RawClient(server.port) as client:
        client.connect(protocol=0)
        client.send("SUB a 1\r\nSUB b q 2\r\nSUB c 3\r\nPUB a 0\r\n\r\nPUB c 0\r\n\r\nPING\r\n")
        client.expect_bytes(SUBSCRIPTIONS_EXCEEDED + "MSG a 1 0\r\n\r\nPONG\r\n")
        client.send("UNSUB 1\r\nSUB d 3\r\nPUB d 0\r\n\r\nPING\r\n")
        client.expect_bytes("MSG d 3 0\r\n\r\nPONG\r\n")


def test_refused_subscription_gets_no_ok(start: StartServer) -> None:
    server = start("max_subscriptions: 1\n")
    with RawClient(server.port) as client:
        client.send("SUB a 1\r\nSUB b 2\r\nPING\r\n")
        client.expect_bytes("+OK\r\n" + SUBSCRIPTIONS_EXCEEDED + "PONG\r\n")


def test_known_sid_at_the_limit_is_refused_too(start: StartServer) -> None:
    server = start("max_subscriptions: 1\n")
    with RawClient(server.port) as client:
        client.connect(protocol=0)
        client.send("SUB a 1\r\nSUB a 1\r\nPUB a 0\r\n\r\nPING\r\n")
        client.expect_bytes(SUBSCRIPTIONS_EXCEEDED + "MSG a 1 0\r\n\r\nPONG\r\n")


def test_automatic_unsubscription_makes_room(start: StartServer) -> None:
    server = start("max_subscriptions: 1\n")
    with RawClient(server.port) as client:
        client.connect(protocol=0)
        client.send("SUB a 1\r\nUNSUB 1 1\r\nPUB a 0\r\n\r\nSUB b 2\r\nPUB b 0\r\n\r\nPING\r\n")
        client.expect_bytes("MSG a 1 0\r\n\r\nMSG b 2 0\r\n\r\nPONG\r\n")


def test_subscription_limit_is_per_connection(start: StartServer) -> None:
    server = start("max_subscriptions: 1\n")
    with RawClient(server.port) as first, RawClient(server.port) as second:
        for client in (first, second):
            client.connect(protocol=0)
            client.send("SUB a 1\r\n")
            client.ping()


@pytest.mark.parametrize("pattern", ["a.b.c.d", "a.b.c.>", "*.*.*.*"])
@pytest.mark.parametrize("queue", ["", " workers"])
def test_subscription_with_too_many_tokens_is_refused(
    start: StartServer, pattern: str, queue: str
) -> None:
    server = start("max_subscription_tokens: 3\n")
    with RawClient(server.port) as client:
        client.send(f"SUB {pattern}{queue} 1\r\nSUB a.b.c{queue} 1\r\nPING\r\n")
        client.expect_bytes(
            f"-ERR 'Permissions Violation for Subscription to \"{pattern}\", too many tokens'\r\n"
            "+OK\r\nPONG\r\n"
        )


def test_subscriptions_of_very_many_tokens_get_what_they_match(start: StartServer) -> None:
    """Patterns that part at each of their first tokens and share the rest, and a longer subject."""
    server = start("")
    rest = ".a.*" * 120
    patterns = [".".join(one) + rest for one in itertools.product("a*", repeat=6)]
    subject = ".".join("a" * 246)
    other = subject.replace("a", "b", 1)
    with RawClient(server.port) as client:
        client.connect(verbose=False, protocol=0)
        for number, pattern in enumerate([*patterns, "a.>"]):
            client.send(f"SUB {pattern} {number}\r\n")
        for sent, expected in (
            (subject, set(range(65))),
            (other, {number for number, one in enumerate(patterns) if one[0] == "*"}),
            (subject + ".a", {64}),
            (subject[:-3] + "b.a", {64}),
            (subject[:-2], {64}),
        ):
            client.send(f"PUB {sent} 0\r\n\r\nPING\r\n")
            received = set()
            while (line := client.read_line()) != b"PONG":
                if line:
                    assert line.startswith(f"MSG {sent} ".encode())
                    received.add(int(line.split()[2]))
            assert received == expected


def test_publish_with_more_tokens_than_a_subscription_may_have_is_fine(start: StartServer) -> None:
    server = start("max_subscription_tokens: 3\n")
    with RawClient(server.port) as client:
        client.send("SUB a.> 1\r\nPUB a.b.c.d.e 0\r\n\r\nPING\r\n")
        client.expect_bytes("+OK\r\n+OK\r\nMSG a.b.c.d.e 1 0\r\n\r\nPONG\r\n")
