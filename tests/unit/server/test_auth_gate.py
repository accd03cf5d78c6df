"""The gate: who is let in as whom.

The decisions are the official server's unless a test says otherwise; the conformance test
test_gate_decisions.py compares the two side by side.
"""

from __future__ import annotations

import base64

import pytest
from auth_gate_kit import (
    HASHED,
    KEY,
    NONCE,
    OTHER_KEY,
    accounts,
    decide,
    describe,
    enters,
    nkey_user,
    signed,
    single,
    user,
    with_token,
    with_users,
)
from msgspec.structs import replace

from tradewind.broker.identity import Credentials, DeferredCheck, Identity
from tradewind.errors import ConfigError
from tradewind.options import (
    AccountOptions,
    AuthorizationOptions,
    Secret,
    ServerOptions,
    TlsOptions,
    WebsocketOptions,
)
from tradewind.route.permission_rules import PermissionRules
from tradewind.server.auth import build_gate, gate_notices

# What INFO announces


def test_info_says_what_is_required() -> None:
    assert describe(build_gate(ServerOptions())) == (False, False)
    assert describe(build_gate(with_token())) == (True, False)
    assert describe(build_gate(single())) == (True, False)
    assert describe(build_gate(with_users(user("a")))) == (True, False)
    assert describe(build_gate(with_users(nkey_user()))) == (True, True)
    assert describe(build_gate(ServerOptions(accounts=accounts(A=(nkey_user(),))))) == (True, True)


def test_auth_is_not_required_only_when_no_auth_user_can_be_used() -> None:
    assert not build_gate(with_users(user("a"), no_auth_user="a")).auth_required
    assert not build_gate(with_users(nkey_user(), no_auth_user=KEY.public)).auth_required
    websocket_only = user("a", connection_types=frozenset({"WEBSOCKET"}))
    assert build_gate(with_users(websocket_only, no_auth_user="a")).auth_required
    assert build_gate(with_users(user("a", HASHED), no_auth_user="a")).auth_required
    mapped = with_users(user("a"), no_auth_user="a", tls=TlsOptions(verify_and_map=True))
    assert build_gate(mapped).auth_required


def test_websocket_clients_are_always_told_that_auth_is_required() -> None:
    options = with_users(user("a"), no_auth_user="a")
    assert build_gate(options, "websocket").auth_required
    assert not build_gate(ServerOptions(), "websocket").auth_required


# An open server


@pytest.mark.parametrize(
    ("credentials", "shown"),
    [
        (Credentials(), ""),
        (Credentials(user="a", password="x"), "a"),
        (Credentials(token="t"), "[REDACTED]"),
        (Credentials(user="a", token="t"), "a"),
        (Credentials(nkey="UX", user="a"), "UX"),
        (Credentials(jwt="x.y.z"), ""),
        (Credentials(password="x"), ""),
    ],
)
def test_an_open_server_lets_everyone_into_the_global_account(
    credentials: Credentials, shown: str
) -> None:
    assert decide(ServerOptions(), credentials) == Identity("$G", shown)


def test_empty_accounts_and_an_empty_user_list_leave_the_server_open() -> None:
    assert decide(ServerOptions(accounts=accounts(A=())), Credentials()) == Identity("$G")
    assert decide(with_users(), Credentials()) == Identity("$G")


# Token, single user


def test_the_token_alone_opens_a_server_with_a_token() -> None:
    options = with_token()
    shown = Identity("$G", "[REDACTED]")
    assert decide(options, Credentials(token="t")) == shown
    # The official server shows the user name that the client claims; nobody has checked it.
    assert decide(options, Credentials(token="t", user="root")) == shown
    for wrong in (
        Credentials(),
        Credentials(token="T"),
        Credentials(token="t "),
        Credentials(token=""),
        Credentials(user="t"),
        Credentials(password="t"),
        Credentials(jwt="t"),
        signed(),
    ):
        assert not enters(options, wrong)


def test_a_hashed_token_is_checked_in_a_worker() -> None:
    gate = build_gate(with_token(HASHED))
    answer = gate.check(Credentials(token="p"))
    assert isinstance(answer, DeferredCheck)
    assert answer.decide() == Identity("$G", "[REDACTED]")
    assert not enters(with_token(HASHED), Credentials(token=HASHED))
    assert not enters(with_token(HASHED), Credentials(token=""))


def test_a_single_user_needs_its_password() -> None:
    assert decide(single(), Credentials(user="a", password="p")) == Identity("$G", "a")
    assert enters(single(password=HASHED), Credentials(user="a", password="p"))
    for wrong in (
        Credentials(),
        Credentials(user="a"),
        Credentials(user="a", password="x"),
        Credentials(user="b", password="p"),
        Credentials(password="p"),
        Credentials(user="a", token="p"),
    ):
        assert not enters(single(), wrong)
        assert not enters(single(password=HASHED), wrong)


