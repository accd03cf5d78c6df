"""What changes while a server runs: imports after a reload, answers that are given up, and what
monitoring shows of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_ops import fetch, publish, reload, replies, running
from helpers_sharing import Crowd, all_got, got, told

from harness import ServerProcess, wait_for

EXPORTS = """
    {stream: "s.>"}, {service: "svc.>"}
    {service: "brief", response_threshold: "3s", response_type: stream}
    {stream: mine, accounts: [I]}
"""
IMPORTS = """
    {stream: {account: E, subject: "s.>"}, prefix: p}
    {service: {account: E, subject: "svc.>"}, to: "my.>", share: true}
    {service: {account: E, subject: brief}}
    {stream: {account: E, subject: mine}}
"""


def config(exports: str = EXPORTS, imports: str = IMPORTS) -> str:
    return f"""
accounts {{
  E {{ users: [ {{user: e, password: pw}} ], exports: [{exports}] }}
  I {{ users: [ {{user: i, password: pw}} ], imports: [{imports}] }}
}}
"""


@pytest.fixture
def server(kind: str, tmp_path: Path) -> Iterator[ServerProcess]:
    with running(kind, tmp_path, config(), "-m", "-1") as process:
        yield process


@pytest.fixture
def crowd(server: ServerProcess) -> Iterator[Crowd]:
    crowd = Crowd(server)
    yield crowd
    crowd.close()


def shown(server: ServerProcess, account: str) -> dict[str, Any]:
    detail = fetch(server, f"/accountz?acc={account}").json()["account_detail"]
    assert isinstance(detail, dict)
    return detail


def test_open_connections_follow_imports_that_change(crowd: Crowd) -> None:
    client, owner = crowd.join("i", "p.>", "q.>", "_I.>"), crowd.join("e", "svc.>")
    moved = '{stream: {account: E, subject: "s.>"}, prefix: q}'
    assert "Reloaded" in reload(crowd.server, config(imports=moved))
    told(owner, "s.1", "x")
    assert all_got(client) == [("q.s.1", b"x")]
    client.send("PUB my.x _I.1 0\r\n\r\n")
    assert got(client) == ("_I.1", "", b"")  # no responders
    assert "Reloaded" in reload(crowd.server, config())
    told(owner, "s.1", "y")
    assert all_got(client) == [("p.s.1", b"y")]
    told(client, "my.x", "?", "_I.1")
    told(owner, got(owner)[1], "answer")
    assert all_got(client) == [("_I.1", b"answer")]


def test_an_import_that_is_no_longer_allowed_fails_the_reload(crowd: Crowd) -> None:
    client, owner = crowd.join("i", "p.>"), crowd.join("e")
    assert "Failed to reload" in reload(crowd.server, config(exports="{service: other}"))
    told(owner, "s.1", "x")
    assert all_got(client) == [("p.s.1", b"x")]


def test_answers_are_given_up_after_their_threshold(crowd: Crowd) -> None:
    client, service = crowd.join("i", "_I.>"), crowd.join("e", "brief")
    told(client, "brief", "?", "_I.1")
    reply = got(service)[1]
    told(service, reply, "in time")
    assert all_got(client) == [("_I.1", b"in time")]
    wait_for(lambda: not shown(crowd.server, "E").get("responses"), "the end of the threshold")
    told(service, reply, "too late")
    assert all_got(client) == []


@pytest.mark.parametrize("leaves", [True, False], ids=["disconnect", "unsubscribe"])
def test_nobody_waits_for_answers_to_somebody_who_has_gone(crowd: Crowd, leaves: bool) -> None:
    client, service = crowd.join("i", "_I.>"), crowd.join("e", "svc.>")
    told(client, "my.x", "?", "_I.1")
    reply = got(service)[1]
    assert list(shown(crowd.server, "E")["responses"]) == [reply]
    if leaves:
        crowd.leave(client)
    else:
        assert replies(client, "UNSUB 1\r\n") == []
    wait_for(lambda: not shown(crowd.server, "E").get("responses"), "the requester to be forgotten")


def test_a_request_that_nobody_gets_leaves_nothing_behind(crowd: Crowd) -> None:
    client = crowd.join("i", "_I.>")
    client.send(publish("my.x", "?", "_I.1"))
    assert got(client)[0] == "_I.1"
    assert not shown(crowd.server, "E").get("responses")


def test_monitoring_shows_exports_and_imports(crowd: Crowd) -> None:
    exports = shown(crowd.server, "E")["exports"]
    assert sorted(exports, key=lambda one: one["subject"]) == [
        {"subject": "brief", "type": "service", "response_type": "Streamed"},
        {"subject": "mine", "type": "stream", "approved_accounts": ["I"]},
        {"subject": "s.>", "type": "stream"},
        {"subject": "svc.>", "type": "service", "response_type": "Singleton"},
    ]
    common = {"account": "E", "invalid": False, "tracking": False}
    imports = [one for one in shown(crowd.server, "I")["imports"] if one["account"] == "E"]
    assert sorted(imports, key=lambda one: one["subject"]) == [
        {"subject": "brief", "to": "brief", "local_subject": "brief", "type": "service"}
        | common
        | {"share": False},
        {"subject": "mine", "local_subject": "mine", "type": "stream", "share": False} | common,
        {"subject": "s.>", "local_subject": "p.s.>", "type": "stream", "share": False} | common,
        {"subject": "svc.>", "to": "my.>", "local_subject": "my.>", "type": "service"}
        | common
        | {"share": True},
    ]


def test_monitoring_shows_answers_that_are_waited_for(crowd: Crowd) -> None:
    client, service = crowd.join("i", "_I.>"), crowd.join("e", "svc.>")
    told(client, "my.x", "?", "_I.1")
    reply = got(service)[1]
    assert shown(crowd.server, "E")["responses"] == {
        reply: {
            "subject": "_I.1",
            "account": "I",
            "to": reply,
            "local_subject": reply,
            "type": 2,
            "invalid": False,
            "share": True,
            "tracking": False,
        }
    }


def test_messages_to_importers_count_for_the_exporter(crowd: Crowd) -> None:
    def sent(account: str) -> int:
        page = fetch(crowd.server, "/accstatz?unused=1").json()["account_statz"]
        return int(next(one["sent"]["msgs"] for one in page if one["acc"] == account))

    crowd.join("i", "p.>")
    told(crowd.join("e"), "s.1", "x")
    wait_for(lambda: (sent("E"), sent("I")) == (1, 0), "the message to be counted")
