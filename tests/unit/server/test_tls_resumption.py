"""Who may resume a session: clients that show no certificate, by tickets of the same settings.

A client with a certificate that offers an old session goes through a full handshake again.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

import tradewind
from certificates import Authority, Certificate
from ports import free_port
from tradewind.options import TlsOptions, WebsocketOptions
from tradewind.server.tls.tls import ServerContext, server_context
from tradewind.server.tls.tls_codec import TlsCodec

LISTENERS = ("client", "websocket")
KINDS = ("1.2 by id", "1.2 by ticket", "1.3")
# OpenSSL forgets an id when its connection has ended without a goodbye.
LASTING = KINDS[1:]
SECONDS = 20
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass
class Ground:
    """A server that verifies its clients, and the ports of its listeners."""

    authority: Authority
    client: Certificate
    ports: dict[str, int]
    shows_certificate: bool = True

    def context(self, kind: str) -> ssl.SSLContext:
        """A client that would resume sessions in this way."""
        context = (
            self.client.client_context(self.authority)
            if self.shows_certificate
            else self.authority.client_context()
        )
        version = ssl.TLSVersion.TLSv1_3 if kind == "1.3" else ssl.TLSVersion.TLSv1_2
        context.minimum_version = context.maximum_version = version
        if kind == "1.2 by id":
            context.options |= ssl.OP_NO_TICKET
        return context

    def visit(
        self, listener: str, context: ssl.SSLContext, session: ssl.SSLSession | None
    ) -> tuple[ssl.SSLSession | None, bool | None]:
        """Connect and get an answer: the session, and whether it was resumed."""
        with socket.create_connection(("127.0.0.1", self.ports[listener]), SECONDS) as plain:
            if listener == "client":
                assert plain.recv(65536).startswith(b"INFO ")
            with context.wrap_socket(plain, server_hostname="localhost", session=session) as secure:
                secure.sendall(b"PING\r\n" if listener == "client" else REQUEST)
                # With TLS 1.3 sessions come with the first answer.
                assert secure.recv(65536)
                return secure.session, secure.session_reused


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("resumption"))


@pytest.fixture(scope="module")
def options(authority: Authority) -> TlsOptions:
    own = authority.server()
    return TlsOptions(own.cert_file, own.key_file, authority.ca_file, verify=True)


def serve(
    authority: Authority, options: TlsOptions, *, shows_certificate: bool
) -> Iterator[Ground]:
    websocket = WebsocketOptions(host="127.0.0.1", port=-1, tls=options)
    https_port = free_port()
    with tradewind.serve(tls=options, websocket=websocket, https_port=https_port) as server:
        ports = {
            "client": server.port,
            "websocket": int(server.websocket_url.rpartition(":")[2]),
            "monitor": https_port,
        }
        client = authority.client(subject="CN=client")
        yield Ground(authority, client, ports, shows_certificate)


@pytest.fixture(scope="module")
def ground(authority: Authority, options: TlsOptions) -> Iterator[Ground]:
    yield from serve(authority, options, shows_certificate=True)


@pytest.fixture(scope="module")
def open_ground(authority: Authority, options: TlsOptions) -> Iterator[Ground]:
    """The same with a server that asks nobody for a certificate."""
    yield from serve(authority, replace(options, verify=False), shows_certificate=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("listener", LISTENERS)
def test_an_offered_session_leads_to_a_full_handshake(
    ground: Ground, listener: str, kind: str
) -> None:
    context = ground.context(kind)
    session, reused = ground.visit(listener, context, None)
    for _ in range(2):
        assert reused is False
        session, reused = ground.visit(listener, context, session)
    assert reused is False


@pytest.mark.parametrize("kind", LASTING)
@pytest.mark.parametrize("listener", [*LISTENERS, "monitor"])
def test_a_client_without_certificate_resumes(
    open_ground: Ground, listener: str, kind: str
) -> None:
    context = open_ground.context(kind)
    session, reused = open_ground.visit(listener, context, None)
    assert reused is False
    assert open_ground.visit(listener, context, session)[1] is True


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_of_another_listener_is_not_resumed(open_ground: Ground, kind: str) -> None:
    """2026-01: the other listener may ask for other certificates."""
    context = open_ground.context(kind)
    session, _ = open_ground.visit("client", context, None)
    assert open_ground.visit("websocket", context, session)[1] is False


@pytest.mark.parametrize("kind", LASTING)
def test_sessions_end_with_the_settings_that_they_began_with(
    authority: Authority, options: TlsOptions, kind: str
) -> None:
    """A reload makes another context, also if only a file has changed."""
    settings = replace(options, verify=False)
    client = Ground(authority, authority.client(), {}, shows_certificate=False).context(kind)
    first = server_context(settings)
    _, peer = connect(first, client)
    assert connect(first, client, peer.session)[1].session_reused is True
    _, peer = connect(server_context(settings), client, peer.session)
    assert peer.session_reused is False


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_without_certificate_does_not_get_past_verify(
    authority: Authority, options: TlsOptions, ground: Ground, open_ground: Ground, kind: str
) -> None:
    context = open_ground.context(kind)
    session, _ = open_ground.visit("client", context, None)
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        ground.visit("client", context, session)


def test_sessions_are_resumed_where_there_are_several_certificates(
    authority: Authority, options: TlsOptions
) -> None:
    other = authority.server("other")
    settings = replace(options, verify=False, more_certs=((other.cert_file, other.key_file),))
    server = server_context(settings)
    client = authority.client_context()
    _, peer = connect(server, client)
    assert connect(server, client, peer.session)[1].session_reused is True


def test_a_session_is_not_resumed_while_its_connection_is_open(ground: Ground) -> None:
    context = ground.context("1.2 by id")
    with socket.create_connection(("127.0.0.1", ground.ports["client"]), SECONDS) as plain:
        plain.recv(65536)
        with context.wrap_socket(plain, server_hostname="localhost") as secure:
            assert secure.session is not None
            assert ground.visit("client", context, secure.session)[1] is False


def connect(
    context: ServerContext,
    client: ssl.SSLContext,
    session: ssl.SSLSession | None = None,
) -> tuple[TlsCodec, ssl.SSLObject]:
    """Both ends after a handshake in memory."""
    codec = TlsCodec(context)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = client.wrap_bio(incoming, outgoing, server_hostname="localhost", session=session)
    done = [False, False]
    for _ in range(10):
        try:
            peer.do_handshake()
            done[0] = True
        except ssl.SSLWantReadError:
            pass
        if outgoing.pending:
            codec.feed(memoryview(outgoing.read()))
        done[1] = done[1] or codec.handshake()
        incoming.write(codec.take_output())
        if all(done):
            # With TLS 1.3 the ticket comes behind the handshake.
            incoming.write(b"".join(codec.encrypt(b"x")))
            assert peer.read(1) == b"x"
            return codec, peer
    raise AssertionError("the handshake did not end")


def test_connections_that_overlap_share_nothing(ground: Ground, options: TlsOptions) -> None:
    """A session of one that is complete is offered to one that was opened before."""
    server = server_context(options)
    old = ground.context("1.2 by id")
    early = TlsCodec(server)
    _, first = connect(server, old)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    second = old.wrap_bio(incoming, outgoing, server_hostname="localhost", session=first.session)
    with pytest.raises(ssl.SSLWantReadError):
        second.do_handshake()
    early.feed(memoryview(outgoing.read()))
    assert not early.handshake()
    incoming.write(early.take_output())
    with pytest.raises(ssl.SSLWantReadError):
        second.do_handshake()
    early.feed(memoryview(outgoing.read()))
    assert early.handshake()
    incoming.write(early.take_output())
    second.do_handshake()
    assert second.session_reused is False


def test_a_newer_version_costs_no_context_per_connection(
    ground: Ground, options: TlsOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What TLS 1.3 leaves nothing in is used again; what remembers a session never is."""
    server = server_context(options)
    shells: list[ssl.SSLContext | None] = []
    open_one = ServerContext.open

    def recorded(
        self: ServerContext, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> tuple[ssl.SSLObject, ssl.SSLContext | None]:
        connection, shell = open_one(self, incoming, outgoing)
        shells.append(shell)
        return connection, shell

    monkeypatch.setattr(ServerContext, "open", recorded)
    kept = [connect(server, ground.context(kind)) for kind in ("1.3", "1.3", "1.2 by id", "1.3")]
    assert shells[0] is shells[1] is shells[2]
    assert shells[3] is not shells[2]
    assert len(kept) == 4


def test_a_failed_handshake_gives_nothing_back(
    authority: Authority, options: TlsOptions, tmp_path: Path
) -> None:
    server = server_context(options)
    stranger = Authority(tmp_path, "stranger").client(subject="CN=x").client_context(authority)
    with pytest.raises(ssl.SSLError):
        connect(server, stranger)
    assert server._spare is None
