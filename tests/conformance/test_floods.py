"""What others feel while somebody floods the server with connections that come to nothing."""

from __future__ import annotations

from pathlib import Path

import bcrypt
import pytest

from certificates import Authority
from floods import Flood, client_hello, connect_line
from harness import RawClient, StartServer

PASSWORD = "correct horse"
# Cost 11, as `nats server passwd` makes them: about a tenth of a second of processor time a check.
HASH = bcrypt.hashpw(PASSWORD.encode(), b"$2b$11$" + b"a" * 21 + b"u").decode()
# In so many seconds a flood of 250 cannot be checked, and a good password can on a busy machine.
TIMEOUT = 8
FLOOD = 250
USERS = f"""
authorization {{
  timeout: {TIMEOUT}
  users: [ {{ user: alice, password: "{HASH}" }}, {{ user: bob, password: "{HASH}" }} ]
}}
"""
GOOD = {"user": "alice", "pass": PASSWORD}


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
def test_good_login_enters_while_unknown_names_flood(start: StartServer, source: str) -> None:
    server = start(USERS)
    with (
        RawClient(server.port).connect(**GOOD) as bystander,
        Flood(server.port, FLOOD, source) as flood,
    ):
        flood.send(connect_line("nobody", "x"))
        bystander.ping()
        with RawClient(server.port).connect(**GOOD) as client:
            client.ping()
        bystander.ping()


def test_hellos_without_end_leave_others_alone(start: StartServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.server()
    server = start(
        f'tls {{ cert_file: "{certificate.cert_file}", key_file: "{certificate.key_file}",'
        f" timeout: {TIMEOUT} }}"
    )
    context = authority.client_context()

    def secured() -> RawClient:
        client = RawClient(server.port)
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        return client.connect()

    with secured() as bystander, Flood(server.port, FLOOD) as flood:
        flood.read_infos()
        flood.send(client_hello())
        bystander.ping()
        with secured() as client:
            client.ping()
        bystander.ping()


def test_upgrades_without_end_leave_others_alone(start: StartServer) -> None:
    server = start('websocket { listen: "127.0.0.1:-1", no_tls: true, handshake_timeout: "30s" }')
    port = int(server.wait_for_log(r"websocket clients on ws://127.0.0.1:(\d+)")[1])
    with RawClient(server.port).connect() as bystander, Flood(port, FLOOD) as flood:
        flood.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        for _ in range(20):
            flood.send(b"x")
            bystander.ping()
        with RawClient(port, read_info=False) as client:
            client.send(
                "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            client.expect("HTTP/1.1 101 Switching Protocols")
