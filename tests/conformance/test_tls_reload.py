"""TLS as time goes on: certificates that expire, authorities and pins that a reload replaces."""

from __future__ import annotations

import datetime
import socket
import ssl
from pathlib import Path

import pytest
from helpers_ops import connect_line, open_client, reload

from certificates import Authority, Certificate
from harness import ServerProcess, StartServer, wait_for

SECONDS = 20
PAGE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls(server: Certificate, trusted: Authority, more: str = "") -> str:
    return (
        f'tls {{ cert_file: "{server.cert_file}", key_file: "{server.key_file}", '
        f'ca_file: "{trusted.ca_file}"\n{more} }}\n'
    )


def all_listeners(block: str) -> str:
    return f'{block}https: "127.0.0.1:-1"\nwebsocket {{ listen: "127.0.0.1:-1"\n{block} }}\n'


def ports(server: ServerProcess) -> dict[str, int]:
    monitor = server.wait_for_log(r"https monitor on 127\.0\.0\.1:(\d+)")
    websocket = server.wait_for_log(r"wss://127\.0\.0\.1:(\d+)")
    return {"monitor": int(monitor[1]), "websocket": int(websocket[1])}


def ask(port: int, context: ssl.SSLContext) -> bytes:
    """The first line that a page of this listener begins with."""
    with (
        socket.create_connection(("127.0.0.1", port), SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        secure.sendall(PAGE)
        return secure.recv(65536).split(b"\r\n")[0]


def enter(
    server: ServerProcess, context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> ssl.SSLSession:
    """Log in; ssl.SSLError or ConnectionError when the server does not want this certificate."""
    with open_client(server) as client:
        secure = context.wrap_socket(client.socket, server_hostname="localhost", session=session)
        client.socket = secure
        client.send(connect_line() + "PING\r\n")
        if client.read_line() != b"PONG":
            raise ConnectionResetError("closed instead of a PONG")
        assert secure.session is not None
        return secure.session


def test_expired_client_is_refused_whatever_session_it_offers(
    start: StartServer, authority: Authority
) -> None:
    server = start(tls(authority.server(), authority, "verify: true"))
    for life_seconds in (2, 8, 30):  # longer if the machine is too busy to connect in time
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=life_seconds)
        context = authority.client("brief", subject="CN=brief", end=end).client_context(authority)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_TICKET
        try:
            session = enter(server, context)
            break
        except (ssl.SSLError, ConnectionError):
            continue
    # A certificate is valid until the end of the second that it names.
    moment = end.replace(microsecond=0) + datetime.timedelta(seconds=1)
    wait_for(lambda: datetime.datetime.now(datetime.UTC) > moment, "the certificate to expire", 60)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        enter(server, context, session)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_of_a_removed_authority_is_refused_whatever_session_it_offers(
    start: StartServer, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    own = authority.server()
    server = start(tls(own, authority, "verify: true"))
    context = authority.client(subject="CN=old").client_context(authority)
    context.maximum_version = version
    session = enter(server, context)
    reload(server, tls(own, Authority(tmp_path, "other"), "verify: true"))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        enter(server, context, session)


def resume(
    server: ServerProcess, context: ssl.SSLContext, session: ssl.SSLSession | None, user: str
) -> tuple[ssl.SSLSession | None, bool | None, bytes]:
    """Log in by a password: the session, whether it was an old one, and the answer."""
    with open_client(server) as client:
        secure = context.wrap_socket(client.socket, server_hostname="localhost", session=session)
        client.socket = secure
        client.send(connect_line(user, "secret") + "PING\r\n")
        answer = client.read_line()
        return secure.session, secure.session_reused, answer


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_session_does_not_replace_the_login(
    start: StartServer, authority: Authority, version: ssl.TLSVersion
) -> None:
    block = tls(authority.server(), authority)
    users = "{ user: stays, password: secret }, { user: leaves, password: secret }"
    server = start(f"{block}authorization {{ users: [ {users} ] }}\n")
    context = authority.client_context()
    context.maximum_version = version
    session, reused, answer = resume(server, context, None, "leaves")
    assert (reused, answer) == (False, b"PONG")
    session, reused, answer = resume(server, context, session, "leaves")
    assert (reused, answer) == (True, b"PONG")
    assert resume(server, context, session, "stranger")[2].startswith(b"-ERR 'Authorization")
    reload(server, f"{block}authorization {{ users: [ {{ user: stays, password: secret }} ] }}\n")
    assert resume(server, context, session, "leaves")[2].startswith(b"-ERR 'Authorization")
    assert resume(server, context, session, "stays")[2] == b"PONG"


@pytest.mark.parametrize("listener", ["monitor", "websocket"])
def test_reload_replaces_the_certificate_of_every_listener(
    start: StartServer, authority: Authority, tmp_path: Path, listener: str
) -> None:
    server = start(all_listeners(tls(authority.server(), authority)))
    port = ports(server)[listener]
    assert ask(port, authority.client_context()).startswith(b"HTTP/1.1 ")
    other = Authority(tmp_path, "other")
    assert "Reloaded" in reload(server, all_listeners(tls(other.server(), other)))
    assert ask(port, other.client_context()).startswith(b"HTTP/1.1 ")
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(port, authority.client_context())


def test_pages_ask_nobody_for_a_certificate(start: StartServer, authority: Authority) -> None:
    server = start(all_listeners(tls(authority.server(), authority, "verify: true")))
    assert ask(ports(server)["monitor"], authority.client_context()) == b"HTTP/1.1 200 OK"


def test_reload_ends_connections_that_are_no_longer_pinned(
    start: StartServer, authority: Authority
) -> None:
    own = authority.server()
    stays, goes = (authority.client(name, subject=f"CN={name}") for name in ("stays", "goes"))

    def pinned(*certificates: Certificate) -> str:
        pins = ", ".join(f'"{certificate.pin}"' for certificate in certificates)
        return tls(own, authority, f"verify: true, pinned_certs: [{pins}]")

    server = start(pinned(stays, goes))
    with open_client(server) as one, open_client(server) as two:
        for client, certificate in ((one, stays), (two, goes)):
            context = certificate.client_context(authority)
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
            client.connect(protocol=0)
        reload(server, pinned(stays))
        server.wait_for_log(r"\[INF\] Reloaded: 1 pinned_certs")
        server.wait_for_log(r"\[INF\] Disconnect 1 clients due to pinned certs reload")
        two.expect_closed()
        one.ping()
    enter(server, stays.client_context(authority))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        enter(server, goes.client_context(authority))
    server.wait_for_log("certificate not pinned")
