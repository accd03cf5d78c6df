"""Logins by token, by user and password, by bcrypt hash, and by the flags of the command line."""

from __future__ import annotations

import bcrypt
import pytest
from helpers_ops import (
    VIOLATION,
    connect_line,
    login,
    open_client,
    refusal,
    replies,
    shared_server,
)

from harness import ServerProcess, StartServer

PASSWORD = "correct horse"
SALT = b"$2b$04$" + b"a" * 21 + b"u"
HASH = bcrypt.hashpw(PASSWORD.encode(), SALT).decode()
TOKEN = "s3cr3t-token"
TOKEN_HASH = bcrypt.hashpw(TOKEN.encode(), SALT).decode()

token_server = shared_server(f'authorization {{ token: "{TOKEN}" }}')
hashed_token_server = shared_server(f'authorization {{ token: "{TOKEN_HASH}" }}')
single_server = shared_server('authorization { user: solo, password: "one pass" }')
hashed_single_server = shared_server(f'authorization {{ user: solo, password: "{HASH}" }}')
users_server = shared_server(f"""
authorization {{
  users: [
    {{ user: anna, password: "anna's" }}
    {{ user: bert, password: "{HASH}" }}
    {{ user: "with space", password: "p w" }}
    {{ user: nopass }}
    {{ user: limited, password: lim, permissions: {{ publish: "own.>", subscribe: "own.>" }} }}
    {{ user: browser, password: web, allowed_connection_types: [WEBSOCKET] }}
    {{ user: plain, password: tcp, allowed_connection_types: ["standard", "WEBSOCKET"] }}
  ]
  default_permissions: {{ publish: "default.>", subscribe: "default.>" }}
}}
""")


Servers = dict[str, ServerProcess]


@pytest.fixture(scope="module")
def servers(
    token_server: ServerProcess,
    hashed_token_server: ServerProcess,
    single_server: ServerProcess,
    hashed_single_server: ServerProcess,
    users_server: ServerProcess,
) -> Servers:
    """The servers by name, for tests that run on several of them."""
    return {
        "token_server": token_server,
        "hashed_token_server": hashed_token_server,
        "single_server": single_server,
        "hashed_single_server": hashed_single_server,
        "users_server": users_server,
    }


def is_accepted(server: ServerProcess, **options: str) -> bool:
    """Whether these CONNECT fields log in; when not, the refusal must be the exact one."""
    with open_client(server) as client:
        client.send(connect_line(**options) + "PING\r\n")
        first = client.read_line()
        if first == b"PONG":
            return True
        assert first + b"\r\n" + client.read_to_end() == VIOLATION
        return False


@pytest.mark.parametrize("name", ["token_server", "hashed_token_server"])
def test_token_logs_in(name: str, servers: Servers) -> None:
    server = servers[name]
    client = login(server, auth_token=TOKEN)
    assert client.info["remote_account"] == "$G"
    client.close()


@pytest.mark.parametrize("name", ["token_server", "hashed_token_server"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"auth_token": ""},
        {"auth_token": TOKEN + "x"},
        {"auth_token": TOKEN[:-1]},
        {"auth_token": TOKEN.upper()},
        {"auth_token": TOKEN_HASH},
        {"user": TOKEN},
        {"user": "someone", "password": TOKEN},
    ],
    ids=["none", "empty", "longer", "shorter", "case", "hash", "as-user", "as-password"],
)
def test_wrong_token_is_refused(name: str, options: dict[str, str], servers: Servers) -> None:
    assert not is_accepted(servers[name], **options)


@pytest.mark.parametrize(
    ("name", "password"), [("single_server", "one pass"), ("hashed_single_server", PASSWORD)]
)
def test_single_user_logs_in(name: str, password: str, servers: Servers) -> None:
    server = servers[name]
    assert is_accepted(server, user="solo", password=password)
    assert is_accepted(server, user="solo", password=password, auth_token="ignored")


