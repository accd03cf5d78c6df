"""Floods of a real server: who is served before whom.

The clock is not asked: all that is sent has arrived when the server looks, and its log, which has
what it has sent, says what it has done first.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from certificates import Authority
from floods import Flood, client_hello, connect_line
from harness import RawClient, ServerProcess

PASSWORD = "correct horse"
HASH = bcrypt.hashpw(PASSWORD.encode(), b"$2b$09$" + b"a" * 21 + b"u").decode()
USERS = f"""
listen: "127.0.0.1:-1"
authorization {{
  timeout: 60
  users: [ {{ user: alice, password: "{HASH}" }}, {{ user: bob, password: "{HASH}" }} ]
}}
"""
GOOD = {"user": "alice", "pass": PASSWORD}
# Behind a ClientHello: the handshake ends when the server has answered that.
NO_RECORD = b"x" * 40
FLOOD = 300


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    path = tmp_path / "server.conf"
    path.write_text(request.param if isinstance(request.param, str) else request.param(tmp_path))
    process = ServerProcess("tradewind", ["-c", str(path), "-V"])
    try:
        yield process.wait_ready()
    finally:
        process.signal(signal.SIGCONT)
        process.stop()


def answered_before(server: ServerProcess, client: RawClient, since: int, refusal: str) -> int:
    """How many lines of the log are of such a kind before the one of a PONG for the client."""
    pong = rf"cid:{client.info['client_id']} .*->> \[PONG\]"
    server.wait_for_log(pong, since=since)
    count = 0
    for line in server.lines[since:]:
        if re.search(pong, line):
            break
        count += refusal in line
    return count


@pytest.mark.parametrize("server", [USERS], indirect=True)
@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("nobody", "127.0.0.1"),
        ("nobody", "127.0.0.2"),
        ("bob", "127.0.0.1"),
        ("alice", "127.0.0.2"),
    ],
)
def test_good_login_enters_before_a_flood_is_refused(
    server: ServerProcess, name: str, source: str
) -> None:
    with (
        RawClient(server.port).connect(**GOOD) as bystander,
        Flood(server.port, FLOOD, source) as flood,
    ):
        flood.read_infos()
        server.signal(signal.SIGSTOP)
        flood.send(connect_line(name, "wrong"))
        with RawClient(server.port, read_info=False) as member:
            member.send(connect_line(*GOOD.values()))
            server.signal(signal.SIGCONT)
            member.info = member.read_info()
            bystander.ping()
            member.expect("PONG")
            assert answered_before(server, member, 0, "authentication error") < FLOOD // 2
        bystander.ping()


def rsa_config(directory: Path) -> str:
    """A large key: each handshake takes milliseconds."""
    certificate = Authority(directory).server(key=rsa.generate_private_key(65537, 4096))
    return (
        'listen: "127.0.0.1:-1"\n'
        f'tls {{ cert_file: "{certificate.cert_file}", key_file: "{certificate.key_file}",'
        " timeout: 60 }\nallow_non_tls: true\n"
    )


@pytest.mark.parametrize("server", [rsa_config], indirect=True)
def test_ping_is_answered_before_a_burst_of_handshakes_is_over(server: ServerProcess) -> None:
    with RawClient(server.port).connect() as bystander, Flood(server.port, FLOOD) as flood:
        flood.read_infos()
        # That of the login is not meant.
        server.wait_for_log(r"->> \[PONG\]")
        since = len(server.lines)
        server.signal(signal.SIGSTOP)
        flood.send(client_hello() + NO_RECORD)
        bystander.send("PING\r\n")
        server.signal(signal.SIGCONT)
        bystander.expect("PONG")
        assert answered_before(server, bystander, since, "TLS handshake error") < FLOOD
        server.wait_for_log("TLS handshake error")
