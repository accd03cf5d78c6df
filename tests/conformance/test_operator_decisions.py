"""Who enters in operator mode, and with which rights: both servers, the same JWTs, the same answer.

Accounts and users are made at random from few ingredients, so that every check of the gate meets
every other; the random numbers are the same in every run. Each login is followed by a few
subscriptions and publishes, so that permissions and limits are compared too.
"""

from __future__ import annotations

import base64
import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from helpers_ops import fetch

from harness import RawClient, ServerProcess, wait_for
from jwt_kit import (
    OPERATOR,
    OPERATOR_SIGNER,
    STRANGER,
    account_jwt,
    account_key,
    login,
    memory_configuration,
    now,
    operator_jwt,
    user_jwt,
    user_key,
)
from tradewind import nkeys
from tradewind.jwt.claims import (
    PermissionClaims,
    ResponseClaims,
    ScopeTemplate,
    SubjectClaims,
    TimeRange,
    UserScope,
)

NO_SUBSCRIPTIONS = "-ERR 'maximum subscriptions exceeded'"
ACCOUNTS = 30
LOGINS = 260
SEEDS = 24 if os.environ.get("TRADEWIND_THOROUGH") == "1" else 3
PROBES = (
    "SUB a 1\r\nSUB b.c q 2\r\nSUB user.x 3\r\nSUB t.1 4\r\nSUB > 5\r\n"
    "PUB a 0\r\n\r\nPUB b.c 2\r\nxx\r\nPUB user.x 0\r\n\r\nPUB t.2 0\r\n\r\nPING\r\n"
)
SUBJECTS = ["a", "b.c", "b.*", "user.x", ">", "t.1", "b.c q", "no.where"]
TEMPLATES = [
    "{{name()}}.x",
    "t.{{tag(n)}}",
    "t.{{account-tag(n)}}",
    "{{subject()}}",
    "{{account-name()}}.>",
    "{{Account-Subject()}}.{{NAME()}}",
    "{{tag(missing)}}",
    "b.{{tag(n)}}.{{account-tag(n)}}",
    "{{tag(bad)}}",
    "x{{name()}}y",
]


