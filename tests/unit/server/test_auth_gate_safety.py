"""The gate under hostile options and credentials: it never raises, blocks, or tells."""

from __future__ import annotations

import threading
from pathlib import Path

import bcrypt
import pytest
from auth_gate_kit import (
    HASHED,
    KEY,
    MAPPED,
    NONCE,
    OTHER_KEY,
    accounts,
    decide,
    enters,
    nkey_user,
    signed,
    single,
    user,
    with_token,
    with_users,
)
from msgspec.structs import replace

from certificates import Authority
from tradewind import nkeys
from tradewind.broker.identity import Credentials, DeferredCheck, Identity, Rejection
from tradewind.errors import ConfigError
from tradewind.options import (
    AuthorizationOptions,
    Secret,
    ServerOptions,
    UserOptions,
    WebsocketOptions,
)
from tradewind.server.auth import build_gate, gate_notices

# Options that contradict themselves


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (with_users(user("a"), user("a", "q")), "'a' is configured twice"),
        (
            ServerOptions(accounts=accounts(A=(user("a"),), B=(user("a"),))),
            "'a' is configured twice",
        ),
        (with_users(nkey_user(), nkey_user()), "configured twice"),
        (with_users(user("")), "neither a user name nor an nkey"),
        (with_users(UserOptions()), "neither a user name nor an nkey"),
        (with_users(nkey_user(user="a")), "takes no user name and no password"),
        (with_users(nkey_user(password=Secret("p"))), "takes no user name and no password"),
        (with_users(UserOptions(nkey="UABC")), "56 characters, not 4"),
        (with_users(UserOptions(nkey=KEY.public.lower())), "not a valid public nkey of a user"),
        (
            with_users(UserOptions(nkey=nkeys.KeyPair(nkeys.ACCOUNT, b"\1" * 32).public)),
            "its kind must be user (U...), not account (A...)",
        ),
        (with_users(UserOptions(nkey=KEY.seed)), "not a valid public nkey"),
        (
            with_users(user("a", connection_types=frozenset({"PIGEON"}))),
            "unknown connection type 'PIGEON'",
        ),
        (
            with_users(
                user("a"),
                websocket=WebsocketOptions(authorization=AuthorizationOptions(user="w")),
            ),
            "websocket authorization takes no user or token",
        ),
        (
            with_users(
                nkey_user(),
                websocket=WebsocketOptions(authorization=AuthorizationOptions(token=Secret("w"))),
            ),
            "websocket authorization takes no user or token",
        ),
        (
            ServerOptions(
                websocket=WebsocketOptions(authorization=AuthorizationOptions(users=(user("w"),)))
            ),
            "websocket authorization takes no users",
        ),
    ],
)
def test_contradicting_options_are_refused_by_name(options: ServerOptions, fault: str) -> None:
    for listener in ("standard", "websocket"):
        with pytest.raises(ConfigError) as caught:
            build_gate(options, listener)
        assert fault in str(caught.value)


def test_a_seed_in_the_place_of_a_public_key_is_not_repeated() -> None:
    for misplaced in (UserOptions(nkey=KEY.seed), UserOptions(nkey=KEY.seed, user="a")):
        with pytest.raises(ConfigError) as caught:
            build_gate(with_users(misplaced))
        assert KEY.seed[4:20] not in str(caught.value)


# Never blocks, never tells


def test_bcrypt_never_runs_while_checking(monkeypatch: pytest.MonkeyPatch) -> None:
    callers: list[int] = []

    def recording(password: bytes, hashed: bytes) -> bool:
        callers.append(threading.get_ident())
        return True

    monkeypatch.setattr(bcrypt, "checkpw", recording)
    gate = build_gate(with_users(user("a", HASHED), user("b")))
    known = gate.check(Credentials(user="a", password="p"))
    unknown = gate.check(Credentials(user="z", password="p"))
    assert callers == []
    assert isinstance(known, DeferredCheck)
    assert isinstance(unknown, DeferredCheck)
    assert isinstance(known.decide(), Identity)
    assert isinstance(unknown.decide(), Rejection)
    assert len(callers) == 2


def test_an_unknown_name_costs_as_much_as_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    costlier = HASHED.replace("$04$", "$05$")
    checked: list[bytes] = []
    monkeypatch.setattr(bcrypt, "checkpw", lambda _, hashed: checked.append(hashed) or False)
    limited = user("c", HASHED, connection_types=frozenset({"WEBSOCKET"}))
    options = with_users(user("a", HASHED), user("b", costlier), limited)
    for name in ("z", "c"):
        assert not enters(options, Credentials(user=name, password="p"))
    assert not enters(single(password=costlier), Credentials(user="z", password="p"))
    # A wrong plain password is no faster: its name would stand out among names that do not exist.
    assert not enters(with_users(user("a"), user("b", costlier)), Credentials(user="a"))
    assert checked == [costlier.encode()] * 4


