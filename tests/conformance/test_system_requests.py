"""Requests that the server answers itself: $SYS.REQ.* from the system account and from others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from helpers_ops import (
    FEATURE_FLAGS,
    INT,
    NUMBER,
    TIME,
    config_path,
    fetch,
    is_unanswered,
    login,
    next_message,
    open_client,
    publish,
    reload_outcome,
    replies,
    running,
    shared_server,
    system_request,
)

from harness import RawClient, ServerProcess, wait_for

CONFIG = """
server_name: crow
http: "127.0.0.1:-1"
accounts {
  A { users: [ {user: anna, password: HUSH}, {user: narrow, password: HUSH, permissions: {
        publish: ["a.>", "$SYS.REQ.USER.INFO"]
        subscribe: { allow: ["_INBOX.>", "a.*"], deny: "a.no" }
        allow_responses: { max: 3, expires: "1m" } } } ] }
  B { users: [ {user: bert, password: HUSH} ] }
  $SYS { users: [ {user: admin, password: HUSH} ] }
}
"""
server = shared_server(CONFIG)
ENDPOINTS = ["VARZ", "CONNZ", "SUBSZ", "ACCOUNTZ", "HEALTHZ", "ROUTEZ", "GATEWAYZ", "LEAFZ"]


@pytest.fixture
def admin(server: ServerProcess) -> Iterator[RawClient]:
    with login(server, "admin", "HUSH", no_responders=True) as client:
        yield client


@pytest.fixture
def anna(server: ServerProcess) -> Iterator[RawClient]:
    with login(server, "anna", "HUSH", no_responders=True, name="of-anna") as client:
        yield client


def assert_envelope(answer: dict[str, Any], client: RawClient) -> None:
    """The `server` part that every answer carries."""
    assert answer["server"] == {
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


def ask(client: RawClient, endpoint: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The `data` of this server's endpoint."""
    subject = f"$SYS.REQ.SERVER.{client.info['server_id']}.{endpoint}"
    answer = system_request(client, subject, json.dumps(body) if body else "")
    assert "error" not in answer, answer
    assert_envelope(answer, client)
    data: dict[str, Any] = answer["data"]
    return data


def failure(client: RawClient, endpoint: str, body: str) -> dict[str, Any]:
    subject = f"$SYS.REQ.SERVER.{client.info['server_id']}.{endpoint}"
    answer = system_request(client, subject, body)
    assert_envelope(answer, client)
    assert answer.get("data") is None
    error: dict[str, Any] = answer["error"]
    return error


# USER.INFO


@pytest.mark.parametrize(("user", "account"), [("anna", "A"), ("bert", "B"), ("admin", "$SYS")])
def test_user_info(server: ServerProcess, user: str, account: str) -> None:
    with login(server, user, "HUSH") as client:
        answer = system_request(client, "$SYS.REQ.USER.INFO")
        assert answer.keys() == {"server", "data"}
        assert_envelope(answer, client)
        assert answer["data"] == {"user": user, "account": account, "account_name": account}


def test_user_info_lists_permissions(server: ServerProcess) -> None:
    with login(server, "narrow", "HUSH") as client:
        permissions = system_request(client, "$SYS.REQ.USER.INFO")["data"]["permissions"]
    assert permissions.keys() == {"publish", "subscribe", "responses"}
    assert permissions["publish"].keys() == {"allow"}
    assert sorted(permissions["publish"]["allow"]) == ["$SYS.REQ.USER.INFO", "a.>"]
    assert sorted(permissions["subscribe"]["allow"]) == ["_INBOX.>", "a.*"]
    assert permissions["subscribe"]["deny"] == ["a.no"]
    assert permissions["responses"] == {"max": 3, "ttl": 60_000_000_000}


# SERVER.PING and SERVER.<id>


STATSZ = {
    "start": TIME,
    "mem": INT,
    "cores": INT,
    "cpu": NUMBER,
    "connections": INT,
    "total_connections": INT,
    "active_accounts": INT,
    "subscriptions": INT,
    "sent": {"msgs": INT, "bytes": INT},
    "sent_to_clients": {"msgs": INT, "bytes": INT},
    "received": {"msgs": INT, "bytes": INT},
    "received_from_clients": {"msgs": INT, "bytes": INT},
    "slow_consumers": 0,
    "active_servers": 1,
    "gomaxprocs": INT,
}


