"""What a connection may do before and while it logs in: timeouts, order, repeats, no_auth_user."""

from __future__ import annotations

import re
import time

import pytest
from helpers_ops import (
    VIOLATION,
    connect_line,
    fetch,
    login,
    next_message,
    open_client,
    publish,
    refusal,
    replies,
    shared_server,
)

from harness import ServerProcess, StartServer

ACCOUNTS = """
accounts {
  A { users: [ {user: anna, password: a}, {user: narrow, password: n,
        permissions: {publish: "n.>", subscribe: "n.>"}} ] }
  B { users: [ {user: bert, password: b} ] }
}
"""
strict = shared_server(ACCOUNTS)
lenient = shared_server(ACCOUNTS + "no_auth_user: bert\n")
# Time enough to log in on a busy machine.
patient = shared_server("authorization { token: t, timeout: 2 }")
hasty = shared_server('authorization { token: t, timeout: 0.3 }\nhttp: "127.0.0.1:-1"\n')


@pytest.mark.parametrize(
    "operation",
    ["PING\r\n", "PONG\r\n", "SUB a 1\r\n", "PUB a 1\r\nx\r\n", "UNSUB 1\r\n"],
    ids=["ping", "pong", "sub", "pub", "unsub"],
)
def test_operation_before_connect_is_refused(strict: ServerProcess, operation: str) -> None:
    assert refusal(strict, operation) == VIOLATION


def test_silence_is_ended_by_the_authentication_timeout(hasty: ServerProcess) -> None:
    began = time.monotonic()
    assert refusal(hasty, "") == b"-ERR 'Authentication Timeout'\r\n"
    assert time.monotonic() - began > 0.25
    assert fetch(hasty, "/varz").json()["auth_timeout"] == pytest.approx(0.3)


def test_half_a_connect_line_is_ended_by_the_authentication_timeout(hasty: ServerProcess) -> None:
    assert refusal(hasty, 'CONNECT {"auth_token":') == b"-ERR 'Authentication Timeout'\r\n"


def test_login_in_time_outlives_the_authentication_timeout(patient: ServerProcess) -> None:
    """A silent second connection marks the time at which the first would have been closed."""
    with login(patient, auth_token="t") as client:
        assert refusal(patient, "") == b"-ERR 'Authentication Timeout'\r\n"
        assert replies(client, "") == []


def test_silent_stranger_and_the_authentication_timeout(kind: str, start: StartServer) -> None:
    """nats-server closes it although `no_auth_user` would let it in; Tradewind does not."""
    users = "accounts { A { users: [ {user: anna, password: p} ] } }\nno_auth_user: anna\n"
    server = start(users + "authorization { timeout: 0.2 }\n")
    if kind == "official":
        assert refusal(server, "") == b"-ERR 'Authentication Timeout'\r\n"
        return
    with open_client(server) as client:
        client.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.read_line()
        assert replies(client, "") == []


def test_open_server_has_no_authentication_timeout(start: StartServer) -> None:
    server = start("authorization { timeout: 0.2 }")
    with open_client(server) as idle, open_client(server) as client:
        client.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.expect("a line")  # beyond a PING nothing comes
        assert replies(idle, "") == []


@pytest.mark.parametrize("fields", [{"account": "A"}, {"account": "B"}, {"new_account": True}])
def test_connect_that_names_an_account_is_refused(
    strict: ServerProcess, fields: dict[str, object]
) -> None:
    assert refusal(strict, connect_line("anna", "a", **fields)) == VIOLATION


def test_verbose_login_is_confirmed(strict: ServerProcess) -> None:
    with open_client(strict) as client:
        client.send(connect_line("anna", "a", verbose=True) + "PING\r\n")
        client.expect("+OK", "PONG")


def test_verbose_login_that_fails_is_only_refused(strict: ServerProcess) -> None:
    assert refusal(strict, connect_line("anna", "bad", verbose=True)) == VIOLATION


def test_what_follows_a_refused_login_is_not_processed(strict: ServerProcess) -> None:
    with login(strict, "anna", "a") as listener:
        assert replies(listener, "SUB after 1\r\n") == []
        data = connect_line("anna", "bad") + publish("after", "x") + "PING\r\n"
        assert refusal(strict, data) == VIOLATION
        assert replies(listener, "") == []


def test_second_connect_changes_the_user_and_its_permissions(strict: ServerProcess) -> None:
    with login(strict, "anna", "a") as client:
        assert replies(client, publish("free", "x")) == []
        answers = replies(client, connect_line("narrow", "n") + publish("free", "x"))
        assert answers == [b"-ERR 'Permissions Violation for Publish to \"free\"'"]


def test_second_connect_drops_subscriptions(strict: ServerProcess) -> None:
    with login(strict, "anna", "a") as client:
        data = "SUB n.a 1\r\n" + connect_line("narrow", "n") + publish("n.a", "x")
        assert replies(client, data) == []
        assert replies(client, "SUB n.a 1\r\n") == []
        client.send(publish("n.a", "y"))
        words, _, payload = next_message(client)
        assert (words[:3], payload) == (["MSG", "n.a", "1"], b"y")


def test_second_connect_with_wrong_credentials_closes(strict: ServerProcess) -> None:
    with login(strict, "anna", "a") as client:
        client.send(connect_line("narrow", "bad") + "PING\r\n")
        client.expect_closed(VIOLATION)


def test_no_auth_user_hides_that_credentials_are_needed(lenient: ServerProcess) -> None:
    with open_client(lenient) as client:
        assert "auth_required" not in client.info


def test_login_without_credentials_becomes_the_no_auth_user(lenient: ServerProcess) -> None:
    with login(lenient) as client:
        assert client.info["remote_account"] == "B"


def test_no_auth_user_may_skip_connect(lenient: ServerProcess) -> None:
    with open_client(lenient) as silent, login(lenient, "bert", "b") as bert:
        silent.send("SUB hello 1\r\nPING\r\n")
        silent.expect("+OK", "PONG")
        bert.send(publish("hello", "B only"))
        words, _, payload = next_message(silent)
        assert (words[1], payload) == ("hello", b"B only")


def test_credentials_win_over_the_no_auth_user(lenient: ServerProcess) -> None:
    with login(lenient, "anna", "a") as client:
        assert client.info["remote_account"] == "A"


@pytest.mark.parametrize(
    "line",
    [
        connect_line("anna", "bad"),
        connect_line("bert"),
        connect_line("nobody", "b"),
        connect_line(auth_token="b"),
    ],
    ids=["wrong-password", "no-password", "unknown-user", "token"],
)
def test_wrong_credentials_do_not_become_the_no_auth_user(
    lenient: ServerProcess, line: str
) -> None:
    assert refusal(lenient, line) == VIOLATION


def test_no_auth_user_that_does_not_exist_stops_the_start(start: StartServer) -> None:
    server = start(ACCOUNTS + "no_auth_user: ghost\n", ready=False)
    assert server.wait() == 1
    assert re.search("no_auth_user.*ghost", server.log)


def test_second_info_names_the_account_once(strict: ServerProcess) -> None:
    with login(strict, "anna", "a") as client:
        assert client.info["connect_info"] is True
        assert client.info["remote_account"] == "A"
        assert "acc_is_sys" not in client.info
        client.send("PING\r\n")
        assert client.read_line() == b"PONG"
        client.send("PING\r\n")
        assert client.read_line() == b"PONG"
