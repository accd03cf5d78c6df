"""Events that the server publishes in the system account, and who may see them."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from helpers_operators import JwtClient, system_client
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
    user_key,
)

from harness import RawClient, ServerProcess, StartServer
from jwt_kit import account_jwt, account_key, memory_configuration, user_jwt
from jwt_kit import user_key as jwt_user_key
from leaf_kit import RawLeaf
from websocket_frames import FrameClient

CONFIG = """
server_name: crow
accounts {
  A { users: [ {user: anna, password: HUSH} ] }
  B { users: [ {user: bert, password: HUSH} ] }
  $SYS { users: [ {user: admin, password: HUSH} ] }
}
"""
KEY = user_key(1)
server = shared_server(
    CONFIG.replace("$SYS {", f"N {{ users: [ {{nkey: {KEY.public}}} ] }}\n  $SYS {{")
    + """
max_control_line: 512
authorization { timeout: 60 }
websocket { listen: "127.0.0.1:-1", no_tls: true }
leafnodes { listen: "127.0.0.1:-1" }
"""
)
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
        (f"PUB {'a' * 2000}\r\n", "Maximum Control Line Exceeded"),
        ("CONNECT {x\r\n", "Protocol Violation"),
        ("HPUB a 5 2\r\n", "Protocol Violation"),
        ("SUB\r\n", "Protocol Violation"),
        ("PUB a b c d e\r\n", "Protocol Violation"),
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


CONNECT, REFUSED = "$SYS.ACCOUNT.B.CONNECT", "$SYS.SERVER.ID.CLIENT.AUTH.ERR"
ENDED, UNKNOWN = "$SYS.ACCOUNT.B.DISCONNECT", "$SYS.ACCOUNT.$G.DISCONNECT"
FAILURE = "Authentication Failure"
# What a new connection sends, and the events about it until its end, with their reasons
LIVES: dict[str, tuple[str, list[tuple[str, str | None]]]] = {
    "nothing": ("", [(UNKNOWN, "Client Closed")]),
    "no-login": (connect_line(), [(REFUSED, FAILURE), (UNKNOWN, FAILURE)]),
    "wrong-password": (connect_line("bert", "x"), [(REFUSED, FAILURE), (UNKNOWN, FAILURE)]),
    "wrong-token": (connect_line(auth_token="x"), [(REFUSED, FAILURE), (UNKNOWN, FAILURE)]),
    "wrong-signature": (
        connect_line(nkey=KEY.public, sig="AAAA"),
        [(REFUSED, FAILURE), (UNKNOWN, FAILURE)],
    ),
    "early-operation": ("PUB a 0\r\n\r\n", [(REFUSED, FAILURE), (UNKNOWN, FAILURE)]),
    "unknown-operation": ("BOGUS\r\n", [(REFUSED, FAILURE), (UNKNOWN, FAILURE)]),
    "no-json": ("CONNECT {x\r\n", [(UNKNOWN, "Protocol Violation")]),
    "wrong-type": ('CONNECT {"user":5}\r\n', [(UNKNOWN, "Protocol Violation")]),
    "long-line": (f"CONNECT {'a' * 2000}\r\n", [(UNKNOWN, "Maximum Control Line Exceeded")]),
    "wrong-protocol": (
        connect_line("bert", "HUSH", protocol=7),
        [(CONNECT, None), (ENDED, "Bad Client Protocol Version")],
    ),
    "no-headers": (
        connect_line("bert", "HUSH", headers=False, no_responders=True),
        [(CONNECT, None), (ENDED, "No Responders Requires Headers")],
    ),
    "an-account": (
        connect_line("bert", "HUSH", account="B"),
        [(CONNECT, None), (REFUSED, FAILURE), (ENDED, FAILURE)],
    ),
    "headers-not-asked-for": (
        connect_line("bert", "HUSH", headers=False) + "HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        [(CONNECT, None), (ENDED, "Protocol Violation")],
    ),
    "left": (
        connect_line("bert", "HUSH") + "PING\r\n",
        [(CONNECT, None), (ENDED, "Client Closed")],
    ),
}
MEMBERS = [
    *("start", "host", "id", "acc", "user", "name", "lang", "ver", "rtt", "stop", "jwt"),
    *("issuer_key", "name_tag", "tags", "kind", "client_type"),
]


def life_of(events: RawClient, cid: int) -> list[tuple[str, dict[str, Any]]]:
    """The events about a connection until its end; their members are in order."""
    found: list[tuple[str, dict[str, Any]]] = []
    while not found or not found[-1][0].endswith(".DISCONNECT"):
        words, _, payload = next_message(events)
        event: dict[str, Any] = json.loads(payload)
        if event.get("client", {}).get("id") == cid:
            members = list(event["client"])
            assert members == [name for name in MEMBERS if name in members]
            found.append((words[1].replace(events.info["server_id"], "ID"), event))
    return found


@pytest.mark.parametrize("case", LIVES)
def test_every_client_is_told_of_until_its_end(
    server: ServerProcess, events: RawClient, case: str
) -> None:
    data, expected = LIVES[case]
    with open_client(server) as client:
        client.send(data)
        if "Client Closed" not in str(expected):
            client.read_to_end()
        elif data:
            client.expect("PONG")
    life = life_of(events, client.info["client_id"])
    assert [(subject, event.get("reason")) for subject, event in life] == expected
    # A round trip is guessed when CONNECT comes.
    if case not in ("left", "headers-not-asked-for"):
        has_begun = data.startswith("CONNECT") and case != "long-line"
        assert ("rtt" in life[-1][1]["client"]) == has_begun


def test_connection_above_the_limit_of_its_account_is_told_of(start: StartServer) -> None:
    limit = "B { limits { max_conn: 1 }, users"
    server = start(CONFIG.replace("B { users", limit))
    with login(server, "admin", "HUSH") as events, login(server, "bert", "HUSH"):
        assert replies(events, "SUB $SYS.ACCOUNT.> 1\r\n") == []
        with open_client(server) as client:
            client.send(connect_line("bert", "HUSH"))
            client.read_to_end()
        ((subject, event),) = life_of(events, client.info["client_id"])
        assert (subject, event["reason"]) == (ENDED, "Maximum Account Connections Exceeded")
        assert (event["client"]["acc"], event["client"]["user"]) == ("B", "bert")


def test_authentication_timeout_is_told_of(start: StartServer) -> None:
    server = start(CONFIG + "authorization { timeout: 0.2 }\n")
    with login(server, "admin", "HUSH") as events:
        assert replies(events, "SUB $SYS.ACCOUNT.> 1\r\n") == []
        with open_client(server) as client:
            client.read_to_end()
        ((subject, event),) = life_of(events, client.info["client_id"])
        assert (subject, event["reason"]) == (UNKNOWN, "Authentication Timeout")


def test_events_of_an_nkey_name_its_account_as_the_issuer(
    server: ServerProcess, events: RawClient
) -> None:
    with open_client(server) as client:
        signature = KEY.sign(client.info["nonce"])
        client.send(connect_line(nkey=KEY.public, sig=signature) + "PING\r\n")
        client.expect("PONG")
    for _, event in life_of(events, client.info["client_id"]):
        assert (event["client"]["user"], event["client"]["issuer_key"]) == (KEY.public, "N")


def test_events_of_a_jwt_tell_its_issuer_tags_and_account(start: StartServer) -> None:
    """nats-server adds the JWT itself; Tradewind does not, as that of a bearer is a password."""
    account, user = account_key(7), jwt_user_key(3)
    claims = account_jwt(account, top={"name": "title"})
    server = start(memory_configuration({account.public: claims}))
    with system_client(server) as system:
        system.send("SUB $SYS.ACCOUNT.> 1\r\n")
        system.ping_through()
        token = user_jwt(user, account, tags=["t"])
        with JwtClient(server, token, user) as client:
            client.enter()
        for _, event in life_of(system, client.info["client_id"]):
            fields = {name: event["client"][name] for name in ("issuer_key", "name_tag", "tags")}
            assert fields == {"issuer_key": account.public, "name_tag": "title", "tags": ["t"]}


def test_events_of_a_websocket_client(server: ServerProcess, events: RawClient) -> None:
    port = server.wait_for_log(r"Listening for websocket clients on ws://\S+:(\d+)")[1]
    with FrameClient(int(port)) as browser:
        info = json.loads(browser.read_until(b"\r\n")[5:])
        browser.send_text(connect_line("bert", "HUSH", protocol=0) + "PING\r\n")
        browser.read_until(b"PONG\r\n")
    for _, event in life_of(events, info["client_id"]):
        assert (event["client"]["kind"], event["client"]["client_type"]) == ("Client", "websocket")


@pytest.mark.parametrize("end", ["", "BOGUS\r\n"], ids=["left", "violation"])
def test_events_of_a_leaf_node(server: ServerProcess, events: RawClient, end: str) -> None:
    port = server.wait_for_log(r"Listening for leafnode connections on \S+:(\d+)")[1]
    with RawLeaf(int(port)) as leaf:
        leaf.login(user="bert", name="edge", **{"pass": "HUSH"})
        if end:
            leaf.send(end)
            leaf.read_to_end()
    life = life_of(events, leaf.info["client_id"])
    reason = "Protocol Violation" if end else "Client Closed"
    assert [(subject, event.get("reason")) for subject, event in life] == [
        (CONNECT, None),
        (ENDED, reason),
    ]
    expected = {"start": TIME, "host": "127.0.0.1", "id": leaf.info["client_id"], "acc": "B"}
    expected |= {"user": "bert", "name": "edge", "name_tag": "B", "kind": "Leafnode"}
    first, last = (
        {name: value for name, value in event["client"].items() if name not in ("ver", "lang")}
        for _, event in life
    )
    assert first == expected
    assert last == {**expected, "stop": TIME}


def test_refused_leaf_node_has_no_account(server: ServerProcess, events: RawClient) -> None:
    port = server.wait_for_log(r"Listening for leafnode connections on \S+:(\d+)")[1]
    with RawClient(int(port)) as leaf:
        leaf.send('CONNECT {"user":"bert","pass":"wrong","name":"edge"}\r\n')
        leaf.read_to_end()
    cid = leaf.info["client_id"]
    event = next_event(events, f"$SYS.SERVER.{events.info['server_id']}.CLIENT.AUTH.ERR", id=cid)
    assert event["client"] == {
        "start": TIME,
        "host": "127.0.0.1",
        "id": cid,
        "acc": "N/A",
        "user": "bert",
        "name": "edge",
        "stop": TIME,
        "kind": "Leafnode",
    }
    with login(server, "bert", "HUSH") as later:
        pass
    # Nothing else is told of it.
    while True:
        words, _, payload = next_message(events)
        told = json.loads(payload).get("client", {}).get("id")
        assert told != cid, words
        if told == later.info["client_id"] and words[1] == ENDED:
            break


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
