"""The `tls` and `websocket` blocks.

Owns their keys. It never builds a connection: `server.tls.tls` does, and also verifies that a `tls`
block can work, so that `-t` reports what a start would.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tradewind.errors import ConfigError, ServerStartError
from tradewind.options import TlsOptions, WebsocketOptions
from tradewind.server.config.absent import (
    CURVES_NOTICE,
    REFUSED_TLS,
    noticed,
    refused,
)
from tradewind.server.config.access import AccessReader
from tradewind.server.config.known_servers import known_servers
from tradewind.server.config.reader import (
    Reader,
    address,
    duration,
    expect,
    fault,
    ignored,
    integer,
    port,
    seconds,
    spread_address,
    text,
    text_map,
    texts,
    truth,
)
from tradewind.server.config.tree import ConfigNode

HANDSHAKE_FIRST_AUTO_NS = 50_000_000


def read_tls(reader: Reader, node: ConfigNode, key: str) -> TlsOptions:
    """The options of a `tls` block."""
    handshake_first = ("handshake_first_ns", _handshake_first)
    fields = reader.fields(
        node,
        key,
        {
            "cert_file": ("cert_file", text),
            "key_file": ("key_file", text),
            "ca_file": ("ca_file", text),
            "verify": ("verify", truth),
            "verify_and_map": ("verify_and_map", truth),
            "timeout": ("timeout_ns", seconds),
            "handshake_first": handshake_first,
            "first": handshake_first,
            "immediate": handshake_first,
            "min_version": ("min_version", text),
            "cipher_suites": ("cipher_suites", _some_texts),
            "pinned_certs": ("pinned_certs", _fingerprints),
            "curve_preferences": ("", noticed(reader, CURVES_NOTICE)),
            "connection_rate_limit": ("connection_rate_limit", _rate),
            "certs": ("certs", partial(_certificates, reader)),
            # Only clients skip verification, and this server is never one.
            "insecure": ("", ignored),
            "allow_insecure_cipher_suites": ("", ignored),
            **refused(REFUSED_TLS),
        },
    )
    if not fields.get("timeout_ns"):
        fields.pop("timeout_ns", None)
    certificates = fields.pop("certs", ())
    if certificates and ("cert_file" in fields or "key_file" in fields):
        raise fault(node, f"{key} has both certs and cert_file: put all of them into certs")
    if certificates:
        (fields["cert_file"], fields["key_file"]), *others = certificates
        fields["more_certs"] = tuple(others)
    fields["verify"] = bool(fields.get("verify") or fields.get("verify_and_map"))
    options = TlsOptions(**fields)
    try:
        check_tls(options)
    except ConfigError as error:
        raise fault(node, error.text) from None
    return options


def check_tls(options: TlsOptions) -> None:
    """Build the context and discard it, to report now whether a listener could use it."""
    # Imported here because it brings the certificate library, and most configurations have no TLS.
    from tradewind.server.tls.tls import server_context

    try:
        server_context(options)
    except ServerStartError as error:
        raise ConfigError(str(error)) from None


def read_websocket(
    reader: Reader, access: AccessReader, node: ConfigNode, key: str
) -> WebsocketOptions:
    """The options of the `websocket` block."""

    def tls(child: ConfigNode, name: str) -> TlsOptions:
        return read_tls(reader, child, name)

    origins = ("allowed_origins", texts)
    compression = ("compression", truth)
    login = ("authorization", access.simple_authorization)
    fields: dict[str, Any] = reader.fields(
        node,
        key,
        {
            "listen": ("listen", address),
            "port": ("port", port),
            "host": ("host", text),
            "net": ("host", text),
            "advertise": ("advertise", text),
            "known_servers": ("known_servers", known_servers),
            "no_tls": ("no_tls", truth),
            "tls": ("tls", tls),
            "same_origin": ("same_origin", truth),
            "allowed_origins": origins,
            "allowed_origin": origins,
            "allow_origins": origins,
            "allow_origin": origins,
            "origins": origins,
            "origin": origins,
            "compression": compression,
            "compress": compression,
            "handshake_timeout": ("handshake_timeout_ns", seconds),
            "authorization": login,
            "authentication": login,
            "jwt_cookie": ("jwt_cookie", text),
            "user_cookie": ("user_cookie", text),
            "pass_cookie": ("pass_cookie", text),
            "token_cookie": ("token_cookie", text),
            "no_auth_user": ("no_auth_user", text),
            "headers": ("headers", text_map),
            "ping_interval": ("ping_interval_ns", reader.duration_or_seconds),
        },
    )
    spread_address(fields, "listen", "host", "port")
    for field in ("host", "handshake_timeout_ns"):
        if not fields.get(field):
            fields.pop(field, None)
    return WebsocketOptions(**fields)


def _handshake_first(node: ConfigNode, key: str) -> int | None:
    """None if INFO comes first, 0 if TLS comes first, else how long to wait for a client that
    begins with TLS.
    """
    if isinstance(node.value, bool):
        return 0 if node.value else None
    word = expect(node, key, str, 'true, false, "auto" or a delay such as "300ms"')
    if word.lower() in ("true", "on"):
        return 0
    if word.lower() in ("false", "off"):
        return None
    if word.lower() in ("auto", "auto_fallback"):
        return HANDSHAKE_FIRST_AUTO_NS
    return duration(node, key)


def _certificates(reader: Reader, node: ConfigNode, key: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for item in expect(node, key, list, "a list of blocks: [ {cert_file: ..., key_file: ...} ]"):
        files = reader.fields(
            item, f"an entry of {key}", {"cert_file": ("cert", text), "key_file": ("key", text)}
        )
        if not files.get("cert") or not files.get("key"):
            raise fault(item, f"an entry of {key} needs both cert_file and key_file")
        pairs.append((files["cert"], files["key"]))
    return tuple(pairs)


def _rate(node: ConfigNode, key: str) -> int:
    """A rate; a negative value means no limit, as on nats-server."""
    return max(integer(node, key), 0)


def _some_texts(node: ConfigNode, key: str) -> tuple[str, ...]:
    if not expect(node, key, list, "a list of names"):
        raise fault(node, f"{key} must not be empty: leave it out for the defaults")
    return texts(node, key)


def _fingerprints(node: ConfigNode, key: str) -> frozenset[str]:
    expect(node, key, list, "a list of SHA-256 fingerprints in hexadecimal")
    return frozenset(pin.lower() for pin in texts(node, key))
