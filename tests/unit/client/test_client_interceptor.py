"""Whoever sits between a client and its server can cut a secure connection, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_server import Peer, Script, ScriptedServer, eventually, info_line

import tradewind
from certificates import Authority, Certificate
from tradewind.client.core.addresses import ServerPool, parse_servers
from tradewind.client.errors import AuthorizationError, NoServersError, TlsError
from tradewind.client.events import Disconnected, Event, Reconnected, ReconnectFailed
from tradewind.errors import TradewindError

FAST: dict[str, Any] = {"reconnect_wait": 0.01, "reconnect_wait_max": 0.05}
INJECTED = [
    b"MSG orders 1 6\r\nforged\r\n",
    b"HMSG orders 1 12 18\r\nNATS/1.0\r\n\r\nforged\r\n",
    b"PONG\r\n",
    b"-ERR 'Authorization Violation'\r\n",
    b"INFO {}\r\n",
    b"+OK\r\n",
    b"\r\n",
    b"MSG orders 1 6",
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Certificate:
    return authority.server()


def honest(*repeated: bytes, first: bytes = b"") -> Script:
    """What a server does: INFO, TLS, login; `repeated` comes inside TLS."""

    def play(peer: Peer) -> None:
        peer.send(first or info_line())
        peer.start_tls()
        peer.log_in(*(repeated or (info_line(),)))
        peer.serve()

    return play


def intercepted(injected: bytes) -> Script:
    """INFO with something behind it, then everything as it should be."""

    def play(peer: Peer) -> None:
        peer.send(info_line() + injected)
        peer.start_tls()
        peer.log_in(info_line())
        peer.serve()

    return play


def tls_options(authority: Authority) -> dict[str, Any]:
    return {"tls": authority.client_context(), "connect_timeout": 10.0, **FAST}


@pytest.mark.parametrize("injected", INJECTED)
async def test_bytes_between_info_and_tls_fail_the_attempt(
    authority: Authority, certificate: Certificate, injected: bytes
) -> None:
    with ScriptedServer(intercepted(injected), certificate=certificate) as server:
        url = f"tls://127.0.0.1:{server.port}"
        with pytest.raises(NoServersError, match="came unencrypted between INFO and TLS") as caught:
            await tradewind.connect(url, **tls_options(authority))
        assert isinstance(caught.value.attempts[url], TlsError)
        await eventually(lambda: server.peers)
        assert b"CONNECT" not in server.peers[0].received


@pytest.mark.parametrize("injected", INJECTED[:4])
async def test_nothing_injected_at_a_reconnect_reaches_a_subscription(
    authority: Authority, certificate: Certificate, injected: bytes
) -> None:
    """The subscription has the number 1 from before, so forged messages would find it."""
    events: list[Event] = []

    def first(peer: Peer) -> None:
        peer.send(info_line())
        peer.start_tls()
        peer.log_in(info_line())
        peer.wait_for(b"SUB orders")  # then it leaves

    scripts = (first, intercepted(injected), intercepted(injected), intercepted(injected), honest())
    with ScriptedServer(*scripts, certificate=certificate) as server:
        async with await tradewind.connect(
            f"tls://127.0.0.1:{server.port}", on_event=events.append, **tls_options(authority)
        ) as connection:
            subscription = await connection.subscribe("orders")
            await eventually(lambda: any(isinstance(event, Reconnected) for event in events))
            failed = [event for event in events if isinstance(event, ReconnectFailed)]
            assert [type(event.error) for event in failed] == [TlsError] * 3
            await connection.flush()
            assert subscription.delivered_count == 0
            assert connection.stats.in_messages == 0


async def test_error_instead_of_info_before_tls_does_not_count_as_a_refused_login(
    authority: Authority, certificate: Certificate
) -> None:
    def refuse(peer: Peer) -> None:
        peer.send(b"-ERR 'Authorization Violation'\r\n")

    events: list[Event] = []
    scripts = (leaves_after_login, *[refuse] * 5, honest())
    with ScriptedServer(*scripts, certificate=certificate) as server:
        async with await tradewind.connect(
            f"tls://127.0.0.1:{server.port}", on_event=events.append, **tls_options(authority)
        ):
            await eventually(lambda: any(isinstance(event, Reconnected) for event in events))
    failed = [event.error for event in events if isinstance(event, ReconnectFailed)]
    assert len(failed) == 5
    assert not any(isinstance(error, AuthorizationError) for error in failed)


def leaves_after_login(peer: Peer) -> None:
    peer.send(info_line())
    peer.start_tls()
    peer.log_in(info_line(), b"PONG\r\n")


async def test_servers_named_before_tls_are_never_dialled(
    authority: Authority, certificate: Certificate
) -> None:
    """Neither by a server that repeats INFO inside TLS, nor by an older one that does not."""
    forged = info_line(connect_urls=["evil.example:4222", "nats://evil.example:1"], ldm=True)
    for repeated in ((info_line(connect_urls=["127.0.0.1:1"]),), (b"PONG\r\n",)):
        script = honest(*repeated, first=forged)
        with ScriptedServer(script, certificate=certificate) as server:
            async with await tradewind.connect(
                f"tls://127.0.0.1:{server.port}", **tls_options(authority)
            ) as connection:
                assert not [url for url in connection.servers if "evil" in url]
                assert connection.info.connect_urls == (
                    ["127.0.0.1:1"] if repeated[0].startswith(b"INFO") else []
                )
                assert not connection.info.ldm


async def test_limits_are_those_of_the_info_inside_tls(
    authority: Authority, certificate: Certificate
) -> None:
    script = honest(info_line(max_payload=5000), first=info_line(max_payload=1))
    with ScriptedServer(script, certificate=certificate) as server:
        async with await tradewind.connect(
            f"tls://127.0.0.1:{server.port}", **tls_options(authority)
        ) as connection:
            assert connection.max_payload == 5000


async def test_headers_switched_off_before_tls_fail_the_attempt(
    authority: Authority, certificate: Certificate
) -> None:
    """Otherwise the server would strip the headers of every message to this client."""
    script = honest(info_line(), first=info_line(headers=False))
    with (
        ScriptedServer(script, certificate=certificate) as server,
        pytest.raises(NoServersError, match=r"headers: False.*tampered"),
    ):
        await tradewind.connect(f"tls://127.0.0.1:{server.port}", **tls_options(authority))


def plain(peer: Peer) -> None:
    """A server that never heard of TLS and takes any login."""
    peer.send(info_line(tls_required=False))
    peer.log_in(info_line(tls_required=False))
    peer.serve()


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_tls_is_not_given_up_at_a_reconnect(
    authority: Authority, certificate: Certificate, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only the server had asked for it: CONNECT has the password."""
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca_file)
    events: list[Event] = []
    with ScriptedServer(leaves_after_login, plain, honest(), certificate=certificate) as server:
        async with await tradewind.connect(
            f"{scheme}://127.0.0.1:{server.port}",
            user="u",
            password="secret",
            on_event=events.append,
            **FAST,
        ):
            await eventually(lambda: any(isinstance(event, Reconnected) for event in events))
        failed = [event.error for event in events if isinstance(event, ReconnectFailed)]
        assert [type(error) for error in failed] == [TlsError]
        assert "does not offer it" in str(failed[0])
        assert server.peers[1].received == b""


