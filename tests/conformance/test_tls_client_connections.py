"""TLS on the client listener: when it starts, what INFO says, certificates and mapped users."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from helpers_ops import (
    VIOLATION,
    Certificates,
    connect_line,
    connection_of,
    fetch,
    open_client,
    replies,
    running,
    system_request,
)

from certificates import Authority
from harness import REPLY_SECONDS, RawClient, ServerProcess, StartServer, wait_for

PW = "cert-and-password"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory = tmp_path_factory.mktemp("certificates")
    made = Certificates(directory)
    own, foreign = made.authority, Authority(directory, "foreign")
    made.clients = {
        "email": own.client("email", subject="CN=ignored", emails=["derek@nats.io"]),
        "dns": own.client("dns", subject="CN=ignored", dns_names=["client.example.com"]),
        "named": own.client("named", subject="CN=cnuser,OU=Ops,O=Acme", emails=["no@nats.io"]),
        "unknown": own.client("unknown", subject="CN=x", emails=["stranger@nats.io"]),
        "foreign": foreign.client("email", subject="CN=ignored", emails=["derek@nats.io"]),
    }
    return made


@pytest.fixture(scope="module")
def required(
    shared_kind: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    config = certificates.block() + 'http: "127.0.0.1:-1"\n'
    with running(shared_kind, tmp_path_factory.mktemp("required"), config) as process:
        yield process


@pytest.fixture(scope="module")
def verifying(
    shared_kind: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    config = certificates.block("verify: true")
    with running(shared_kind, tmp_path_factory.mktemp("verifying"), config) as process:
        yield process


@pytest.fixture(scope="module")
def mapping(
    shared_kind: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    config = (
        certificates.block("verify_and_map: true")
        + f"""