@pytest.mark.parametrize("name", ["single_server", "hashed_single_server"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"user": "solo"},
        {"password": "one pass"},
        {"user": "solo", "password": ""},
        {"user": "solo", "password": "one pass "},
        {"user": "Solo", "password": "one pass"},
        {"user": "solo", "password": HASH},
        {"auth_token": "one pass"},
    ],
    ids=["none", "no-pass", "no-user", "empty", "longer", "user-case", "hash", "token"],
)
def test_single_user_with_wrong_credentials_is_refused(
    name: str, options: dict[str, str], servers: Servers
) -> None:
    assert not is_accepted(servers[name], **options)


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("anna", "anna's"),
        ("bert", PASSWORD),
        ("with space", "p w"),
        ("nopass", ""),
        ("limited", "lim"),
        ("plain", "tcp"),
    ],
)
def test_each_user_of_a_list_logs_in(users_server: ServerProcess, user: str, password: str) -> None:
    assert is_accepted(users_server, user=user, password=password)


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("anna", PASSWORD),
        ("bert", "anna's"),
        ("bert", HASH),
        ("Anna", "anna's"),
        ("anna", ""),
        ("nobody", "anna's"),
        ("", ""),
        ("nopass", "something"),
    ],
)
def test_user_of_a_list_with_wrong_credentials_is_refused(
    users_server: ServerProcess, user: str, password: str
) -> None:
    assert not is_accepted(users_server, user=user, password=password)


def test_token_is_refused_where_users_are_listed(users_server: ServerProcess) -> None:
    assert not is_accepted(users_server, auth_token="anna")


def test_connection_type_that_is_not_allowed_is_refused(users_server: ServerProcess) -> None:
    assert not is_accepted(users_server, user="browser", password="web")


def test_user_without_permissions_gets_the_default_permissions(
    users_server: ServerProcess,
) -> None:
    with login(users_server, "anna", "anna's") as client:
        answers = replies(
            client,
            "PUB default.a 0\r\n\r\nPUB own.a 0\r\n\r\nSUB default.a 1\r\nSUB own.a 2\r\n",
        )
    assert answers == [
        b"-ERR 'Permissions Violation for Publish to \"own.a\"'",
        b"-ERR 'Permissions Violation for Subscription to \"own.a\"'",
    ]


def test_own_permissions_replace_the_default_permissions(users_server: ServerProcess) -> None:
    with login(users_server, "limited", "lim") as client:
        answers = replies(
            client,
            "PUB default.a 0\r\n\r\nPUB own.a 0\r\n\r\nSUB default.a 1\r\nSUB own.a 2\r\n",
        )
    assert answers == [
        b"-ERR 'Permissions Violation for Publish to \"default.a\"'",
        b"-ERR 'Permissions Violation for Subscription to \"default.a\"'",
    ]


@pytest.mark.parametrize(
    "name",
    ["token_server", "single_server", "users_server"],
)
def test_info_says_that_credentials_are_required(name: str, servers: Servers) -> None:
    with open_client(servers[name]) as client:
        assert client.info["auth_required"] is True
        assert "nonce" not in client.info


def test_info_of_an_open_server_says_nothing_of_credentials(server: ServerProcess) -> None:
    with open_client(server) as client:
        assert "auth_required" not in client.info
        assert "nonce" not in client.info


def test_open_server_ignores_credentials(server: ServerProcess) -> None:
    for options in ({"user": "any", "password": "one"}, {"auth_token": "any"}):
        with login(server, **options) as client:
            assert client.info["remote_account"] == "$G"


@pytest.mark.parametrize(
    "flags",
    [("--user", "solo", "--pass", "flagpw"), ("-user=solo", "-pass=flagpw")],
    ids=["double-dash-space", "single-dash-equals"],
)
def test_user_and_pass_flags(start: StartServer, flags: tuple[str, ...]) -> None:
    server = start("", *flags)
    assert is_accepted(server, user="solo", password="flagpw")
    assert not is_accepted(server, user="solo", password="other")
    assert not is_accepted(server)
    assert "flagpw" not in server.log


def test_auth_flag_sets_the_token(start: StartServer) -> None:
    server = start("", "--auth", "flagtoken")
    assert is_accepted(server, auth_token="flagtoken")
    assert not is_accepted(server, auth_token="other")
    assert "flagtoken" not in server.log
    assert not is_accepted(server, user="flagtoken")


def test_refusal_is_logged_without_the_secret(users_server: ServerProcess) -> None:
    assert refusal(users_server, connect_line("anna", "WRONG-PASSWORD")) == VIOLATION
    users_server.wait_for_log(
        r'\[ERR\] 127\.0\.0\.1:\d+ - cid:\d+ - authentication error - User "anna"'
    )
    assert refusal(users_server, connect_line(auth_token="WRONG-TOKEN")) == VIOLATION
    users_server.wait_for_log(
        r'\[ERR\] 127\.0\.0\.1:\d+ - cid:\d+ - authentication error - Token "\[REDACTED\]"'
    )
    for secret in ("WRONG-PASSWORD", "WRONG-TOKEN", PASSWORD, HASH, "anna's"):
        assert secret not in users_server.log