def test_without_hashes_nothing_is_deferred() -> None:
    gate = build_gate(with_users(user("a")))
    assert isinstance(gate.check(Credentials(user="z")), Rejection)
    assert isinstance(gate.check(Credentials(user="a", password="p")), Identity)


def test_secrets_are_in_no_reason_and_no_repr(tmp_path: Path) -> None:
    secret, presented = "configured-secret", "presented-secret"
    hashed = bcrypt.hashpw(secret.encode(), bcrypt.gensalt(4)).decode()
    der = Authority(tmp_path).client(subject="CN=app").der
    cases = [
        (with_users(user("a", secret), user("CN=app", secret)), Credentials(user="a")),
        (with_users(user("a", hashed)), Credentials(user="a")),
        (with_users(user("a", hashed)), Credentials(user="z")),
        (single(password=secret), Credentials(user="a")),
        (single(password=hashed), Credentials(user="a")),
        (with_token(secret), Credentials()),
        (with_token(hashed), Credentials()),
        (with_users(user("CN=app", secret), tls=MAPPED), Credentials(certificate=der)),
        (with_users(nkey_user()), replace(signed(OTHER_KEY), nkey=KEY.public)),
    ]
    for options, credentials in cases:
        sent = replace(credentials, password=presented, token=presented, jwt=presented)
        gate = build_gate(options)
        answer = gate.check(sent)
        final = answer.decide() if isinstance(answer, DeferredCheck) else answer
        assert isinstance(final, Rejection)
        assert final.reason
        for text in (repr(answer), repr(final), repr(gate), repr(sent), str(gate_notices(options))):
            assert secret not in text
            assert presented not in text
            assert hashed not in text


def test_a_hostile_name_cannot_forge_a_log_line() -> None:
    gate = build_gate(with_users(user("a"), nkey_user()))
    for credentials in (
        Credentials(user="x\r\n[INF] welcome\x1b[0m" + "y" * 1000),
        Credentials(nkey="x\r\n[INF] welcome\x1b[0m" + "y" * 1000),
        Credentials(user="\ud800\u2028"),
    ):
        answer = gate.check(credentials)
        assert isinstance(answer, Rejection)
        assert answer.reason.isascii()
        assert answer.reason.isprintable()
        assert len(answer.reason) < 200


def test_every_server_that_asks_for_anything_refuses_who_presents_nothing() -> None:
    """NATS-advisory 2026-24: a first operation without CONNECT presents nothing, and is refused."""
    for options in (
        with_users(user("a")),
        with_users(user("a", "")),
        with_users(user("a", HASHED)),
        with_users(nkey_user()),
        with_users(user("a", ""), tls=MAPPED),
        with_token(),
        with_token(HASHED),
        single(),
        single(password=""),
        ServerOptions(accounts=accounts(A=(user("a", ""),))),
    ):
        for listener in ("standard", "websocket"):
            assert build_gate(options, listener).auth_required
            assert not enters(options, Credentials(), listener)
            assert not enters(options, Credentials(nonce=NONCE), listener)


@pytest.mark.parametrize("text", ["\0", "\ud800", "é", "p" * 1_000_000, "p\0", " p", "p\n"])
def test_odd_texts_are_refused_without_raising(text: str) -> None:
    for options in (
        with_users(user("a"), nkey_user()),
        with_users(user("a", HASHED)),
        with_token(),
        with_token(HASHED),
        single(),
    ):
        for field in ("user", "password", "token", "nkey", "signature", "jwt"):
            base = Credentials(user="a", nonce=NONCE)
            assert not enters(options, replace(base, **{field: text}))


def test_the_client_cannot_choose_its_account() -> None:
    """CVE-2022-24450: nothing that a client sends names the account; only configuration does."""
    fields = set(Credentials.__struct_fields__)
    assert not any("account" in name for name in fields)
    options = ServerOptions(accounts=accounts(A=(user("a"),), B=(user("b"),)))
    for name in ("B", "$G", "$SYS", "b"):
        assert not enters(options, Credentials(user="a", password="x", jwt=name, token=name))
    assert decide(options, Credentials(user="a", password="p", jwt="B")) == Identity("A", "a")


# Notices


def test_plain_passwords_are_announced_and_hashes_and_certificates_are_not() -> None:
    plain = "Plaintext passwords detected, use nkeys or bcrypt"
    assert plain in gate_notices(with_users(user("a")))
    assert plain in gate_notices(single())
    assert plain in gate_notices(with_users(user("a", "")))
    assert plain not in gate_notices(with_users(user("a", HASHED), nkey_user()))
    assert plain not in gate_notices(single(password=HASHED))
    assert plain not in gate_notices(with_users(user("CN=a", ""), tls=MAPPED))
    assert plain in gate_notices(with_users(user("CN=a", "p"), tls=MAPPED))
    assert plain not in gate_notices(with_token())
