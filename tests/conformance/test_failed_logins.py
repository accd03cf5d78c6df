"""Who learns of failed logins: the system account and the pages, not the account of strangers."""

from __future__ import annotations

import json

import pytest
from helpers_ops import (
    VIOLATION,
    connect_line,
    fetch,
    login,
    next_message,
    open_client,
    replies,
    request,
    shared_server,
)

from harness import RawClient, ServerProcess, StartServer, wait_for

OTHERS = ("mallory", "HUSH", "secret-client")
server = shared_server("""
http: "127.0.0.1:-1"
no_auth_user: anyone
accounts: {
  OPEN: { users: [ {user: anyone, password: p} ] }
  CLOSED: { users: [ {user: carol, password: p} ] }
  FULL: { limits: { max_connections: 0 }, users: [ {user: fred, password: p} ] }
  SYS: { users: [ {user: admin, password: p} ] }
}
system_account: SYS
""")


def fail(server: ServerProcess, user: str = "mallory", early: str = "", **fields: str) -> int:
    """A login that is refused; gives the number of its connection."""
    with open_client(server) as client:
        if early:
            client.send(early)
            client.expect("+OK")
        client.send(connect_line(user, "HUSH-WRONG", name="secret-client", **fields))
        assert client.read_to_end().endswith(VIOLATION)
        cid: int = client.info["client_id"]
    path = f"/connz?state=closed&cid={cid}"
    wait_for(lambda: fetch(server, path).json()["connections"], "the end to be noted")
    return cid


def connections(client: RawClient, **options: object) -> list[dict[str, object]]:
    body = json.dumps({"auth": True, **options})
    answer = json.loads(request(client, "$SYS.REQ.ACCOUNT.PING.CONNZ", body)[1])
    found: list[dict[str, object]] = answer["data"]["connections"]
    return found


@pytest.mark.parametrize("early", ["", "SUB early 1\r\n"], ids=["at-once", "after-an-operation"])
@pytest.mark.parametrize("user", ["mallory", "carol"])
def test_failed_login_is_not_listed_in_the_account_of_strangers(
    server: ServerProcess, user: str, early: str
) -> None:
    cid = fail(server, user, early)
    for name in ("anyone", "carol"):
        with login(server, name, "p") as client:
            for state in (0, 1, 2):
                listed = connections(client, state=state)
                assert cid not in [one["cid"] for one in listed]
                assert not any(word in json.dumps(listed) for word in OTHERS)


def test_failed_login_is_listed_for_all_accounts_only(server: ServerProcess) -> None:
    cid = fail(server)
    for account in ("OPEN", "CLOSED", "$G", "SYS"):
        page = fetch(server, f"/connz?state=any&auth=1&acc={account}").json()
        assert cid not in [one["cid"] for one in page["connections"]]
    page = fetch(server, f"/connz?state=closed&auth=1&cid={cid}").json()
    (found,) = page["connections"]
    assert (found["authorized_user"], found["name"]) == ("mallory", "secret-client")
    assert "account" not in found
    assert "name_tag" not in found


def test_events_of_a_failed_login_name_the_global_account(server: ServerProcess) -> None:
    with login(server, "admin", "p") as system:
        subjects = ("$SYS.ACCOUNT.OPEN.DISCONNECT", "$SYS.ACCOUNT.$G.DISCONNECT")
        wanted = "".join(f"SUB {one} {number}\r\n" for number, one in enumerate(subjects))
        wanted += f"SUB $SYS.SERVER.{system.info['server_id']}.CLIENT.AUTH.ERR 9\r\n"
        assert replies(system, wanted) == []
        cid = fail(server)
        events = {}
        for _ in range(2):
            words, _, payload = next_message(system)
            events[words[2]] = json.loads(payload)["client"]
    assert events.keys() == {"1", "9"}
    for client in events.values():
        assert (client["id"], client["acc"], client["user"]) == (cid, "$G", "mallory")


def test_account_of_strangers_hears_nothing_of_a_failed_login(server: ServerProcess) -> None:
    with login(server, "anyone", "p") as client:
        assert replies(client, "SUB $SYS.> 1\r\nSUB > 2\r\n") == []
        fail(server)
        assert replies(client, "") == []


def test_login_into_a_full_account_is_not_listed_in_that_of_strangers(
    server: ServerProcess,
) -> None:
    with open_client(server) as refused:
        refused.send(connect_line("fred", "p", name="secret-client"))
        assert b"maximum account active connections exceeded" in refused.read_to_end()
        cid = refused.info["client_id"]
    path = f"/connz?state=closed&cid={cid}"
    wait_for(lambda: fetch(server, path).json()["connections"], "the end to be noted")
    with login(server, "anyone", "p") as client:
        assert cid not in [one["cid"] for one in connections(client, state=2)]


def test_closed_connections_of_the_global_account(start: StartServer, kind: str) -> None:
    """Tradewind lists them to its members, nats-server does not: a row in COMPATIBILITY.md. Neither
    lists failed logins.
    """
    users = "[ {user: anna, password: p}, {user: bert, password: p} ]"
    server = start(f'http: "127.0.0.1:-1"\nauthorization: {{ users: {users} }}\n')
    with login(server, "bert", "p") as gone:
        cid = gone.info["client_id"]
    path = f"/connz?state=closed&cid={cid}"
    wait_for(lambda: fetch(server, path).json()["connections"], "the end to be noted")
    fail(server)
    with login(server, "anna", "p") as client:
        listed = [one["cid"] for one in connections(client, state=1)]
    assert listed == ([cid] if kind == "tradewind" else [])
