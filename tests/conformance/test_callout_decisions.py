"""Random answers of a callout service, given to both servers: who enters, and with which rights.

The ingredients are those that an answer can be right or wrong by, each of them right most of the
time. `src` and `allowed_connection_types` are not among them: nats-server does not look at them,
and ours does.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers_callout import (
    CURVE,
    ISSUER,
    STRANGE_ISSUER,
    Question,
    Service,
    callout_configuration,
    knock,
)
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
    configuration,
    start_service,
)
from helpers_decisions import PROBES, Maker, both

from harness import RawClient, ServerProcess
from jwt_kit import now, user_key
from tradewind import nkeys
from tradewind.jwt import claims as kinds
from tradewind.jwt.codec import encode

LOGINS = 1500 if os.environ.get("TRADEWIND_THOROUGH") == "1" else 100
# The answer of a server to a login, or to what a user may not do.
RAW_ANSWERS = [b"", b"{}", b"eyJ", b"x.y.z", b"eyJ.eyJ.eyJ", b"\x00" * 50]


class Answers(Maker):
    """One random answer for each seed, the same for every question that it is made for."""

    def __init__(self, seed: int, *, has_operator: bool, has_curve_key: bool) -> None:
        super().__init__(seed)
        self._has_operator = has_operator
        self._has_curve_key = has_curve_key

    def make(self, question: Question) -> bytes:
        if self.rarely(0.05):
            return self.chance.choice(RAW_ANSWERS)
        response = kinds.AuthorizationResponse(sub=question.user_key, aud=question.server_id)
        if self.rarely(0.08):
            response.nats.error = self.chance.choice(["no", "x" * 300])
        if not response.nats.error or self.rarely(0.2):
            response.nats.jwt = self._user(question)
        if self.rarely(0.04):
            response.sub = self.chance.choice([user_key(5).public, question.server_id])
        if self.rarely(0.04):
            response.aud = self.chance.choice(["", "APP", user_key(5).public])
        self._set(response, self.times())
        signer = AUTH if self._has_operator else ISSUER
        if self._has_operator and self.rarely(0.3):
            signer = AUTH_SIGNER
            if not self.rarely(0.3):
                response.nats.issuer_account = AUTH.public
        if self._has_operator and self.rarely(0.06):
            response.nats.issuer_account = self.chance.choice([AUTH.public, APP.public])
        if self.rarely(0.06):
            signer = self.chance.choice([STRANGE_ISSUER, APP])
        answer = encode(response, signer, now()).encode()
        if self._has_curve_key and self.rarely(0.5):
            return question.boxed(answer)
        return answer

    def _user(self, question: Question) -> str:
        if self.rarely(0.04):
            return self.chance.choice(["junk", "a.b.c", SENTINEL])
        made = kinds.UserClaims(sub=question.user_key)
        made.name = self.chance.choice(["", "bob", "a b", "user"])
        fields = self.restrictions()
        for name in ("src", "allowed_connection_types"):
            fields.pop(name, None)
        for name, value in fields.items():
            setattr(made.nats, name, value)
        signer: nkeys.KeyPair
        if self._has_operator:
            signer = self.chance.choice([APP, APP, APP_SIGNER, APP_SIGNER, AUTH, CLOSED, MISSING])
            if signer is APP_SIGNER:
                made.nats.issuer_account = APP.public
            if self.rarely(0.1):
                signer, made.nats.issuer_account = APP_ROLE, APP.public
        else:
            signer = ISSUER
            made.aud = self.chance.choice(["APP", "APP", "OTHER", "AUTH", "$G", "NOWHERE", ""])
            if self.rarely(0.05):
                made.nats.issuer_account = APP.public
        if self.rarely(0.06):
            signer = self.chance.choice([STRANGE_ISSUER, AUTH_SIGNER])
        if self.rarely(0.04):
            made.sub = self.chance.choice([user_key(3).public, REVOKED_USER.public])
        self._set(made, self.times())
        return encode(made, signer, now() - self.chance.choice([0, 0, 100]))

    @staticmethod
    def _set(claims: Any, fields: dict[str, int]) -> None:
        for name, value in fields.items():
            setattr(claims, name, value)


def outcome(client: RawClient) -> list[str]:
    """The account that it is in, and every error of the probes."""
    seen: list[str] = []
    pongs = 0
    while pongs < 2:
        line = client.read_line().decode()
        if not line or line.startswith("-ERR"):
            seen.append(line or "closed")
            if not line or "Violation'" in line or "exceeded" in line:
                return seen
        elif line.startswith("INFO "):
            seen.append(json.loads(line[5:])["remote_account"])
            client.send(PROBES)
        elif line == "PONG":
            pongs += 1
    return seen


def ask(
    server: ServerProcess, service: Service, answers: Answers, fields: dict[str, Any]
) -> list[str]:
    with knock(server, protocol=1, **fields) as client:
        question = service.question()
        service.answer(question, answers.make(question))
        return outcome(client)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["file", "file, encrypted", "operator"])
def test_both_servers_make_the_same_of_an_answer(mode: str, tmp_path: Path) -> None:
    has_operator = mode == "operator"
    has_curve_key = mode == "file, encrypted"
    text = configuration() if has_operator else callout_configuration(
        callout=f"xkey: {CURVE.public}" if has_curve_key else ""
    )  # fmt: skip
    fields = {"user": "bob", "echo": False, **({"jwt": SENTINEL} if has_operator else {})}
    entered = refused = 0
    with both(text, tmp_path) as servers, ExitStack() as stack:
        services = [start_service(one) if has_operator else Service(one) for one in servers]
        for service in services:
            stack.callback(service.close)
        for number in range(LOGINS):
            wanted, got = (
                ask(
                    server,
                    service,
                    Answers(number, has_operator=has_operator, has_curve_key=has_curve_key),
                    fields,
                )
                for server, service in zip(servers, services, strict=True)
            )
            assert got == wanted, (
                f"answer {number}:\nofficial {wanted}\nours     {got}\n{servers[1].lines[-6:]}"
            )
            entered += not wanted[0].startswith("-ERR")
            refused += wanted[0].startswith("-ERR")
    # The ingredients are mixed so that neither way is rare.
    assert entered > LOGINS // 10
    assert refused > LOGINS // 10
