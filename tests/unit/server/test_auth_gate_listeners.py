"""The gate of each listener: certificates, websocket settings, the system account alone."""

from __future__ import annotations

import pytest
from auth_gate_kit import (
    HASHED,
    KEY,
    MAPPED,
    OTHER_KEY,
    accounts,
    decide,
    enters,
    nkey_user,
    signed,
    single,
    user,
    with_users,
)
from msgspec.structs import replace

from certificates import Authority
from tradewind.broker.identity import Credentials, Identity
from tradewind.options import (
    AccountOptions,
    AuthorizationOptions,
    Secret,
    ServerOptions,
    TlsOptions,
    WebsocketOptions,
)
from tradewind.server.auth import build_gate, gate_notices

# The system account alone


def test_with_only_the_system_account_configured_strangers_enter_the_global_account() -> None:
    options = ServerOptions(accounts={"$SYS": AccountOptions("$SYS", users=(user("admin"),))})
    assert decide(options, Credentials()) == Identity("$G")
    assert decide(options, Credentials(user="admin", password="p")) == Identity("$SYS", "admin")
    assert not enters(options, Credentials(user="admin", password="x"))
    assert not enters(options, Credentials(user="x", password="x"))
    assert not enters(options, Credentials(token="x"))
    assert build_gate(options).auth_required
    assert enters(options, Credentials(connection_type="WEBSOCKET"), "websocket")
    named = replace(options, system_account="S", accounts=accounts(S=(nkey_user(),)))
    assert decide(named, Credentials()) == Identity("$G")
    assert decide(named, signed()) == Identity("S", KEY.public)
    assert not enters(named, signed(OTHER_KEY))


def test_anything_that_says_who_may_enter_keeps_strangers_out() -> None:
    """NATS-advisory 2023-01: an accounts block must not open a server that has authorization."""
    options = ServerOptions(accounts={"$SYS": AccountOptions("$SYS", users=(user("admin"),))})
    assert enters(options, Credentials())
    for closed in (
        replace(options, authorization=AuthorizationOptions(timeout_ns=1)),
        replace(options, authorization=AuthorizationOptions(users=(user("b"),))),
        replace(options, authorization=AuthorizationOptions(token=Secret("t"))),
        replace(options, accounts=options.accounts | accounts(A=())),
        replace(options, system_account="A"),
        replace(options, system_account=""),
        replace(options, accounts=accounts(A=(user("b"),))),
    ):
        assert not enters(closed, Credentials())
        assert not enters(closed, Credentials(connection_type="WEBSOCKET"), "websocket")


def test_no_auth_user_of_the_system_account_is_who_strangers_are() -> None:
    options = ServerOptions(
        accounts={"$SYS": AccountOptions("$SYS", users=(user("admin"),))}, no_auth_user="admin"
    )
    assert decide(options, Credentials()) == Identity("$SYS", "admin")


def test_opening_the_server_by_the_system_account_alone_is_announced() -> None:
    options = ServerOptions(accounts={"$SYS": AccountOptions("$SYS")})
    assert any("without credentials" in notice for notice in gate_notices(options))
    assert gate_notices(ServerOptions()) == ()


# Certificates


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("gate"))


def test_a_certificate_is_mapped_to_its_user(authority: Authority) -> None:
    der = authority.client(subject="CN=app,OU=x", emails=["app@e.com"]).der
    options = with_users(user("app@e.com", ""), user("CN=app,OU=x", ""), tls=MAPPED)
    assert decide(options, Credentials(certificate=der)) == Identity("$G", "app@e.com")
    # The name in CONNECT does not count.
    sent = Credentials(certificate=der, user="CN=app,OU=x", token="t")
    assert decide(options, sent) == Identity("$G", "app@e.com")
    stranger = authority.client(subject="CN=other").der
    assert not enters(options, Credentials(certificate=stranger))
    assert not enters(options, Credentials(certificate=b"junk"))
    assert not enters(options, Credentials())
    assert not enters(options, Credentials(user="app@e.com"))


def test_a_mapped_user_with_a_password_needs_it_too(authority: Authority) -> None:
    der = authority.client(subject="CN=app").der
    for password in ("p", HASHED):
        options = with_users(user("CN=app", password), tls=MAPPED)
        assert not enters(options, Credentials(certificate=der))
        assert not enters(options, Credentials(certificate=der, password="x"))
        assert enters(options, Credentials(certificate=der, password="p"))
    options = with_users(user("CN=app", ""), tls=MAPPED)
    assert not enters(options, Credentials(certificate=der, password="x"))


