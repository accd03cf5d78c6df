"""Service imports: requests that go on in another account, and their answers."""

from __future__ import annotations

import json
import re

import pytest
from helpers_ops import next_message, replies, shared_server
from helpers_sharing import Crowd, all_got, crowd, got, told

from harness import RawClient

server = shared_server("""
server_name: here
accounts {
  E {
    users: [
      {user: e, password: pw}
      {user: mute, password: pw, permissions: {publish: {deny: ["_R_.>"]}}}
      {user: polite, password: pw, permissions: {publish: {deny: [">"]}, allow_responses: true}}
    ]
    mappings: { "old.*": "new.$1" }
    exports: [
      {service: "svc.>"}, {service: "many.*", response_type: stream}
      {service: "parts.*", response_type: chunked}, {service: "w.*.*"}, {service: "old.*"}
      {service: fixed}, {service: only, accounts: [I]}
      {service: "mine.*", account_token_position: 2}
    ]
  }
  F { users: [ {user: f, password: pw} ], exports: [ {service: both} ] }
  I {
    users: [
      {user: i, password: pw}
      {user: narrow, password: pw, permissions: {publish: {allow: ["my.one"]}}}
      {user: far, password: pw, permissions: {publish: {allow: ["svc.>"]}}}
    ]
    mappings: { "alias": "my.alias" }
    exports: [ {service: "my.>"}, {stream: "my.>"} ]
    imports: [
      {service: {account: E, subject: "svc.>"}, to: "my.>"}
      {service: {account: E, subject: "many.*"}}
      {service: {account: E, subject: "parts.*"}}
      {service: {account: E, subject: "w.*.*"}, to: "turn.$2.around.$1"}
      {service: {account: E, subject: "old.*"}}
      {service: {account: E, subject: fixed}, to: "any.*"}
      {service: {account: E, subject: only}, share: true}
      {service: {account: E, subject: "mine.I"}}
      {service: {account: E, subject: "svc.both"}, to: both}
      {service: {account: F, subject: both}}
    ]
  }
  J {
    users: [ {user: j, password: pw} ]
    exports: [ {service: "my.>"} ]
    imports: [ {service: {account: I, subject: "my.>"}, share: true} ]
  }
  K { users: [ {user: k, password: pw} ], imports: [ {service: {account: J, subject: "my.>"}} ] }
  LOOP {
    users: [ {user: loop, password: pw} ]
    mappings: { "p2": "p" }
    exports: [ {service: p2} ]
    imports: [ {service: {account: POOL, subject: q}, to: p} ]
  }
  POOL {
    users: [ {user: pool, password: pw} ]
    mappings: { "q": "r" }
    exports: [ {service: q} ]
    imports: [ {service: {account: LOOP, subject: p2}, to: r} ]
  }
  SELF {
    users: [ {user: self, password: pw} ]
    exports: [ {service: a} ]
    imports: [ {service: {account: SELF, subject: a}, to: b} ]
  }
}
""")
__all__ = ["crowd"]

STAND_IN = re.compile(r"_R_\.[0-9A-Za-z]{6}\.[0-9A-Za-z]{6}\Z")


def info_of(client: RawClient) -> tuple[str, dict[str, object]]:
    """The reply of the next request, and what its header says of the requestor."""
    words, header, _ = next_message(client)
    lines = [line for line in header.decode().split("\r\n") if line.startswith("Nats-Request-Info")]
    assert len(lines) == 1, header
    return words[3], json.loads(lines[0].partition(": ")[2])


@pytest.mark.parametrize(
    ("local", "remote"),
    [
        ("my.one", "svc.one"),
        ("my.one.two", "svc.one.two"),
        ("many.1", "many.1"),
        ("turn.b.around.a", "w.a.b"),
        ("any.thing", "fixed"),
        ("only", "only"),
        ("mine.I", "mine.I"),
        ("old.x", "new.x"),
        ("alias", "svc.alias"),
    ],
)
def test_a_request_and_its_answer_cross(crowd: Crowd, local: str, remote: str) -> None:
    service, client = crowd.join("e", remote), crowd.join("i", "_I.>")
    told(client, local, "question", "_I.1")
    subject, reply, payload = got(service)
    assert (subject, payload) == (remote, b"question")
    assert STAND_IN.match(reply), reply
    told(service, reply, "answer")
    assert got(client) == ("_I.1", "", b"answer")
    assert all_got(client) == []


def test_only_the_first_answer_of_a_single_one_arrives(crowd: Crowd) -> None:
    service, client = crowd.join("e", "svc.x"), crowd.join("i", "_I.>")
    told(client, "my.x", "?", "_I.1")
    reply = got(service)[1]
    for answer in ("first", "second"):
        told(service, reply, answer)
    assert all_got(client) == [("_I.1", b"first")]


