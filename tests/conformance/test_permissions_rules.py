"""What users may publish and subscribe to: violations, queues, deny, filtering, answers."""

from __future__ import annotations

import pytest
from helpers_ops import (
    connect_line,
    login,
    next_message,
    open_client,
    publish,
    replies,
    shared_server,
)

from harness import RawClient, ServerProcess, wait_for

server = shared_server("""
accounts { A { users: [
  { user: free, password: pw }
  { user: both, password: pw, permissions: {
      publish: { allow: ["p.>", "q"], deny: ["p.no", "p.no.>"] }
      subscribe: { allow: ["s.>", "t.*"], deny: ["s.no", "s.x.*"] } } }
  { user: short, password: pw, permissions: { publish: one, subscribe: [two, "three.*"] } }
  { user: denied, password: pw, permissions: {
      publish: { deny: "a.*" }, subscribe: { deny: "a.*" } } }
  { user: nothing, password: pw, permissions: {
      publish: { deny: ">" }, subscribe: { deny: ">" } } }
  { user: queues, password: pw, permissions: { subscribe: {
      allow: ["q.a v1", "q.b v2.*", "q.c v3.>", "plain"], deny: ["plain bad", "q.b v2.bad"] } } }
  { user: noqueue, password: pw, permissions: { subscribe: { deny: ["x.> dq.>", "y"] } } }
  { user: answers, password: pw, permissions: { subscribe: "req.>", allow_responses: true } }
  { user: thrice, password: pw, permissions: {
      publish: "own", subscribe: "req.>", allow_responses: { max: 3, expires: "1m" } } }
  { user: brief, password: pw, permissions: {
      subscribe: "req.>", allow_responses: { max: -1, expires: "3s" } } }
  { user: endless, password: pw, permissions: {
      subscribe: "req.>", publish: { deny: "back.>" }, allow_responses: { max: -1 } } }
] } }
""")


def publish_violation(subject: str) -> bytes:
    return f"-ERR 'Permissions Violation for Publish to \"{subject}\"'".encode()


def subscribe_violation(subject: str, queue: str = "") -> bytes:
    using = f' using queue "{queue}"' if queue else ""
    return f"-ERR 'Permissions Violation for Subscription to \"{subject}\"{using}'".encode()


def assert_publishing(
    server: ServerProcess, user: str, allowed: list[str], refused: list[str]
) -> None:
    with login(server, user, "pw") as client:
        data = "".join(publish(subject, "x") for subject in [*allowed, *refused])
        assert replies(client, data) == [publish_violation(subject) for subject in refused]
        assert replies(client, "") == []


def assert_subscribing(
    server: ServerProcess, user: str, allowed: list[str], refused: list[str]
) -> None:
    """Entries are "subject" or "subject queue"."""
    with login(server, user, "pw") as client:
        lines = [f"SUB {entry} {sid}\r\n" for sid, entry in enumerate([*allowed, *refused])]
        assert replies(client, "".join(lines)) == [
            subscribe_violation(*entry.split(" ")) for entry in refused
        ]
        assert replies(client, "") == []


def test_publish_lists(server: ServerProcess) -> None:
    assert_publishing(
        server, "both", ["p.a", "p.a.b", "q"], ["p.no", "p.no.a", "p.no.a.b", "p", "q.a", "z"]
    )


def test_single_subject_and_list_are_allow_lists(server: ServerProcess) -> None:
    assert_publishing(server, "short", ["one"], ["two", "one.more", "On"])
    assert_subscribing(server, "short", ["two", "three.a"], ["one", "three", "three.a.b", "*", ">"])


def test_deny_alone_allows_the_rest(server: ServerProcess) -> None:
    assert_publishing(server, "denied", ["a", "b", "a.b.c"], ["a.b"])
    assert_subscribing(server, "denied", ["a", "b", "a.b.c"], ["a.b", "a.*"])


def test_deny_everything(server: ServerProcess) -> None:
    assert_publishing(server, "nothing", [], ["a", "a.b", "_INBOX.x"])
    assert_subscribing(server, "nothing", [], ["a", "a.b", "_INBOX.x", "*", ">"])