async def test_one_secure_url_makes_all_connections_secure(
    authority: Authority, certificate: Certificate
) -> None:
    with (
        ScriptedServer(leaves_after_login, certificate=certificate) as secure,
        ScriptedServer(plain) as other,
    ):
        urls = [f"nats://127.0.0.1:{other.port}", f"tls://127.0.0.1:{secure.port}"]
        with pytest.raises(NoServersError):
            await tradewind.connect(urls, user="u", password="secret", randomize_servers=False)
        await eventually(lambda: other.peers)
        assert b"secret" not in other.peers[0].received


async def test_websocket_with_tls_options_is_never_plain(authority: Authority) -> None:
    def upgrade(peer: Peer) -> None:
        peer.read()

    with ScriptedServer(upgrade) as server:
        url = f"ws://127.0.0.1:{server.port}"
        with pytest.raises(NoServersError):
            await tradewind.connect(url, **tls_options(authority))
        assert b"GET" not in server.peers[0].received


@pytest.mark.parametrize(
    ("configured", "entries", "found"),
    [
        ("tls://a:1", ["nats://b:2", "c:3", "ws://d:4"], ["tls://b:2", "tls://c:3", "tls://d:4"]),
        ("wss://a:1", ["ws://b:2", "nats://c:3", "d:4"], ["wss://b:2", "wss://c:3", "wss://d:4"]),
        ("tls://a:1/", ["nats://u:p@b:2/path"], ["tls://b:2"]),
    ],
)
def test_discovered_servers_have_the_security_of_the_configured_ones(
    configured: str, entries: list[str], found: list[str]
) -> None:
    addresses = parse_servers(configured)
    pool = ServerPool(addresses, randomize=False)
    new = pool.discovered(entries, addresses[0], secure=True)
    assert [address.url for address in new] == found
    assert not any(address.user or address.password or address.path for address in new)


