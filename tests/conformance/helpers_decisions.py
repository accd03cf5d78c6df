"""Random users of an operator, and what both servers let them do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness import ServerProcess
from jwt_kit import (
    OPERATOR,
    OPERATOR_SIGNER,
    STRANGER,
    account_jwt,
    account_key,
    now,
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
