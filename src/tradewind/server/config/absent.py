"""Settings of nats-server that this server does not support: the only list of such keys and flags.

Owns the decision for each key. A security setting is refused, because a server that ignored it
would be less safe than its configuration says. A clustering setting is ignored with a log message:
this server is not part of a cluster, and the rest of the file still applies.
"""

from __future__ import annotations

from tradewind.server.config.reader import Conversion, Reader, Table, expect, fault
from tradewind.server.config.tree import ConfigNode

_OCSP = (
    "OCSP is not supported in this version: Python's ssl module can neither staple OCSP responses "
    "nor request them from clients"
)
_STORE = "certificate stores of the operating system are not supported: use cert_file and key_file"

REFUSED_TOP = {
    "ocsp": _OCSP,
    "ocsp_cache": _OCSP,
}
REFUSED_TLS = {
    "ocsp_peer": _OCSP,
    "verify_cert_and_check_known_urls": "it applies to clusters only",
    "cert_store": _STORE,
    "cert_match_by": _STORE,
    "cert_match": _STORE,
    "cert_match_skip_invalid": _STORE,
    "ca_certs_match": _STORE,
}
REFUSED_JETSTREAM = {
    "tpm": "keys from a TPM are not supported (nats-server has them on Windows only): use key",
}

_ALONE = (
    "this is a single server, the {} is ignored; to distribute streams over several machines, "
    "use a nats-server cluster"
)
ALONE_CLUSTER = _ALONE.format("cluster block")
FEATURE_FLAGS_NOTICE = "{} controls a nats-server feature that this server does not have: ignored"
ALONE_CLUSTER_FLAGS = _ALONE.format("cluster part of the command line")
NOTICES = {
    "cluster": ALONE_CLUSTER,
    "gateway": _ALONE.format("gateway block"),
    "mqtt": "this server does not support MQTT, the mqtt block is ignored",
}
PROFILING_NOTICE = "this server has no Go profiling endpoint: ignored"
CURVES_NOTICE = "the preferences of OpenSSL are used instead: ignored"


def refused(reasons: dict[str, str]) -> Table:
    """Table entries that refuse these keys, unless they are switched off."""

    def convert(node: ConfigNode, key: str) -> None:
        if node.value is False:
            return
        raise fault(node, f"{key}: {reasons[key.lower()]}")

    return dict.fromkeys(reasons, ("", convert))


def noticed(reader: Reader, text: str) -> Conversion:
    """A conversion that ignores the value and says so in the log."""

    def convert(node: ConfigNode, key: str) -> None:
        line = f"{key}: {text}"
        if line not in reader.notices and not (node.value == 0 or node.value is False):
            reader.notices.append(line)

    return convert


def ignored_block(reader: Reader, name: str) -> Conversion:
    """A conversion for a whole block that has no meaning here: its content is not looked at."""
    say = noticed(reader, NOTICES[name])

    def convert(node: ConfigNode, key: str) -> None:
        expect(node, key, dict, "a block: { ... }")
        say(node, key)

    return convert
