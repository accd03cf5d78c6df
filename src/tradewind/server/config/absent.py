"""What nats-server has and this server does not: the one list of it, for keys and flags.

Owns the decision per key. A key that guards something (who may enter, what is encrypted) is
refused, because a server that ignored it would be less safe than its configuration says. A key
that joins servers together is answered with a line in the log: this server runs alone, and
everything else in the file still holds.
"""

from __future__ import annotations

from tradewind.server.config.reader import Conversion, Reader, Table, expect, fault
from tradewind.server.config.tree import ConfigNode

_PROXY = "the PROXY protocol is not supported in this version"
_OCSP = "OCSP is not supported in this version"
_AT_REST = "encryption of stored messages is not supported in this version"
_STORE = "certificate stores of the operating system are not supported: use cert_file and key_file"

REFUSED_TOP = {
    "proxies": _PROXY,
    "proxy_protocol": _PROXY,
    "ocsp": _OCSP,
    "ocsp_cache": _OCSP,
}
REFUSED_AUTHORIZATION = {
    "auth_callout": "asking a service about logins (auth_callout) is not supported in this version",
    "proxy_required": _PROXY,
}
REFUSED_TLS = {
    "certs": "only one certificate is supported in this version: use cert_file and key_file",
    "ocsp_peer": _OCSP,
    "verify_cert_and_check_known_urls": "it is for clusters only",
    "cert_store": _STORE,
    "cert_match_by": _STORE,
    "cert_match": _STORE,
    "cert_match_skip_invalid": _STORE,
    "ca_certs_match": _STORE,
}
REFUSED_JETSTREAM = {
    "key": _AT_REST,
    "ek": _AT_REST,
    "encryption_key": _AT_REST,
    "prev_key": _AT_REST,
    "prev_ek": _AT_REST,
    "prev_encryption_key": _AT_REST,
    "tpm": _AT_REST,
}

_ALONE = (
    "this server runs alone, the {} is ignored; to spread streams over several machines "
    "point your clients at a nats-server cluster"
)
ALONE_CLUSTER = _ALONE.format("cluster block")
FEATURE_FLAGS_NOTICE = "{} switches a part of nats-server that does not exist here: ignored"
ALONE_CLUSTER_FLAGS = _ALONE.format("cluster part of the command line")
NOTICES = {
    "cluster": ALONE_CLUSTER,
    "gateway": _ALONE.format("gateway block"),
    "leaf": _ALONE.format("leafnodes block"),
    "leafnodes": _ALONE.format("leafnodes block"),
    "mqtt": "this server does not speak MQTT, the mqtt block is ignored",
    "default_js_domain": "it only matters between servers, and this one runs alone: ignored",
}
PROFILING_NOTICE = "this server has no Go profiling endpoint: ignored"
CURVES_NOTICE = "the preferences of OpenSSL are used instead: ignored"
HANDSHAKE_RATE_NOTICE = "handshakes are not limited in this version: ignored"
LATENCY_NOTICE = "times of services are not told in this version: ignored"
MESSAGE_TRACE_NOTICE = "message tracing is not supported in this version: ignored"


def refused(reasons: dict[str, str]) -> Table:
    """Table entries that refuse these keys, unless they are switched off."""

    def convert(node: ConfigNode, key: str) -> None:
        if node.value is False:
            return
        raise fault(node, f"{key}: {reasons[key.lower()]}")

    return dict.fromkeys(reasons, ("", convert))


def noticed(reader: Reader, text: str) -> Conversion:
    """A conversion that ignores the value but says so in the log."""

    def convert(node: ConfigNode, key: str) -> None:
        line = f"{key}: {text}"
        if line not in reader.notices and not (node.value == 0 or node.value is False):
            reader.notices.append(line)

    return convert


def ignored_block(reader: Reader, name: str) -> Conversion:
    """A conversion for a whole block that does not matter here: nothing inside is looked at."""
    say = noticed(reader, NOTICES[name])

    def convert(node: ConfigNode, key: str) -> None:
        expect(node, key, dict, "a block: { ... }")
        say(node, key)

    return convert
