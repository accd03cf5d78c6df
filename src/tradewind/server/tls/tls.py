"""Build TLS contexts from settings, for all listeners, and read the details of TLS connections.

Owns certificates, versions and cipher suites, the rule that a client with a certificate does a full
handshake each time, and the check of pinned certificates. Flags and configuration file are merged
into `TlsOptions` first, so neither can produce a weaker context than the other. It never opens a
socket.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import weakref
from functools import partial

from msgspec.structs import replace

from tradewind.errors import ConfigError, ServerStartError
from tradewind.options import TlsOptions

TlsConnection = ssl.SSLObject | ssl.SSLSocket

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_TLS13_SUITES = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
# The suites of TLS 1.2 that are authenticated encryption with forward secrecy: the names of the
# configuration (Go's, IANA's) and of OpenSSL. Without `cipher_suites` only these are offered.
_TLS12_DEFAULT_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
# Older suites that Go still counts as secure: offered only if the configuration lists them.
_TLS12_SUITES = {
    **_TLS12_DEFAULT_SUITES,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
_GO_NAMES = {openssl: name for name, openssl in _TLS12_SUITES.items()}
_PIN = re.compile(r"[0-9a-f]{64}\Z")


class ServerContext(ssl.SSLContext):
    """The context of a listener, whose connections share certificates and tickets.

    If clients show no certificate, a session may be resumed: it says nothing about who the client
    is, and CONNECT is checked as after a full handshake. The keys of the tickets belong to this
    context, and a reload creates another one.

    A session with a client's certificate would carry over an old decision: the certificate may have
    expired, or its authority may have been removed, without being checked again. Such sessions are
    therefore never resumed. Tickets can be switched off, but OpenSSL also remembers sessions of TLS
    1.2 by their ids, in the context that a connection is made from, and Python has no switch for
    that. Such a connection is made from an exclusive context (a `shell`: the same rules, no files,
    no sessions), and then given the certificates and authorities of this one. A shell costs 0.15 ms
    and 12 KiB; TLS 1.3 leaves nothing in it, so that it serves others afterwards.
    """

    rules: TlsOptions
    asks_client: bool
    # The names of several certificates with their contexts, None for this one, which comes first;
    # empty if there is only one. No reference leads back to this context: a reload drops it.
    choices: tuple[tuple[frozenset[str], ssl.SSLContext | None], ...] = ()
    _spare: ssl.SSLContext | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - the signature is Python's
        server_hostname: str | bytes | None = None,  # noqa: ARG002 - only of clients
        session: ssl.SSLSession | None = None,  # noqa: ARG002 - only of clients
    ) -> ssl.SSLObject:
        """The server's side of a connection; asyncio calls this, too."""
        assert server_side, "a listener's context is for the server's side"
        return self.open(incoming, outgoing)[0]

    def open(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> tuple[ssl.SSLObject, ssl.SSLContext | None]:
        """The server's side of a connection, with its shell if it has one: `give_back` allows
        reusing the shell.
        """
        if not self.asks_client:
            return super().wrap_bio(incoming, outgoing, server_side=True), None
        shell, self._spare = self._spare, None
        if shell is None:
            shell = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            _set_rules(shell, self.rules, asks_client=True)
            self.choose_by_name(shell)
        connection = shell.wrap_bio(incoming, outgoing, server_side=True)
        connection.context = self
        return connection, shell

    def choose_by_name(self, context: ssl.SSLContext) -> None:
        """Let connections made from `context` present one of several certificates."""
        if self.choices:
            context.sni_callback = partial(_choose, weakref.ref(self))

    def give_back(self, connection: ssl.SSLObject, shell: ssl.SSLContext) -> None:
        """Called when the handshake of `connection` is complete: reuse its shell if it holds no
        session.
        """
        if connection.version() == "TLSv1.3" and not shell.session_stats()["number"]:
            self._spare = shell


def _choose(
    owner: weakref.ref[ServerContext],
    connection: ssl.SSLObject,
    name: str | None,
    _made_from: ssl.SSLContext,
) -> None:
    """Present the first certificate with the name that the client has asked for."""
    wanted = (name or "").lower().rstrip(".")
    _, _, parent = wanted.partition(".")
    own = owner()
    if own is None:
        return
    for names, context in own.choices:
        if wanted in names or (parent and f"*.{parent}" in names):
            connection.context = context or own
            return


class RenewableContext(ssl.SSLContext):
    """A context for a listener whose context cannot be replaced: `current` makes connections."""

    current: ServerContext

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - the signature is Python's
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """A connection with the current settings."""
        return self.current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


def server_context(options: TlsOptions, *, asks_client: bool = True) -> ServerContext:
    """The context of a listener; ConfigError for a wrong setting, ServerStartError for a file.

    Without `asks_client` no client certificate is requested, whatever `verify` says.
    """
    _check_settings(options)
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.rules = options
    context.asks_client = asks_client and requires_client_certificate(options)
    _set_rules(context, options, asks_client=context.asks_client)
    _load_files(context, options, asks_client=context.asks_client)
    if options.more_certs:
        choices: list[tuple[frozenset[str], ssl.SSLContext | None]] = [
            (_names_in(options.cert_file), None)
        ]
        for cert_file, key_file in options.more_certs:
            other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            own = replace(options, cert_file=cert_file, key_file=key_file)
            _set_rules(other, own, asks_client=context.asks_client)
            _load_files(other, own, asks_client=context.asks_client)
            choices.append((_names_in(cert_file), other))
        context.choices = tuple(choices)
        context.choose_by_name(context)
    return context


def _load_files(context: ssl.SSLContext, options: TlsOptions, *, asks_client: bool) -> None:
    _load_certificate(context, options)
    if options.ca_file:
        _load_authorities(context, options)
    elif asks_client:
        # As on nats-server, every authority of this system is trusted.
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)


