"""Stream imports: subscriptions that reach into another account."""

from __future__ import annotations

import pytest
from helpers_ops import next_message, replies, shared_server
from helpers_sharing import Crowd, all_got, crowd, got, told

server = shared_server("""
accounts {
  E {
    users: [ {user: e, password: pw} ]
    exports: [
      {stream: "s.>"}, {stream: "t.*.*"}, {stream: only, accounts: [I]}
      {stream: "mine.*", account_token_position: 2}, {stream: lit}, {stream: "u.*.*.*"}
      {service: "svc.>"}
    ]
  }
  I {
    users: [
      {user: i, password: pw}
      {user: local, password: pw, permissions: {subscribe: {allow: ["p.s.1", "_I.>"]}}}
      {user: remote, password: pw, permissions: {subscribe: {allow: ["s.>"]}}}
      {user: denied, password: pw, permissions: {subscribe: {allow: [">"], deny: ["p.s.secret"]}}}
    ]
    imports: [
      {stream: {account: E, subject: "s.>"}, prefix: p}
      {stream: {account: E, subject: "t.*.*"}, to: "y.$2.x.$1"}
      {stream: {account: E, subject: only}}
      {stream: {account: E, subject: "mine.I"}}
      {stream: {account: E, subject: lit}, to: "other.name"}
      {service: {account: E, subject: "svc.>"}}
    ]
    exports: [ {stream: "p.>"}, {service: own} ]
  }
  J {
    users: [ {user: j, password: pw} ]
    imports: [
      {stream: {account: I, subject: "p.>"}}
      {stream: {account: E, subject: "s.only.j"}}
      {service: {account: I, subject: own}}
    ]
  }
}
""")
__all__ = ["crowd"]

SENT = ["s.1", "s.1.2", "s.2", "t.a.b", "only", "mine.I", "mine.J", "lit", "private"]


@pytest.mark.parametrize(
    ("subscription", "wanted"),
    [
        ("p.>", ["p.s.1", "p.s.1.2", "p.s.2"]),
        ("p.s.>", ["p.s.1", "p.s.1.2", "p.s.2"]),
        ("p.s.1", ["p.s.1"]),
        ("p.*.1", ["p.s.1"]),
        ("*.s.*", ["p.s.1", "p.s.2"]),
        ("*.*.1.*", ["p.s.1.2"]),
        ("p.s.*.2", ["p.s.1.2"]),
        ("p.s", []),
        ("s.>", []),
        ("t.>", []),
        ("y.b.x.a", ["y.b.x.a"]),
        ("y.*.x.a", ["y.b.x.a"]),
        ("y.b.>", ["y.b.x.a"]),
        ("y.a.x.b", []),
        ("only", ["only"]),
        ("mine.*", ["mine.I"]),
        ("other.*", ["other.name"]),
        ("lit", []),
        ("private", []),
        (">", ["mine.I", "only", "other.name", "p.s.1", "p.s.1.2", "p.s.2", "y.b.x.a"]),
    ],
)
def test_a_subscription_gets_what_it_has_in_common_with_the_imports(
    crowd: Crowd, subscription: str, wanted: list[str]
) -> None:
    importer, exporter = crowd.join("i", subscription), crowd.join("e")
    for subject in SENT:
        told(exporter, subject, "x")
    assert all_got(importer) == [(subject, b"x") for subject in wanted]


def test_reply_and_header_pass_unchanged(crowd: Crowd) -> None:
    importer, exporter = crowd.join("i", "p.s.a"), crowd.join("e")
    exporter.send("HPUB s.a _I.1 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n")
    words, header, payload = next_message(importer)
    assert words == ["HMSG", "p.s.a", "1", "_I.1", "18", "20"]
    assert (header, payload) == (b"NATS/1.0\r\nA: b\r\n\r\n", b"hi")


def test_what_the_importer_publishes_stays_with_it(crowd: Crowd) -> None:
    importer, exporter, other = crowd.join("i", "p.>"), crowd.join("e", ">"), crowd.join("i")
    told(other, "p.s.1", "local")
    assert all_got(importer) == [("p.s.1", b"local")]
    assert all_got(exporter) == []