def test_a_mapped_user_obeys_its_kinds_of_connection(authority: Authority) -> None:
    der = authority.client(subject="CN=app").der
    limited = user("CN=app", "", connection_types=frozenset({"WEBSOCKET"}))
    options = with_users(limited, tls=MAPPED)
    assert not enters(options, Credentials(certificate=der))
    assert enters(options, Credentials(certificate=der, connection_type="WEBSOCKET"))


def test_no_auth_user_does_not_replace_a_certificate(authority: Authority) -> None:
    options = with_users(user("a", ""), no_auth_user="a", tls=MAPPED)
    assert not enters(options, Credentials())
    assert not enters(options, Credentials(certificate=authority.client(subject="CN=x").der))


def test_a_certificate_counts_only_where_mapping_is_on(authority: Authority) -> None:
    der = authority.client(subject="CN=app").der
    options = with_users(user("CN=app", ""), tls=TlsOptions(verify=True))
    assert not enters(options, Credentials(certificate=der))
    assert enters(options, Credentials(certificate=der, user="CN=app"))
    # Each listener has its own tls block.
    options = with_users(user("CN=app", ""), tls=MAPPED, websocket=WebsocketOptions())
    assert not enters(options, Credentials(certificate=der), "websocket")
    options = with_users(user("CN=app", ""), websocket=WebsocketOptions(tls=MAPPED))
    assert enters(options, Credentials(certificate=der), "websocket")
    assert not enters(options, Credentials(certificate=der))


def test_an_nkey_goes_before_the_certificate(authority: Authority) -> None:
    der = authority.client(subject="CN=app").der
    options = with_users(user("CN=app", ""), nkey_user(), tls=MAPPED)
    assert decide(options, replace(signed(), certificate=der)) == Identity("$G", KEY.public)
    assert not enters(options, replace(signed(OTHER_KEY), certificate=der))
    assert decide(options, Credentials(certificate=der)) == Identity("$G", "CN=app")


def test_a_server_without_users_asks_for_no_name_in_the_certificate(authority: Authority) -> None:
    options = ServerOptions(tls=MAPPED)
    assert decide(options, Credentials(certificate=authority.client().der)) == Identity("$G")


# Websocket


def test_a_websocket_block_without_credentials_uses_the_servers() -> None:
    for websocket in (
        None,
        WebsocketOptions(),
        WebsocketOptions(authorization=AuthorizationOptions(timeout_ns=3)),
    ):
        options = replace(single(), websocket=websocket)
        assert enters(options, Credentials(user="a", password="p"), "websocket")
        assert not enters(options, Credentials(), "websocket")


def test_credentials_of_the_websocket_block_replace_the_servers() -> None:
    own = WebsocketOptions(authorization=AuthorizationOptions(token=Secret("w")))
    options = replace(single(), websocket=own)
    assert enters(options, Credentials(token="w"), "websocket")
    assert not enters(options, Credentials(user="a", password="p"), "websocket")
    assert enters(options, Credentials(user="a", password="p"))
    assert not enters(options, Credentials(token="w"))


def test_a_websocket_block_can_close_an_open_server_for_websockets() -> None:
    own = WebsocketOptions(authorization=AuthorizationOptions(user="w", password=Secret("p")))
    options = ServerOptions(websocket=own)
    assert enters(options, Credentials())
    assert not enters(options, Credentials(), "websocket")
    assert enters(options, Credentials(user="w", password="p"), "websocket")
    assert build_gate(options, "websocket").auth_required
    assert not build_gate(options).auth_required


def test_no_auth_user_of_the_websocket_block_counts_there_only() -> None:
    """NATS-advisory 2026-16: the no_auth_user of one listener must not open another."""
    options = with_users(user("a"), user("b"), websocket=WebsocketOptions(no_auth_user="a"))
    assert decide(options, Credentials(), "websocket") == Identity("$G", "a")
    assert not enters(options, Credentials())
    both = replace(options, no_auth_user="b")
    assert decide(both, Credentials(), "websocket") == Identity("$G", "a")
    assert decide(both, Credentials()) == Identity("$G", "b")
    inherited = with_users(user("a"), no_auth_user="a", websocket=WebsocketOptions())
    assert decide(inherited, Credentials(), "websocket") == Identity("$G", "a")


def test_websocket_credentials_close_the_door_for_strangers_too() -> None:
    """The official server refuses the configured token as well, which nobody can have wanted."""
    own = WebsocketOptions(authorization=AuthorizationOptions(token=Secret("w")))
    options = ServerOptions(accounts={"$SYS": AccountOptions("$SYS")}, websocket=own)
    assert enters(options, Credentials())
    assert not enters(options, Credentials(), "websocket")
    assert enters(options, Credentials(token="w"), "websocket")