http: "127.0.0.1:-1"
accounts {{
  MAIL {{ users: [ {{ user: "derek@nats.io", permissions: {{ publish: "mail.>" }} }} ] }}
  HOST {{ users: [ {{ user: "client.example.com" }} ] }}
  NAME {{ users: [ {{ user: "CN=cnuser,OU=Ops,O=Acme" }}, {{ user: pw, password: "{PW}" }} ] }}
}}
"""
    )
    with running(shared_kind, tmp_path_factory.mktemp("mapping"), config) as process:
        yield process


def enter(
    server: ServerProcess, certificates: Certificates, name: str | None = None, line: str = ""
) -> RawClient:
    """A client that has read INFO, put TLS on, logged in and read the second INFO."""
    client = certificates.upgrade(open_client(server), name)
    client.send((line or connect_line()) + "PING\r\n")
    client.expect("PONG")
    client.info = client.read_info()
    return client


def assert_handshake_fails(
    server: ServerProcess, certificates: Certificates, name: str | None, alert: str
) -> None:
    """TLS 1.3 lets the client finish first, so the alert may only show when it reads."""

    def attempt(client: RawClient) -> bytes:
        return certificates.upgrade(client, name).read_line()

    with open_client(server) as client, pytest.raises(ssl.SSLError, match=alert):
        attempt(client)


def test_info_requires_tls_and_the_upgrade_works(
    required: ServerProcess, certificates: Certificates
) -> None:
    with open_client(required) as client:
        assert client.info["tls_required"] is True
        assert "tls_verify" not in client.info
        assert "tls_available" not in client.info
        certificates.upgrade(client)
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.version() in ("TLSv1.2", "TLSv1.3")
        client.send(connect_line() + "PING\r\n")
        client.expect("PONG")
        assert client.read_info()["tls_required"] is True


def test_messages_flow_over_tls(required: ServerProcess, certificates: Certificates) -> None:
    with enter(required, certificates) as client:
        payload = "x" * 200_000
        client.send("SUB big 1\r\n" + f"PUB big {len(payload)}\r\n{payload}\r\n")
        line, _, received = client.read_message()
        assert line == "MSG big 1 200000"
        assert received == payload.encode()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_current_versions_are_spoken(
    required: ServerProcess, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    context = certificates.context()
    context.minimum_version = context.maximum_version = version
    with open_client(required) as client:
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        client.send(connect_line() + "PING\r\n")
        client.expect("PONG")
        client.info = client.read_info()
        shown = connection_of(required, client)
        assert shown["tls_version"] == version.name[4:].replace("_", ".").lstrip("v")
        assert shown["tls_cipher_suite"].startswith("TLS_")


def test_plain_client_is_closed_without_a_word(required: ServerProcess) -> None:
    with open_client(required) as client:
        client.send(connect_line() + "PING\r\n")
        assert client.read_to_end() == b""


def test_client_that_never_starts_tls_is_closed_at_the_timeout(
    start: StartServer, certificates: Certificates
) -> None:
    server = start(certificates.block("timeout: 0.3") + 'http: "127.0.0.1:-1"\n')
    began = time.monotonic()
    with open_client(server) as client:
        assert client.read_to_end() == b""
    assert time.monotonic() - began > 0.2
    page = fetch(server, "/varz").json()
    assert page["tls_timeout"] == pytest.approx(0.3)
    assert page["auth_timeout"] == pytest.approx(1.3)


def test_hello_before_info_fails_when_info_comes_first(
    required: ServerProcess, certificates: Certificates
) -> None:
    with open_client(required, read_info=False) as client, pytest.raises(ssl.SSLError):
        certificates.upgrade(client)


def test_start_is_logged(required: ServerProcess) -> None:
    required.wait_for_log(r"\[INF\] TLS required for client connections")


def test_varz_shows_tls(required: ServerProcess) -> None:
    page = fetch(required, "/varz").json()
    assert page["tls_required"] is True
    assert page["tls_timeout"] == 2
    assert page["auth_timeout"] == 3
    assert "tls_verify" not in page


def test_server_without_certificate_of_a_client_in_auth_mode_still_needs_a_login(
    start: StartServer, certificates: Certificates
) -> None:
    server = start(certificates.block() + "authorization { token: t }")
    with open_client(server) as client:
        assert client.info["auth_required"] is True
        certificates.upgrade(client)
        client.send(connect_line(auth_token="wrong"))
        assert client.read_to_end() == VIOLATION
    with enter(server, certificates, line=connect_line(auth_token="t")) as client:
        assert replies(client, "") == []


def test_allow_non_tls_serves_both(start: StartServer, certificates: Certificates) -> None:
    server = start(certificates.block() + "allow_non_tls: true\n")
    server.wait_for_log("TLS available for client connections")
    with open_client(server) as plain:
        assert plain.info["tls_available"] is True
        assert "tls_required" not in plain.info
        plain.send(connect_line() + "PING\r\n")
        plain.expect("PONG")
    with enter(server, certificates) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.info["tls_available"] is True


def test_handshake_first_true_speaks_tls_before_info(
    start: StartServer, certificates: Certificates
) -> None:
    server = start(certificates.block(f"handshake_first: true, timeout: {REPLY_SECONDS}"))
    with open_client(server, read_info=False) as client:
        certificates.upgrade(client)
        assert client.read_info()["tls_required"] is True
        client.send(connect_line() + "PING\r\n")
        client.expect("PONG")
    with open_client(server, read_info=False) as plain:
        plain.send(connect_line() + "PING\r\n")
        assert plain.read_to_end() == b""


def speaks_tls_first(server: ServerProcess, context: ssl.SSLContext) -> bool:
    with open_client(server, read_info=False) as client:
        try:
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        except ssl.SSLError:
            return False
        assert client.read_info()["tls_required"] is True
        client.send(connect_line() + "PING\r\n")
        client.expect("PONG")
        return True


@pytest.mark.parametrize(("value", "delay"), [("auto", 0.05), ('"300ms"', 0.3)])
def test_handshake_first_with_a_delay_serves_both(
    start: StartServer, certificates: Certificates, value: str, delay: float
) -> None:
    """The hello has to arrive within the delay, which a busy machine may miss now and then."""
    server = start(certificates.block(f"handshake_first: {value}"))
    context = certificates.context()
    wait_for(lambda: speaks_tls_first(server, context), "a handshake before INFO")
    began = time.monotonic()
    with enter(server, certificates) as patient:
        waited = time.monotonic() - began
        assert patient.info["tls_required"] is True
    assert waited > delay * 0.9


@pytest.mark.parametrize("name", ["email", "dns"])
def test_verify_accepts_a_certificate_of_the_authority(
    verifying: ServerProcess, certificates: Certificates, name: str
) -> None:
    with enter(verifying, certificates, name) as client:
        assert client.info["tls_required"] is True
        assert client.info["tls_verify"] is True


def test_verify_refuses_a_client_without_certificate(
    verifying: ServerProcess, certificates: Certificates
) -> None:
    assert_handshake_fails(verifying, certificates, None, "CERTIFICATE_REQUIRED")
    verifying.wait_for_log(r"\[ERR\] 127\.0\.0\.1:\d+ - cid:\d+ - TLS handshake error: ")


def test_verify_refuses_a_certificate_of_another_authority(
    verifying: ServerProcess, certificates: Certificates
) -> None:
    assert_handshake_fails(verifying, certificates, "foreign", "UNKNOWN_CA")


@pytest.mark.parametrize(
    ("name", "account", "user"),
    [
        ("email", "MAIL", "derek@nats.io"),
        ("dns", "HOST", "client.example.com"),
        ("named", "NAME", "CN=cnuser,OU=Ops,O=Acme"),
    ],
)
def test_certificate_is_mapped_to_its_user(
    mapping: ServerProcess, certificates: Certificates, name: str, account: str, user: str
) -> None:
    with enter(mapping, certificates, name) as client:
        assert client.info["remote_account"] == account
        shown = connection_of(mapping, client, "&auth=1")
        assert shown["authorized_user"] == user
        assert shown["account"] == account
        assert shown["tls_peer_certs"][0].keys() == {"subject", "spki_sha256", "cert_sha256"}


def test_mapped_user_info_and_permissions(
    mapping: ServerProcess, certificates: Certificates
) -> None:
    with enter(mapping, certificates, "dns") as client:
        data = system_request(client, "$SYS.REQ.USER.INFO")["data"]
        assert data["user"] == "client.example.com"
    with enter(mapping, certificates, "email") as client:
        assert replies(client, "PUB mail.a 0\r\n\r\nPUB other 0\r\n\r\n") == [
            b"-ERR 'Permissions Violation for Publish to \"other\"'"
        ]


def test_certificate_of_no_user_is_refused(
    mapping: ServerProcess, certificates: Certificates
) -> None:
    with certificates.upgrade(open_client(mapping), "unknown") as client:
        client.send(connect_line())
        assert client.read_to_end() == VIOLATION


def test_password_does_not_replace_the_mapped_user(
    mapping: ServerProcess, certificates: Certificates
) -> None:
    with certificates.upgrade(open_client(mapping), "email") as client:
        client.send(connect_line("pw", PW))
        assert client.read_to_end() == VIOLATION
    assert PW not in mapping.log


def test_mapping_refuses_a_client_without_certificate(
    mapping: ServerProcess, certificates: Certificates
) -> None:
    assert_handshake_fails(mapping, certificates, None, "CERTIFICATE_REQUIRED")


# Flags


def flags(certificates: Certificates) -> list[str]:
    server = certificates.server
    return ["--tlscert", server.cert_file, "--tlskey", server.key_file]


def test_tls_flags(start: StartServer, certificates: Certificates) -> None:
    server = start("", "--tls", *flags(certificates))
    with enter(server, certificates) as client:
        assert client.info["tls_required"] is True
        assert "tls_verify" not in client.info


def test_certificate_flags_alone_turn_tls_on(
    start: StartServer, certificates: Certificates
) -> None:
    server = start("", *(flag.replace("--", "-", 1) for flag in flags(certificates)))
    with enter(server, certificates) as client:
        assert client.info["tls_required"] is True


def test_tls_verify_flag(start: StartServer, certificates: Certificates) -> None:
    authority = f"--tlscacert={certificates.authority.ca_file}"
    server = start("", "--tlsverify", authority, *flags(certificates))
    with enter(server, certificates, "email") as client:
        assert client.info["tls_verify"] is True
    assert_handshake_fails(server, certificates, None, "CERTIFICATE_REQUIRED")


def test_tls_flag_without_certificate_stops_the_start(start: StartServer) -> None:
    server = start("", "--tls", ready=False)
    assert server.wait() == 1
    assert "certificate" in server.log


def test_missing_certificate_file_stops_the_start(start: StartServer, tmp_path: Path) -> None:
    absent = tmp_path / "absent.pem"
    server = start(f'tls {{ cert_file: "{absent}", key_file: "{absent}" }}', ready=False)
    assert server.wait() == 1
    assert str(absent) in server.log


# The public Python client


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_python_client_over_tls(
    required: ServerProcess, certificates: Certificates, scheme: str
) -> None:
    client = await nats.connect(
        f"{scheme}://localhost:{required.port}",
        tls=certificates.context(),
        allow_reconnect=False,
        connect_timeout=REPLY_SECONDS,
    )
    subscription = await client.subscribe("hello")
    await client.publish("hello", b"over tls")
    assert (await subscription.next_msg(timeout=REPLY_SECONDS)).data == b"over tls"
    await client.close()


async def test_python_client_with_a_certificate(
    mapping: ServerProcess, certificates: Certificates
) -> None:
    client = await nats.connect(
        f"tls://localhost:{mapping.port}",
        tls=certificates.context("dns"),
        allow_reconnect=False,
        connect_timeout=REPLY_SECONDS,
    )
    answer = await client.request("$SYS.REQ.USER.INFO", b"", timeout=REPLY_SECONDS)
    assert b'"client.example.com"' in answer.data
    await client.close()


async def test_python_client_with_handshake_first(
    start: StartServer, certificates: Certificates
) -> None:
    server = start(certificates.block("handshake_first: true"))
    client = await nats.connect(
        f"tls://localhost:{server.port}",
        tls=certificates.context(),
        tls_handshake_first=True,
        allow_reconnect=False,
        connect_timeout=REPLY_SECONDS,
    )
    await client.flush(timeout=REPLY_SECONDS)
    await client.close()