def test_a_single_user_without_a_password_takes_only_an_empty_one() -> None:
    assert enters(single(password=""), Credentials(user="a"))
    assert not enters(single(password=""), Credentials(user="a", password="x"))
    assert not enters(single(password=""), Credentials())


def test_a_token_from_a_flag_goes_before_a_single_user() -> None:
    options = ServerOptions(
        authorization=AuthorizationOptions(user="a", password=Secret("p"), token=Secret("t"))
    )
    assert enters(options, Credentials(token="t"))
    assert not enters(options, Credentials(user="a", password="p"))


def test_permissions_do_not_apply_to_a_single_user_or_token() -> None:
    rules = PermissionRules(publish_allow=("x",))
    options = ServerOptions(
        authorization=AuthorizationOptions(
            user="a", password=Secret("p"), default_permissions=rules
        )
    )
    assert decide(options, Credentials(user="a", password="p")) == Identity("$G", "a", None)


# Users


def test_users_are_members_of_their_account() -> None:
    options = ServerOptions(
        authorization=AuthorizationOptions(users=(user("a"),)),
        accounts=accounts(A=(user("b", "q"),), B=(nkey_user(),)),
    )
    assert decide(options, Credentials(user="a", password="p")) == Identity("$G", "a")
    assert decide(options, Credentials(user="b", password="q")) == Identity("A", "b")
    assert decide(options, signed()) == Identity("B", KEY.public)
    assert not enters(options, Credentials(user="a", password="q"))
    assert not enters(options, Credentials(user="b", password="p"))


def test_a_user_without_a_password_takes_only_an_empty_one() -> None:
    options = with_users(user("a", ""))
    assert enters(options, Credentials(user="a"))
    assert not enters(options, Credentials(user="a", password="x"))
    assert not enters(options, Credentials())


def test_an_empty_password_does_not_open_a_user_with_one() -> None:
    for password in ("p", HASHED):
        assert not enters(with_users(user("a", password)), Credentials(user="a"))
        assert not enters(with_users(user("a", password)), Credentials(user="a", password="\0"))


def test_the_hash_itself_is_not_the_password() -> None:
    assert not enters(with_users(user("a", HASHED)), Credentials(user="a", password=HASHED))
    assert enters(with_users(user("a", HASHED)), Credentials(user="a", password="p"))


def test_permissions_are_the_users_own_or_else_the_default_of_their_block() -> None:
    own = PermissionRules(subscribe_allow=("own",))
    of_server = PermissionRules(publish_allow=("server",))
    of_account = PermissionRules(publish_allow=("account",))
    options = ServerOptions(
        authorization=AuthorizationOptions(
            users=(user("a"), user("b", permissions=own), nkey_user()),
            default_permissions=of_server,
        ),
        accounts={
            "A": AccountOptions("A", users=(user("c"),), default_permissions=of_account),
            "B": AccountOptions("B", users=(user("d"),)),
        },
    )
    wanted = {"a": of_server, "b": own, "c": of_account, "d": None}
    for name, rules in wanted.items():
        answer = decide(options, Credentials(user=name, password="p"))
        assert isinstance(answer, Identity)
        assert answer.permissions == rules
    assert decide(options, signed()) == Identity("$G", KEY.public, of_server)


def test_a_user_may_only_use_the_configured_kinds_of_connection() -> None:
    options = with_users(
        user("s", connection_types=frozenset({"STANDARD"})),
        user("w", connection_types=frozenset({"websocket"})),
        nkey_user(connection_types=frozenset({"WEBSOCKET"})),
    )
    standard, websocket = "STANDARD", "WEBSOCKET"
    for name, kind, allowed in (
        ("s", standard, True),
        ("s", websocket, False),
        ("s", "IN_PROCESS", False),
        ("w", standard, False),
        ("w", websocket, True),
    ):
        sent = Credentials(user=name, password="p", connection_type=kind)
        assert enters(options, sent) == allowed
    assert enters(options, signed(connection_type=websocket))
    assert not enters(options, signed(connection_type=standard))


def test_a_token_flag_besides_users_serves_who_names_no_user() -> None:
    options = ServerOptions(
        authorization=AuthorizationOptions(users=(user("a"),), token=Secret("t"))
    )
    assert enters(options, Credentials(token="t"))
    assert enters(options, Credentials(user="a", password="p"))
    assert not enters(options, Credentials(user="b", token="t"))
    assert not enters(options, Credentials())


