"""Maps a client certificate to a configured user (`verify_and_map`).

Owns reading names from a certificate and the order in which they are tried, which is that of
nats-server: e-mail addresses, DNS names and URIs of the subject alternative name, then the subject
as a distinguished name (exact, then in any order), then its texts as Go formats them. It never
verifies a certificate: TLS has already done that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.oid import NameOID

from tradewind.server.auth.distinguished_names import (
    DistinguishedName,
    parse_name,
    relative_name,
    reordered,
)

# In the order in which Go prints a subject.
_SHORT_NAMES = {
    NameOID.SERIAL_NUMBER: "SERIALNUMBER",
    NameOID.COMMON_NAME: "CN",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.POSTAL_CODE: "POSTALCODE",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.COUNTRY_NAME: "C",
}
_SINGLE = (NameOID.SERIAL_NUMBER, NameOID.COMMON_NAME)  # if there are several, Go takes the last
_DN_NAMES = {**_SHORT_NAMES, NameOID.DOMAIN_COMPONENT: "DC"}


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """Every name in a certificate that can be a user's name."""

    emails: tuple[str, ...]
    dns_names: tuple[str, ...]
    uris: tuple[str, ...]
    subject: DistinguishedName | None  # None: it is empty, or a part of it has no short name
    subject_texts: tuple[str, ...]


class CertificateMap:
    """The configured user names, prepared for lookup by certificate."""

    def __init__(self, users: Iterable[str]) -> None:
        self._users = frozenset(users)
        self._by_name: dict[DistinguishedName, list[str]] = {}
        self._by_parts: dict[DistinguishedName, list[str]] = {}
        for user in users:
            if (name := parse_name(user)) is not None:
                self._by_name.setdefault(name, []).append(user)
                self._by_parts.setdefault(reordered(name), []).append(user)

    def find(self, names: CertificateNames, accept: Callable[[str], bool]) -> str | None:
        """The first user that a name stands for and that `accept` accepts, or None."""
        return next((user for user in self._candidates(names) if accept(user)), None)

    def _candidates(self, names: CertificateNames) -> Iterator[str]:
        for name in (*names.emails, *names.dns_names, *names.uris):
            if name in self._users:
                yield name
        if names.subject is not None:
            yield from self._by_name.get(names.subject, ())
            yield from self._by_parts.get(reordered(names.subject), ())
        for text in names.subject_texts:
            if text in self._users:
                yield text


def read_names(der: bytes) -> CertificateNames | None:
    """The names in a certificate; None if the certificate cannot be read."""
    try:
        return _read(x509.load_der_x509_certificate(der))
    except Exception:
        # The parser raises a dozen unrelated classes over malformed extensions, names and strings.
        # A certificate that cannot be read maps to no user: the safe answer, whatever the cause.
        return None


def _read(certificate: x509.Certificate) -> CertificateNames:
    emails: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        pass
    else:
        emails = tuple(extension.value.get_values_for_type(x509.RFC822Name))
        dns_names = tuple(extension.value.get_values_for_type(x509.DNSName))
        uris = tuple(extension.value.get_values_for_type(x509.UniformResourceIdentifier))
    return CertificateNames(
        emails,
        dns_names,
        uris,
        _subject_name(certificate.subject),
        _subject_texts(certificate.subject),
    )


def _subject_name(subject: x509.Name) -> DistinguishedName | None:
    """The subject as written, leaf first; None if a part of it has no short name."""
    relative_names = []
    for rdn in reversed(subject.rdns):
        pairs = []
        for attribute in rdn:
            if attribute.oid not in _DN_NAMES or not isinstance(attribute.value, str):
                return None
            pairs.append((_DN_NAMES[attribute.oid], attribute.value.encode()))
        relative_names.append(relative_name(pairs))
    return tuple(relative_names) or None


def _subject_texts(subject: x509.Name) -> tuple[str, ...]:
    """The subject as Go prints it, grouped by type and without types that Go does not know.

    A subject with domain components has two texts: first with these at the end, then without.
    """
    groups = []
    for oid, short_name in _SHORT_NAMES.items():
        values = _values(subject, oid)
        if oid in _SINGLE:
            values = [value for value in values[-1:] if value]
        if values:
            groups.append("+".join(f"{short_name}={_escaped(value)}" for value in values))
    text = ",".join(groups)
    components = _values(subject, NameOID.DOMAIN_COMPONENT)
    texts = [text]
    # Go adds them unescaped; a component that could pass for two is not used.
    if components and components == [_escaped(value) for value in components]:
        texts.insert(0, ",".join([text, *(f"DC={value}" for value in components)]))
    return tuple(text for text in texts if text)


def _values(subject: x509.Name, oid: x509.ObjectIdentifier) -> list[str]:
    attributes = subject.get_attributes_for_oid(oid)
    return [attribute.value for attribute in attributes if isinstance(attribute.value, str)]


def _escaped(value: str) -> str:
    last = len(value) - 1
    return "".join(
        "\\" + char
        if char in ',+"\\<>;' or (char == " " and index in (0, last)) or (char == "#" and not index)
        else char
        for index, char in enumerate(value)
    )