def test_subscribe_lists(server: ServerProcess) -> None:
    assert_subscribing(
        server,
        "both",
        ["s.a", "s.>", "s.*", "t.*", "t.a", "s.a any"],
        ["s.no", "s.x.y", "s.x.*", "t", "t.a.b", "*.*", ">", "*.a", "z", "z any", "s.no any"],
    )


def test_refused_message_is_not_delivered(server: ServerProcess) -> None:
    with login(server, "free", "pw") as listener, login(server, "both", "pw") as client:
        assert replies(listener, "SUB p.> 1\r\n") == []
        data = publish("p.no", "refused") + publish("p.yes", "passed")
        assert replies(client, data) == [publish_violation("p.no")]
        assert next_message(listener)[2] == b"passed"


def test_refused_subscription_receives_nothing(server: ServerProcess) -> None:
    with login(server, "free", "pw") as publisher, login(server, "both", "pw") as client:
        assert replies(client, "SUB s.no 1\r\n") == [subscribe_violation("s.no")]
        assert replies(publisher, publish("s.no", "x")) == []
        assert replies(client, "") == []


def test_sid_of_a_refused_subscription_is_free(server: ServerProcess) -> None:
    with login(server, "both", "pw") as client, login(server, "free", "pw") as publisher:
        assert replies(client, "SUB s.no 1\r\nSUB s.yes 1\r\n") == [subscribe_violation("s.no")]
        assert replies(publisher, publish("s.yes", "x")) == []
        assert next_message(client)[0][1:3] == ["s.yes", "1"]


@pytest.mark.parametrize("pattern", ["s.>", "s.*.y", "s.x.y"])
def test_denied_subjects_are_filtered_from_a_wider_subscription(
    server: ServerProcess, pattern: str
) -> None:
    """The deny list holds for every subscription of a connection, whatever else it has."""
    with login(server, "both", "pw") as client, login(server, "free", "pw") as publisher:
        replies(client, f"SUB {pattern} 1\r\nSUB s.yes.y 2\r\n")
        denied = publish("s.no", "1") + publish("s.x.y", "2") + publish("s.x.z", "3")
        assert replies(publisher, denied + publish("s.yes.y", "4")) == []
        assert next_message(client)[2] == b"4"


def test_filter_applies_to_a_queue_subscription(server: ServerProcess) -> None:
    with login(server, "both", "pw") as client, login(server, "free", "pw") as publisher:
        assert replies(client, "SUB s.> crew 1\r\n") == []
        assert replies(publisher, publish("s.no", "denied") + publish("s.ok", "allowed")) == []
        assert next_message(client)[2] == b"allowed"


def test_queue_entries_of_the_allow_list(server: ServerProcess) -> None:
    assert_subscribing(
        server,
        "queues",
        ["q.a v1", "q.b v2.x", "q.c v3.x.y", "plain", "plain any"],
        [
            "q.a",
            "q.a v2",
            "q.b",
            "q.b v2",
            "q.b v2.x.y",
            "q.b v2.bad",
            "q.c v3",
            "plain bad",
            "z v1",
        ],
    )


def test_queue_entries_of_the_deny_list(server: ServerProcess) -> None:
    assert_subscribing(
        server,
        "noqueue",
        ["x.a", "x.a dq", "x.a other", "z", ">", "w dq.1"],
        ["x.a dq.1", "x.a dq.1.2", "x.> dq.1", "y", "y any"],
    )


def test_violation_replaces_the_ok_of_a_verbose_connection(server: ServerProcess) -> None:
    with open_client(server) as client:
        client.send(connect_line("both", "pw", verbose=True, protocol=0) + "PING\r\n")
        client.expect("+OK", "PONG")
        data = publish("z", "x") + publish("p.a", "x") + "SUB z 1\r\nSUB s.a 2\r\nSUB z q 3\r\n"
        client.send(data + "PING\r\n")
        client.expect(
            publish_violation("z"),
            "+OK",
            subscribe_violation("z"),
            "+OK",
            subscribe_violation("z", "q"),
            "PONG",
        )


