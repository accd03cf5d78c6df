"""/connz: what it shows of a connection, open or closed; sorting, paging, filters and errors."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers_ops import (
    AGE,
    INT,
    TEXT,
    TIME,
    Shape,
    connect_line,
    connection_of,
    fetch,
    login,
    open_client,
    publish,
    replies,
    shared_server,
)

from harness import RawClient, ServerProcess, wait_for

server = shared_server('http: "127.0.0.1:-1"\n')
accounts = shared_server("""
http: "127.0.0.1:-1"
accounts {
  A { users: [ {user: anna, password: HUSH}, {user: alan, password: HUSH} ] }
  B { users: [ {user: bert, password: HUSH} ] }
}
""")
by_token = shared_server('http: "127.0.0.1:-1"\nauthorization { token: HUSH }\n')

DURATION = Shape(re.compile(r"(\d+h)?(\d+m)?\d+(\.\d+)?(ns|µs|us|ms|s)\Z"))
PAGE = {"server_id", "now", "num_connections", "total", "offset", "limit", "connections"}


def connz(server: ServerProcess, query: str = "") -> dict[str, Any]:
    page = fetch(server, f"/connz{query}").json()
    assert page.keys() == PAGE
    assert page["num_connections"] == len(page["connections"])
    return page


def cids(page: dict[str, Any]) -> list[int]:
    return [entry["cid"] for entry in page["connections"]]


def closed_entry(server: ServerProcess, cid: int, query: str = "") -> dict[str, Any]:
    """The entry of a connection that is closing or closed."""

    def find() -> dict[str, Any] | None:
        found = connz(server, f"?state=closed&cid={cid}{query}")["connections"]
        return found[0] if found else None

    entry: dict[str, Any] = wait_for(find, f"connection {cid} among the closed ones")
    return entry


def until_nothing_is_pending(server: ServerProcess, cid: int) -> None:
    """The official server counts a reply as sent a moment after the client may have it."""
    wait_for(
        lambda: connz(server, f"?cid={cid}")["connections"][0]["pending_bytes"] == 0,
        f"connection {cid} without pending bytes",
    )


def local_port(client: RawClient) -> int:
    port: int = client.socket.getsockname()[1]
    return port


def test_page_of_no_connections(server: ServerProcess) -> None:
    wait_for(lambda: connz(server)["total"] == 0, "earlier connections to be gone")
    assert connz(server) == {
        "server_id": TEXT,
        "now": TIME,
        "num_connections": 0,
        "total": 0,
        "offset": 0,
        "limit": 1024,
        "connections": [],
    }


def test_fields_of_an_open_connection(server: ServerProcess) -> None:
    with login(server, name="crow", lang="python", version="1.2.3") as client:
        replies(client, "SUB fields.> 1\r\nSUB other 2\r\n" + publish("fields.a", "12345"))
        settled = {"in_msgs": 1, "pending_bytes": 0}
        wait_for(
            lambda: settled.items() <= connection_of(server, client).items(),
            "the message to be counted, and the answer to be written",
        )
        assert connection_of(server, client) == {
            "cid": client.info["client_id"],
            "kind": "Client",
            "type": "nats",
            "ip": "127.0.0.1",
            "port": local_port(client),
            "start": TIME,
            "last_activity": TIME,
            "rtt": DURATION,
            "uptime": AGE,
            "idle": AGE,
            "pending_bytes": 0,
            "in_msgs": 1,
            "out_msgs": 1,
            "in_bytes": 5,
            "out_bytes": 5,
            "subscriptions": 2,
            "name": "crow",
            "lang": "python",
            "version": "1.2.3",
        }


def test_names_that_were_not_given_are_left_out(server: ServerProcess) -> None:
    with login(server) as client:
        entry = connection_of(server, client)
        assert entry.keys().isdisjoint({"name", "lang", "version", "authorized_user", "account"})


def test_connection_that_has_not_sent_connect_is_listed(server: ServerProcess) -> None:
    with open_client(server) as client:
        client.ping()  # nats-server lists it behind its INFO
        assert connection_of(server, client)["subscriptions"] == 0


@pytest.mark.parametrize("query", ["subs=1", "subs=true"])
def test_subscriptions_as_subjects(server: ServerProcess, query: str) -> None:
    with login(server) as client:
        replies(client, "SUB foo.> 1\r\nSUB bar q 2\r\n")
        entry = connection_of(server, client, f"&{query}")
        assert sorted(entry["subscriptions_list"]) == ["bar", "foo.>"]
        assert "subscriptions_list_detail" not in entry


def test_subscriptions_in_detail(server: ServerProcess) -> None:
    with login(server) as client:
        cid = client.info["client_id"]
        replies(client, "SUB foo.> 1\r\nSUB bar q 2\r\nUNSUB 2 5\r\n" + publish("foo.a", "x"))
        entry = connection_of(server, client, "&subs=detail")
        assert "subscriptions_list" not in entry
        assert sorted(entry["subscriptions_list_detail"], key=lambda sub: str(sub["sid"])) == [
            {"subject": "foo.>", "sid": "1", "msgs": 1, "cid": cid},
            {"subject": "bar", "qgroup": "q", "sid": "2", "msgs": 0, "max": 5, "cid": cid},
        ]


def test_user_and_account_are_shown_on_request(accounts: ServerProcess) -> None:
    with login(accounts, "anna", "HUSH") as client:
        plain = connection_of(accounts, client)
        assert plain.keys().isdisjoint({"authorized_user", "account", "name_tag"})
        entry = connection_of(accounts, client, "&auth=1")
        assert entry["authorized_user"] == "anna"
        assert entry["account"] == "A"
        assert entry["name_tag"] == "A"


def test_token_is_not_shown_as_user(by_token: ServerProcess) -> None:
    with login(by_token, auth_token="HUSH") as client:
        entry = connection_of(by_token, client, "&auth=1")
        assert entry["authorized_user"] == "[REDACTED]"


# Sorting and paging


@pytest.fixture
def three(server: ServerProcess) -> Iterator[list[RawClient]]:
    """Connections a, b, c: c has most subscriptions, b receives most, a sends most."""
    wait_for(lambda: connz(server)["total"] == 0, "earlier connections to be gone")
    clients = [login(server, name=name) for name in "abc"]
    a, b, c = clients
    replies(a, "SUB only.a 1\r\n")
    replies(b, "SUB to.> 1\r\nSUB to.b 2\r\n")
    replies(c, "SUB to.c 1\r\nSUB x 2\r\nSUB y 3\r\n")
    replies(a, publish("to.b", "12345678") * 3 + publish("to.c", "12"))
    replies(b, publish("none", "123") * 2)
    replies(c, publish("none", "1"))
    wait_for(
        lambda: [connection_of(server, client)["in_msgs"] for client in clients] == [4, 2, 1],
        "all messages to be counted",
    )
    yield clients
    for client in clients:
        client.close()


def names(page: dict[str, Any]) -> str:
    return "".join(entry["name"] for entry in page["connections"])


@pytest.mark.parametrize(
    ("key", "order"),
    [
        ("cid", "abc"),
        ("start", "abc"),
        ("subs", "cba"),
        ("msgs_from", "abc"),
        ("bytes_from", "abc"),
        ("msgs_to", "bca"),
        ("bytes_to", "bca"),
    ],
)
@pytest.mark.usefixtures("three")
def test_sorting(server: ServerProcess, key: str, order: str) -> None:
    assert names(connz(server, f"?sort={key}")) == order


@pytest.mark.parametrize("key", ["pending", "last", "idle", "uptime", "rtt"])
@pytest.mark.usefixtures("three")
def test_sorting_by_time_keeps_all_connections(server: ServerProcess, key: str) -> None:
    assert sorted(names(connz(server, f"?sort={key}"))) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("query", "order", "offset", "limit"),
    [
        ("?limit=2", "ab", 0, 2),
        ("?limit=2&offset=1", "bc", 1, 2),
        ("?limit=2&offset=2", "c", 2, 2),
        ("?offset=3", "", 3, 1024),
        ("?offset=9&limit=1", "", 9, 1),
        ("?sort=subs&limit=1", "c", 0, 1),
        ("?limit=0&offset=-1", "abc", 0, 1024),
    ],
)
@pytest.mark.usefixtures("three")
def test_paging(server: ServerProcess, query: str, order: str, offset: int, limit: int) -> None:
    page = connz(server, query)
    assert names(page) == order
    assert (page["offset"], page["limit"], page["total"]) == (offset, limit, 3)


def test_filter_by_cid(server: ServerProcess, three: list[RawClient]) -> None:
    cid = three[1].info["client_id"]
    assert cids(connz(server, f"?cid={cid}")) == [cid]
    assert cids(connz(server, "?cid=99999999")) == []


def test_filter_by_user_and_account(accounts: ServerProcess) -> None:
    with (
        login(accounts, "anna", "HUSH") as anna,
        login(accounts, "alan", "HUSH") as alan,
        login(accounts, "bert", "HUSH") as bert,
    ):
        ids = [client.info["client_id"] for client in (anna, alan, bert)]

        def is_listed(query: str) -> list[bool]:
            listed = cids(connz(accounts, query))
            return [cid in listed for cid in ids]

        assert is_listed("?auth=1&user=anna") == [True, False, False]
        assert is_listed("?auth=1&acc=A") == [True, True, False]
        assert is_listed("?auth=1&acc=B") == [False, False, True]
        assert is_listed("") == [True, True, True]
        assert is_listed("?auth=1&user=nobody") == [False, False, False]


# Closed connections


def test_fields_of_a_closed_connection(server: ServerProcess) -> None:
    with login(server, name="gone") as client:
        replies(client, "SUB a 1\r\n")
        cid, port = client.info["client_id"], local_port(client)
        until_nothing_is_pending(server, cid)
        client.socket.shutdown(socket.SHUT_WR)  # a close would be a reset if a PING has come
        entry = closed_entry(server, cid, "&subs=1")
    assert entry == {
        "cid": cid,
        "kind": "Client",
        "type": "nats",
        "ip": "127.0.0.1",
        "port": port,
        "start": TIME,
        "last_activity": TIME,
        "stop": TIME,
        "reason": "Client Closed",
        "rtt": DURATION,
        "uptime": AGE,
        "idle": AGE,
        "pending_bytes": 0,
        "in_msgs": 0,
        "out_msgs": 0,
        "in_bytes": 0,
        "out_bytes": 0,
        "subscriptions": 1,
        "name": "gone",
        "subscriptions_list": ["a"],
    }


def test_states(server: ServerProcess) -> None:
    with login(server) as opened:
        gone = login(server)
        gone.close()
        closed_cid, open_cid = gone.info["client_id"], opened.info["client_id"]
        closed_entry(server, closed_cid)
        listed = {
            state: {open_cid, closed_cid} & set(cids(connz(server, f"?state={state}")))
            for state in ("open", "closed", "any", "all", "CLOSED", "")
        }
    assert listed == {
        "open": {open_cid},
        "closed": {closed_cid},
        "any": {open_cid, closed_cid},
        "all": {open_cid, closed_cid},
        "CLOSED": {closed_cid},
        "": {open_cid},
    }


Misbehaviour = Callable[[RawClient], None]

REASONS: dict[str, Misbehaviour] = {
    "Protocol Violation": lambda client: client.send("BOGUS\r\n"),
    "Maximum Message Payload Exceeded": lambda client: client.send("PUB a 99999999\r\n"),
    "Maximum Control Line Exceeded": lambda client: client.send("PUB " + "a" * 5000 + " 1\r\n"),
    "Bad Client Protocol Version": lambda client: client.send(connect_line(protocol=7)),
}


@pytest.mark.parametrize("reason", REASONS)
def test_reason_of_a_server_side_close(server: ServerProcess, reason: str) -> None:
    with login(server) as client:
        REASONS[reason](client)
        client.read_to_end()
        assert closed_entry(server, client.info["client_id"])["reason"] == reason


def test_refused_login_is_listed_with_its_user(accounts: ServerProcess) -> None:
    with open_client(accounts) as client:
        client.send(connect_line("anna", "HUSH-WRONG"))
        client.read_to_end()
        entry = closed_entry(accounts, client.info["client_id"], "&auth=1")
    assert entry["reason"] == "Authentication Failure"
    assert entry["authorized_user"] == "anna"
    assert "HUSH" not in fetch(accounts, "/connz?state=closed&auth=1").text


def test_closed_connections_sorted_by_stop_and_reason(server: ServerProcess) -> None:
    wait_for(lambda: connz(server)["total"] == 0, "earlier connections to be gone")
    with open_client(server) as bogus:
        bogus.send("BOGUS\r\n")
        closed_entry(server, bogus.info["client_id"])
    gone = login(server)
    gone.close()
    closed_entry(server, gone.info["client_id"])
    by_stop = connz(server, "?state=closed&sort=stop")["connections"]
    assert by_stop[0]["cid"] == gone.info["client_id"]
    reasons = [
        entry["reason"] for entry in connz(server, "?state=closed&sort=reason")["connections"]
    ]
    assert reasons == sorted(reasons)
    assert len(set(reasons)) >= 2


# Errors


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("sort=bogus", "invalid sorting option: bogus"),
        ("state=bogus", "Error decoding state for bogus"),
        ("sort=stop", "sort by stop only valid on closed connections"),
        ("sort=reason", "sort by reason only valid on closed connections"),
        ("sort=stop&state=any", "sort by stop only valid on closed connections"),
        ("limit=x", "Error decoding int for 'limit'"),
        ("offset=x", "Error decoding int for 'offset'"),
        ("cid=x", "Error decoding uint64 for 'cid'"),
        ("cid=-1", "Error decoding uint64 for 'cid'"),
        ("auth=x", "Error decoding boolean for 'auth'"),
        ("subs=x", "Error decoding boolean for 'subs'"),
    ],
)
def test_bad_parameter_is_named(server: ServerProcess, query: str, text: str) -> None:
    page = fetch(server, f"/connz?{query}")
    assert page.status == 400
    assert page.headers["content-type"].startswith("text/plain")
    assert page.text.startswith(text)


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
def test_truth_in_its_spellings(accounts: ServerProcess, value: str) -> None:
    with login(accounts, "anna", "HUSH") as client:
        assert "authorized_user" in connection_of(accounts, client, f"&auth={value}")


@pytest.mark.parametrize("value", ["0", "f", "F", "FALSE", "false", "False", ""])
def test_falsehood_in_its_spellings(accounts: ServerProcess, value: str) -> None:
    with login(accounts, "anna", "HUSH") as client:
        assert "authorized_user" not in connection_of(accounts, client, f"&auth={value}")


def test_counters_are_numbers(server: ServerProcess) -> None:
    with login(server) as client:
        entry = connection_of(server, client)
        for name in ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "pending_bytes"):
            assert entry[name] == INT