class Maker:
    """Random claims out of few ingredients; half of them are as they should be."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.accounts: list[dict[str, Any]] = []
        # Public keys of accounts that let in one connection at a time.
        self.single: set[str] = set()

    def rarely(self, share: float = 0.15) -> bool:
        return self.chance.random() < share

    def subjects(self, *extra: str) -> list[str]:
        words = [*SUBJECTS, *extra]
        return self.chance.sample(words, self.chance.randint(1, 3))

    def rules(self, *extra: str, with_queue: bool = True) -> SubjectClaims:
        def listed() -> list[str] | None:
            if self.rarely(0.5):
                return None
            subjects = [s for s in self.subjects(*extra) if with_queue or " " not in s]
            return subjects or None

        return SubjectClaims(allow=listed(), deny=listed() if self.rarely(0.3) else None)

    def responses(self) -> ResponseClaims | None:
        return ResponseClaims(max=self.chance.choice([0, 1, -1]), ttl=0) if self.rarely() else None

    def window(self) -> list[TimeRange] | None:
        if not self.rarely(0.25):
            return None
        # Far from its ends, whenever the test runs.
        here = datetime.now(UTC)

        def at(hours: float) -> str:
            return (here + timedelta(hours=hours)).strftime("%H:%M:%S")

        is_open = self.rarely(0.5)
        return [
            TimeRange(start=at(-3), end=at(3)) if is_open else TimeRange(start=at(3), end=at(9))
        ]

    def restrictions(self, *extra: str) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "pub": self.rules(*extra, with_queue=False),
            "sub": self.rules(*extra),
            "resp": self.responses(),
            "times": self.window(),
            "times_location": "UTC",
        }
        if self.rarely():
            fields["src"] = self.chance.choice(
                [["127.0.0.0/8"], ["10.0.0.0/8"], ["::1/128", "127.0.0.1/32"], ["127.0.0.1"]]
            )
        if self.rarely():
            # A limit of 0 closes the connection, after a while: that has a test of its own.
            fields["subs"] = self.chance.choice([1, 2, 100])
        if self.rarely():
            fields["payload"] = self.chance.choice([0, 1, 2, 100])
        if self.rarely():
            fields["bearer_token"] = True
        if self.rarely():
            fields["allowed_connection_types"] = self.chance.choice(
                [
                    ["STANDARD"],
                    ["WEBSOCKET"],
                    ["websocket", "standard"],
                    ["FOO"],
                    ["FOO", "STANDARD"],
                ]
            )
        return fields

    def times(self) -> dict[str, int]:
        if self.rarely(0.1):
            return {"exp": now() - 10}
        if self.rarely(0.1):
            return {"nbf": now() + 1000}
        return {"exp": now() + 1000} if self.rarely() else {}

    def account(self, number: int) -> tuple[str, str]:
        key = account_key(number)
        plain, scoped = account_key(1000 + number), account_key(2000 + number)
        template = ScopeTemplate(**self.restrictions(*TEMPLATES))
        limits: dict[str, Any] = {}
        if self.rarely(0.1):
            limits["conn"] = self.chance.choice([0, 1])
            if limits["conn"] == 1:
                self.single.add(key.public)
        if self.rarely(0.2):
            limits["disallow_bearer"] = True
        if self.rarely(0.1):
            limits["subs"] = 3
        if self.rarely(0.1):
            limits["payload"] = 1
        fields: dict[str, Any] = {
            "signing_keys": [plain.public, UserScope(key=scoped.public, template=template)],
            "tags": ["n:1", "n:2"] if self.rarely(0.5) else ["other:x"],
        }
        if self.rarely(0.3):
            fields["default_permissions"] = PermissionClaims(
                pub=self.rules(with_queue=False), sub=self.rules(), resp=self.responses()
            )
        if self.rarely(0.3):
            who = self.chance.choice(["*", *(user_key(one).public for one in range(6))])
            fields["revocations"] = {who: now() - 50}
        signer = self.chance.choice([OPERATOR, OPERATOR, OPERATOR_SIGNER, OPERATOR_SIGNER])
        if self.rarely(0.1):
            signer = self.chance.choice([STRANGER, key])
        token = account_jwt(key, signer, limits=limits, top=self.times(), **fields)
        self.accounts.append({"key": key, "plain": plain, "scoped": scoped})
        return key.public, token

    def user(self) -> tuple[str, nkeys.KeyPair]:
        account = self.chance.choice(self.accounts)
        key = user_key(self.chance.randrange(6))
        which = self.chance.choice(["key", "plain", "scoped"])
        signer = account[which]
        issuer_account = "" if which == "key" else account["key"].public
        if self.rarely(0.06):
            signer = self.chance.choice(self.accounts)["plain"]
        if self.rarely(0.06):
            issuer_account = self.chance.choice(
                ["", account_key(1).public, account_key(999).public]
            )
        is_scoped = which == "scoped" and not self.rarely(0.1)
        fields = {} if is_scoped else self.restrictions()
        return (
            user_jwt(
                key,
                signer,
                account=issuer_account,
                issued_at=now() - self.chance.choice([0, 0, 100]),
                is_scoped=is_scoped,
                top={**self.times(), "name": self.chance.choice(["user", "Q", "a.b", "x y", ""])},
                tags=self.chance.choice([None, ["n:1"], ["n:1", "n:2"], ["bad:.."], ["N:3"]]),
                **fields,
            ),
            key,
        )

    def attempt(self) -> tuple[str, str, nkeys.KeyPair]:
        """A JWT, how it is signed, and by whom."""
        token, key = self.user()
        if self.rarely(0.05):
            token = self.chance.choice(
                ["", "x.y.z", token[:-6] + "AAAAAA", token + "=", token.replace("e", "f", 1)]
            )
        style = "good"
        if self.rarely(0.1):
            style = self.chance.choice(["missing", "junk", "standard", "other", "wrong nonce"])
        return token, style, key


def signed(style: str, key: nkeys.KeyPair, nonce: str) -> str:
    message = nonce.encode() if style != "wrong nonce" else b"another"
    signature = (key if style != "other" else user_key(77)).sign(message)
    if style == "standard":
        return base64.b64encode(signature).decode()
    if style == "junk":
        return "!!!"
    return base64.urlsafe_b64encode(signature).rstrip(b"=").decode() if style != "missing" else ""


def outcome(server: ServerProcess, token: str, style: str, key: nkeys.KeyPair) -> list[str]:
    """What a client sees: the account it is in, then every error of the probes."""
    with RawClient(server.port) as client:
        fields = login(token, None, "", protocol=1, echo=False, name="probe")
        fields["sig"] = signed(style, key, client.info["nonce"])
        client.send(f"CONNECT {json.dumps(fields)}\r\nPING\r\n")
        seen: list[str] = []
        pongs = 0
        while pongs < 2:
            line = client.read_line().decode()
            if not line or line.startswith("-ERR"):
                seen.append(line or "closed")
                if not line or "Violation'" in line or ("exceeded" in line and not pongs):
                    # What follows depends on when the connection is really closed.
                    return seen
            elif line.startswith("INFO "):
                seen.append(json.loads(line[5:])["remote_account"])
                client.send(PROBES)
            elif line == "PONG":
                pongs += 1
        return seen


def wait_until_empty(server: ServerProcess, account: str) -> None:
    """Wait until the server has forgotten the last connection of an account."""

    def connections() -> int:
        page = fetch(server, f"/accountz?acc={account}")
        if page.status == 400:  # an account that nobody has entered so far
            return 0
        return int(page.json()["account_detail"]["client_connections"])

    wait_for(lambda: connections() == 0, f"the end of the connections of {account}")


def everything(server: ServerProcess, token: str, key: nkeys.KeyPair) -> str:
    """All that a client gets until it is closed."""
    with RawClient(server.port) as client:
        fields = login(token, key, client.info["nonce"])
        client.send(f"CONNECT {json.dumps(fields)}\r\nPING\r\n")
        return client.read_to_end().decode()


@contextmanager
def both(configuration: str, folder: Path) -> Iterator[list[ServerProcess]]:
    path = folder / "server.conf"
    path.write_text(configuration)
    servers = [
        ServerProcess(kind, ["-c", str(path), "-a", "127.0.0.1", "-p", "-1", "-D"])
        for kind in ("official", "tradewind")
    ]
    try:
        yield [server.wait_ready() for server in servers]
    finally:
        for server in servers:
            server.stop()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_both_servers_let_the_same_users_do_the_same(seed: int, tmp_path: Path) -> None:
    maker = Maker(seed)
    operator: dict[str, Any] = {"signing_keys": [OPERATOR_SIGNER.public]}
    if seed % 3 == 0:
        operator["strict_signing_key_usage"] = True
    accounts = dict(maker.account(number) for number in range(1, ACCOUNTS + 1))
    configuration = memory_configuration(
        accounts,
        operator_jwt(**operator),
        system_signer=OPERATOR_SIGNER,
        more='http: "127.0.0.1:-1"\n',
    )
    entered = refused = 0
    with both(configuration, tmp_path) as (official, ours):
        for number in range(LOGINS):
            token, style, key = maker.attempt()
            wanted = outcome(official, token, style, key)
            got = outcome(ours, token, style, key)
            if (account := account_of(token)) in maker.single:
                for server in (official, ours):
                    wait_until_empty(server, account)
            if got == [NO_SUBSCRIPTIONS]:
                # The official server lets such a client go on for some milliseconds.
                assert NO_SUBSCRIPTIONS in everything(official, token, key)
                continue
            assert got == wanted, (
                f"login {number} ({style}):\nofficial {wanted}\nours     {got}\n{shown(token)}\n"
                f"{shown(accounts.get(account_of(token), ''))}\n{ours.lines[-6:]}"
            )
            entered += not wanted[0].startswith("-ERR")
            refused += wanted[0].startswith("-ERR 'Authorization")
    # The ingredients are mixed so that neither way is rare.
    assert entered > LOGINS // 20
    assert refused > LOGINS // 10


def shown(token: str) -> str:
    chunks = token.split(".")
    if len(chunks) != 3:
        return token
    return base64.urlsafe_b64decode(chunks[1] + "=" * (-len(chunks[1]) % 4)).decode(
        "utf-8", "replace"
    )


def account_of(token: str) -> str:
    try:
        claims = json.loads(shown(token))
    except ValueError:
        return ""
    return str(claims.get("nats", {}).get("issuer_account") or claims.get("iss", ""))