@pytest.mark.parametrize("subject", ["many.1", "parts.1"])
def test_answers_of_a_series_end_with_an_empty_message(crowd: Crowd, subject: str) -> None:
    service, client = crowd.join("e", subject), crowd.join("i", "_I.>")
    told(client, subject, "?", "_I.1")
    reply = got(service)[1]
    told(service, reply, "1")
    assert replies(service, f"HPUB {reply} 18 18\r\nNATS/1.0\r\nA: b\r\n\r\n\r\n") == []
    for answer in ("3", "", "too late"):
        told(service, reply, answer)
    assert [got(client)[2] for _ in range(4)] == [b"1", b"", b"3", b""]
    assert all_got(client) == []


def test_a_message_without_reply_stays_without(crowd: Crowd) -> None:
    service, client = crowd.join("e", "svc.x"), crowd.join("i")
    told(client, "my.x", "news")
    assert got(service) == ("svc.x", "", b"news")


@pytest.mark.parametrize(("user", "subject"), [("i", "my.nobody"), ("j", "my.nobody")])
def test_nobody_there_is_told_under_the_local_subject(
    crowd: Crowd, user: str, subject: str
) -> None:
    client = crowd.join(user, "_I.>")
    client.send(f"PUB {subject} _I.1 0\r\n\r\n")
    words, header, _ = next_message(client)
    assert words[1] == "_I.1"
    assert header == f"NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n".encode()
    assert all_got(client) == []


def test_local_subscribers_get_the_request_too(crowd: Crowd) -> None:
    service, client = crowd.join("e", "svc.x"), crowd.join("i", "_I.>")
    neighbour = crowd.join("i", "my.*")
    told(client, "my.x", "?", "_I.1")
    assert got(neighbour) == ("my.x", "_I.1", b"?")
    assert got(service)[0] == "svc.x"


def test_services_of_two_accounts_on_one_subject_both_answer(crowd: Crowd) -> None:
    services = [crowd.join("e", "svc.both"), crowd.join("f", "both")]
    client = crowd.join("i", "_I.>")
    told(client, "both", "?", "_I.1")
    for number, service in enumerate(services):
        told(service, got(service)[1], f"answer {number}")
    assert all_got(client) == [("_I.1", b"answer 0"), ("_I.1", b"answer 1")]


def test_one_member_of_a_queue_group_gets_a_request(crowd: Crowd) -> None:
    members = [crowd.join("e", "svc.work crew") for _ in range(3)]
    client = crowd.join("i")
    for _ in range(60):
        told(client, "my.work", "x")
    counts = [len(all_got(member)) for member in members]
    assert sum(counts) == 60
    assert all(counts), counts


def test_a_request_crosses_several_accounts(crowd: Crowd) -> None:
    service, client = crowd.join("e", "svc.deep"), crowd.join("k", "_I.>")
    told(client, "my.deep", "?", "_I.1")
    _, reply, payload = got(service)
    assert payload == b"?"
    told(service, reply, "answer")
    assert all_got(client) == [("_I.1", b"answer")]


def test_a_reply_in_an_answer_leads_back(crowd: Crowd) -> None:
    service, client = crowd.join("e", "many.1", "more"), crowd.join("i", "_I.>")
    told(client, "many.1", "?", "_I.1")
    reply = got(service)[1]
    told(service, reply, "go on?", "more")
    subject, back, payload = got(client)
    assert (subject, payload) == ("_I.1", b"go on?")
    assert STAND_IN.match(back)
    assert back != reply
    told(client, back, "yes")
    assert got(service) == ("more", "", b"yes")


def test_publish_permissions_are_those_of_the_local_subject(crowd: Crowd) -> None:
    service = crowd.join("e", "svc.>")
    narrow, far = crowd.join("narrow"), crowd.join("far")
    told(narrow, "my.one", "x")
    assert all_got(service) == [("svc.one", b"x")]
    denied = [b"-ERR 'Permissions Violation for Publish to \"my.two\"'"]
    assert replies(narrow, "PUB my.two 0\r\n\r\n") == denied
    assert replies(far, "PUB my.two 0\r\n\r\n") == denied
    told(far, "svc.one", "y")
    assert all_got(service) == []


def test_answers_need_a_permission(crowd: Crowd) -> None:
    client = crowd.join("i", "_I.>")
    mute, polite = crowd.join("mute", "svc.mute"), crowd.join("polite", "svc.polite")
    told(client, "my.mute", "?", "_I.1")
    reply = got(mute)[1]
    denied = f"-ERR 'Permissions Violation for Publish to \"{reply}\"'".encode()
    assert replies(mute, f"PUB {reply} 1\r\nx\r\n") == [denied]
    told(client, "my.polite", "?", "_I.2")
    told(polite, got(polite)[1], "answer")
    assert all_got(client) == [("_I.2", b"answer")]