def test_a_single_user_flag_never_counts_besides_users() -> None:
    options = ServerOptions(
        authorization=AuthorizationOptions(users=(user("a"),), user="s", password=Secret("p"))
    )
    assert not enters(options, Credentials(user="s", password="p"))
    only_nkeys = replace(
        options, authorization=replace(options.authorization, users=(nkey_user(),))
    )
    assert enters(only_nkeys, Credentials(user="s", password="p"))


# Nkeys


def test_an_nkey_enters_with_its_signature_of_the_nonce() -> None:
    options = with_users(nkey_user(), user("a"))
    assert decide(options, signed()) == Identity("$G", KEY.public)
    good = signed()
    raw = KEY.sign(NONCE)
    for text in (base64.b64encode(raw), base64.urlsafe_b64encode(raw)):
        assert enters(options, replace(good, signature=text.decode()))
        assert enters(options, replace(good, signature=text.decode().rstrip("=")))


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials(nkey=KEY.public, nonce=NONCE),
        Credentials(nkey=KEY.public, nonce=NONCE, signature="AAAA"),
        Credentials(nkey=KEY.public, nonce=NONCE, signature="é" * 86),
        Credentials(nkey=KEY.public, nonce=NONCE, signature="A" * 86),
        replace(signed(), nonce=b"another nonce"),
        replace(signed(), nonce=b""),
        signed(nonce=b""),
        replace(signed(), nkey=OTHER_KEY.public),
        replace(signed(OTHER_KEY), nkey=KEY.public),
        signed(OTHER_KEY),
        replace(signed(), nkey=KEY.public.lower()),
        replace(signed(), nkey=KEY.public[:-1]),
        replace(signed(), nkey="U" * 100_000),
        replace(signed(OTHER_KEY), user="a", password="p"),
    ],
)
def test_an_nkey_without_its_own_signature_of_this_nonce_is_refused(
    credentials: Credentials,
) -> None:
    assert not enters(with_users(nkey_user(), user("a")), credentials)


def test_an_nkey_is_ignored_when_none_is_configured() -> None:
    options = with_users(user("a"))
    assert not enters(options, signed())
    assert decide(options, signed(user="a", password="p")) == Identity("$G", "a")


# no_auth_user


def test_who_presents_nothing_is_no_auth_user() -> None:
    rules = PermissionRules(publish_allow=("x",))
    options = with_users(user("a", permissions=rules), user("b"), no_auth_user="a")
    anyone = Identity("$G", "a", rules)
    assert decide(options, Credentials()) == anyone
    assert decide(options, Credentials(jwt="x.y.z")) == anyone
    # The official server shows the nkey that the client claims; nobody has checked it.
    assert decide(options, signed(OTHER_KEY)) == anyone


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials(user="a"),
        Credentials(user="a", password="x"),
        Credentials(password="p"),
        Credentials(token="p"),
        Credentials(user="z"),
        Credentials(user="b", password="x"),
    ],
)
def test_wrong_credentials_do_not_fall_back_to_no_auth_user(credentials: Credentials) -> None:
    assert not enters(with_users(user("a"), user("b"), no_auth_user="a"), credentials)


def test_an_nkey_can_be_no_auth_user() -> None:
    options = with_users(nkey_user(), nkey_user(OTHER_KEY), user("a"), no_auth_user=KEY.public)
    anyone = Identity("$G", KEY.public)
    assert decide(options, Credentials()) == anyone
    # The unsigned nkey gets what presenting nothing gets, as on the official server.
    assert decide(options, Credentials(nkey=KEY.public)) == anyone
    assert not enters(options, Credentials(nkey=OTHER_KEY.public, nonce=NONCE))
    assert not enters(options, Credentials(token="x"))
    assert decide(options, Credentials(user="a", password="p")) == Identity("$G", "a")


def test_no_auth_user_obeys_its_kinds_of_connection() -> None:
    for member in (user("a"), nkey_user()):
        limited = replace(member, connection_types=frozenset({"STANDARD"}))
        options = with_users(limited, no_auth_user=limited.nkey or limited.user)
        assert enters(options, Credentials())
        assert not enters(options, Credentials(connection_type="WEBSOCKET"), "websocket")


def test_a_hashed_no_auth_user_lets_nobody_in() -> None:
    options = with_users(user("a", HASHED), no_auth_user="a")
    assert not enters(options, Credentials())
    assert enters(options, Credentials(user="a", password="p"))
    assert any("hashed" in notice for notice in gate_notices(options))


def test_no_auth_user_must_exist() -> None:
    for options in (
        ServerOptions(no_auth_user="a"),
        replace(single(), no_auth_user="a"),
        with_users(user("a"), no_auth_user="b"),
        with_users(user("a"), websocket=WebsocketOptions(no_auth_user="b")),
    ):
        with pytest.raises(ConfigError, match="no_auth_user"):
            build_gate(options)
