"""The upgrade to WebSocket: requests and refusals, origins, cookies and TLS."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from certificates import Authority
from cpu_clock import process_seconds
from harness import REPLY_SECONDS, RawClient, ServerProcess, StartServer
from websocket_frames import (
    BINARY,
    KEY_ANSWER,
    LISTENING,
    FrameClient,
    frame,
    request,
    websocket_config,
    websocket_port,
)

REFUSED = b"-ERR 'Authorization Violation'"
# Far above what a few requests take, and far below what one took that was read again and again.
CPU_SECONDS_MAX = 0.5


@pytest.fixture(scope="module")
def port(shared_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The WebSocket port of one server that tests of this module share."""
    path = tmp_path_factory.mktemp("upgrade") / "server.conf"
    path.write_text(websocket_config('headers { "X-Region": "west", "x-zone": "a b" }'))
    process = ServerProcess(shared_kind, ["-a", "127.0.0.1", "-p", "-1", "-c", str(path)])
    try:
        yield websocket_port(process.wait_ready())
    finally:
        process.stop()


def test_accepted_upgrade_has_the_key_answer_and_the_configured_headers(port: int) -> None:
    with FrameClient(port) as client:
        assert client.response.status == 101
        assert client.response.reason == "Switching Protocols"
        assert client.response.headers == {
            "upgrade": "websocket",
            "connection": "Upgrade",
            "sec-websocket-accept": KEY_ANSWER,
            "x-region": "west",
            "x-zone": "a b",
        }


@pytest.mark.parametrize(
    ("upgrade", "status"),
    [
        (request(method="POST"), 405),
        (request(method="PUT"), 405),
        (request(Host=""), 400),
        (request(Upgrade=None), 400),
        (request(Upgrade="h2c"), 400),
        (request(Connection=None), 400),
        (request(Connection="keep-alive"), 400),
        (request(Sec_WebSocket_Key=None), 400),
        (request(Sec_WebSocket_Key="short"), 400),
        (request(Sec_WebSocket_Version=None), 400),
        (request(Sec_WebSocket_Version="8"), 400),
        (request(path="/mqtt"), 404),  # advisory 2026-27
    ],
)
def test_wrong_upgrade_is_refused(port: int, upgrade: bytes, status: int) -> None:
    with FrameClient(port, upgrade) as client:
        response = client.response
        assert response.status == status
        assert response.body == response.reason.encode() + b"\n"
        for name in ("date", "connection"):
            response.headers.pop(name, None)
        assert response.headers == {
            "content-type": "text/plain; charset=utf-8",
            "sec-websocket-version": "13",
            "x-content-type-options": "nosniff",
            "content-length": str(len(response.body)),
        }


@pytest.mark.parametrize(
    ("upgrade", "status"),
    [
        (b"hello\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nNoColon\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nFoo : x\r\n\r\n", "400 Bad Request: invalid header name"),
        (request(path="x"), "400 Bad Request"),
        (request(path="/a%zz"), "400 Bad Request"),
        (request(Host=None), "400 Bad Request: missing required Host header"),
        (request(Host="a b"), "400 Bad Request: malformed Host header"),
        (request(host="second"), "400 Bad Request"),
        (
            request(version="HTTP/2.0"),
            "505 HTTP Version Not Supported: unsupported protocol version",
        ),
        (request(X="a" * 2_000_000), "431 Request Header Fields Too Large"),
    ],
)
def test_malformed_request_is_refused_and_closed(port: int, upgrade: bytes, status: str) -> None:
    with RawClient(port, read_info=False) as client:
        with contextlib.suppress(ConnectionError):
            client.send(upgrade)
        assert client.read_to_end().decode() == (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Connection: close\r\n\r\n{status}"
        )


@pytest.mark.parametrize(
    "upgrade",
    [
        request(Upgrade="WebSocket", Connection="keep-alive, upgrade"),
        request(version="HTTP/1.0"),
        request().replace(b"\r\n", b"\n"),
        request(path="http://elsewhere/x"),
        request(path="http:///x"),
        request(path="/xmqtt"),
        request(Connection="keep-alive,\r\n\tUpgrade"),
        request(X="a" * 60_000),
        request(path="/" + "a" * 60_000),
        request(path="/" + "a:/" * 20_000),
        request(X="a" + "\r\n a" * 15_000),
    ],
)
def test_unusual_but_valid_upgrade_is_accepted(port: int, upgrade: bytes) -> None:
    with FrameClient(port, upgrade) as client:
        client.connect()


def test_long_request_of_a_stranger_takes_next_to_no_time(start: StartServer) -> None:
    """SIGTERM is heard at once too: no part of the request keeps the server to itself."""
    server = start(websocket_config())
    port = websocket_port(server)
    with RawClient(server.port) as bystander:
        bystander.connect()
        before = process_seconds(server.process.pid)
        for path in ("/" + "a" * 60_000, "/" + "a.+" * 20_000, "x://" + "/a" * 30_000):
            with FrameClient(port, request(path=path)) as stranger:
                assert stranger.response.status == 101
            bystander.ping()
        assert process_seconds(server.process.pid) - before < CPU_SECONDS_MAX
    server.signal(signal.SIGTERM)
    server.wait()


def test_data_before_the_answer_is_refused(port: int) -> None:
    with RawClient(port, read_info=False) as client:
        client.send(request() + frame(BINARY, b"PING\r\n"))
        assert b" 101 " not in client.read_to_end()


def test_leafnode_path_is_not_for_clients(port: int) -> None:
    with RawClient(port, read_info=False) as client:
        client.send(request(path="/leafnode"))
        assert b"INFO" not in client.read_to_end()


