"""Who enters in operator mode, and with which rights: both servers, the same JWTs, the same answer.

Accounts and users are made at random from few ingredients, so that every check of the gate meets
every other; the random numbers are the same in every run. Each login is followed by a few
subscriptions and publishes, so that permissions and limits are compared too.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from helpers_decisions import PROBES, Maker, both
from helpers_ops import fetch

from harness import RawClient, ServerProcess, wait_for
from jwt_kit import (
    OPERATOR_SIGNER,
    login,
    memory_configuration,
    operator_jwt,
    user_key,
)
from tradewind import nkeys

NO_SUBSCRIPTIONS = "-ERR 'maximum subscriptions exceeded'"
ACCOUNTS = 30
LOGINS = 260
SEEDS = 24 if os.environ.get("TRADEWIND_THOROUGH") == "1" else 3


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
