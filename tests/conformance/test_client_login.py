"""Our client logs in: every method, TLS, WebSocket, contexts; and is refused."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop
from helpers_client import SECONDS, Events, collect, connected
from helpers_ops import Certificates, reload, running, user_key

import tradewind
from harness import ServerProcess, StartServer
from tradewind.client.core.contexts import load_context
from tradewind.client.errors import (
    AuthorizationError,
    ClientError,
    ConnectionClosedError,
    CredentialsError,
    NoServersError,
    OptionsError,
    PermissionsError,
    TlsError,
)
from tradewind.client.events import Closed, Disconnected, ErrorEvent, ReconnectFailed
from websocket_frames import websocket_config, websocket_port

KEY = user_key(1)
USERS = f"""
accounts {{
  A: {{ users: [
    {{ user: ann, password: "p@ss/word" }}
    {{ nkey: {KEY.public} }}
    {{ user: limited, password: pw, permissions: {{
        publish: ["allowed", "ask"], subscribe: ["allowed", "_INBOX.>"] }} }}
  ] }}
}}
"""
FAST = {"reconnect_wait": 0.02, "reconnect_wait_max": 0.1}


@pytest.fixture(scope="module")
def users(shared_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(shared_kind, tmp_path_factory.mktemp("users"), USERS) as process:
        yield process


async def echo(connection: tradewind.Connection) -> None:
    """The connection carries messages."""
    subscription = await connection.subscribe("allowed")
    await connection.publish("allowed", b"echo")
    assert await collect(subscription, 1) == [b"echo"]


async def test_user_and_password(users: ServerProcess) -> None:
    async with connected(users.url, user="ann", password="p@ss/word") as connection:
        await echo(connection)


async def test_user_and_password_in_the_url(users: ServerProcess) -> None:
    url = f"nats://ann:p%40ss%2Fword@127.0.0.1:{users.port}"
    async with connected(url) as connection:
        await echo(connection)
        assert connection.url == users.url


async def test_nkey_seed_and_file(users: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "user.nk"
    file.write_text(f"# my key\n{KEY.seed.decode()}\n")
    for options in ({"nkey_seed": KEY.seed.decode()}, {"nkey_file": str(file)}):
        async with connected(users.url, **options) as connection:
            await echo(connection)


async def test_token_as_text_and_as_function(start: StartServer) -> None:
    server = start('authorization { token: "s3cret" }')
    for token in ("s3cret", lambda: "s3cret"):
        async with connected(server.url, token=token) as connection:
            await echo(connection)
    async with connected(f"nats://s3cret@127.0.0.1:{server.port}") as connection:
        await echo(connection)


async def test_wrong_password_is_an_authorization_error(users: ServerProcess) -> None:
    with pytest.raises(AuthorizationError, match="Authorization Violation") as caught:
        await tradewind.connect(users.url, user="ann", password="wrong", on_event=Events())
    assert "wrong" not in str(caught.value)


async def test_refused_login_is_tried_twice_after_a_loss(start: StartServer) -> None:
    server = start('authorization { user: u, password: "one" }')
    events = Events()
    async with connected(
        server.url, user="u", password="one", on_event=events, **FAST
    ) as connection:
        await connection.flush()
        await asyncio.to_thread(reload, server, 'authorization { user: u, password: "two" }')
        closed = await events.wait(Closed)
        assert isinstance(closed.error, AuthorizationError)
        assert 1 <= len(events.of(ReconnectFailed)) <= 2
        with pytest.raises(ConnectionClosedError, match="Authorization Violation"):
            await connection.flush()


async def test_denied_subscription_ends_with_the_error(users: ServerProcess) -> None:
    events = Events()
    async with connected(users.url, user="limited", password="pw", on_event=events) as connection:
        for options in ({}, {"queue": "q"}):
            subscription = await connection.subscribe("denied", **options)
            with pytest.raises(PermissionsError, match='Subscription to "denied"'):
                await subscription.next(SECONDS)
        assert len(events.of(ErrorEvent)) == 2
        await echo(connection)


async def test_denied_request_fails_at_once(users: ServerProcess) -> None:
    events = Events()
    async with connected(users.url, user="limited", password="pw", on_event=events) as connection:
        with pytest.raises(PermissionsError, match='Publish to "denied"'):
            await connection.request("denied", timeout=60)
        await connection.publish("denied.too")
        error = (await events.wait(ErrorEvent, 2)).error
        assert 'Publish to "denied.too"' in str(error)
        assert not events.of(Disconnected)


async def test_inbox_prefix(start: StartServer) -> None:
    server = start(
        "authorization { users: [{ user: u, password: p, permissions: "
        '{ subscribe: ["mine.>", "ask"] } }] }'
    )
    options = {"user": "u", "password": "p", "inbox_prefix": "mine"}
    async with connected(server.url, **options) as connection:
        await connection.subscribe("ask", callback=lambda message: message.respond(b"yes"))
        assert (await connection.request("ask")).data == b"yes"
        assert connection.new_inbox().startswith("mine.")


async def test_echo_can_be_switched_off(server: ServerProcess, subject: str) -> None:
    async with connected(server.url, echo=False) as connection, connected(server.url) as other:
        own = await connection.subscribe(subject)
        await connection.flush()
        await connection.publish(subject, b"own")
        await connection.flush()
        await other.publish(subject, b"other")
        assert await collect(own, 1) == [b"other"]


# ---------------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.clients = {"known": made.authority.client("known", subject="CN=known")}
    return made


@pytest.mark.parametrize("how", ["context", "files", "first"])
async def test_tls(start: StartServer, certificates: Certificates, how: str) -> None:
    known = certificates.clients["known"]
    more = "verify: true\nhandshake_first: true" if how == "first" else "verify: true"
    server = start(certificates.block(more))
    files = {
        "tls_ca_file": certificates.authority.ca_file,
        "tls_cert_file": known.cert_file,
        "tls_key_file": known.key_file,
    }
    options = {
        "context": {"tls": certificates.context("known")},
        "files": files,
        "first": {**files, "tls_handshake_first": True},
    }[how]
    async with connected(f"tls://127.0.0.1:{server.port}", **options) as connection:
        await echo(connection)
        await connection.publish("allowed", bytes(1_000_000))
        await connection.flush()


def test_info_is_repeated_inside_tls_before_the_second_pong(
    start: StartServer, certificates: Certificates
) -> None:
    """The client believes nothing else of the INFO that came before TLS."""
    server = start(certificates.block())
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        first = sock.recv(65536)
        with certificates.context().wrap_socket(sock, server_hostname="127.0.0.1") as secure:
            connect = b'CONNECT {"verbose":false,"protocol":1,"headers":true}\r\n'
            secure.sendall(connect + b"PING\r\nPING\r\n")
            received = b""
            while received.count(b"PONG\r\n") < 2:
                received += secure.recv(65536)
    lines = received.splitlines()
    assert [line[:4] for line in lines] == [b"PONG", b"INFO", b"PONG"]
    infos = [json.loads(line[5:]) for line in (first, lines[1])]
    assert [info["server_id"] for info in infos] == [infos[0]["server_id"]] * 2
    assert [info["headers"] for info in infos] == [True, True]


async def test_untrusted_certificate_is_a_tls_error(
    start: StartServer, certificates: Certificates
) -> None:
    server = start(certificates.block())
    with pytest.raises(NoServersError, match="TLS handshake failed") as caught:
        await tradewind.connect(server.url, on_event=Events())
    assert isinstance(caught.value.attempts[server.url], TlsError)


async def test_tls_is_never_silently_left_out(server: ServerProcess) -> None:
    with pytest.raises(NoServersError, match="TLS was requested, but the server does not offer it"):
        await tradewind.connect(f"tls://127.0.0.1:{server.port}", on_event=Events())


# ---------------------------------------------------------------------- WebSocket


async def test_websocket(start: StartServer) -> None:
    port = websocket_port(start(websocket_config()))
    async with connected(f"ws://127.0.0.1:{port}") as connection:
        await echo(connection)
        subscription = await connection.subscribe("large")
        for size in (0, 125, 126, 65535, 65536, 1_000_000):
            await connection.publish("large", bytes(size))
        sizes = [len(data) for data in await collect(subscription, 6)]
        assert sizes == [0, 125, 126, 65535, 65536, 1_000_000]


async def test_secure_websocket(start: StartServer, certificates: Certificates) -> None:
    block = 'websocket {{ host: "127.0.0.1", port: -1\n{} }}\n'
    port = websocket_port(start(block.format(certificates.block())))
    async with connected(f"wss://127.0.0.1:{port}", tls=certificates.context()) as connection:
        await echo(connection)


async def test_websocket_url_of_a_plain_port_is_refused(server: ServerProcess) -> None:
    with pytest.raises(NoServersError):
        await tradewind.connect(
            f"ws://127.0.0.1:{server.port}", connect_timeout=1, on_event=Events()
        )


# ---------------------------------------------------------------------- contexts


async def test_context_of_the_command_line(
    users: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    content = {"description": "test", "url": users.url, "user": "ann", "password": "p@ss/word"}
    (folder / "shop.json").write_text(json.dumps(content))
    connection = await tradewind.connect(context="shop", name="from context")
    async with connection:
        await echo(connection)
        assert connection.options.name == "from context"
    with pytest.raises(OptionsError, match="none is selected"):
        await tradewind.connect(context="")
    (tmp_path / "nats" / "context.txt").write_text("shop")
    async with await tradewind.connect(context="") as connection:
        await echo(connection)
    with pytest.raises(OptionsError, match=r"'other': .*\(available: shop\)"):
        await tradewind.connect(context="other")


def test_context_says_all_that_a_connection_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    content = {
        "url": "nats://one,nats://two",
        "user_jwt": "jwt",
        "user_seed": "SUseed",
        "ca": "~/ca.pem",
        "tls_first": True,
        "inbox_prefix": "_MINE",
        "jetstream_domain": "hub",
        "color_scheme": "rainbow",
    }
    (folder / "full.json").write_text(json.dumps(content))
    options = load_context("full")
    assert options.servers == "nats://one,nats://two"
    assert (options.user_jwt, options.nkey_seed) == ("jwt", "SUseed")
    assert (options.tls_ca_file, options.tls_handshake_first) == (f"{tmp_path}/ca.pem", True)
    assert (options.inbox_prefix, options.jetstream_domain) == ("_MINE", "hub")
    (folder / "far.json").write_text(json.dumps({"socks_proxy": "localhost:1080"}))
    with pytest.raises(OptionsError, match="socks_proxy"):
        load_context("far")


async def test_unreadable_credentials_name_the_file(users: ServerProcess, tmp_path: Path) -> None:
    with pytest.raises(NoServersError, match=r"missing\.creds cannot be read") as caught:
        await tradewind.connect(
            users.url, credentials=str(tmp_path / "missing.creds"), on_event=Events()
        )
    assert isinstance(caught.value.attempts[users.url], CredentialsError | ClientError)


def test_other_event_loops_carry_the_same_links(
    start: StartServer, certificates: Certificates
) -> None:
    plain, secure = start(websocket_config()), start(certificates.block())
    urls = (plain.url, secure.url, f"ws://127.0.0.1:{websocket_port(plain)}")

    async def main() -> None:
        for url in urls:
            tls = {"tls": certificates.context()} if url == secure.url else {}
            async with connected(url, **tls) as connection:
                await echo(connection)
                await connection.publish("allowed", bytes(1_000_000))
                await connection.flush()

    uvloop.run(main())
