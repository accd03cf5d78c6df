"""Trusted proxies: a proxy signs the nonce of each connection, and some users need one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from helpers_ops import (
    VIOLATION,
    UserKey,
    connect_line,
    connection_of,
    fetch,
    open_client,
    reload,
    replies,
    shared_server,
    user_key,
)

from harness import RawClient, ServerProcess, StartServer
from jwt_kit import OPERATOR, account_jwt, account_key, memory_configuration, user_jwt
from jwt_kit import login as jwt_login
from jwt_kit import user_key as jwt_user_key

PROXY, OTHER, MEMBER = user_key(11), user_key(12), user_key(13)
TRUSTED = f"proxies {{ trusted: [ {{key: {PROXY.public}}} ] }}\n"
MONITOR = 'http: "127.0.0.1:-1"\n'

server = shared_server(
    f"""
    {MONITOR} {TRUSTED}
    authorization {{ users: [
      {{user: inside, password: i, proxy_required: true}}
      {{user: free, password: f}}
      {{nkey: {MEMBER.public}, proxy_required: true}}
    ] }}
    """
)
single = shared_server(
    TRUSTED + "authorization { user: inside, password: i, proxy_required: true }\n"
)
token = shared_server(TRUSTED + "authorization { token: t, proxy_required: true }\n")
open_to_all = shared_server(MONITOR + TRUSTED)
without_proxies = shared_server("port: -1\n")
stranger = shared_server(
    TRUSTED
    + """
    accounts { A { users: [ {user: guest, password: g, proxy_required: true} ] } }
    no_auth_user: guest
    """
)
TENANT = account_key(21)
operated = shared_server(
    memory_configuration({TENANT.public: account_jwt(TENANT, OPERATOR)}, more=TRUSTED)
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def attempt(
    stack: ExitStack, server: ServerProcess, proxy: UserKey | None, **fields: Any
) -> RawClient:
    """A connection that has sent CONNECT, with the signature of a proxy."""
    client = stack.enter_context(open_client(server))
    if proxy is not None:
        fields["proxy_sig"] = proxy.sign(client.info["nonce"])
    client.send(connect_line(**fields) + "PING\r\n")
    return client


def is_refused(client: RawClient) -> bool:
    return client.read_to_end().replace(b"PING\r\n", b"") == VIOLATION


INSIDE = {"user": "inside", "password": "i"}
FREE = {"user": "free", "password": "f"}


def test_a_user_who_needs_a_proxy_comes_through_one_only(
    server: ServerProcess, stack: ExitStack
) -> None:
    attempt(stack, server, PROXY, **INSIDE).expect("PONG")
    assert is_refused(attempt(stack, server, None, **INSIDE))
    assert is_refused(attempt(stack, server, OTHER, **INSIDE))
    assert is_refused(attempt(stack, server, PROXY, user="inside", password="no"))
    attempt(stack, server, None, **FREE).expect("PONG")
    attempt(stack, server, PROXY, **FREE).expect("PONG")


def test_a_proxy_that_is_not_trusted_is_refused_also_where_none_is_needed(
    server: ServerProcess, open_to_all: ServerProcess, stack: ExitStack
) -> None:
    assert is_refused(attempt(stack, server, OTHER, **FREE))
    assert is_refused(attempt(stack, open_to_all, OTHER))
    for signature in ("xx", "A" * 86, "\u00ff", " "):
        assert is_refused(attempt(stack, open_to_all, None, proxy_sig=signature))
    attempt(stack, open_to_all, None, proxy_sig="").expect("PONG")


def test_the_signature_of_another_connection_is_of_no_use(
    server: ServerProcess, stack: ExitStack
) -> None:
    heard = stack.enter_context(open_client(server)).info["nonce"]
    assert is_refused(attempt(stack, server, None, **INSIDE, proxy_sig=PROXY.sign(heard)))


def test_a_nkey_needs_its_own_signature_beside_that_of_the_proxy(
    server: ServerProcess, stack: ExitStack
) -> None:
    client = stack.enter_context(open_client(server))
    nonce = client.info["nonce"]
    both = {"sig": MEMBER.sign(nonce), "proxy_sig": PROXY.sign(nonce)}
    client.send(connect_line(nkey=MEMBER.public, **both) + "PING\r\n")
    client.expect("PONG")
    direct = stack.enter_context(open_client(server))
    signature = MEMBER.sign(direct.info["nonce"])
    direct.send(connect_line(nkey=MEMBER.public, sig=signature) + "PING\r\n")
    assert is_refused(direct)
    assert is_refused(attempt(stack, server, PROXY, nkey=MEMBER.public))


def test_a_single_user_and_a_token_can_need_a_proxy(
    single: ServerProcess, token: ServerProcess, stack: ExitStack
) -> None:
    attempt(stack, single, PROXY, **INSIDE).expect("PONG")
    assert is_refused(attempt(stack, single, None, **INSIDE))
    attempt(stack, token, PROXY, auth_token="t").expect("PONG")
    assert is_refused(attempt(stack, token, None, auth_token="t"))


def test_strangers_are_the_user_without_credentials_only_through_a_proxy(
    stranger: ServerProcess, stack: ExitStack
) -> None:
    attempt(stack, stranger, PROXY).expect("PONG")
    assert is_refused(attempt(stack, stranger, None))


def test_without_trusted_proxies_a_signature_means_nothing(
    without_proxies: ServerProcess, stack: ExitStack
) -> None:
    client = attempt(stack, without_proxies, None, proxy_sig="xx")
    client.expect("PONG")
    assert "nonce" not in client.info


def test_a_user_jwt_can_require_a_proxy(operated: ServerProcess, stack: ExitStack) -> None:
    user = jwt_user_key(22)
    jwt = user_jwt(user, TENANT, proxy_required=True)
    for proxy, enters in ((PROXY, True), (None, False), (OTHER, False)):
        client = stack.enter_context(open_client(operated))
        nonce = client.info["nonce"]
        fields = jwt_login(jwt, user, nonce)
        if proxy is not None:
            fields["proxy_sig"] = proxy.sign(nonce)
        client.send(connect_line(**fields) + "PING\r\n")
        assert client.read_line() == (b"PONG" if enters else VIOLATION.strip())


def test_monitoring_names_the_proxy_of_open_and_closed_connections(
    server: ServerProcess, stack: ExitStack
) -> None:
    client = attempt(stack, server, PROXY, **FREE)
    client.expect("PONG")
    found = connection_of(server, client)
    assert found["proxy"] == {"key": PROXY.public}
    direct = attempt(stack, server, None, **FREE)
    direct.expect("PONG")
    assert "proxy" not in connection_of(server, direct)
    is_refused(attempt(stack, server, None, **INSIDE))
    is_refused(attempt(stack, server, OTHER, **FREE))
    reasons = [one["reason"] for one in closed(server)]
    assert "Proxy Required" in reasons
    assert "Proxy Not Trusted" in reasons


def closed(server: ServerProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fetch(server, "/connz?state=closed").json()["connections"]
    return found


def test_a_reload_ends_what_came_through_a_proxy_that_is_no_longer_trusted(
    start: StartServer, stack: ExitStack
) -> None:
    users = "authorization {{ users: [ {{user: free, password: f, proxy_required: {}}} ] }}\n"
    server = start(MONITOR + TRUSTED + users.format("false"))
    through = attempt(stack, server, PROXY, **FREE)
    through.expect("PONG")
    direct = attempt(stack, server, None, **FREE)
    direct.expect("PONG")
    both = f"proxies {{ trusted: [ {{key: {OTHER.public}}}, {{key: {PROXY.public}}} ] }}\n"
    assert "Reloaded" in reload(server, MONITOR + both + users.format("false"))
    for client in (through, direct):
        assert replies(client, "") == []
    other = both.replace(f", {{key: {PROXY.public}}}", "")
    assert "Reloaded" in reload(server, MONITOR + other + users.format("false"))
    assert VIOLATION in through.read_to_end()
    attempt(stack, server, OTHER, **FREE).expect("PONG")
    assert "Reloaded" in reload(server, MONITOR + other + users.format("true"))
    assert VIOLATION in direct.read_to_end()
