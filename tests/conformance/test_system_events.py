"""Events that the server publishes in the system account, and who may see them."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from helpers_ops import (
    FEATURE_FLAGS,
    INT,
    TEXT,
    TIME,
    VIOLATION,
    Shape,
    connect_line,
    login,
    next_message,
    open_client,
    publish,
    refusal,
    replies,
    running,
    shared_server,
)

from harness import RawClient, ServerProcess, StartServer

CONFIG = """
server_name: crow
accounts {
  A { users: [ {user: anna, password: HUSH} ] }
  B { users: [ {user: bert, password: HUSH} ] }
  $SYS { users: [ {user: admin, password: HUSH} ] }
}
"""
server = shared_server(CONFIG)
EVENT_ID = Shape(re.compile(r"[0-9A-Za-z]{22}\Z"))


@pytest.fixture
def events(server: ServerProcess) -> Iterator[RawClient]:
    """A connection of the system account that hears of accounts and of the server."""
    with login(server, "admin", "HUSH") as client:
        assert replies(client, "SUB $SYS.ACCOUNT.> 1\r\nSUB $SYS.SERVER.> 2\r\n") == []
        yield client


def next_event(client: RawClient, subject: str, **wanted: Any) -> dict[str, Any]:
    """The next event on this subject whose client part has the wanted fields; others are passed."""
    while True:
        words, _, payload = next_message(client)
        event: dict[str, Any] = json.loads(payload)
        if words[1] == subject and wanted.items() <= event.get("client", {}).items():
            return event


def server_part(client: RawClient) -> dict[str, Any]:
    return {
        "name": "crow",
        "host": "127.0.0.1",
        "id": client.info["server_id"],
        "ver": client.info["version"],
        "feature_flags": FEATURE_FLAGS,
        "jetstream": False,
        "flags": 0,
        "seq": INT,
        "time": TIME,
    }


def client_part(client: RawClient, account: str, user: str, **more: Any) -> dict[str, Any]:
    return {
        "start": TIME,
        "host": "127.0.0.1",
        "id": client.info["client_id"],
        "acc": account,
        "user": user,
        "name_tag": account,
        "kind": "Client",
        "client_type": "nats",
        **more,
    }


def test_connect_event(server: ServerProcess, events: RawClient) -> None:
    with login(server, "anna", "HUSH", name="n", lang="py", version="9.9") as client:
        cid = client.info["client_id"]
        event = next_event(events, "$SYS.ACCOUNT.A.CONNECT", id=cid)
        assert event == {
            "type": "io.nats.server.advisory.v1.client_connect",
            "id": EVENT_ID,
            "timestamp": TIME,
            "server": server_part(client),
            "client": client_part(client, "A", "anna", name="n", lang="py", ver="9.9"),
        }


def test_connect_event_without_names(server: ServerProcess, events: RawClient) -> None:
    with login(server, "bert", "HUSH") as client:
        cid = client.info["client_id"]
        event = next_event(events, "$SYS.ACCOUNT.B.CONNECT", id=cid)
        assert event["client"] == client_part(client, "B", "bert")


def test_disconnect_event(server: ServerProcess, events: RawClient) -> None:
    with login(server, "anna", "HUSH") as client:
        data = "SUB mine 1\r\n" + publish("mine", "123") + publish("other", "4567")
        assert len(replies(client, data)) == 2
    cid = client.info["client_id"]
    event = next_event(events, "$SYS.ACCOUNT.A.DISCONNECT", id=cid)
    assert event == {
        "type": "io.nats.server.advisory.v1.client_disconnect",
        "id": EVENT_ID,
        "timestamp": TIME,
        "server": server_part(client),
        "client": client_part(client, "A", "anna", rtt=INT, stop=TIME),
        "sent": {"msgs": 2, "bytes": 7},
        "received": {"msgs": 1, "bytes": 3},
        "reason": "Client Closed",
    }


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("BOGUS\r\n", "Protocol Violation"),
        ("PUB a 99999999\r\n", "Maximum Message Payload Exceeded"),
    ],
)
def test_disconnect_event_names_the_reason(
    server: ServerProcess, events: RawClient, data: str, reason: str
) -> None:
    with login(server, "bert", "HUSH") as client:
        client.send(data)
        client.read_to_end()
        cid = client.info["client_id"]
        event = next_event(events, "$SYS.ACCOUNT.B.DISCONNECT", id=cid)
        assert event["reason"] == reason


def test_event_ids_differ(server: ServerProcess, events: RawClient) -> None:
    with login(server, "anna", "HUSH") as one, login(server, "anna", "HUSH") as other:
        ids = {
            next_event(events, "$SYS.ACCOUNT.A.CONNECT", id=client.info["client_id"])["id"]
            for client in (one, other)
        }
        assert len(ids) == 2


@pytest.mark.parametrize("subject", ["$SYS.ACCOUNT.A.SERVER.CONNS", "$SYS.SERVER.ACCOUNT.A.CONNS"])
def test_account_connections_event(server: ServerProcess, events: RawClient, subject: str) -> None:
    with login(server, "anna", "HUSH") as client:
        event = next_event(events, subject)
        while not event["conns"]:  # the end of an earlier connection may be told first
            event = next_event(events, subject)
        assert event["type"] == "io.nats.server.advisory.v1.account_connections"
        assert event["acc"] == "A"
        assert event["server"]["id"] == client.info["server_id"]
        assert event["conns"] >= 1
        expected = {
            *("type", "id", "timestamp", "server", "acc", "name", "conns", "leafnodes"),
            *("total_conns", "num_subscriptions", "sent", "received", "slow_consumers"),
        }
        assert event.keys() == expected


def test_refused_login_event(server: ServerProcess, events: RawClient) -> None:
    with open_client(server) as client:
        client.send(connect_line("anna", "HUSH-WRONG", name="n"))
        assert client.read_to_end() == VIOLATION
        cid = client.info["client_id"]
    subject = f"$SYS.SERVER.{events.info['server_id']}.CLIENT.AUTH.ERR"
    event = next_event(events, subject, id=cid)
    assert "HUSH" not in json.dumps(event)
    assert event["type"] == "io.nats.server.advisory.v1.client_disconnect"
    assert event["id"] == TEXT
    assert event["reason"] == "Authentication Failure"
    assert event["client"]["user"] == "anna"
    assert event["client"]["name"] == "n"
    assert (event["sent"], event["received"]) == ({"msgs": 0, "bytes": 0}, {"msgs": 0, "bytes": 0})


def test_refused_token_is_not_in_the_event(server: ServerProcess, events: RawClient) -> None:
    assert refusal(server, connect_line(auth_token="HUSH-TOKEN")) == VIOLATION
    subject = f"$SYS.SERVER.{events.info['server_id']}.CLIENT.AUTH.ERR"
    assert "HUSH" not in json.dumps(next_event(events, subject, user="[REDACTED]"))


# Who may see them


def test_system_account_is_announced(events: RawClient) -> None:
    assert events.info["remote_account"] == "$SYS"
    assert events.info["acc_is_sys"] is True


def test_other_accounts_see_no_events(server: ServerProcess, events: RawClient) -> None:
    """The system account hears of the login, so the event has been published by then."""
    with login(server, "anna", "HUSH") as spy:
        assert replies(spy, "SUB $SYS.> 1\r\nSUB > 2\r\nSUB $SYS.ACCOUNT.A.CONNECT 3\r\n") == []
        with login(server, "anna", "HUSH") as same, login(server, "bert", "HUSH") as other:
            next_event(events, "$SYS.ACCOUNT.A.CONNECT", id=same.info["client_id"])
            next_event(events, "$SYS.ACCOUNT.B.CONNECT", id=other.info["client_id"])
            assert replies(spy, "") == []


def test_other_accounts_cannot_forge_events(server: ServerProcess, events: RawClient) -> None:
    with login(server, "anna", "HUSH") as forger:
        next_event(events, "$SYS.ACCOUNT.A.CONNECT", id=forger.info["client_id"])
        assert replies(forger, publish("$SYS.ACCOUNT.FORGED.CONNECT", "{}")) == []
    next_event(events, "$SYS.ACCOUNT.A.DISCONNECT", id=forger.info["client_id"])
    assert b"FORGED" not in b"".join(replies(events, ""))


def test_another_account_can_be_the_system_account(
    shared_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = CONFIG.replace("$SYS", "OPS") + "system_account: OPS\n"
    directory = tmp_path_factory.mktemp("ops")
    with (
        running(shared_kind, directory, config) as process,
        login(process, "admin", "HUSH") as admin,
    ):
        assert admin.info["remote_account"] == "OPS"
        assert admin.info["acc_is_sys"] is True
        assert replies(admin, "SUB $SYS.ACCOUNT.A.CONNECT 1\r\n") == []
        with login(process, "anna", "HUSH") as client:
            event = next_event(admin, "$SYS.ACCOUNT.A.CONNECT")
            assert event["client"]["id"] == client.info["client_id"]


# The end of a server


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGTERM, "SHUTDOWN"), (signal.SIGUSR2, "LAMEDUCK")]
)
def test_end_of_the_server_is_announced(
    start: StartServer, number: signal.Signals, name: str
) -> None:
    config = CONFIG + 'lame_duck_duration: "30s"\nlame_duck_grace_period: "100ms"\n'
    server = start(config)
    with login(server, "admin", "HUSH") as admin:
        identity = admin.info["server_id"]
        subject = f"$SYS.SERVER.{identity}.{name}"
        assert replies(admin, f"SUB {subject} 1\r\n") == []
        server.signal(number)
        event = next_event(admin, subject)
        assert event == server_part(admin)
        admin.read_to_end()
        assert server.wait(30) == 0