def test_imports_are_not_passed_on(crowd: Crowd) -> None:
    third, exporter, importer = crowd.join("j", ">"), crowd.join("e"), crowd.join("i")
    told(exporter, "s.1", "x")
    assert all_got(third) == []
    told(importer, "p.s.1", "y")
    assert all_got(third) == [("p.s.1", b"y")]


def test_requests_that_came_over_a_service_are_not_passed_on(crowd: Crowd) -> None:
    exporter, third = crowd.join("e", "svc.>"), crowd.join("j", ">")
    importer = crowd.join("i")
    told(importer, "svc.1", "x")
    assert all_got(exporter) == [("svc.1", b"x")]
    assert all_got(third) == []


def test_queue_groups_of_one_name_are_one_group_in_all_accounts(crowd: Crowd) -> None:
    members = [
        crowd.join("i", "p.s.q crew"),
        crowd.join("i", "p.s.* crew"),
        crowd.join("e", "s.q crew"),
    ]
    exporter = crowd.join("e")
    for _ in range(60):
        told(exporter, "s.q", "x")
    counts = [len(all_got(member)) for member in members]
    assert sum(counts) == 60
    assert all(counts), counts


def test_unsubscribing_and_leaving_end_the_reach(crowd: Crowd) -> None:
    first, second = crowd.join("i", "p.s.q", "p.s.q"), crowd.join("i", "p.s.q")
    exporter = crowd.join("e")
    assert replies(first, "UNSUB 1\r\n") == []
    told(exporter, "s.q", "one")
    assert all_got(first) == [("p.s.q", b"one")]
    assert all_got(second) == [("p.s.q", b"one")]
    assert replies(first, "UNSUB 2\r\n") == []
    told(exporter, "s.q", "two")
    assert all_got(first) == []
    assert all_got(second) == [("p.s.q", b"two")]


def test_interest_of_importers_alone_counts_as_responders(crowd: Crowd) -> None:
    importer, exporter = crowd.join("i", "p.s.ask"), crowd.join("e", "_I.>")
    told(exporter, "s.ask", "?", "_I.1")
    assert got(importer) == ("p.s.ask", "_I.1", b"?")
    assert all_got(exporter) == []
    assert replies(importer, "UNSUB 1\r\n") == []
    exporter.send("PUB s.ask _I.1 0\r\n\r\n")
    assert next_message(exporter)[1].startswith(b"NATS/1.0 503")


def test_permissions_are_those_of_the_local_subject(crowd: Crowd) -> None:
    local, remote, exporter = crowd.join("local", "p.s.1"), crowd.join("remote"), crowd.join("e")
    told(exporter, "s.1", "x")
    assert all_got(local) == [("p.s.1", b"x")]
    for subject in ("p.s.>", "s.1"):
        refused = replies(local, f"SUB {subject} 9\r\n")
        assert refused == [
            f"-ERR 'Permissions Violation for Subscription to \"{subject}\"'".encode()
        ]
    assert replies(remote, "SUB p.s.1 2\r\n") != []
    assert replies(remote, "SUB s.1 3\r\n") == []
    told(exporter, "s.1", "y")
    assert all_got(remote) == []


def test_a_denied_local_subject_is_left_out_of_a_wider_subscription(crowd: Crowd) -> None:
    denied, exporter = crowd.join("denied", "p.>"), crowd.join("e")
    told(exporter, "s.secret", "x")
    told(exporter, "s.open", "y")
    assert all_got(denied) == [("p.s.open", b"y")]


def test_each_message_comes_once_per_subscription(crowd: Crowd) -> None:
    importer, exporter = crowd.join("i", ">", "p.s.1", "p.s.1 crew"), crowd.join("e")
    told(exporter, "s.1", "x")
    assert all_got(importer) == [("p.s.1", b"x")] * 3


def test_a_narrow_import_of_a_wide_export(crowd: Crowd) -> None:
    third, exporter = crowd.join("j", "s.>"), crowd.join("e")
    told(exporter, "s.only.j", "x")
    told(exporter, "s.only.k", "y")
    assert all_got(third) == [("s.only.j", b"x")]