def test_violations_are_logged(server: ServerProcess) -> None:
    with login(server, "both", "pw", name="logged") as client:
        replies(client, publish("no.pub", "x") + "SUB no.sub 7\r\nSUB no.queue crew 8\r\n")
    start = r'\[ERR\] 127\.0\.0\.1:\d+ - cid:\d+ - "logged" - "A/user:both" - '
    server.wait_for_log(start + r'Publish Violation - Subject "no\.pub"')
    server.wait_for_log(start + r'Subscription Violation - Subject "no\.sub", SID 7')
    server.wait_for_log(
        start + r'Subscription Violation - Subject "no\.queue", Queue: "crew", SID 8'
    )


def test_reply_subject_needs_no_permission(server: ServerProcess) -> None:
    with login(server, "free", "pw") as listener, login(server, "denied", "pw") as client:
        assert replies(listener, "SUB asked 1\r\n") == []
        assert replies(client, publish("asked", "x", reply="a.b")) == []
        assert next_message(listener)[0] == ["MSG", "asked", "1", "a.b", "1"]


@pytest.mark.parametrize("reply", ["$JS.ACK.x", "_R_.x", "_GR_.x"])
def test_reserved_reply_subject_is_refused(server: ServerProcess, reply: str) -> None:
    with login(server, "free", "pw") as client:
        assert replies(client, "SUB asked.r 1\r\n" + publish("asked.r", "x", reply=reply)) == [
            f"-ERR 'Permissions Violation for Publish with Reply of \"{reply}\"'".encode()
        ]


def test_reserved_queue_name_is_refused(server: ServerProcess) -> None:
    with login(server, "free", "pw") as client:
        assert replies(client, "SUB any _sys_ 1\r\n") == [subscribe_violation("any", "_sys_")]


# Answers to requests


def deliver_request(server: ServerProcess, user: str, reply: str) -> tuple[RawClient, RawClient]:
    """A responder that has just been given a request with this reply subject, and the asker."""
    asker, responder = login(server, "free", "pw"), login(server, user, "pw")
    assert replies(responder, "SUB req.> 1\r\n") == []
    assert replies(asker, f"SUB {reply} 9\r\n" + publish("req.a", "?", reply)) == []
    assert next_message(responder)[0][3] == reply
    return asker, responder


@pytest.mark.parametrize(("user", "count"), [("answers", 1), ("thrice", 3)])
def test_as_many_answers_as_allowed(server: ServerProcess, user: str, count: int) -> None:
    asker, responder = deliver_request(server, user, f"back.{user}")
    data = publish(f"back.{user}", "!") * (count + 2)
    assert replies(responder, data) == [publish_violation(f"back.{user}")] * 2
    for _ in range(count):
        assert next_message(asker)[2] == b"!"
    assert replies(asker, "") == []
    asker.close()
    responder.close()


def test_answers_without_limit_win_over_deny(server: ServerProcess) -> None:
    asker, responder = deliver_request(server, "endless", "back.endless")
    assert replies(responder, publish("back.endless", "!") * 50) == []
    for _ in range(50):
        assert next_message(asker)[2] == b"!"
    asker.close()
    responder.close()


def test_only_the_reply_subject_of_a_delivered_request_is_open(server: ServerProcess) -> None:
    asker, responder = deliver_request(server, "answers", "back.mine")
    others = ["back.other", "back", "own", "req.a"]
    data = "".join(publish(subject, "x") for subject in others)
    assert replies(responder, data) == [publish_violation(subject) for subject in others]
    assert replies(responder, publish("back.mine", "still")) == []
    asker.close()
    responder.close()


def test_publish_list_stays_in_force_beside_answers(server: ServerProcess) -> None:
    assert_publishing(server, "thrice", ["own", "own"], ["other"])


def test_permission_to_answer_is_not_shared_between_connections(server: ServerProcess) -> None:
    asker, responder = deliver_request(server, "answers", "back.private")
    with login(server, "answers", "pw") as other:
        assert replies(other, publish("back.private", "x")) == [publish_violation("back.private")]
    asker.close()
    responder.close()


def test_permission_to_answer_expires(server: ServerProcess) -> None:
    asker, responder = deliver_request(server, "brief", "back.late")

    def is_late() -> bool:
        return replies(responder, publish("back.late", "!")) == [publish_violation("back.late")]

    assert replies(responder, publish("back.late", "in time")) == []
    wait_for(is_late, "the permission to answer to end")
    asker.close()
    responder.close()