@pytest.mark.parametrize("subject", ["PING", "PING.STATSZ", "{id}.STATSZ"])
def test_statsz(admin: RawClient, subject: str) -> None:
    name = subject.format(id=admin.info["server_id"])
    answer = system_request(admin, f"$SYS.REQ.SERVER.{name}")
    assert answer.keys() == {"server", "statsz"}
    assert_envelope(answer, admin)
    assert answer["statsz"] == STATSZ
    assert answer["statsz"]["connections"] >= 1


@pytest.mark.parametrize("target", ["PING", "{id}"])
def test_idz_has_no_envelope(admin: RawClient, target: str) -> None:
    name = target.format(id=admin.info["server_id"])
    assert system_request(admin, f"$SYS.REQ.SERVER.{name}.IDZ") == {
        "name": "crow",
        "host": "127.0.0.1",
        "id": admin.info["server_id"],
    }


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_ping_and_id_answer_alike(admin: RawClient, endpoint: str) -> None:
    answer = system_request(admin, f"$SYS.REQ.SERVER.PING.{endpoint}")
    assert answer.keys() == {"server", "data"}
    assert_envelope(answer, admin)
    assert ask(admin, endpoint).keys() == answer["data"].keys()


def test_sequence_grows_with_each_answer(admin: RawClient) -> None:
    first, second = (system_request(admin, "$SYS.REQ.SERVER.PING.VARZ") for _ in range(2))
    assert second["server"]["seq"] > first["server"]["seq"]


def test_varz_is_the_page(server: ServerProcess, admin: RawClient) -> None:
    page, data = fetch(server, "/varz").json(), ask(admin, "VARZ")
    assert data.keys() == page.keys()
    for name in ("server_id", "server_name", "version", "port", "max_payload", "start"):
        assert data[name] == page[name]


def test_healthz(admin: RawClient) -> None:
    assert ask(admin, "HEALTHZ") == {"status": "ok", "status_code": 200}


def test_accountz(admin: RawClient) -> None:
    data = ask(admin, "ACCOUNTZ")
    assert data["system_account"] == "$SYS"
    assert sorted(data["accounts"]) == ["$G", "$SYS", "A", "B"]
    detail = ask(admin, "ACCOUNTZ", {"account": "A"})["account_detail"]
    assert detail["account_name"] == "A"


def test_connz_takes_options(admin: RawClient, anna: RawClient) -> None:
    replies(anna, "SUB a.x 1\r\n")
    data = ask(admin, "CONNZ", {"auth": True, "subscriptions": True, "acc": "A"})
    entries = {entry["cid"]: entry for entry in data["connections"]}
    entry = entries[anna.info["client_id"]]
    assert entry["authorized_user"] == "anna"
    assert entry["account"] == "A"
    assert entry["subscriptions_list"] == ["a.x"]
    assert admin.info["client_id"] not in entries


def test_connz_filters_by_subscribed_subject(server: ServerProcess, admin: RawClient) -> None:
    with login(server, "bert", "HUSH") as one, login(server, "bert", "HUSH") as other:
        replies(one, "SUB find.* 1\r\n")
        replies(other, "SUB hide.* 1\r\n")
        body = {"acc": "B", "filter_subject": "find.me"}
        listed = [entry["cid"] for entry in ask(admin, "CONNZ", body)["connections"]]
        assert listed == [one.info["client_id"]]


def test_connz_details_and_paging(admin: RawClient, anna: RawClient) -> None:
    replies(anna, "SUB a.x q 1\r\n")
    body = {"subscriptions_detail": True, "cid": anna.info["client_id"]}
    (entry,) = ask(admin, "CONNZ", body)["connections"]
    assert entry["subscriptions_list_detail"] == [
        {"subject": "a.x", "qgroup": "q", "sid": "1", "msgs": 0, "cid": anna.info["client_id"]}
    ]
    page = ask(admin, "CONNZ", {"limit": 1, "offset": 1, "sort": "cid"})
    assert (page["limit"], page["offset"], len(page["connections"])) == (1, 1, 1)


def test_connz_lists_closed_connections(server: ServerProcess, admin: RawClient) -> None:
    gone = login(server, "bert", "HUSH")
    gone.close()
    body = {"state": 1, "cid": gone.info["client_id"]}
    (entry,) = wait_for(lambda: ask(admin, "CONNZ", body)["connections"], "the closed connection")
    assert entry["reason"] == "Client Closed"


