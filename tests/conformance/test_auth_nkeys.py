"""Logins by nkey: the nonce in INFO, signatures of it, and what is refused."""

from __future__ import annotations

import base64
import re

import pytest
from helpers_ops import (
    VIOLATION,
    connect_line,
    open_client,
    refusal,
    replies,
    shared_server,
    system_request,
    user_key,
)

from harness import RawClient, ServerProcess

KNOWN, NARROW, STRANGER = user_key(1), user_key(2), user_key(3)

server = shared_server(f"""
authorization {{ users: [
  {{ nkey: {KNOWN.public} }}
  {{ nkey: {NARROW.public}, permissions: {{ publish: "own.>", subscribe: ["own.>", "_INBOX.>"] }} }}
  {{ user: anna, password: a }}
] }}
""")
accounts = shared_server(f"""
accounts {{
  A {{ users: [ {{ nkey: {KNOWN.public} }} ] }}
  B {{ users: [ {{ nkey: {NARROW.public} }} ] }}
}}
no_auth_user: {NARROW.public}
""")


def answer(client: RawClient, **fields: str) -> bytes:
    client.send(connect_line(**fields) + "PING\r\n")
    return client.read_line()


def test_info_carries_a_nonce_of_its_own_per_connection(server: ServerProcess) -> None:
    with open_client(server) as one, open_client(server) as other:
        assert one.info["auth_required"] is True
        assert re.fullmatch(r"[A-Za-z0-9_-]{15}", one.info["nonce"])
        assert one.info["nonce"] != other.info["nonce"]


def test_signed_nonce_logs_in(server: ServerProcess) -> None:
    with open_client(server) as client:
        signature = KNOWN.sign(client.info["nonce"])
        assert answer(client, nkey=KNOWN.public, sig=signature) == b"PONG"
        assert client.read_info()["remote_account"] == "$G"


def test_signature_in_padded_standard_base64_logs_in(server: ServerProcess) -> None:
    with open_client(server) as client:
        unpadded = KNOWN.sign(client.info["nonce"])
        raw = base64.urlsafe_b64decode(unpadded + "=" * (-len(unpadded) % 4))
        assert answer(client, nkey=KNOWN.public, sig=base64.b64encode(raw).decode()) == b"PONG"


def test_user_info_names_the_key(server: ServerProcess) -> None:
    with open_client(server) as client:
        signature = KNOWN.sign(client.info["nonce"])
        assert answer(client, nkey=KNOWN.public, sig=signature) == b"PONG"
        data = system_request(client, "$SYS.REQ.USER.INFO")["data"]
        assert data["user"] == KNOWN.public


def test_permissions_of_a_key_apply(server: ServerProcess) -> None:
    with open_client(server) as client:
        signature = NARROW.sign(client.info["nonce"])
        assert answer(client, nkey=NARROW.public, sig=signature) == b"PONG"
        assert replies(client, "PUB own.a 0\r\n\r\nPUB b 0\r\n\r\nSUB own.a 1\r\n") == [
            b"-ERR 'Permissions Violation for Publish to \"b\"'"
        ]


def test_password_user_beside_keys_logs_in(server: ServerProcess) -> None:
    with open_client(server) as client:
        assert answer(client, user="anna", password="a") == b"PONG"


def test_signature_of_another_connections_nonce_is_refused(server: ServerProcess) -> None:
    with open_client(server) as other, open_client(server) as client:
        signature = KNOWN.sign(other.info["nonce"])
        client.send(connect_line(nkey=KNOWN.public, sig=signature))
        client.expect_closed(VIOLATION)


@pytest.mark.parametrize("signer", ["stranger", "other-user"])
def test_signature_by_another_key_is_refused(server: ServerProcess, signer: str) -> None:
    key = {"stranger": STRANGER, "other-user": NARROW}[signer]
    with open_client(server) as client:
        client.send(connect_line(nkey=KNOWN.public, sig=key.sign(client.info["nonce"])))
        client.expect_closed(VIOLATION)


def test_key_that_is_not_configured_is_refused(server: ServerProcess) -> None:
    with open_client(server) as client:
        client.send(connect_line(nkey=STRANGER.public, sig=STRANGER.sign(client.info["nonce"])))
        client.expect_closed(VIOLATION)


@pytest.mark.parametrize(
    "signature",
    ["", "!!!!", "AAAA", "A" * 86, "A" * 400],
    ids=["none", "text", "short", "zero", "long"],
)
def test_malformed_signature_is_refused(server: ServerProcess, signature: str) -> None:
    assert refusal(server, connect_line(nkey=KNOWN.public, sig=signature)) == VIOLATION


@pytest.mark.parametrize("name", ["", "U", KNOWN.public.lower(), KNOWN.public[:-1], "anna"])
def test_malformed_key_is_refused(server: ServerProcess, name: str) -> None:
    with open_client(server) as client:
        client.send(connect_line(nkey=name, sig=KNOWN.sign(client.info["nonce"])))
        client.expect_closed(VIOLATION)


def test_key_leads_to_its_account(accounts: ServerProcess) -> None:
    with open_client(accounts) as client:
        signature = KNOWN.sign(client.info["nonce"])
        assert answer(client, nkey=KNOWN.public, sig=signature) == b"PONG"
        assert client.read_info()["remote_account"] == "A"


def test_no_auth_user_may_be_a_key(accounts: ServerProcess) -> None:
    with open_client(accounts) as client:
        assert "auth_required" not in client.info
        assert answer(client) == b"PONG"
        assert client.read_info()["remote_account"] == "B"
