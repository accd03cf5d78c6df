"""Makes authorities, server certificates and client certificates for tests, as files.

    authority = Authority(tmp_path)
    server = authority.server()                                  # for 127.0.0.1, ::1 and localhost
    client = authority.client("admin", subject="CN=admin,OU=ops", emails=["admin@example.com"])
    client.client_context(authority)                             # an ssl.SSLContext that trusts it

Subjects are written leaf first, as in user names of the configuration; `+` joins the parts of one
relative name and a backslash escapes. Other subjects are given as an `x509.Name`.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

OIDS = {
    "CN": NameOID.COMMON_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "L": NameOID.LOCALITY_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "C": NameOID.COUNTRY_NAME,
    "STREET": NameOID.STREET_ADDRESS,
    "POSTALCODE": NameOID.POSTAL_CODE,
    "SERIALNUMBER": NameOID.SERIAL_NUMBER,
    "DC": NameOID.DOMAIN_COMPONENT,
    "EMAIL": NameOID.EMAIL_ADDRESS,
    "UID": NameOID.USER_ID,
}
START = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
END = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key as PEM files, and the certificate itself as DER."""

    cert_file: str
    key_file: str
    der: bytes

    @property
    def pin(self) -> str:
        """The entry for `pinned_certs`: the SHA-256 of the public key."""
        key = x509.load_der_x509_certificate(self.der).public_key()
        return hashlib.sha256(
            key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        ).hexdigest()

    def client_context(self, authority: Authority) -> ssl.SSLContext:
        """A client that presents this certificate and trusts servers of `authority`."""
        context = authority.client_context()
        context.load_cert_chain(self.cert_file, self.key_file)
        return context


class Authority:
    """A certificate authority whose files all go into `directory`; several may share one."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self.name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = parse_subject(f"CN={name},O=Tradewind tests")
        builder = _builder(self._subject, self._subject, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
        )
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.ca_file = str(directory / f"{name}.pem")
        Path(self.ca_file).write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def client_context(self) -> ssl.SSLContext:
        """A client without a certificate that trusts servers of this authority."""
        return ssl.create_default_context(cafile=self.ca_file)

    def server(self, name: str = "server", *, key: PrivateKey | None = None) -> Certificate:
        """A certificate for a server on the loopback addresses."""
        names = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.IPAddress(ipaddress.ip_address("::1")),
        ]
        return self._issue(
            name, parse_subject(f"CN={name}"), names, ExtendedKeyUsageOID.SERVER_AUTH, key
        )

    def client(
        self,
        name: str = "client",
        *,
        subject: str | x509.Name = "",
        emails: Sequence[str] = (),
        dns_names: Sequence[str] = (),
        uris: Sequence[str] = (),
        key: PrivateKey | None = None,
        end: datetime.datetime | None = None,
    ) -> Certificate:
        """A client certificate; `name` is only the name of its files."""
        names: list[x509.GeneralName] = [x509.RFC822Name(email) for email in emails]
        names += [x509.DNSName(dns_name) for dns_name in dns_names]
        names += [x509.UniformResourceIdentifier(uri) for uri in uris]
        subject_name = parse_subject(subject) if isinstance(subject, str) else subject
        return self._issue(name, subject_name, names, ExtendedKeyUsageOID.CLIENT_AUTH, key, end)

    def _issue(
        self,
        name: str,
        subject: x509.Name,
        names: list[x509.GeneralName],
        usage: x509.ObjectIdentifier,
        key: PrivateKey | None,
        end: datetime.datetime | None = None,
    ) -> Certificate:
        key = key or ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._subject, key, end or END).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
            critical=False,
        )
        if names:
            # RFC 5280: the names are critical when the subject is empty.
            builder = builder.add_extension(
                x509.SubjectAlternativeName(names), critical=not len(subject)
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        cert_file = self.directory / f"{self.name}-{name}.pem"
        key_file = self.directory / f"{self.name}-{name}.key"
        cert_file.write_bytes(certificate.public_bytes(Encoding.PEM))
        write_key(key_file, key)
        return Certificate(str(cert_file), str(key_file), certificate.public_bytes(Encoding.DER))


def write_key(path: Path, key: PrivateKey, password: bytes | None = None) -> None:
    """Write a private key as PEM, encrypted when there is a password."""
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))


def parse_subject(text: str) -> x509.Name:
    """The subject that `text` writes leaf first; certificates hold it root first."""
    relative_names = []
    for part in _split(text, ","):
        attributes = []
        for pair in _split(part, "+"):
            kind, _, value = pair.partition("=")
            attributes.append(x509.NameAttribute(OIDS[kind.strip()], _unescape(value)))
        relative_names.append(x509.RelativeDistinguishedName(attributes))
    return x509.Name(reversed(relative_names))


def _split(text: str, separator: str) -> list[str]:
    parts, current, escaped = [], "", False
    for char in text:
        if char == separator and not escaped:
            parts.append(current)
            current = ""
        else:
            current += char
        escaped = char == "\\" and not escaped
    return [*parts, current] if current else parts


def _unescape(text: str) -> str:
    result, escaped = "", False
    for char in text:
        escaped = char == "\\" and not escaped
        if not escaped:
            result += char
    return result


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, end: datetime.datetime = END
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(START)
        .not_valid_after(end)
    )