def test_subsz_takes_options(admin: RawClient, anna: RawClient) -> None:
    replies(anna, "SUB a.sub 1\r\n")
    data = ask(admin, "SUBSZ", {"subscriptions": True, "account": "A"})
    assert "a.sub" in [entry["subject"] for entry in data["subscriptions_list"]]
    assert {entry["account"] for entry in data["subscriptions_list"]} == {"A"}
    data = ask(admin, "SUBSZ", {"subscriptions": True, "test": "a.sub"})
    assert [entry["subject"] for entry in data["subscriptions_list"]] == ["a.sub"]


def test_unknown_options_are_ignored(admin: RawClient) -> None:
    assert ask(admin, "CONNZ", {"bogus": 1, "limit": 1})["limit"] == 1


@pytest.mark.parametrize(
    ("endpoint", "body", "code", "text"),
    [
        ("CONNZ", '{"sort":"bogus"}', 500, "invalid sorting option: bogus"),
        ("ACCOUNTZ", '{"account":"nope"}', 500, "Account nope does not exist"),
    ],
)
def test_refused_options_are_an_error(
    admin: RawClient, endpoint: str, body: str, code: int, text: str
) -> None:
    assert failure(admin, endpoint, body) == {"code": code, "description": text}


def test_body_that_is_no_json_is_an_error(admin: RawClient) -> None:
    error = failure(admin, "CONNZ", "{bad")
    assert error["code"] == 400
    assert error["description"]


@pytest.mark.parametrize(
    ("body", "is_answered"),
    [
        ({"server_name": "crow"}, True),
        ({"server_name": "cro"}, True),
        ({"server_name": "cro", "exact_match": True}, False),
        ({"server_name": "crow", "exact_match": True}, True),
        ({"server_name": "raven"}, False),
        ({"host": "127.0.0.1"}, True),
        ({"host": "10.9.9.9"}, False),
        ({"cluster": "elsewhere"}, False),
    ],
)
def test_ping_is_answered_by_servers_that_fit_the_filter(
    admin: RawClient, body: dict[str, Any], is_answered: bool
) -> None:
    """An unfiltered PING behind it marks the end of what may come."""
    replies(admin, "SUB _INBOX.filter.* 1\r\n")
    admin.send(
        publish("$SYS.REQ.SERVER.PING.VARZ", json.dumps(body), "_INBOX.filter.first")
        + publish("$SYS.REQ.SERVER.PING.VARZ", "", "_INBOX.filter.last")
    )
    subjects = [next_message(admin)[0][1]]
    if is_answered:
        subjects.append(next_message(admin)[0][1])
    expected = ["_INBOX.filter.first"] if is_answered else []
    assert sorted(subjects) == sorted([*expected, "_INBOX.filter.last"])


@pytest.mark.parametrize("subject", ["SERVER.{id}.NOPE", "SERVER.PING.NOPE", "SERVER.NOPE.VARZ"])
def test_unknown_endpoint_has_no_responders(admin: RawClient, subject: str) -> None:
    name = subject.format(id=admin.info["server_id"])
    assert is_unanswered(admin, f"$SYS.REQ.{name}")


# ACCOUNT.<name>


def test_account_connz(admin: RawClient, anna: RawClient) -> None:
    answer = system_request(admin, "$SYS.REQ.ACCOUNT.A.CONNZ")
    assert_envelope(answer, admin)
    listed = [entry["cid"] for entry in answer["data"]["connections"]]
    assert anna.info["client_id"] in listed
    assert admin.info["client_id"] not in listed


def test_account_info(admin: RawClient) -> None:
    data = system_request(admin, "$SYS.REQ.ACCOUNT.A.INFO")["data"]
    assert (data["account_name"], data["complete"], data["expired"]) == ("A", True, False)
    answer = system_request(admin, "$SYS.REQ.ACCOUNT.nope.INFO")
    assert answer["data"] is None
    assert answer["error"] == {"code": 500, "description": "Account nope does not exist"}


def test_account_subsz(admin: RawClient, anna: RawClient) -> None:
    replies(anna, "SUB a.mine 1\r\n")
    data = system_request(admin, "$SYS.REQ.ACCOUNT.A.SUBSZ", '{"subscriptions":true}')["data"]
    assert "a.mine" in [entry["subject"] for entry in data["subscriptions_list"]]


def test_account_statz(admin: RawClient, anna: RawClient) -> None:
    data = system_request(admin, "$SYS.REQ.ACCOUNT.A.STATZ")["data"]
    assert data.keys() == {"server_id", "now", "account_statz"}
    (entry,) = data["account_statz"]
    assert (entry["acc"], entry["name"]) == ("A", "A")
    assert entry["conns"] >= 1