async def test_server_discovered_inside_tls_is_dialled_with_tls(
    authority: Authority, certificate: Certificate
) -> None:
    """Also if its entry says nats://, so no password goes out in the clear."""
    events: list[Event] = []
    with ScriptedServer(plain) as other:
        repeated = info_line(connect_urls=[f"nats://127.0.0.1:{other.port}"])

        def first(peer: Peer) -> None:
            peer.send(info_line())
            peer.start_tls()
            peer.log_in(repeated, b"PONG\r\n")

        with ScriptedServer(first, honest(), certificate=certificate) as server:
            async with await tradewind.connect(
                f"tls://127.0.0.1:{server.port}",
                user="u",
                password="secret",
                on_event=events.append,
                **tls_options(authority),
            ):
                await eventually(lambda: any(isinstance(event, Reconnected) for event in events))
        assert len([event for event in events if isinstance(event, Disconnected)]) == 1
        assert all(peer.received == b"" for peer in other.peers)
        assert other.peers


async def test_lines_behind_info_still_count_without_tls() -> None:
    def refuse(peer: Peer) -> None:
        peer.send(info_line(tls_required=False) + b"-ERR 'maximum connections exceeded'\r\n")

    with (
        ScriptedServer(refuse) as server,
        pytest.raises(NoServersError, match="maximum connections exceeded"),
    ):
        await tradewind.connect(f"nats://127.0.0.1:{server.port}")


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "wrong line"),
        (b"INFO {\r\n", "INFO of the server cannot be read"),
        (b"-ERR 'too many'\r\n", "too many"),
        (b"a" * (1 << 20) + b"aa", "more than 1048576 bytes"),
        (b"", "closed the connection before the login"),
    ],
)
async def test_wrong_first_lines_are_clear_errors(first: bytes, text: str) -> None:
    def speak(peer: Peer) -> None:
        peer.send(first)

    with ScriptedServer(speak) as server, pytest.raises(NoServersError, match=text) as caught:
        await tradewind.connect(f"nats://127.0.0.1:{server.port}")
    assert isinstance(next(iter(caught.value.attempts.values())), TradewindError)


async def test_info_in_any_pieces_is_the_same(
    authority: Authority, certificate: Certificate
) -> None:
    def pieces(peer: Peer) -> None:
        for byte in info_line(server_name="slow"):
            peer.send(bytes([byte]))
        peer.start_tls()
        peer.log_in(info_line(server_name="slow"))
        peer.serve()

    with ScriptedServer(pieces, certificate=certificate) as server:
        async with await tradewind.connect(
            f"tls://127.0.0.1:{server.port}", **tls_options(authority)
        ) as connection:
            assert connection.info.server_name == "slow"
