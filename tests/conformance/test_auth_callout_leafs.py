"""Logins of leaf nodes that a service decides about: they are asked about as those of clients."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_callout import (
    REFUSED,
    STRANGE_ISSUER,
    SUBJECT,
    Question,
    Service,
    callout_configuration,
    is_refused,
)
from helpers_callout_operator import APP, AUTH, SENTINEL, configuration, start_service

from jwt_kit import now
from leaf_kit import Node, RawLeaf, hub_config
from tradewind.jwt.claims import SubjectClaims

TIMEOUT = 3


@pytest.fixture(scope="module")
def hub(shared_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One for all tests that change nothing in it."""
    # The port has a time of its own for logins, in which nats-server must have its answer.
    port = hub_config("authorization { timeout: 10 }")
    config = callout_configuration(port, timeout=TIMEOUT)
    node = Node(shared_kind, tmp_path_factory.mktemp("hub"), "hub", config)
    yield node
    node.stop()


@pytest.fixture
def service(hub: Node) -> Iterator[Service]:
    with Service(hub.process) as service:
        yield service


class Dialled:
    """Raw leaf nodes, closed at the end."""

    def __init__(self) -> None:
        self.peers: list[RawLeaf] = []

    def knock(self, hub: Node, **fields: Any) -> RawLeaf:
        """One that has sent CONNECT, and waits for what comes of it."""
        peer = RawLeaf(hub.leaf_port)
        self.peers.append(peer)
        connect = {"version": "2.15.1", "name": "leaf", "headers": True, "protocol": 3, **fields}
        peer.send(f"CONNECT {json.dumps(connect)}\r\n")
        return peer

    def enter(
        self, hub: Node, service: Service, make: Callable[[Question], bytes], **fields: Any
    ) -> RawLeaf:
        peer = self.knock(hub, **{"user": "bob", "pass": "x", **fields})
        question = service.question()
        service.answer(question, make(question))
        return peer


@pytest.fixture
def dialled() -> Iterator[Dialled]:
    dialled = Dialled()
    yield dialled
    for peer in dialled.peers:
        peer.close()


def refused(peer: RawLeaf) -> None:
    assert peer.read_until(b"-ERR")[-1] == REFUSED.encode()


def test_question_about_a_leaf_node(hub: Node, service: Service, dialled: Dialled) -> None:
    shown = {"user": "bob", "pass": "secret"}
    peer = dialled.knock(hub, **shown, jwt="junk")
    question = service.question()
    info = question.fields.client_info
    assert info.pop("id") > 0
    assert info == {"host": "127.0.0.1", "user": "bob", "name": "leaf", "kind": "Leafnode"}
    assert question.fields.connect_opts == {
        **shown, "name": "leaf", "version": "2.15.1", "protocol": 3
    }  # fmt: skip
    service.answer(question, question.response(question.user()))
    assert peer.read_info()["remote_account"] == "APP"
    hub.wait_linked()
    assert [one["account"] for one in hub.leafs()] == ["APP"]


def test_login_that_is_right_by_the_file_is_asked_about_all_the_same(
    hub: Node, service: Service, dialled: Dialled
) -> None:
    for fields in ({"user": "known", "pass": "right"}, {}):
        peer = dialled.knock(hub, **fields)
        question = service.question()
        service.answer(question, question.response(error="no"))
        refused(peer)


def test_permissions_of_the_answer_hold(hub: Node, service: Service, dialled: Dialled) -> None:
    rules = {"pub": SubjectClaims(allow=["up.>"]), "sub": SubjectClaims(deny=["no"])}
    peer = dialled.enter(hub, service, lambda q: q.response(q.user(**rules)))
    info = peer.read_info()
    assert (info["export"], info["import"]) == ({"allow": ["up.>"]}, {"deny": ["no"]})
    peer.send("LMSG else 1\r\nx\r\n")
    assert b'Permissions Violation for Publish to "else"' in peer.read_to_end()


@pytest.mark.parametrize(
    "make",
    [
        lambda _question: b"junk",
        lambda _question: b"",
        lambda q: q.response(error="not you"),
        lambda q: q.response(q.user(STRANGE_ISSUER)),
        lambda q: q.response(q.user(), STRANGE_ISSUER),
        lambda q: q.response(q.user(account="NOWHERE")),
        lambda q: q.response(q.user(top={"exp": now() - 5})),
    ],
    ids=["junk", "empty", "error", "user by another", "by another", "no account", "expired"],
)
def test_answer_that_lets_nobody_in(
    hub: Node, service: Service, dialled: Dialled, make: Callable[[Question], bytes]
) -> None:
    refused(dialled.enter(hub, service, make))


def test_slow_service_keeps_only_its_leaf_node_waiting(
    hub: Node, service: Service, dialled: Dialled
) -> None:
    began = time.monotonic()
    slow = dialled.knock(hub, user="slow")
    question = service.question()
    quick = dialled.enter(hub, service, lambda q: q.response(q.user()))
    assert quick.read_info()["remote_account"] == "APP"
    assert not is_refused(slow)  # it still waits
    refused(slow)
    assert time.monotonic() - began > TIMEOUT / 3
    service.answer(question, question.response(question.user()))
    assert slow.read_to_end() == b""
    quick.quiet_ping()


def test_nobody_enters_without_a_service(hub: Node, dialled: Dialled) -> None:
    """nats-server waits until the time for a login is over; we refuse at once."""
    refused(dialled.knock(hub, user="bob"))
    refused(dialled.knock(hub, **{"user": "known", "pass": "right"}))


