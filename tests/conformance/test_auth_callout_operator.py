"""Auth callout in operator mode: an account's JWT says who is asked about its users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers_callout import CURVE, REFUSED, SUBJECT, Question, Service
from helpers_callout_operator import (
    APP,
    APP_ROLE,
    APP_SIGNER,
    AUTH,
    AUTH_SIGNER,
    CLOSED,
    MISSING,
    REVOKED_USER,
    SENTINEL,
    SENTINEL_USER,
    SERVICE_USER,
    configuration,
    start_service,
)
from helpers_operators import JwtClient, system_client

from harness import RawClient, ServerProcess, StartServer
from jwt_kit import account_jwt, now, user_jwt, user_key


@pytest.fixture(scope="module")
def server(shared_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = tmp_path_factory.mktemp("callout") / "server.conf"
    path.write_text(configuration())
    process = ServerProcess(shared_kind, ["-c", str(path), "-a", "127.0.0.1", "-p", "-1"])
    try:
        yield process.wait_ready()
    finally:
        process.stop()


@pytest.fixture(autouse=True)
def close_clients() -> Iterator[None]:
    yield
    JwtClient.close_all()


@pytest.fixture
def service(server: ServerProcess) -> Iterator[Service]:
    with start_service(server) as service:
        yield service


def enter(
    server: ServerProcess, service: Service, make: Callable[[Question], bytes], **fields: Any
) -> RawClient:
    client = JwtClient(server, SENTINEL, None, protocol=0, **fields)
    question = service.question()
    service.answer(question, make(question))
    return client


def test_user_of_a_sentinel_is_asked_about(server: ServerProcess, service: Service) -> None:
    fields = {"user": "bob", "pass": "secret"}
    client = JwtClient(server, SENTINEL, None, protocol=0, **fields)
    question = service.question()
    assert question.claims.sub == AUTH.public
    info = question.fields.client_info
    assert (info["user"], info["name_tag"], info["tags"]) == ("bob", "user", ["a:b", "c"])
    options = question.fields.connect_opts
    assert options == {**fields, "jwt": SENTINEL, "protocol": 0}
    service.answer(question, question.response(question.user(APP, account=""), AUTH))
    client.expect("PONG")


def test_jwt_that_cannot_be_read_is_not_passed_on(start: StartServer) -> None:
    """The service is told what counts: the sentinel that the file names for such logins."""
    server = start(configuration() + f'default_sentinel: "{SENTINEL}"\n')
    with start_service(server) as service:
        for token in ("", "junk", "a.b.c", "\u00ff", account_jwt(APP), SENTINEL[:-4] + "AAAA"):
            JwtClient(server, token, None, protocol=0, user="bob")
            question = service.question()
            assert question.fields.connect_opts == {
                "user": "bob", "jwt": SENTINEL, "protocol": 0
            }  # fmt: skip
            assert question.fields.client_info["name_tag"] == "user"
            service.answer(question, question.response(error="no"))
        refused = JwtClient(server, user_jwt(SENTINEL_USER, AUTH, top={"exp": now() - 5}), None)
        refused.expect(REFUSED)
        service.ping()  # nobody asked


@pytest.mark.parametrize(
    "make",
    [
        lambda q: q.response(q.user(AUTH, account=""), AUTH),
        lambda q: q.response(q.user(APP, account=""), AUTH),
        lambda q: q.response(q.user(APP, account=""), AUTH_SIGNER, issuer_account=AUTH.public),
        lambda q: q.response(q.user(APP_SIGNER, issuer_account=APP.public), AUTH),
        lambda q: q.response(q.user(AUTH_SIGNER, issuer_account=AUTH.public), AUTH),
        lambda q: q.response(q.user(APP, account="", subs=0, payload=0), AUTH),
    ],
    ids=["own", "allowed", "by a signing key", "user by a signing key", "both", "no limits"],
)
def test_answers_that_let_somebody_in(
    server: ServerProcess, service: Service, make: Callable[[Question], bytes]
) -> None:
    enter(server, service, make).expect("PONG")


@pytest.mark.parametrize(
    "make",
    [
        lambda q: q.response(q.user(CLOSED, account=""), AUTH),
        lambda q: q.response(q.user(MISSING, account=""), AUTH),
        lambda q: q.response(q.user(APP, account=""), APP),
        lambda q: q.response(q.user(APP, account=""), CLOSED),
        lambda q: q.response(q.user(APP, account=""), CLOSED, issuer_account=AUTH.public),
        lambda q: q.response(q.user(APP, account=""), AUTH_SIGNER, issuer_account=APP.public),
        lambda q: q.response(q.user(APP_SIGNER, account=""), AUTH),
        lambda q: q.response(q.user(CLOSED, issuer_account=APP.public), AUTH),
        lambda q: q.response(q.user(APP, account="", top={"exp": now() - 5}), AUTH),
        lambda q: q.response(q.user(APP_ROLE, issuer_account=APP.public, subs=1), AUTH),
        lambda q: q.response(error="no", signer=AUTH),
        lambda q: b"",
    ],
    ids=[
        "an account that is not allowed",
        "an account that is missing",
        "signed by the other account",
        "signed by a stranger",
        "signed by a stranger who says to belong to the account",
        "signed for another account",
        "a user of a signing key without its account",
        "a user of an account by the key of another",
        "a user that has expired",
        "a user of a role with limits",
        "an error",
        "nothing",
    ],
)
def test_answers_that_let_nobody_in(
    server: ServerProcess, service: Service, make: Callable[[Question], bytes]
) -> None:
    enter(server, service, make).expect_closed(f"{REFUSED}\r\n")
    service.ping()


def test_role_of_the_user_holds(server: ServerProcess, service: Service) -> None:
    client = enter(
        server,
        service,
        lambda q: q.response(
            q.user(APP_ROLE, issuer_account=APP.public, top={"name": "ann"}), AUTH
        ),
    )
    client.expect("PONG")
    client.send("SUB bob.x 1\r\nSUB ann.x 2\r\n")
    client.expect("-ERR 'Permissions Violation for Subscription to \"bob.x\"'")
    client.ping()


def test_limits_of_the_account_hold(server: ServerProcess, service: Service) -> None:
    client = enter(server, service, lambda q: q.response(q.user(APP, account=""), AUTH))
    client.expect("PONG")
    client.send("SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n")
    client.expect("-ERR 'maximum subscriptions exceeded'")


def test_members_of_the_account_cannot_ask_themselves(
    server: ServerProcess, service: Service
) -> None:
    denied = f"-ERR 'Permissions Violation for Publish to \"{SUBJECT}\"'"
    client = enter(server, service, lambda q: q.response(q.user(AUTH, account=""), AUTH))
    client.expect("PONG")
    for one in (service, client):
        one.send(f"PUB {SUBJECT} 0\r\n\r\n")
        one.expect(denied)


def test_users_of_other_accounts_are_not_asked_about(
    server: ServerProcess, service: Service
) -> None:
    JwtClient(server, user_jwt(user_key(9), APP), user_key(9)).enter()
    service.ping()


@pytest.mark.parametrize(
    ("token", "key"),
    [
        (user_jwt(SERVICE_USER, AUTH), None),
        (user_jwt(SERVICE_USER, AUTH), user_key(11)),
        (user_jwt(SERVICE_USER, CLOSED, account=AUTH.public), SERVICE_USER),
        (user_jwt(SENTINEL_USER, AUTH, bearer_token=True, top={"exp": now() - 5}), None),
        ("abc", None),
    ],
    ids=["no signature", "a wrong signature", "a wrong issuer", "expired", "no JWT"],
)
def test_logins_that_are_refused_without_a_question(
    server: ServerProcess, service: Service, token: str, key: Any
) -> None:
    JwtClient(server, token, key, protocol=0).expect_closed(f"{REFUSED}\r\n")
    service.ping()


@pytest.mark.parametrize(
    ("token", "key"),
    [
        (user_jwt(SENTINEL_USER, CLOSED, account=AUTH.public, bearer_token=True), None),
        (user_jwt(SENTINEL_USER, AUTH), None),
        (user_jwt(REVOKED_USER, AUTH, bearer_token=True), None),
    ],
    ids=["signed by a stranger", "not signed", "revoked"],
)
def test_sentinel_has_to_be_a_login_of_its_own(start: StartServer, token: str, key: Any) -> None:
    """nats-server lets these wait until the time for a login is over."""
    server = start(configuration().replace("timeout: 5", "timeout: 2"))
    with start_service(server) as service:
        JwtClient(server, token, key, protocol=0).expect_closed(f"{REFUSED}\r\n")
        service.ping()


def test_claimed_name_of_a_service_user_is_worth_nothing(
    server: ServerProcess, service: Service
) -> None:
    client = JwtClient(server, SENTINEL, None, protocol=0, user=SERVICE_USER.public)
    question = service.question()
    service.answer(question, question.response(error="no", signer=AUTH))
    client.expect_closed(f"{REFUSED}\r\n")


def test_any_account_is_allowed_by_an_asterisk_and_the_question_is_encrypted(
    start: StartServer,
) -> None:
    server = start(configuration(allowed_accounts=["*"], xkey=CURVE.public))
    with start_service(server) as service:
        client = JwtClient(server, SENTINEL, None, protocol=0)
        question = service.question()
        assert question.payload.startswith(b"xkv1")
        answer = question.response(question.user(CLOSED, account=""), AUTH)
        service.answer(question, question.boxed(answer))
        client.expect("PONG")


def test_revocation_ends_connections_that_a_service_let_in(start: StartServer) -> None:
    server = start(configuration())
    with start_service(server) as service:
        made: list[Question] = []

        def make(question: Question) -> bytes:
            made.append(question)
            return question.response(question.user(APP, account=""), AUTH)

        client = enter(server, service, make)
        client.expect("PONG")
        token = account_jwt(
            APP,
            signing_keys=[APP_SIGNER.public],
            limits={"subs": 2},
            revocations={made[0].user_key: now() + 10},
        )
        system_client(server).ask(f"$SYS.REQ.ACCOUNT.{APP.public}.CLAIMS.UPDATE", token)
        client.expect_closed("-ERR 'User Authentication Revoked'\r\n")