def test_account_conns(admin: RawClient, anna: RawClient) -> None:
    answer = system_request(admin, "$SYS.REQ.ACCOUNT.A.CONNS")
    assert answer["type"] == "io.nats.server.advisory.v1.account_connections"
    assert answer["acc"] == "A"
    assert answer["conns"] >= 1
    assert_envelope(answer, admin)


# From other accounts


def test_own_connections_are_shown_to_an_account(anna: RawClient, admin: RawClient) -> None:
    for subject in ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ"):
        data = system_request(anna, subject)["data"]
        listed = [entry["cid"] for entry in data["connections"]]
        assert anna.info["client_id"] in listed
        assert admin.info["client_id"] not in listed


def test_own_statistics_are_shown_to_an_account(anna: RawClient) -> None:
    data = system_request(anna, "$SYS.REQ.ACCOUNT.PING.STATZ")["data"]
    assert [entry["acc"] for entry in data["account_statz"]] == ["A"]


@pytest.mark.parametrize(
    "subject",
    [
        "SERVER.PING",
        *(f"SERVER.PING.{endpoint}" for endpoint in ENDPOINTS if endpoint != "CONNZ"),
        *(f"SERVER.{{id}}.{endpoint}" for endpoint in [*ENDPOINTS, "KICK", "RELOAD", "IDZ"]),
        "ACCOUNT.A.CONNZ",
        "ACCOUNT.B.CONNZ",
        "ACCOUNT.B.INFO",
        "ACCOUNT.B.STATZ",
        "ACCOUNT.B.SUBSZ",
    ],
)
def test_other_accounts_cannot_reach_the_servers_endpoints(anna: RawClient, subject: str) -> None:
    name = subject.format(id=anna.info["server_id"])
    assert is_unanswered(anna, f"$SYS.REQ.{name}")


# Actions


def test_kick_closes_one_connection(server: ServerProcess, admin: RawClient) -> None:
    with login(server, "bert", "HUSH") as victim, login(server, "bert", "HUSH") as other:
        subject = f"$SYS.REQ.SERVER.{admin.info['server_id']}.KICK"
        answer = system_request(admin, subject, json.dumps({"cid": victim.info["client_id"]}))
        assert "error" not in answer
        assert_envelope(answer, admin)
        victim.expect_closed()
        assert replies(other, "") == []
        body = {"state": 1, "cid": victim.info["client_id"]}
        (entry,) = wait_for(lambda: ask(admin, "CONNZ", body)["connections"], "the kicked one")
        assert entry["reason"] == "Kicked"


def test_kick_of_an_unknown_connection_is_an_error(admin: RawClient) -> None:
    error = failure(admin, "KICK", '{"cid":99999999}')
    assert error == {"code": 500, "description": "no such client or leafnode id"}


def test_lame_duck_notice_for_one_connection(server: ServerProcess, admin: RawClient) -> None:
    with login(server, "bert", "HUSH") as client:
        subject = f"$SYS.REQ.SERVER.{admin.info['server_id']}.LDM"
        system_request(admin, subject, json.dumps({"cid": client.info["client_id"]}))
        assert client.read_info()["ldm"] is True
        assert replies(client, "") == []
        with open_client(server) as fresh:
            assert "ldm" not in fresh.info


def test_reload_request(shared_kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("reload")
    with (
        running(shared_kind, directory, CONFIG) as process,
        login(process, "admin", "HUSH") as admin,
    ):
        subject = f"$SYS.REQ.SERVER.{admin.info['server_id']}.RELOAD"
        seen = len(process.lines)
        config_path(process).write_text(CONFIG.replace("user: bert", "user: berta"))
        answer = system_request(admin, subject)
        assert_envelope(answer, admin)
        assert "error" not in answer
        assert "Reloaded server configuration" in reload_outcome(process, seen)
        login(process, "berta", "HUSH").close()
        config_path(process).write_text(CONFIG.replace("crow", "raven"))
        error = system_request(admin, subject)["error"]
        assert error["code"] == 500
        assert "not supported" in error["description"]


def test_secrets_are_in_no_answer(admin: RawClient) -> None:
    for endpoint in ENDPOINTS:
        for body in ({}, {"auth": True, "subscriptions": True, "account": "A", "state": 2}):
            assert "HUSH" not in json.dumps(ask(admin, endpoint, body))
