"""Several certificates on one listener, chosen by name; and how many handshakes a second has."""

from __future__ import annotations

import select
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from certificates import Authority, Certificate
from harness import REPLY_SECONDS, RawClient, ServerProcess, StartServer, wait_for

NAMES = {
    "a.example.com": "CN=a",
    "b.example.com": "CN=b",
    "B.Example.COM": "CN=b",
    "x.wild.example.com": "CN=b",
    "x.y.wild.example.com": "CN=a",
    "wild.example.com": "CN=a",
    "elsewhere.example.com": "CN=a",
    "": "CN=a",
}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def block(authority: Authority) -> Callable[..., str]:
    """A `tls` block with two certificates."""
    made = [
        authority.client("a", subject="CN=a", dns_names=["a.example.com"]),
        authority.client("b", subject="CN=b", dns_names=["b.example.com", "*.wild.example.com"]),
    ]

    def write(more: str = "", certificates: list[Certificate] = made) -> str:
        entries = "\n".join(
            f'{{cert_file: "{one.cert_file}", key_file: "{one.key_file}"}}' for one in certificates
        )
        # Time enough for a handshake on a busy machine.
        more = f"timeout: {REPLY_SECONDS}\n{more}"
        return f'tls {{ certs: [\n{entries}\n]\nca_file: "{authority.ca_file}"\n{more} }}\n'

    return write


def shown_to(server: ServerProcess, name: str, own: Certificate | None = None) -> str:
    """The subject of the certificate that a client sees."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if own is not None:
        context.load_cert_chain(own.cert_file, own.key_file)
    with RawClient(server.port) as client:
        client.socket = context.wrap_socket(client.socket, server_hostname=name or None)
        der = client.socket.getpeercert(binary_form=True)  # type: ignore[attr-defined]
        client.send('CONNECT {"verbose":false}\r\nPING\r\n')
        client.expect("PONG")
        return x509.load_der_x509_certificate(der).subject.rfc4514_string()


def test_certificate_is_the_first_that_has_the_name(
    start: StartServer, block: Callable[..., str]
) -> None:
    server = start(block())
    assert {name: shown_to(server, name) for name in NAMES} == NAMES


def test_clients_are_verified_whatever_name_they_ask_for(
    start: StartServer, block: Callable[..., str], authority: Authority, tmp_path: Path
) -> None:
    server = start(block("verify: true"))
    own = authority.client("client", subject="CN=client")
    foreign = Authority(tmp_path, "foreign").client("stranger", subject="CN=stranger")
    for name in ("a.example.com", "b.example.com", ""):
        assert shown_to(server, name, own) == NAMES[name]
        for stranger in (foreign, None):
            with pytest.raises((OSError, AssertionError)):
                shown_to(server, name, stranger)


def has_more(client: RawClient) -> bool:
    """Whether something can be read at once."""
    return bool(client.buffer or select.select([client.socket], [], [], 0)[0])


def test_handshakes_of_a_second_are_limited(start: StartServer, block: Callable[..., str]) -> None:
    """Whoever is one too many is told so in the clear, and nobody else feels it."""
    server = start(block("connection_rate_limit: 1"))
    throttled = b"-ERR 'Connection throttling is active. Please try again later.'"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with RawClient(server.port) as first:
        first.socket = context.wrap_socket(first.socket)
        first.connect()
        # Twenty connections cannot take twenty seconds, so some of them are too many.
        clients = [RawClient(server.port) for _ in range(20)]
        try:
            told = wait_for(lambda: [one for one in clients if has_more(one)], "one told so")
            for client in told:
                assert client.read_line() == throttled
        finally:
            for client in clients:
                client.close()
        first.ping()
