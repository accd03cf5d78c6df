"""A service decides about logins: what it is told, which answers count, and what others feel.

Every wrong answer ends in a refusal, at once. Where both servers differ the docstring says so.
"""

from __future__ import annotations

import json
import re
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers_callout import (
    CURVE,
    ISSUER,
    REFUSED,
    STRANGE_ISSUER,
    SUBJECT,
    Question,
    Service,
    callout_configuration,
    is_refused,
    knock,
)

from certificates import Authority
from harness import RawClient, ServerProcess, StartServer
from jwt_kit import account_key, now, raw_jwt, user_jwt, user_key
from tradewind import nkeys
from tradewind.jwt.claims import PermissionClaims, ResponseClaims, SubjectClaims

XKEY = f"xkey: {CURVE.public}"


@pytest.fixture(scope="module")
def server(shared_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One for all tests that change nothing in it."""
    path = tmp_path_factory.mktemp("callout") / "server.conf"
    path.write_text(callout_configuration())
    process = ServerProcess(shared_kind, ["-c", str(path), "-a", "127.0.0.1", "-p", "-1"])
    try:
        yield process.wait_ready()
    finally:
        process.stop()


@pytest.fixture
def service(server: ServerProcess) -> Iterator[Service]:
    with Service(server) as service:
        yield service


def enter(
    server: ServerProcess,
    service: Service,
    make: Callable[[Question], bytes],
    **fields: Any,
) -> RawClient:
    client = knock(server, **{"user": "bob", "pass": "x", **fields})
    question = service.question()
    service.answer(question, make(question))
    return client


# ---------------------------------------------------------------- the question


def test_question_tells_all_that_the_connection_has_shown(
    server: ServerProcess, service: Service
) -> None:
    fields = {"user": "bob", "pass": "secret", "name": "n", "lang": "py", "version": "1.2"}
    began = now()
    with knock(server, **fields) as client:
        question = service.question()
        claims = question.claims
        assert question.line.startswith(f"MSG {SUBJECT} 1 $SYS._INBOX.")
        assert (claims.aud, claims.sub) == ("nats-authorization-request", ISSUER.public)
        assert claims.iss == question.server_id == client.info["server_id"]
        assert began + 4 <= claims.exp <= now() + 6
        assert nkeys.is_public(question.user_key, nkeys.USER)
        server_id = question.fields.server_id
        assert server_id["host"] == "127.0.0.1"
        assert server_id["name"] == client.info["server_name"]
        assert server_id["version"] == client.info["version"]
        assert "xkey" not in server_id
        info = question.fields.client_info
        assert info.pop("id") > 0
        assert info == {
            "host": "127.0.0.1",
            "user": "bob",
            "name": "n",
            "kind": "Client",
            "type": "nats",
        }
        assert question.fields.connect_opts == {**fields, "protocol": 0}


@pytest.mark.parametrize(
    ("fields", "user", "shown"),
    [
        ({}, None, {}),
        ({"auth_token": "t"}, "[REDACTED]", {"auth_token": "t"}),
        ({"nkey": user_key(3).public}, user_key(3).public, {"nkey": user_key(3).public}),
        ({"user": "known", "pass": "right"}, "known", {"user": "known", "pass": "right"}),
    ],
)
def test_every_login_but_that_of_the_service_is_asked_about(
    server: ServerProcess,
    service: Service,
    fields: dict[str, str],
    user: str | None,
    shown: dict[str, str],
) -> None:
    with knock(server, **fields):
        question = service.question()
        assert question.fields.client_info.get("user") == user
        assert question.fields.connect_opts == {**shown, "protocol": 0}


def test_jwt_is_not_passed_on_where_no_operator_counts(
    server: ServerProcess, service: Service
) -> None:
    """It says nothing here, and the service may believe it: whether it can be read or not."""
    for token in (user_jwt(user_key(3), account_key(3)), "junk", "a.b.c", "\u00ff\u0000"):
        with knock(server, jwt=token, sig="s"):
            question = service.question()
            assert question.fields.connect_opts == {"sig": "s", "protocol": 0}
            assert "name_tag" not in question.fields.client_info


def test_users_of_the_service_enter_without_being_asked_about(server: ServerProcess) -> None:
    with knock(server, **{"user": "auth", "pass": "pwd"}) as client:
        client.expect("PONG")


def test_name_of_the_service_with_a_wrong_password_is_refused(
    server: ServerProcess, service: Service
) -> None:
    with knock(server, **{"user": "auth", "pass": "wrong"}) as client:
        client.expect(REFUSED)
    # Nobody was asked: the next question is about somebody else.
    with knock(server, user="next"):
        assert service.question().fields.client_info["user"] == "next"


# ---------------------------------------------------------------- yes


def test_user_enters_the_account_that_the_answer_names(
    server: ServerProcess, service: Service
) -> None:
    with (
        enter(server, service, lambda q: q.response(q.user(account="OTHER"))) as other,
        enter(server, service, lambda q: q.response(q.user(account="APP"))) as app,
        enter(server, service, lambda q: q.response(q.user(account="OTHER"))) as second,
    ):
        for client in (other, app, second):
            client.expect("PONG")
            client.send("SUB a 1\r\n")
            client.ping()
        second.send("PUB a 2\r\nhi\r\n")
        other.expect("MSG a 1 2", "hi")
        second.expect("MSG a 1 2", "hi")
        app.ping()


def test_permissions_of_the_answer_hold(server: ServerProcess, service: Service) -> None:
    rules = {"pub": SubjectClaims(allow=["ok"]), "sub": SubjectClaims(deny=["no"])}
    with enter(server, service, lambda q: q.response(q.user(**rules))) as client:
        client.expect("PONG")
        client.send("SUB no 1\r\n")
        client.expect("-ERR 'Permissions Violation for Subscription to \"no\"'")
        client.send("PUB other 0\r\n\r\nPUB ok 0\r\n\r\n")
        client.expect("-ERR 'Permissions Violation for Publish to \"other\"'")
        client.ping()


def test_connection_ends_when_the_user_of_the_answer_expires(
    server: ServerProcess, service: Service
) -> None:
    with enter(server, service, lambda q: q.response(q.user(top={"exp": now() + 4}))) as client:
        client.expect("PONG", "-ERR 'User Authentication Expired'")


def test_name_of_the_answer_is_what_monitoring_shows(start: StartServer) -> None:
    server = start(callout_configuration())
    with Service(server) as service:
        named = enter(server, service, lambda q: q.response(q.user(top={"name": "Robert"})))
        plain = enter(server, service, lambda q: q.response(q.user()), user="claimed")
        token = enter(
            server,
            service,
            lambda q: q.response(q.user()),
            **{"user": None, "pass": None, "auth_token": "t"},
        )
        for client, name in ((named, "Robert"), (plain, "claimed"), (token, "[REDACTED]")):
            client.expect("PONG")
            client.send("SUB in 1\r\nPUB $SYS.REQ.USER.INFO in 0\r\n\r\n")
            data = json.loads(client.read_message()[2])["data"]
            assert (data["user"], data["account"]) == (name, "APP")
            client.close()


def test_limits_of_the_answer_are_those_of_the_account(
    server: ServerProcess, service: Service
) -> None:
    with enter(server, service, lambda q: q.response(q.user(subs=0, payload=1))) as client:
        client.expect("PONG")
        client.send("SUB a 1\r\nPUB a 3\r\nabc\r\n")
        client.expect("MSG a 1 3", "abc")


def test_members_of_the_account_of_the_service_cannot_ask_themselves(
    server: ServerProcess, service: Service
) -> None:
    denied = f"-ERR 'Permissions Violation for Publish to \"{SUBJECT}\"'"
    service.send(f"PUB {SUBJECT} 0\r\n\r\n")
    service.expect(denied)
    with enter(server, service, lambda q: q.response(q.user(account="AUTH"))) as client:
        client.expect("PONG")
        client.send(f"PUB {SUBJECT} 0\r\n\r\n")
        client.expect(denied)


def test_service_needs_no_more_than_to_subscribe_and_to_answer(start: StartServer) -> None:
    rules = '{subscribe: "$SYS.REQ.USER.AUTH", publish: {deny: ">"}, allow_responses: true}'
    narrow = "{user: auth, password: pwd, permissions: " + rules + " }"
    server = start(callout_configuration().replace("{user: auth, password: pwd}", narrow))
    with (
        Service(server) as service,
        enter(server, service, lambda q: q.response(q.user())) as client,
    ):
        client.expect("PONG")


# ---------------------------------------------------------------- no


def unsigned(question: Question) -> bytes:
    answer = question.response(question.user()).decode()
    return (answer[: answer.rindex(".") + 1] + "A" * 86).encode()


def other_algorithm(question: Question) -> bytes:
    document = {
        "sub": question.user_key,
        "aud": question.server_id,
        "iss": ISSUER.public,
        "nats": {"type": "authorization_response", "version": 2, "jwt": question.user()},
    }
    return raw_jwt(document, ISSUER, {"typ": "JWT", "alg": "none"}).encode()


def typed(value: Any) -> Callable[[Question], bytes]:
    def make(question: Question) -> bytes:
        fields = {"type": "authorization_response", "version": 2, "jwt": value}
        document = {"sub": question.user_key, "aud": question.server_id, "iss": ISSUER.public}
        return raw_jwt({**document, "nats": fields}, ISSUER).encode()

    return make


STRANGER = user_key(7).public
NOT_FOR = "Auth callout violation: auth callout response is not for"
WRONG: dict[str, tuple[Callable[[Question], bytes], str]] = {
    "an error": (
        lambda q: q.response(error="go away"),
        "Auth callout service returned an error: go away",
    ),
    "nothing": (lambda q: b"", 'Auth callout violation: "no reason supplied" on account "AUTH"'),
    "no JWT": (lambda q: b"garbage", "Expected 3 chunks"),
    "an error and a user": (
        lambda q: q.response(q.user(), error="no"),
        "Authorization response had validation errors: Only Error or Jwt can be set",
    ),
    "neither error nor user": (
        lambda q: q.response(),
        "Authorization response had validation errors: Error or Jwt is required",
    ),
    "signed by a stranger": (
        lambda q: q.response(q.user(), STRANGE_ISSUER),
        "Auth callout signing key is unknown",
    ),
    "an error of a stranger": (
        lambda q: q.response(error="no", signer=STRANGE_ISSUER),
        "Auth callout signing key is unknown",
    ),
    "a user signed by a stranger": (
        lambda q: q.response(q.user(STRANGE_ISSUER)),
        'Wrong issuer for auth callout response on account "AUTH"',
    ),
    "expired": (
        lambda q: q.response(q.user(), top={"exp": now() - 5}),
        "Authorization response had validation errors: claim is expired",
    ),
    "a user that has expired": (
        lambda q: q.response(q.user(top={"exp": now() - 5})),
        "Error validating user JWT: claim is expired",
    ),
    "a user of tomorrow": (
        lambda q: q.response(q.user(top={"nbf": now() + 500})),
        "Error validating user JWT: claim is not yet valid",
    ),
    "for another server": (
        lambda q: q.response(q.user(), top={"aud": nkeys.create_server_id()}),
        f"{NOT_FOR} server",
    ),
    "for no server": (
        lambda q: q.response(q.user(), top={"aud": "x"}),
        "Authorization response had validation errors: Audience must be a server public key",
    ),
    "for another user": (
        lambda q: q.response(q.user(), top={"sub": STRANGER}),
        f"{NOT_FOR} expected user",
    ),
    "another user": (
        lambda q: q.response(q.user(top={"sub": STRANGER})),
        "Expected authorized user of",
    ),
    "an unknown account": (
        lambda q: q.response(q.user(account="NOPE")),
        'No valid account "NOPE" for auth callout response on account "AUTH": account missing',
    ),
    "no account": (
        lambda q: q.response(q.user(account="")),
        'No valid account "" for auth callout response on account "AUTH": account missing',
    ),
    "another account by its issuer": (
        lambda q: q.response(q.user(issuer_account=ISSUER.public)),
        'Error non operator mode account "AUTH": attempted to use issuer_account',
    ),
    "an unknown kind of connection": (
        lambda q: q.response(q.user(allowed_connection_types=["FOO"])),
        'Authorized user on account "AUTH" using invalid connection type',
    ),
    "behind a proxy": (
        lambda q: q.response(q.user(proxy_required=True)),
        "Proxy connection required",
    ),
    "a user that is no JWT": (lambda q: q.response("abc"), "Expected 3 chunks"),
    "a user that is an answer": (
        lambda q: q.response(q.response(q.user()).decode()),
        "Not user claim",
    ),
    "the question": (lambda q: q.payload, ""),
    "no signature": (unsigned, "Claim failed V2 signature verification"),
    "no algorithm": (other_algorithm, 'Unexpected "none" algorithm'),
    "a number for a user": (typed(5), ""),
    "a list for a user": (typed([]), ""),
    "megabytes": (lambda q: b"eyJ" + b"a" * 1_000_000, ""),
    "deep": (lambda q: raw_jwt(b"[" * 100_000, ISSUER).encode(), ""),
}


@pytest.mark.parametrize("case", WRONG)
def test_answer_that_lets_nobody_in(server: ServerProcess, service: Service, case: str) -> None:
    make, log = WRONG[case]
    seen = len(server.lines)
    with enter(server, service, make) as client:
        client.expect_closed(f"{REFUSED}\r\n")
    if log:
        server.wait_for_log(re.escape(f"[WRN] {log}"), since=seen)
    # Nobody else felt it.
    service.ping()


def test_answer_to_another_question_is_worth_nothing(
    server: ServerProcess, service: Service
) -> None:
    """Also one that was good when it was given: each question has a user key of its own."""
    with enter(server, service, lambda q: q.response(q.user())) as first:
        first.expect("PONG")
    good: list[bytes] = []
    with knock(server, user="a"):
        question = service.question()
        good.append(question.response(question.user()))
    with enter(server, service, lambda q: good[0]) as client:
        client.expect_closed(f"{REFUSED}\r\n")


def test_first_answer_counts(server: ServerProcess, service: Service) -> None:
    with Service(server) as other, knock(server, user="a") as client:
        question, same = service.question(), other.question()
        assert question.payload == same.payload
        service.answer(question, question.response(error="no"))
        service.ping()
        other.answer(same, same.response(same.user()))
        client.expect_closed(f"{REFUSED}\r\n")


def test_answer_of_another_account_is_not_heard(server: ServerProcess, service: Service) -> None:
    with enter(server, service, lambda q: q.response(q.user(account="OTHER"))) as stranger:
        stranger.expect("PONG")
        with knock(server, user="a") as client:
            question = service.question()
            forged = question.response(error="no")
            stranger.send(f"PUB {question.reply} {len(forged)}\r\n".encode() + forged + b"\r\n")
            stranger.ping()
            service.answer(question, question.response(question.user()))
            client.expect("PONG")


def test_answer_after_the_client_has_gone_is_ignored(
    server: ServerProcess, service: Service
) -> None:
    client = knock(server, user="a")
    question = service.question()
    client.close()
    service.answer(question, question.response(question.user()))
    service.ping()
    with enter(server, service, lambda q: q.response(q.user())) as next_one:
        next_one.expect("PONG")


def test_slow_service_keeps_only_its_client_waiting(start: StartServer) -> None:
    timeout = 3
    server = start(callout_configuration(timeout=timeout))
    began = time.monotonic()
    with Service(server) as service, knock(server, user="slow") as slow:
        question = service.question()
        with enter(server, service, lambda q: q.response(q.user())) as quick:
            quick.expect("PONG")
        assert not is_refused(slow)  # it still waits
        slow.expect_closed(f"{REFUSED}\r\n")
        assert time.monotonic() - began > timeout * 0.4
        # Too late now, and harmless.
        service.answer(question, question.response(question.user()))
        service.ping()


def test_nobody_enters_without_a_service(start: StartServer) -> None:
    """nats-server waits until the time for a login is over; we refuse at once, because nobody can
    have heard the question.
    """
    server = start(callout_configuration(timeout=2))
    with knock(server, user="a") as client:
        client.expect_closed(f"{REFUSED}\r\n")
    with knock(server, **{"user": "known", "pass": "right"}) as client:
        client.expect_closed(f"{REFUSED}\r\n")


# ---------------------------------------------------------------- encrypted


def test_question_and_answer_are_encrypted_for_a_service_with_a_curve_key(
    start: StartServer,
) -> None:
    server = start(callout_configuration(callout=XKEY))
    with Service(server) as service:
        assert nkeys.is_public(service.info["xkey"], nkeys.CURVE)
        with knock(server, **{"user": "bob", "pass": "topsecret"}) as client:
            question = service.question()
            assert question.payload.startswith(b"xkv1")
            assert b"topsecret" not in question.payload
            assert question.server_xkey == service.info["xkey"]
            assert question.fields.server_id["xkey"] == service.info["xkey"]
            service.answer(question, question.boxed(question.response(question.user())))
            client.expect("PONG")
        # An answer need not be encrypted, and a box proves by itself who made it.
        with enter(server, service, lambda q: q.response(q.user())) as client:
            client.expect("PONG")
        made = STRANGE_ISSUER
        with enter(server, service, lambda q: q.boxed(q.response(q.user(), made))) as client:
            client.expect("PONG")


@pytest.mark.parametrize(
    "make",
    [
        lambda q: q.boxed(q.response(q.user()), nkeys.CurveKeyPair(b"\x44" * 32)),
        lambda q: q.boxed(q.response(q.user()))[:-1],
        lambda q: b"xkv1",
        lambda q: b"xkv2" + q.boxed(q.response(q.user()))[4:],
        lambda q: b"garbage",
        lambda q: q.boxed(b""),
        lambda q: q.boxed(b"garbage"),
        lambda q: q.response(q.user(), STRANGE_ISSUER),
        lambda q: q.boxed(q.response(q.user(STRANGE_ISSUER))),
    ],
    ids=[
        "another key",
        "cut off",
        "only a mark",
        "another mark",
        "no box",
        "nothing in it",
        "garbage in it",
        "a stranger without a box",
        "the user of a stranger",
    ],
)
def test_box_that_lets_nobody_in(start: StartServer, make: Callable[[Question], bytes]) -> None:
    server = start(callout_configuration(callout=XKEY))
    with Service(server) as service, enter(server, service, make) as client:
        client.expect_closed(f"{REFUSED}\r\n")


# ---------------------------------------------------------------- who is asked about


def test_allowed_accounts_leave_the_users_of_others_to_the_file(start: StartServer) -> None:
    server = start(callout_configuration(callout="allowed_accounts: [OTHER]"))
    with Service(server) as service:
        with knock(server, **{"user": "known", "pass": "right"}) as client:
            client.expect("PONG")
        for fields in ({"user": "known", "pass": "wrong"}, {"user": "unknown"}, {}):
            with enter(server, service, lambda q: q.response(error="no"), **fields) as client:
                client.expect_closed(f"{REFUSED}\r\n")


def test_callout_cannot_be_changed_by_a_reload_and_the_service_goes_on(
    start: StartServer, tmp_path: Any
) -> None:
    server = start(callout_configuration())
    path = tmp_path / "server0.conf"
    path.write_text(callout_configuration().replace(ISSUER.public, STRANGE_ISSUER.public))
    server.signal(signal.SIGHUP)
    server.wait_for_log("config reload not supported for AuthCallout")
    path.write_text(
        callout_configuration().replace("OTHER {}", "OTHER { nkey: " + ISSUER.public + " }")
    )
    server.signal(signal.SIGHUP)
    server.wait_for_log("Reloaded server configuration")
    with (
        Service(server) as service,
        enter(server, service, lambda q: q.response(q.user())) as client,
    ):
        client.expect("PONG")


def test_reload_of_the_users_leaves_those_alone_who_were_asked_about(
    tmp_path: Any,
) -> None:
    """nats-server closes their connections; here they stay: nothing about them has changed."""
    path = tmp_path / "server.conf"
    path.write_text(callout_configuration())
    server = ServerProcess("tradewind", ["-c", str(path), "-a", "127.0.0.1", "-p", "-1"])
    try:
        server.wait_ready()
        with (
            Service(server) as service,
            enter(server, service, lambda q: q.response(q.user())) as client,
        ):
            client.expect("PONG")
            path.write_text(callout_configuration().replace("password: right", "password: new"))
            server.signal(signal.SIGHUP)
            server.wait_for_log("Reloaded server configuration")
            client.ping()
            service.ping()
    finally:
        server.stop()


@pytest.mark.parametrize(
    "fields", [{"allowed_connection_types": ["WEBSOCKET"]}, {"src": ["10.0.0.0/8"]}]
)
def test_restrictions_of_the_answer_hold_here_which_nats_server_does_not_look_at(
    tmp_path: Any, fields: dict[str, list[str]]
) -> None:
    """From where and by which kind of connection the user of an answer may come."""
    path = tmp_path / "server.conf"
    path.write_text(callout_configuration())
    server = ServerProcess("tradewind", ["-c", str(path), "-a", "127.0.0.1", "-p", "-1"])
    try:
        server.wait_ready()
        with (
            Service(server) as service,
            enter(server, service, lambda q: q.response(q.user(**fields))) as client,
        ):
            client.expect_closed(f"{REFUSED}\r\n")
    finally:
        server.stop()


def test_refusal_is_told_in_the_account_of_the_service(
    server: ServerProcess, service: Service
) -> None:
    with Service(server) as watcher:
        watcher.send("UNSUB 1\r\nSUB $SYS.ACCOUNT.CLIENT.AUTH.ERR 2\r\n")
        watcher.ping()
        with enter(server, service, lambda q: q.response(error="go away")) as client:
            client.expect_closed(f"{REFUSED}\r\n")
        event = json.loads(watcher.read_message()[2])
        assert event["type"] == "io.nats.server.advisory.v1.client_disconnect"
        assert event["reason"] == "Auth callout service returned an error: go away"
        assert event["client"]["user"] == "bob"


def test_responses_of_the_answer_are_allowed(server: ServerProcess, service: Service) -> None:
    fields = {
        "resp": ResponseClaims(max=1, ttl=0),
        "sub": PermissionClaims().sub,
        "pub": SubjectClaims(allow=["nothing"]),
    }
    with (
        enter(server, service, lambda q: q.response(q.user(**fields))) as answerer,
        enter(server, service, lambda q: q.response(q.user())) as asker,
    ):
        answerer.expect("PONG")
        asker.expect("PONG")
        answerer.send("SUB q 1\r\n")
        answerer.ping()
        asker.send("SUB in 1\r\nPUB q in 0\r\n\r\n")
        answerer.expect("MSG q 1 in 0", "")
        answerer.send("PUB in 2\r\nok\r\n")
        asker.expect("MSG in 1 2", "ok")


def test_certificate_of_the_client_is_told(start: StartServer, tmp_path: Any) -> None:
    """nats-server tells its authority behind it."""
    authority = Authority(tmp_path)
    own, client = authority.server(), authority.client("ann", subject="CN=ann")
    tls = (
        f'tls {{ cert_file: "{own.cert_file}", key_file: "{own.key_file}",'
        f' ca_file: "{authority.ca_file}", verify: true }}\n'
    )
    server = start(callout_configuration(more=tls))

    def connected(**fields: Any) -> RawClient:
        made = RawClient(server.port)
        context = client.client_context(authority)
        made.socket = context.wrap_socket(made.socket, server_hostname="localhost")
        made.send(f"CONNECT {json.dumps({'verbose': False, **fields})}\r\nPING\r\n")
        return made

    with connected(user="auth", **{"pass": "pwd"}) as service:
        service.expect("PONG")
        service.send(f"SUB {SUBJECT} 1\r\n")
        service.ping()
        with connected(user="ann") as ann:
            question = Question(*service.read_message())
            told = question.fields.client_tls
            assert told is not None
            assert told["version"] == "1.3"
            assert told["cipher"].startswith("TLS_")
            assert ssl.PEM_cert_to_DER_cert(told["verified_chains"][0][0]) == client.der
            answer = question.response(question.user())
            service.send(f"PUB {question.reply} {len(answer)}\r\n".encode() + answer + b"\r\n")
            ann.expect("PONG")
