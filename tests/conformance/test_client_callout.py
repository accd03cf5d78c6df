"""`tradewind.callout`: services that decide about logins, on both servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from helpers_callout import CURVE, ISSUER, STRANGE_ISSUER, Service, callout_configuration, knock
from helpers_callout_operator import APP, APP_SIGNER, AUTH, SENTINEL, SERVICE_USER
from helpers_callout_operator import configuration as operator_configuration

import tradewind
import tradewind.sync
from harness import StartServer
from jwt_kit import login as connect_fields
from jwt_kit import user_jwt, user_key
from tradewind import nkeys
from tradewind.callout import Allow, Callout, CalloutQuestionError, LoginRequest
from tradewind.client.errors import AuthorizationError

LOGIN = {"user": "auth", "password": "pwd"}


async def test_login_is_allowed_with_permissions_or_refused(start: StartServer) -> None:
    server = start(callout_configuration(callout=f"xkey: {CURVE.public}"))
    logins: list[LoginRequest] = []

    async def decide(login: LoginRequest) -> Allow | str:
        await asyncio.sleep(0)
        logins.append(login)
        return Allow("APP", publish=["a"]) if login.password == "right" else "no"

    async with await tradewind.connect(server.url, **LOGIN) as service:
        await Callout(ISSUER.seed, xkey=CURVE.seed).serve(service, decide)
        await service.flush()
        async with (
            await tradewind.connect(server.url, user="x", password="right") as client,
            await client.subscribe("*") as heard,
        ):
            await client.publish("b", "denied")
            await client.publish("a", "allowed")
            assert (await heard.next(timeout=20)).data == b"allowed"
        with pytest.raises(AuthorizationError):
            await tradewind.connect(server.url, user="x", password="wrong")
    first = logins[0]
    assert (first.user, first.password, first.address) == ("x", "right", "127.0.0.1")
    assert first.lang.startswith("python")
    assert "right" not in repr(first)


async def test_slow_decision_keeps_nobody_else_waiting(start: StartServer) -> None:
    server = start(callout_configuration())
    may_go_on = asyncio.Event()

    async def decide(login: LoginRequest) -> Allow | str:
        if login.user == "slow":
            await may_go_on.wait()
        return Allow("APP")

    async with await tradewind.connect(server.url, **LOGIN) as service:
        await Callout(ISSUER).serve(service, decide)
        await service.flush()
        slow = asyncio.create_task(tradewind.connect(server.url, user="slow"))
        async with await tradewind.connect(server.url, user="quick"):
            assert not slow.done()
        may_go_on.set()
        await (await slow).close()


def broken(_login: LoginRequest) -> Any:
    raise RuntimeError("no database")


@pytest.mark.parametrize(
    "decide",
    [broken, lambda _: None, lambda _: True, lambda _: Allow(5), lambda _: Allow("APP", name=5)],
    ids=["raises", "nothing", "true", "no account", "no name"],
)
async def test_function_that_fails_lets_nobody_in(
    start: StartServer, decide: Callable[[LoginRequest], Any], caplog: pytest.LogCaptureFixture
) -> None:
    server = start(callout_configuration())
    with caplog.at_level(logging.ERROR):
        async with await tradewind.connect(server.url, **LOGIN) as service:
            await Callout(ISSUER).serve(service, decide)
            await service.flush()
            with pytest.raises(AuthorizationError):
                await tradewind.connect(server.url, user="x", password="secret")
    assert "secret" not in caplog.text


def test_service_of_a_program_without_a_loop(start: StartServer) -> None:
    server = start(callout_configuration(callout=f"xkey: {CURVE.public}"))

    def decide(login: LoginRequest) -> Allow | str:
        if login.user == "broken":
            raise RuntimeError("no database")
        return Allow("APP", subscribe=[]) if login.user == "ann" else "no"

    with tradewind.sync.connect(server.url, **LOGIN) as service:
        Callout(ISSUER, xkey=CURVE).serve_blocking(service, decide, queue="services")
        service.flush()
        with knock(server, user="ann") as client:
            client.expect("PONG")
            client.send("SUB a 1\r\n")
            client.expect("-ERR 'Permissions Violation for Subscription to \"a\"'")
        for name in ("bob", "broken"):
            with knock(server, user=name) as client:
                client.expect_closed("-ERR 'Authorization Violation'\r\n")


async def test_operator_mode_by_the_key_of_the_account_and_by_a_signing_key(
    start: StartServer,
) -> None:
    server = start(operator_configuration())

    def decide(login: LoginRequest) -> Allow | str:
        if login.user == "signed":
            return Allow(APP.public, signer=APP_SIGNER)
        return Allow(APP.public, signer=APP) if login.user else Allow(AUTH.public)

    def connect_as(**fields: str) -> None:
        fields = {**connect_fields(SENTINEL, None, ""), **fields}
        with knock(server, **fields) as client:
            client.expect("PONG")

    async with await tradewind.connect(
        server.url, user_jwt=user_jwt(SERVICE_USER, AUTH), nkey_seed=SERVICE_USER.seed
    ) as service:
        await Callout(AUTH).serve(service, decide)
        await service.flush()
        for fields in ({"user": "signed"}, {"user": "plain"}, {}):
            await asyncio.to_thread(connect_as, **fields)


# ---------------------------------------------------------------- questions nobody can have asked


def test_question_is_read_only_from_a_server_that_has_signed_it(start: StartServer) -> None:
    server = start(callout_configuration())
    callout = Callout(ISSUER)
    with Service(server) as service, knock(server, user="a", nkey=user_key(3).public):
        question = service.question()
        login = callout.read(question.payload)
        assert login.nkey == user_key(3).public
        assert not login.has_signed(login.nkey)
        for payload in (
            b"",
            b"eyJ",
            question.payload[:-2],
            question.response(question.user()),
            b"xkv1" + bytes(100),
        ):
            with pytest.raises(CalloutQuestionError):
                callout.read(payload)
        # One that wants encryption answers no question that was not encrypted.
        with pytest.raises(CalloutQuestionError):
            Callout(ISSUER, xkey=CURVE).read(question.payload, service.info["xkey"])


def test_keys_of_another_kind_are_refused() -> None:
    with pytest.raises(nkeys.NkeyError, match="key of an account"):
        Callout(nkeys.KeyPair(nkeys.USER, b"\1" * 32).seed)
    with pytest.raises(nkeys.NkeyError, match="must be curve"):
        Callout(ISSUER, xkey=STRANGE_ISSUER.seed)
