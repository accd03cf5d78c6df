"""TLS contexts: whom they accept and refuse, and what they say about wrong files and settings."""

from __future__ import annotations

import gc
import ssl
import weakref
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from msgspec.structs import replace

from certificates import Authority, Certificate, write_key
from tradewind.errors import ConfigError, ServerStartError
from tradewind.options import TlsOptions
from tradewind.server.tls.tls import (
    check_pinned,
    peer_certificate,
    requires_client_certificate,
    server_context,
    tls_cipher_name,
    tls_version_name,
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Certificate:
    return authority.server()


@pytest.fixture(scope="module")
def client(authority: Authority) -> Certificate:
    return authority.client(subject="CN=client", emails=["c@e.com"])


@pytest.fixture
def options(server: Certificate) -> TlsOptions:
    return TlsOptions(cert_file=server.cert_file, key_file=server.key_file)


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after a handshake in memory; ssl.SSLError when one of them refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = set(ends)
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
                waiting.discard(end)
            except ssl.SSLWantReadError:
                pass
        if not waiting:
            # With TLS 1.3 the client learns about a refusal only when it reads.
            ends[1].write(b"INFO")
            assert ends[0].read() == b"INFO"
            return ends[1], ends[0]
    raise AssertionError("the handshake did not end")


def limited(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    context.maximum_version = version
    return context


def test_a_client_that_trusts_the_authority_connects(
    options: TlsOptions, authority: Authority
) -> None:
    connection, _ = handshake(server_context(options), authority.client_context())
    assert tls_version_name(connection) == "1.3"
    assert tls_cipher_name(connection).startswith("TLS_")
    assert peer_certificate(connection) is None
    assert peer_certificate(None) is None


def test_version_1_2_works_with_modern_suites_by_default(
    options: TlsOptions, authority: Authority
) -> None:
    old = limited(authority.client_context(), ssl.TLSVersion.TLSv1_2)
    connection, _ = handshake(server_context(options), old)
    assert tls_version_name(connection) == "1.2"
    assert tls_cipher_name(connection) in (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    )


def test_weak_versions_and_suites_are_never_offered(
    options: TlsOptions, authority: Authority
) -> None:
    """CVE-2021-32026: whatever way the settings came, the context has the same floor."""
    for settings in (options, replace(options, verify=True, ca_file=authority.ca_file)):
        context = server_context(settings)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        old = [cipher for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
        assert old
        assert all(cipher["aead"] and "ecdhe" in cipher["kea"] for cipher in old)
        assert context.options & ssl.OP_NO_RENEGOTIATION
        assert context.options & ssl.OP_NO_COMPRESSION
    weak = limited(authority.client_context(), ssl.TLSVersion.TLSv1_2)
    weak.set_ciphers("ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        handshake(server_context(options), weak)


@pytest.mark.parametrize(
    "suite", ["ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES256-GCM-SHA384"]
)
def test_client_chooses_among_the_default_suites(
    options: TlsOptions, authority: Authority, suite: str
) -> None:
    """As a client without instructions for AES would."""
    client = limited(authority.client_context(), ssl.TLSVersion.TLSv1_2)
    client.set_ciphers(f"{suite}:ECDHE-ECDSA-AES128-GCM-SHA256")
    chosen = handshake(server_context(options), client)[0].cipher()
    assert chosen is not None
    assert chosen[0] == suite


def test_min_version_1_3_refuses_1_2(options: TlsOptions, authority: Authority) -> None:
    context = server_context(replace(options, min_version="1.3"))
    handshake(context, authority.client_context())
    with pytest.raises(ssl.SSLError):
        handshake(context, limited(authority.client_context(), ssl.TLSVersion.TLSv1_2))


@pytest.mark.parametrize("version", ["", "1.0", "1.1", "1.4", "TLS1.2", "x"])
def test_other_min_versions_are_refused(options: TlsOptions, version: str) -> None:
    with pytest.raises(ConfigError, match=r'min_version is "1\.2" or "1\.3"'):
        server_context(replace(options, min_version=version))


@pytest.mark.parametrize(
    "suite",
    [
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    ],
)
def test_a_listed_suite_is_the_only_one_of_version_1_2(
    options: TlsOptions, authority: Authority, suite: str
) -> None:
    context = server_context(replace(options, cipher_suites=(suite,)))
    old = limited(authority.client_context(), ssl.TLSVersion.TLSv1_2)
    old.set_ciphers("ALL")
    connection, _ = handshake(context, old)
    assert tls_cipher_name(connection) == suite
    # Version 1.3 has its own suites, which cannot be chosen on either server.
    connection, _ = handshake(context, authority.client_context())
    assert tls_version_name(connection) == "1.3"


@pytest.mark.parametrize(
    "suite",
    ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"],
)
def test_suites_for_rsa_keys_work_with_rsa_keys(authority: Authority, suite: str) -> None:
    certificate = authority.server("rsa", key=rsa.generate_private_key(65537, 2048))
    context = server_context(
        TlsOptions(certificate.cert_file, certificate.key_file, cipher_suites=(suite,))
    )
    old = limited(authority.client_context(), ssl.TLSVersion.TLSv1_2)
    old.set_ciphers("ALL")
    assert tls_cipher_name(handshake(context, old)[0]) == suite


def test_a_list_of_version_1_3_suites_leaves_nothing_for_version_1_2(
    options: TlsOptions, authority: Authority
) -> None:
    context = server_context(replace(options, cipher_suites=("TLS_AES_128_GCM_SHA256",)))
    handshake(context, authority.client_context())
    with pytest.raises(ssl.SSLError):
        handshake(context, limited(authority.client_context(), ssl.TLSVersion.TLSv1_2))


@pytest.mark.parametrize(
    "suite",
    ["FOO", "TLS_RSA_WITH_AES_128_CBC_SHA", "ALL", "", "ECDHE-RSA-AES128-GCM-SHA256", "eNULL"],
)
def test_unknown_and_insecure_suites_are_refused_by_name(options: TlsOptions, suite: str) -> None:
    good = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    with pytest.raises(ConfigError) as caught:
        server_context(replace(options, cipher_suites=(good, suite)))
    assert repr(suite) in str(caught.value)
    assert good in str(caught.value)


@pytest.mark.parametrize("setting", ["verify", "verify_and_map"])
def test_verify_lets_in_only_certificates_of_the_authority(
    options: TlsOptions, authority: Authority, client: Certificate, tmp_path: Path, setting: str
) -> None:
    settings = replace(options, ca_file=authority.ca_file, **{setting: True})
    assert requires_client_certificate(settings)
    context = server_context(settings)
    connection, _ = handshake(context, client.client_context(authority))
    assert peer_certificate(connection) == client.der
    with pytest.raises(ssl.SSLError):
        handshake(context, authority.client_context())
    foreign = Authority(tmp_path, "foreign").client(subject="CN=client")
    with pytest.raises(ssl.SSLError):
        handshake(context, foreign.client_context(authority))
    with pytest.raises(ssl.SSLError):  # a server's certificate does not make a client
        handshake(context, authority.server("two").client_context(authority))


def test_verify_without_ca_file_trusts_the_system_and_not_everyone(
    options: TlsOptions, authority: Authority, client: Certificate
) -> None:
    context = server_context(replace(options, verify=True))
    assert context.verify_mode == ssl.CERT_REQUIRED
    with pytest.raises(ssl.SSLError):
        handshake(context, client.client_context(authority))


def test_without_verify_no_certificate_is_asked_for(
    options: TlsOptions, authority: Authority, client: Certificate
) -> None:
    settings = replace(options, ca_file=authority.ca_file)
    assert not requires_client_certificate(settings)
    connection, _ = handshake(server_context(settings), client.client_context(authority))
    assert peer_certificate(connection) is None


def test_a_client_with_a_certificate_gets_no_ticket(
    options: TlsOptions, authority: Authority, client: Certificate
) -> None:
    """2026-01: so no other listener, with other authorities, can be entered by one either."""
    context = server_context(replace(options, verify=True, ca_file=authority.ca_file))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        end = limited(client.client_context(authority), version)
        _, first = handshake(context, end)
        assert first.session is None or not first.session.has_ticket
    assert context.options & ssl.OP_NO_TICKET
    assert context.num_tickets == 0


# Pinned certificates


def test_pins_are_public_keys_in_any_case(options: TlsOptions, client: Certificate) -> None:
    pinned = replace(options, verify=True, pinned_certs=frozenset({client.pin.upper()}))
    assert check_pinned(pinned, client.der)
    assert not check_pinned(pinned, None)
    assert not check_pinned(pinned, b"")
    assert not check_pinned(pinned, b"junk")


def test_another_key_is_not_pinned_even_with_the_same_names(
    options: TlsOptions, authority: Authority, client: Certificate
) -> None:
    pinned = replace(options, verify=True, pinned_certs=frozenset({client.pin}))
    twin = authority.client("twin", subject="CN=client", emails=["c@e.com"])
    assert not check_pinned(pinned, twin.der)


def test_without_pins_everyone_passes(options: TlsOptions, client: Certificate) -> None:
    assert check_pinned(options, client.der)
    assert check_pinned(options, None)


@pytest.mark.parametrize("pin", ["", "abc", "g" * 64, "a" * 63, "a" * 65, "a" * 64 + "\n"])
def test_a_pin_that_is_no_digest_is_refused(options: TlsOptions, pin: str) -> None:
    with pytest.raises(ConfigError, match="64 hex digits"):
        server_context(replace(options, verify=True, pinned_certs=frozenset({pin})))


def test_pins_without_verify_are_refused(options: TlsOptions, client: Certificate) -> None:
    """The official server starts and refuses everyone: it never asks for a certificate."""
    with pytest.raises(ConfigError, match="pinned_certs needs verify"):
        server_context(replace(options, pinned_certs=frozenset({client.pin})))


# Files that are wrong


def test_missing_settings_are_named(options: TlsOptions) -> None:
    with pytest.raises(ConfigError, match="needs cert_file"):
        server_context(replace(options, cert_file=""))
    with pytest.raises(ConfigError, match="needs key_file"):
        server_context(replace(options, key_file=""))


@pytest.mark.parametrize("setting", ["cert_file", "key_file", "ca_file"])
def test_a_file_that_cannot_be_read_is_named_with_the_reason(
    options: TlsOptions, tmp_path: Path, setting: str
) -> None:
    missing = str(tmp_path / "nope.pem")
    for path, reason in (
        (missing, "No such file or directory"),
        (str(tmp_path), "Is a directory"),
        ("a\0b", "null byte"),
    ):
        with pytest.raises(ServerStartError) as caught:
            server_context(replace(options, verify=True, **{setting: path}))
        assert setting in str(caught.value)
        assert repr(path) in str(caught.value)
        assert reason in str(caught.value)


def test_a_key_of_another_certificate_is_named(options: TlsOptions, authority: Authority) -> None:
    other = authority.server("other")
    with pytest.raises(ServerStartError) as caught:
        server_context(replace(options, key_file=other.key_file))
    assert "is not the private key of" in str(caught.value)
    assert other.key_file in str(caught.value)
    assert options.cert_file in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"junk", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_file_that_is_no_pem_is_named(
    options: TlsOptions, tmp_path: Path, content: bytes
) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_bytes(content)
    for setting in ("cert_file", "key_file", "ca_file"):
        with pytest.raises(ServerStartError) as caught:
            server_context(replace(options, verify=True, **{setting: str(bad)}))
        assert f"{setting} {str(bad)!r}" in str(caught.value)
        assert "PEM" in str(caught.value)


def test_a_key_with_a_password_is_refused_and_asks_nobody(
    options: TlsOptions, tmp_path: Path
) -> None:
    locked = tmp_path / "locked.key"
    write_key(locked, ec.generate_private_key(ec.SECP256R1()), b"secret")
    with pytest.raises(ServerStartError, match="without a password"):
        server_context(replace(options, key_file=str(locked)))


def test_a_weak_key_is_refused(authority: Authority) -> None:
    weak = authority.server("weak", key=rsa.generate_private_key(65537, 1024))
    with pytest.raises(ServerStartError, match="too weak"):
        server_context(TlsOptions(weak.cert_file, weak.key_file))


@pytest.mark.parametrize("verify", [False, True])
def test_a_context_with_several_certificates_is_freed_without_a_search_for_garbage(
    options: TlsOptions, authority: Authority, verify: bool
) -> None:
    """A reload makes another one, and no collection looks at what is old."""
    other = authority.server()
    more = ((other.cert_file, other.key_file),)
    wanted = replace(options, verify=verify, ca_file=authority.ca_file, more_certs=more)
    gc.collect()
    gc.disable()
    try:
        context = server_context(wanted)
        connection, shell = context.open(ssl.MemoryBIO(), ssl.MemoryBIO())
        context._spare = shell
        gone = weakref.ref(context)
        del connection, shell, context
        assert gone() is None
    finally:
        gc.enable()