def test_forwarded_address_does_not_replace_that_of_the_socket(port: int) -> None:
    with FrameClient(port, request(X_Forwarded_For="9.8.7.6")) as client:
        info = json.loads(client.read_until(b"\r\n").removeprefix(b"INFO "))
        assert info["client_ip"] == "127.0.0.1"


def test_slow_upgrade_is_closed(start: StartServer) -> None:
    server = start(websocket_config('handshake_timeout: "300ms"'))
    with RawClient(websocket_port(server), read_info=False) as client:
        client.send(b"GET / HT")
        assert client.read_to_end().startswith(b"HTTP/1.1 400 Bad Request\r\n")


# --- origins


def status_of(port: int, **headers: str) -> int:
    with FrameClient(port, request(**headers)) as client:
        return client.response.status


def test_same_origin_compares_scheme_host_and_port(start: StartServer) -> None:
    port = websocket_port(start(websocket_config("same_origin: true")))
    host = "localhost:8080"
    assert status_of(port, Host=host) == 101
    assert status_of(port, Host=host, Origin="http://localhost:8080") == 101
    assert status_of(port, Host="localhost", Origin="http://LOCALHOST:80") == 101
    for origin in ("http://localhost", "https://localhost:8080", "http://other:8080", "null"):
        assert status_of(port, Host=host, Origin=origin) == 403
    assert status_of(port, Host=host, Sec_WebSocket_Origin="http://other") == 403
    with (
        pytest.raises(InvalidStatus) as caught,
        connect(f"ws://127.0.0.1:{port}", origin=Origin("http://evil.org")),
    ):
        pass
    assert caught.value.response.status_code == 403


def test_only_allowed_origins_pass(start: StartServer) -> None:
    origins = '"http://a.com", "http://a.com:8080", "https://b.com:444"'
    port = websocket_port(start(websocket_config(f"allowed_origins: [{origins}]")))
    assert status_of(port) == 101
    for origin in ("http://a.com", "http://A.com:80", "http://a.com:8080", "https://b.com:444"):
        assert status_of(port, Origin=origin) == 101
    for origin in ("https://a.com", "http://b.com:444", "http://c.com", "null"):
        assert status_of(port, Origin=origin) == 403


# --- cookies


def cookie_login(port: int, cookie: str, options: str = "{}") -> bytes:
    """The last line that the server sends after CONNECT and PING."""
    with FrameClient(port, request(Cookie=cookie)) as client:
        client.read_until(b"\r\n")
        client.send_text(f"CONNECT {options}\r\nPING\r\n")
        data = b""
        while not re.search(rb"(PONG|-ERR [^\r]*)\r\n", data):
            data += client.read_frame()[1]
        return data.split(b"\r\n")[-2]


def test_user_and_password_cookies_are_used_when_connect_has_none(start: StartServer) -> None:
    block = "user_cookie: u, pass_cookie: p"
    port = websocket_port(
        start(websocket_config(block, "authorization { user: joe, password: pw }"))
    )
    for cookie in (
        "u=joe; p=pw",
        'u="joe";p="pw"',
        "u=x; u=joe; p=pw; other",
        "a b=1; u=joe; p=pw",
    ):
        assert cookie_login(port, cookie) == b"PONG", cookie
    for cookie in ("u=joe", "p=pw", "u=joe; p=wrong", "U=joe; P=pw", "u=joe; u=x; p=pw"):
        assert cookie_login(port, cookie) == REFUSED, cookie
    assert cookie_login(port, "u=joe; p=pw", '{"user":"joe","pass":"wrong"}') == REFUSED
    assert cookie_login(port, "u=x; p=y", '{"user":"joe","pass":"pw"}') == b"PONG"


def test_token_cookie_is_used_when_connect_has_none(start: StartServer) -> None:
    port = websocket_port(
        start(websocket_config("token_cookie: t", "authorization { token: secret }"))
    )
    assert cookie_login(port, "t=secret") == b"PONG"
    assert cookie_login(port, "t=wrong") == REFUSED
    assert cookie_login(port, "x=secret") == REFUSED


# --- TLS


def test_tls_is_required_unless_switched_off(start: StartServer) -> None:
    server = start('websocket { host: "127.0.0.1", port: -1 }', ready=False)
    assert server.wait() == 1
    server.wait_for_log("(?i)websocket.* tls ")


def test_wss_is_served_with_the_configured_certificate(start: StartServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.server()
    server = start(
        'websocket { host: "127.0.0.1", port: -1, same_origin: true, tls {'
        f' cert_file: "{certificate.cert_file}", key_file: "{certificate.key_file}" }} }}'
    )
    listening = server.wait_for_log(LISTENING)
    assert listening[1] == "wss"
    port = int(listening[3])
    url = f"wss://localhost:{port}"
    trust = authority.client_context()
    with connect(url, ssl=trust, compression=None) as client:
        line = client.recv(timeout=REPLY_SECONDS)
        assert isinstance(line, bytes)
        info = json.loads(line.removeprefix(b"INFO "))
        assert info["tls_required"] is True
        assert info["port"] == port
    with connect(url, ssl=trust, origin=Origin(f"https://localhost:{port}")):
        pass
    with (
        pytest.raises(InvalidStatus) as caught,
        connect(url, ssl=trust, origin=Origin(f"http://localhost:{port}")),
    ):
        pass
    assert caught.value.response.status_code == 403
    with RawClient(port, read_info=False) as plain:
        plain.send(request())
        assert b" 101 " not in plain.read_to_end()
