"""Connections that are open when a reload allows fewer of them.

nats-server closes some at random, Tradewind the newest: the tests count.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from helpers_ops import fetch, login, open_client, reload

from harness import RawClient, ServerProcess, StartServer, wait_for

SERVER_FULL = b"-ERR 'maximum connections exceeded'\r\n"
ACCOUNT_FULL = b"-ERR 'maximum account active connections exceeded'\r\n"
ACCOUNTS = """
http: "127.0.0.1:-1"
accounts: {{
  A: {{ limits: {{ max_connections: {limit} }}, users: [ {{user: a, password: p}} ] }}
  B: {{ users: [ {{user: b, password: p}} ] }}
}}
"""


def is_open(client: RawClient, error: bytes) -> bool:
    """Whether a connection still answers; one that was closed must have been told why."""
    try:
        client.send("PING\r\n")
        while (line := client.read_line()) not in (b"", b"PONG"):
            if line.startswith(b"-ERR"):
                assert line + b"\r\n" == error
                return False
    except ConnectionError:
        return False
    return line == b"PONG"


@contextmanager
def crowd(server: ServerProcess, count: int, *user: str) -> Iterator[list[RawClient]]:
    with ExitStack() as stack:
        yield [stack.enter_context(login(server, *user)) for _ in range(count)]


def test_connections_above_a_lowered_limit_are_closed(start: StartServer) -> None:
    server = start('max_connections: 10\nhttp: "127.0.0.1:-1"\n')
    # The stranger has sent nothing yet, and counts.
    with crowd(server, 5) as members, open_client(server) as stranger:
        reload(server, 'max_connections: 2\nhttp: "127.0.0.1:-1"\n')
        server.wait_for_log(r"\[INF\] Closed 4 connections to fall within max_connections")
        server.wait_for_log(r"\[INF\] Reloaded: max_connections = 2")
        left = [client for client in (*members, stranger) if is_open(client, SERVER_FULL)]
        assert len(left) == 2
    ended = fetch(server, "/connz?state=closed").json()["connections"]
    reasons = [one["reason"] for one in ended]
    assert reasons.count("Maximum Connections Exceeded") == 4


def test_lowered_limit_above_the_number_of_connections_closes_none(start: StartServer) -> None:
    server = start("max_connections: 10\n")
    with crowd(server, 3) as members:
        reload(server, "max_connections: 3\n")
        assert all(is_open(client, b"") for client in members)


def test_negative_limit_of_the_server_allows_no_connection(start: StartServer) -> None:
    server = start("max_connections: 10\n")
    with crowd(server, 3) as members:
        reload(server, "max_connections: -1\n")
        assert not any(is_open(client, SERVER_FULL) for client in members)
        with open_client(server) as late:
            assert not is_open(late, SERVER_FULL)


def test_negative_limit_of_an_account_is_none(start: StartServer) -> None:
    server = start(ACCOUNTS.format(limit=3))
    with crowd(server, 3, "a", "p") as members:
        reload(server, ACCOUNTS.format(limit=-1))
        assert all(is_open(client, b"") for client in members)
        login(server, "a", "p").close()


def test_connections_above_a_lowered_limit_of_their_account_are_closed(start: StartServer) -> None:
    server = start(ACCOUNTS.format(limit=10))
    with crowd(server, 5, "a", "p") as members, login(server, "b", "p") as bystander:
        reload(server, ACCOUNTS.format(limit=2))
        assert sum(is_open(client, ACCOUNT_FULL) for client in members) == 2
        assert is_open(bystander, b"")
        page = "/connz?acc=A"
        wait_for(
            lambda: fetch(server, page).json()["num_connections"] == 2, "the account to shrink"
        )


def test_closed_connection_hears_why_before_the_end(start: StartServer) -> None:
    server = start("max_connections: 10\n")
    with crowd(server, 3) as clients:
        reload(server, "max_connections: 1\n")
        for client in clients:
            client.socket.shutdown(socket.SHUT_WR)
        assert sum(one.read_to_end().endswith(SERVER_FULL) for one in clients) == 2
