"""Certificate details for monitoring: names and fingerprints of peers, and expiry of the server's
own.

Owns reading only. It never trusts or verifies a certificate. Results are cached, because parsing is
expensive. The parsing library is loaded when needed, so a server without TLS starts sooner.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from tradewind.durations import SECOND_NS
from tradewind.monitor.formats import timestamp
from tradewind.monitor.monitor_documents import PeerCertificate


@lru_cache(maxsize=1024)
def describe_peer(der: bytes) -> PeerCertificate | None:
    """Subject and fingerprints of one certificate, or None if it cannot be parsed."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    try:
        certificate = x509.load_der_x509_certificate(der)
        key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        subject = certificate.subject.rfc4514_string()
    except (ValueError, TypeError, x509.UnsupportedGeneralNameType):
        return None
    return PeerCertificate(
        subject=subject,
        spki_sha256=hashlib.sha256(key).hexdigest(),
        cert_sha256=hashlib.sha256(der).hexdigest(),
    )


@lru_cache(maxsize=16)
def _read_not_after(path: str, modified_ns: int) -> str:
    """The end of validity of a certificate file. The file's time is only part of the cache key: a
    replaced certificate is read again.
    """
    from cryptography import x509

    del modified_ns
    certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
    return timestamp(int(certificate.not_valid_after_utc.timestamp()) * SECOND_NS)


def expiry_of_file(path: str) -> str:
    """The end of validity of the first certificate in a PEM file, or "" if it is unknown."""
    try:
        return _read_not_after(path, Path(path).stat().st_mtime_ns)
    except (OSError, ValueError):
        return ""
