"""Accounts are separate subject spaces: nothing that is published in one is seen in another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers_ops import (
    is_unanswered,
    login,
    next_message,
    publish,
    replies,
    request,
    running,
    shared_server,
    system_request,
)

from harness import RawClient, ServerProcess

server = shared_server("""
accounts {
  A { users: [ {user: a1, password: pw}, {user: a2, password: pw} ] }
  B { users: [ {user: b1, password: pw} ] }
  EMPTY {}
}
""")


class Crowd:
    """Connections of one test by user name, all closed together."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._open: list[RawClient] = []

    def join(self, user: str, **options: object) -> RawClient:
        client = login(self._server, user, "pw", **options)
        self._open.append(client)
        return client

    def close(self) -> None:
        for client in self._open:
            client.close()


@pytest.fixture
def crowd(server: ServerProcess) -> Iterator[Crowd]:
    crowd = Crowd(server)
    yield crowd
    crowd.close()


@pytest.mark.parametrize(("user", "account"), [("a1", "A"), ("a2", "A"), ("b1", "B")])
def test_second_info_names_the_account(crowd: Crowd, user: str, account: str) -> None:
    client = crowd.join(user)
    assert client.info["remote_account"] == account
    assert client.info["connect_info"] is True
    assert "acc_is_sys" not in client.info


@pytest.mark.parametrize("pattern", ["news", "*", ">"])
def test_message_reaches_its_own_account_only(crowd: Crowd, pattern: str) -> None:
    publisher, same, other = crowd.join("a1"), crowd.join("a2"), crowd.join("b1")
    assert replies(same, f"SUB {pattern} 1\r\n") == []
    assert replies(other, f"SUB {pattern} 1\r\n") == []
    assert replies(publisher, publish("news", "for A")) == []
    words, _, payload = next_message(same)
    assert (words, payload) == (["MSG", "news", "1", "5"], b"for A")
    assert replies(other, "") == []


def test_queue_group_of_the_same_name_is_another_group(crowd: Crowd) -> None:
    publisher, in_a, in_b = crowd.join("a1"), crowd.join("a2"), crowd.join("b1")
    assert replies(in_a, "SUB work crew 1\r\n") == []
    assert replies(in_b, "SUB work crew 1\r\n") == []
    assert replies(publisher, publish("work", "x") * 20) == []
    for _ in range(20):
        assert next_message(in_a)[2] == b"x"
    assert replies(in_b, "") == []


def test_queue_group_spans_users_of_an_account(crowd: Crowd) -> None:
    first, second = crowd.join("a1"), crowd.join("a2")
    assert replies(first, "SUB shared crew 1\r\n") == []
    assert replies(second, "SUB shared crew 1\r\n") == []
    publisher = crowd.join("a1")
    assert replies(publisher, publish("shared", "x") * 64) == []
    counts = [len(replies(client, "")) // 2 for client in (first, second)]
    assert sum(counts) == 64
    assert min(counts) > 0


def test_request_is_answered_within_the_account(crowd: Crowd) -> None:
    asker, responder = crowd.join("a1", no_responders=True), crowd.join("a2")
    assert replies(responder, "SUB ask 1\r\n") == []
    asker.send("SUB inbox 9\r\n" + publish("ask", "?", "inbox"))
    words, _, _ = next_message(responder)
    assert words[3] == "inbox"
    responder.send(publish("inbox", "!"))
    assert next_message(asker)[2] == b"!"


def test_request_to_another_accounts_responder_has_no_responders(crowd: Crowd) -> None:
    asker, responder = crowd.join("b1", no_responders=True), crowd.join("a2")
    assert replies(responder, "SUB ask.b 1\r\n") == []
    assert is_unanswered(asker, "ask.b")
    assert replies(responder, "") == []


def test_no_responders_status_names_the_subject(crowd: Crowd) -> None:
    header, payload = request(crowd.join("a1", no_responders=True), "nobody.here")
    assert header == b"NATS/1.0 503\r\nNats-Subject: nobody.here\r\n\r\n"
    assert payload == b""


def test_inbox_of_another_account_cannot_be_answered(crowd: Crowd) -> None:
    victim, stranger = crowd.join("a1"), crowd.join("b1")
    assert replies(victim, "SUB _INBOX.known 1\r\n") == []
    assert replies(stranger, publish("_INBOX.known", "forged")) == []
    assert replies(victim, "") == []


def test_user_info_names_user_and_account(crowd: Crowd) -> None:
    for user, account in (("a1", "A"), ("a2", "A"), ("b1", "B")):
        data = system_request(crowd.join(user), "$SYS.REQ.USER.INFO")["data"]
        assert data == {"user": user, "account": account, "account_name": account}


def test_second_connect_moves_the_connection_to_the_other_account(crowd: Crowd) -> None:
    mover, listener = crowd.join("a1"), crowd.join("b1")
    assert replies(listener, "SUB moved 1\r\n") == []
    mover.send('CONNECT {"verbose":false,"user":"b1","pass":"pw"}\r\n')
    assert replies(mover, publish("moved", "now in B")) == []
    assert next_message(listener)[2] == b"now in B"


def test_users_of_authorization_are_in_the_global_account(
    shared_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = "authorization { users: [ {user: g, password: g} ] }\naccounts { A { users: [] } }\n"
    directory = tmp_path_factory.mktemp("global")
    with running(shared_kind, directory, config) as process, login(process, "g", "g") as client:
        assert client.info["remote_account"] == "$G"