def _names_in(cert_file: str) -> frozenset[str]:
    """The server names in the first certificate of a file that has been loaded."""
    from pathlib import Path

    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(Path(cert_file).read_bytes())
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(name.lower() for name in extension.value.get_values_for_type(x509.DNSName))


def renewable_context(current: ServerContext) -> RenewableContext:
    """A renewable context whose first `current` is given."""
    context = RenewableContext(ssl.PROTOCOL_TLS_SERVER)
    context.current = current
    return context


def _set_rules(context: ssl.SSLContext, options: TlsOptions, *, asks_client: bool) -> None:
    """Apply all settings that need no file."""
    context.minimum_version = _VERSIONS[options.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _set_ciphers(context, options)
    if asks_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    else:
        context.num_tickets = 1


def requires_client_certificate(options: TlsOptions) -> bool:
    """Whether the handshake refuses clients without a verified certificate (INFO `tls_verify`)."""
    return options.verify or options.verify_and_map


def check_pinned(options: TlsOptions, der: bytes | None) -> bool:
    """Whether the peer's public key is one of `pinned_certs`; without pins every peer passes."""
    if not options.pinned_certs:
        return True
    if der is None:
        return False
    # Loaded when it is needed: most servers start sooner without it.
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pins = {pin.lower() for pin in options.pinned_certs}
    try:
        public_key = x509.load_der_x509_certificate(der).public_key()
        info = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except Exception:
        # Unknown key types and malformed keys raise unrelated classes; none can be a pinned key.
        return False
    return hashlib.sha256(info).hexdigest() in pins


def peer_certificate(connection: TlsConnection | None) -> bytes | None:
    """The client's own certificate as DER; None without TLS or if none was requested."""
    return None if connection is None else connection.getpeercert(binary_form=True) or None


def tls_version_name(connection: TlsConnection) -> str:
    """The version as monitoring shows it, such as "1.3"."""
    return (connection.version() or "").removeprefix("TLSv")


def tls_cipher_name(connection: TlsConnection) -> str:
    """The cipher suite as monitoring shows it, such as "TLS_AES_128_GCM_SHA256"."""
    cipher = connection.cipher()
    return "" if cipher is None else _GO_NAMES.get(cipher[0], cipher[0])


def _check_settings(options: TlsOptions) -> None:
    if not options.cert_file:
        raise ConfigError("tls needs cert_file: the server's certificate in PEM")
    if not options.key_file:
        raise ConfigError("tls needs key_file: the private key of cert_file in PEM")
    if options.min_version not in _VERSIONS:
        raise ConfigError(f'tls min_version is "1.2" or "1.3", not {options.min_version!r}')
    for pin in options.pinned_certs:
        if not _PIN.match(pin.lower()):
            raise ConfigError(
                f"tls pinned_certs: {pin!r} is not the SHA-256 of a public key in 64 hex digits"
            )
    if options.pinned_certs and not requires_client_certificate(options):
        raise ConfigError(
            "tls pinned_certs needs verify: clients would not be asked for a certificate"
        )


def _set_ciphers(context: ssl.SSLContext, options: TlsOptions) -> None:
    for name in options.cipher_suites:
        if name not in _TLS12_SUITES and name not in _TLS13_SUITES:
            known = ", ".join(sorted({*_TLS12_SUITES, *_TLS13_SUITES}))
            raise ConfigError(
                f"tls cipher_suites: {name!r} is unknown or insecure; known are {known}"
            )
    chosen = [_TLS12_SUITES[name] for name in options.cipher_suites if name in _TLS12_SUITES]
    if options.cipher_suites and not chosen:
        # The list names suites of TLS 1.3 only, so none are left for TLS 1.2.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_ciphers(":".join(chosen or _TLS12_DEFAULT_SUITES.values()))
    if not options.cipher_suites:
        # All suites are strong, and a client knows which of them is cheap for it.
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE


def _load_certificate(context: ssl.SSLContext, options: TlsOptions) -> None:
    # The files are read first: OpenSSL's own error does not say which of the two it could not open.
    _check_readable("cert_file", options.cert_file)
    _check_readable("key_file", options.key_file)
    try:
        context.load_cert_chain(options.cert_file, options.key_file, password=_refuse_password)
    except ssl.SSLError as error:
        raise ServerStartError(_certificate_fault(options, error)) from error


def _certificate_fault(options: TlsOptions, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return (
            f"tls key_file {options.key_file!r} is not the private key "
            f"of cert_file {options.cert_file!r}"
        )
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        probe.load_verify_locations(options.cert_file)
    except ssl.SSLError:
        return f"tls cert_file {options.cert_file!r} is not a certificate in PEM ({_reason(error)})"
    return (
        f"tls key_file {options.key_file!r} is not a private key in PEM without a password, "
        f"or cert_file {options.cert_file!r} is too weak ({_reason(error)})"
    )


def _load_authorities(context: ssl.SSLContext, options: TlsOptions) -> None:
    _check_readable("ca_file", options.ca_file)
    try:
        context.load_verify_locations(options.ca_file)
    except ssl.SSLError as error:
        raise ServerStartError(
            f"tls ca_file {options.ca_file!r} has no certificate in PEM ({_reason(error)})"
        ) from error


def _check_readable(setting: str, path: str) -> None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the path is opened as it was given
            file.read(1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ServerStartError(f"tls {setting} {path!r} cannot be read: {reason}") from error


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "unreadable").lower().replace("_", " ")


def _refuse_password() -> str:
    """Answer OpenSSL's password question, which would otherwise block a starting server at the
    terminal.
    """
    return ""