def test_clients_may_not_use_stand_ins_as_replies(crowd: Crowd) -> None:
    client = crowd.join("i")
    refused = replies(client, "PUB my.x _R_.abcdef.abcdef 0\r\n\r\n")
    assert refused == [
        b"-ERR 'Permissions Violation for Publish with Reply of \"_R_.abcdef.abcdef\"'"
    ]


def test_a_stand_in_that_nobody_waits_for_goes_nowhere(crowd: Crowd) -> None:
    service, client = crowd.join("e", "svc.x"), crowd.join("i", "_I.>")
    told(client, "my.x", "?", "_I.1")
    reply = got(service)[1]
    told(service, reply[:-1] + ("a" if reply[-1] != "a" else "b"), "forged")
    told(client, reply, "from the wrong account")
    assert all_got(client) == []


def test_members_of_the_exporter_see_answers_go_by(crowd: Crowd) -> None:
    service, client = crowd.join("e", "svc.x"), crowd.join("i", "_I.>")
    neighbour = crowd.join("e", "_R_.>")
    told(client, "my.x", "?", "_I.1")
    reply = got(service)[1]
    told(service, reply, "answer")
    assert got(neighbour) == (reply, "", b"answer")


def test_requests_in_a_circle_end(crowd: Crowd) -> None:
    client, other = crowd.join("loop", "_I.>"), crowd.join("pool", ">")
    told(client, "p", "x")
    assert all_got(other) in ([("r", b"x")], [("q", b"x"), ("r", b"x")])
    assert all_got(client) == []


def test_an_account_can_import_from_itself(crowd: Crowd) -> None:
    service, client = crowd.join("self", "a"), crowd.join("self", "_I.>")
    told(client, "b", "?", "_I.1")
    _, reply, payload = got(service)
    assert payload == b"?"
    told(service, reply, "answer")
    assert all_got(client) == [("_I.1", b"answer")]


# Who asks


def test_services_learn_the_account_of_the_requestor(crowd: Crowd) -> None:
    service, client = crowd.join("e", "svc.x"), crowd.join("i", name="secret")
    told(client, "my.x", "?", "_I.1")
    _, info = info_of(service)
    assert set(info) <= {"acc", "rtt"}
    assert info["acc"] == "I"


def test_an_import_that_shares_tells_all(crowd: Crowd) -> None:
    service = crowd.join("e", "only")
    client = crowd.join("i", name="me", lang="test", version="1.2.3")
    told(client, "only", "?", "_I.1")
    _, info = info_of(service)
    assert isinstance(info.pop("start"), str)
    assert isinstance(info.pop("rtt", 0), int)
    assert info == {
        "host": "127.0.0.1",
        "id": client.info["client_id"],
        "acc": "I",
        "user": "i",
        "name": "me",
        "lang": "test",
        "ver": "1.2.3",
        "server": "here",
        "kind": "Client",
        "client_type": "nats",
    }


def test_the_account_in_between_is_named(crowd: Crowd) -> None:
    service = crowd.join("e", "svc.x")
    told(crowd.join("j", name="me"), "my.x", "?", "_I.1")
    _, info = info_of(service)
    assert (info["acc"], info["svc"], info["user"], info["name"]) == ("J", "I", "j", "me")
    told(crowd.join("k", name="me"), "my.x", "?", "_I.1")
    _, info = info_of(service)
    assert (info["acc"], info["svc"]) == ("K", "I")
    assert not {"user", "name", "host", "id"} & set(info)


def test_2026_09_nobody_can_pretend_to_be_another_account(crowd: Crowd) -> None:
    service, client = crowd.join("e", "svc.x"), crowd.join("i")
    header = 'NATS/1.0\r\nA: b\r\nNats-Request-Info: {"acc":"FAKE"}\r\nC: d\r\n\r\n'
    client.send(f"HPUB my.x {len(header)} {len(header) + 1}\r\n{header}x\r\n")
    words, block, payload = next_message(service)
    assert words[1] == "svc.x"
    assert payload == b"x"
    assert block.startswith(b'NATS/1.0\r\nA: b\r\nC: d\r\nNats-Request-Info: {"acc":"I"')
    assert block.endswith(b"}\r\n\r\n")
    assert b"FAKE" not in block


def test_answers_carry_no_information_about_the_responder(crowd: Crowd) -> None:
    service, client = crowd.join("e", "svc.x"), crowd.join("i", "_I.>")
    told(client, "my.x", "?", "_I.1")
    reply = got(service)[1]
    assert replies(service, f"HPUB {reply} 18 19\r\nNATS/1.0\r\nA: b\r\n\r\n!\r\n") == []
    assert next_message(client)[1:] == (b"NATS/1.0\r\nA: b\r\n\r\n", b"!")


def test_a_service_without_headers_gets_the_payload(crowd: Crowd) -> None:
    service, client = crowd.join("e", "svc.x", headers=False), crowd.join("i")
    told(client, "my.x", "question")
    assert next_message(service) == (["MSG", "svc.x", "1", "8"], b"", b"question")