def test_connection_ends_when_the_user_of_the_answer_expires(
    hub: Node, service: Service, dialled: Dialled
) -> None:
    peer = dialled.enter(hub, service, lambda q: q.response(q.user(top={"exp": now() + 4})))
    peer.read_info()
    assert peer.read_until(b"-ERR")[-1] == b"-ERR 'User Authentication Expired'"


def test_service_may_be_a_leaf_node_itself(hub: Node, dialled: Dialled) -> None:
    """A server at the other end passes the question on; by its password alone it enters."""
    peer = dialled.knock(hub, **{"user": "auth", "pass": "pwd"}, name="service")
    assert peer.read_info()["remote_account"] == "AUTH"
    peer.send(f"LS+ {SUBJECT}\r\n")
    peer.quiet_ping()
    asking = dialled.knock(hub, user="bob")
    line = peer.read_until(b"LMSG ")[-1].decode()
    payload = peer.read_exact(int(line.split()[-1]) + 2)[:-2]
    words = line.split()
    question = Question(f"MSG {SUBJECT} 1 {words[2]} {words[-1]}", b"", payload)
    answer = question.response(question.user())
    peer.send(f"LMSG {question.reply} {len(answer)}\r\n".encode() + answer + b"\r\n")
    assert asking.read_info()["remote_account"] == "APP"
    refused(dialled.knock(hub, **{"user": "auth", "pass": "wrong"}))


def test_leaf_node_in_the_account_of_the_service_cannot_ask(
    hub: Node, service: Service, dialled: Dialled
) -> None:
    """nats-server delivers such a question; here whoever sends it is disconnected."""
    peer = dialled.enter(hub, service, lambda q: q.response(q.user(account="AUTH")))
    info = peer.read_info()
    peer.send(f"LMSG {SUBJECT} x 1\r\nx\r\n")
    if hub.process.kind == "tradewind":
        assert info["export"] == {"deny": [SUBJECT]}
        assert f'Publish to "{SUBJECT}"'.encode() in peer.read_to_end()
        service.ping()


@pytest.mark.parametrize("users", ["user: lf, password: pw", "users: [{user: lf, password: pw}]"])
def test_users_of_their_own_are_not_asked_about(
    kind: str, tmp_path: Path, dialled: Dialled, users: str
) -> None:
    inside = f"authorization {{ {users} }}"
    hub = Node(kind, tmp_path, "hub", callout_configuration(hub_config(inside)))
    try:
        with Service(hub.process) as service:
            peer = dialled.knock(hub, **{"user": "lf", "pass": "pw"})
            assert peer.read_info()["remote_account"] == "$G"
            refused(dialled.knock(hub, **{"user": "lf", "pass": "no"}))
            refused(dialled.knock(hub, user="bob"))
            service.ping()  # nobody asked
    finally:
        hub.stop()


def test_reload_leaves_those_alone_who_were_asked_about(
    kind: str, tmp_path: Path, dialled: Dialled
) -> None:
    hub = Node(kind, tmp_path, "hub", callout_configuration(hub_config()))
    try:
        with Service(hub.process) as service:
            peer = dialled.enter(hub, service, lambda q: q.response(q.user()))
            peer.read_info()
            text = hub.config_path.read_text().replace("password: right", "password: new")
            hub.config_path.write_text(text)
            hub.process.signal(signal.SIGHUP)
            hub.process.wait_for_log("Reloaded server configuration")
            peer.quiet_ping()
            if kind == "tradewind":
                service.ping()  # nobody asked again; nats-server has closed its connection
    finally:
        hub.stop()


def test_sentinel_of_an_operator(kind: str, tmp_path: Path, dialled: Dialled) -> None:
    hub = Node(kind, tmp_path, "hub", configuration() + hub_config())
    try:
        with start_service(hub.process) as service:
            peer = dialled.knock(hub, jwt=SENTINEL, user="bob")
            question = service.question()
            assert question.fields.connect_opts["jwt"] == SENTINEL
            assert question.fields.client_info["kind"] == "Leafnode"
            service.answer(question, question.response(question.user(APP, account=""), AUTH))
            assert peer.read_info()["remote_account"] == APP.public
            refused(dialled.knock(hub, jwt="junk", user="bob"))
            refused(dialled.knock(hub, user="bob"))
            service.ping()
    finally:
        hub.stop()


def test_whoever_has_changed_must_come_again_after_a_reload(
    kind: str, tmp_path: Path, dialled: Dialled
) -> None:
    """Without a service. nats-server leaves leaf nodes connected whose users are gone."""
    before = 'accounts { A { users: [{user: l, password: pw, permissions: {publish: ["x"]}}] } }'
    hub = Node(kind, tmp_path, "hub", hub_config("", before))
    login = {"user": "l", "pass": "pw"}
    changes = [
        (before.replace("}] } }", "}, {user: new, password: pw}] } }"), False),
        (before.replace('"x"', '"y"'), True),
        (before.replace("password: pw", "password: other"), True),
        (before.replace("user: l", "user: m"), True),
        (re.sub(r"\bA \{", "B {", before), True),
    ]
    try:
        for after, is_gone in changes:
            peer = dialled.knock(hub, **login)
            assert peer.read_info()["remote_account"] == "A"
            peer.quiet_ping()
            reload(hub, before, after)
            if is_gone and kind == "tradewind":
                refused(peer)
            else:
                peer.quiet_ping()
            peer.close()
            reload(hub, after, before)
    finally:
        hub.stop()


def reload(hub: Node, before: str, after: str) -> None:
    since = len(hub.process.lines)
    text = hub.config_path.read_text()
    assert before in text
    hub.config_path.write_text(text.replace(before, after))
    hub.process.signal(signal.SIGHUP)
    hub.process.wait_for_log("Reloaded server configuration", since=since)
