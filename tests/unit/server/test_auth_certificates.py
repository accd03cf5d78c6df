"""Certificates to users: names, orders and look-alikes, mostly as seen on the official server."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import example, given
from hypothesis import strategies as st

from certificates import OIDS, Authority
from tradewind.server.auth.certificate_users import CertificateMap, read_names
from tradewind.server.auth.distinguished_names import parse_name, reordered


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def find(users: list[str], der: bytes, refused: frozenset[str] = frozenset()) -> str | None:
    names = read_names(der)
    assert names is not None
    return CertificateMap(users).find(names, lambda user: user not in refused)


def test_alternative_names_come_before_the_subject_and_emails_first(authority: Authority) -> None:
    der = authority.client(
        subject="CN=x",
        emails=["a@e.com", "b@e.com"],
        dns_names=["h.example.com"],
        uris=["spiffe://h/x"],
    ).der
    users = ["CN=x", "spiffe://h/x", "h.example.com", "b@e.com"]
    assert find(users, der) == "b@e.com"
    assert find(users[:3], der) == "h.example.com"
    assert find(users[:2], der) == "spiffe://h/x"
    assert find(users[:1], der) == "CN=x"
    assert find(["x", "a@e.co", "example.com", "A@e.com"], der) is None


def test_a_user_who_may_not_enter_this_way_is_passed_over(authority: Authority) -> None:
    der = authority.client(subject="CN=x", emails=["a@e.com"]).der
    assert find(["a@e.com", "CN=x"], der, frozenset({"a@e.com"})) == "CN=x"
    assert find(["cn=x", "CN=x"], der, frozenset({"cn=x"})) == "CN=x"
    assert find(["a@e.com"], der, frozenset({"a@e.com"})) is None


def test_a_certificate_without_a_subject_maps_by_its_other_names_only(authority: Authority) -> None:
    der = authority.client(dns_names=["h.example.com"]).der
    assert find(["h.example.com"], der) == "h.example.com"
    # On the official server "CN=" is the empty name, and so anyone without a subject.
    assert find(["CN=", "=", ",", "", " "], der) is None


@pytest.mark.parametrize(
    "user",
    [
        "CN=example.com,OU=NATS.io",
        "OU=NATS.io,CN=example.com",
        "cn=example.com, ou=NATS.io",
        "CN=example.com ,OU=NATS.io ",
        "CN=\\65xample.com,OU=NATS.io",
        "CN=example.com,OU=NATS.io,",
    ],
)
def test_the_subject_matches_in_any_order_and_spelling(authority: Authority, user: str) -> None:
    assert find([user], authority.client(subject="CN=example.com,OU=NATS.io").der) == user


@pytest.mark.parametrize(
    "user",
    [
        "CN=example.com",
        "CN=Example.com,OU=NATS.io",
        "CN=example.com,OU=NATS.io,O=x",
        "CN=example.com+OU=NATS.io",
        "CN=example.com,OU=NATS.io,OU=NATS.io",
        "CN=example.com,CN=example.com",
        "example.com",
        "CN=example.com,OU=NATS.io,O=",
        "CN=example.com,OU=NATS.io+",
        "CN=example.com,OU=NATS.io\\",
        "CN=#example.com,OU=NATS.io",
        ",CN=example.com,OU=NATS.io",
    ],
)
def test_a_different_subject_does_not_match(authority: Authority, user: str) -> None:
    assert find([user], authority.client(subject="CN=example.com,OU=NATS.io").der) is None


def test_repeated_parts_must_all_be_there(authority: Authority) -> None:
    """NATS-advisory 2026-13: a part that occurs twice must not stand for a part that is missing."""
    admin = "CN=z,OU=staff,OU=admin"
    assert find([admin], authority.client(subject="CN=z,OU=staff,OU=staff").der) is None
    assert find([admin], authority.client(subject="CN=z,OU=admin,OU=admin").der) is None
    assert find([admin], authority.client(subject="CN=z,OU=admin,OU=staff").der) == admin
    assert find(["CN=z,OU=staff,OU=staff"], authority.client(subject=admin).der) is None
    twice = "CN=z+OU=a+OU=b,O=o"
    assert find([twice], authority.client(subject="OU=b+CN=z+OU=a,O=o").der) == twice


def test_parts_of_one_relative_name_are_not_parts_of_two(authority: Authority) -> None:
    der = authority.client(subject="CN=z+OU=m,O=o").der
    assert find(["OU=m+CN=z,O=o"], der) == "OU=m+CN=z,O=o"
    # Go's text of the subject does not tell them apart, and the official server tries it last.
    assert find(["CN=z,OU=m,O=o"], der) == "CN=z,OU=m,O=o"
    assert find(["OU=m,CN=z,O=o"], der) is None


def test_domain_components_match_as_a_name_and_at_the_end_of_the_text(authority: Authority) -> None:
    der = authority.client(subject="CN=www,OU=Users,DC=foo,DC=bar").der
    for user in (
        "CN=www,OU=Users,DC=foo,DC=bar",
        "CN=www,OU=Users,DC=bar,DC=foo",
        "DC=bar,DC=foo,OU=Users,CN=www",
        "CN=www,OU=Users",
    ):
        assert find([user], der) == user
    assert find(["CN=www,OU=Users,DC=foo"], der) is None
    # With a part that has no short name only the texts are left.
    der = authority.client(subject="EMAIL=e,CN=www,DC=foo,DC=bar").der
    assert find(["CN=www,DC=bar,DC=foo"], der) == "CN=www,DC=bar,DC=foo"
    assert find(["CN=www"], der) == "CN=www"
    assert find(["CN=www,DC=foo,DC=bar"], der) is None


def test_a_domain_component_with_a_comma_is_not_taken_for_two(authority: Authority) -> None:
    """The official server takes it for two: its text of the components is not escaped."""
    der = authority.client(subject="EMAIL=e,CN=www,DC=foo\\,DC=bar").der
    assert find(["CN=www,DC=foo,DC=bar"], der) is None


def test_the_text_of_a_subject_has_the_official_servers_order_and_escapes(
    authority: Authority,
) -> None:
    der = authority.client(
        subject="EMAIL=e,C=US,O=7,OU=6,OU=8,L=5,ST=4,STREET=3,POSTALCODE=2,CN=al,SERIALNUMBER=1"
    ).der
    text = "SERIALNUMBER=1,CN=al,OU=8+OU=6,O=7,POSTALCODE=2,STREET=3,L=5,ST=4,C=US"
    assert find([text], der) == text
    der = authority.client(subject='EMAIL=e,CN=a\\,b<"c">\\+d;,O= sp ,L=#h').der
    text = 'CN=a\\,b\\<\\"c\\"\\>\\+d\\;,O=\\ sp\\ ,L=\\#h'
    assert find([text], der) == text


def test_of_two_common_names_the_text_has_the_last(authority: Authority) -> None:
    der = authority.client(subject="CN=leaf,CN=root").der
    assert find(["CN=leaf"], der) == "CN=leaf"
    assert find(["CN=root"], der) is None
    assert find(["CN=leaf,CN=root"], der) == "CN=leaf,CN=root"


def test_subject_values_outside_ascii_match(authority: Authority) -> None:
    der = authority.client(subject="CN=Žluť").der
    assert find(["CN=Žluť"], der) == "CN=Žluť"
    assert find(["CN=\\c5\\bdlu\\c5\\a5"], der) == "CN=\\c5\\bdlu\\c5\\a5"


def test_a_certificate_without_any_name_is_nobody(authority: Authority) -> None:
    assert find(["", "CN=x", "x"], authority.client().der) is None


@pytest.mark.parametrize("der", [b"", b"\x30", b"\x30\x82\xff\xff", b"junk" * 100, b"\0" * 10])
def test_what_is_no_certificate_has_no_names(der: bytes) -> None:
    assert read_names(der) is None


def test_a_damaged_certificate_has_no_names_or_the_same_kind_of_names(tmp_path: Path) -> None:
    der = Authority(tmp_path).client(subject="CN=x,O=y", emails=["a@e.com"], uris=["u:x"]).der
    for index in range(len(der)):
        damaged = bytearray(der)
        damaged[index] ^= 0x55
        names = read_names(bytes(damaged))
        assert names is None or isinstance(names.emails, tuple)


def test_values_that_are_not_text_are_no_part_of_a_name(authority: Authority) -> None:
    odd = x509.Name(
        [
            x509.NameAttribute(OIDS["CN"], "x"),
            x509.NameAttribute(
                x509.NameOID.X500_UNIQUE_IDENTIFIER, b"\1\2", x509.name._ASN1Type.BitString
            ),
        ]
    )
    der = authority.client(subject=odd).der
    assert find(["CN=x"], der) == "CN=x"


names = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["CN", "OU", "O", "DC"]), st.text('ab ,+=\\#é"', min_size=1)),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=4,
)


def spell(parts: list[list[tuple[str, str]]]) -> str:
    def escaped(value: str) -> str:
        return "".join("\\" + char if char in ' "#+,;<=>\\' else char for char in value)

    return ",".join("+".join(f"{kind}={escaped(value)}" for kind, value in part) for part in parts)


@given(names)
def test_every_spelt_name_is_read_back(parts: list[list[tuple[str, str]]]) -> None:
    expected = tuple(
        tuple(sorted((kind, value.encode()) for kind, value in part)) for part in parts
    )
    assert parse_name(spell(parts)) == expected


@pytest.mark.slow
@given(names, names)
def test_names_match_in_any_order_only_when_their_parts_are_the_same(
    one: list[list[tuple[str, str]]], other: list[list[tuple[str, str]]]
) -> None:
    first, second = parse_name(spell(one)), parse_name(spell(other))
    assert first is not None
    assert second is not None
    same = sorted(map(sorted, one)) == sorted(map(sorted, other))
    assert (reordered(first) == reordered(second)) == same
    shuffled = parse_name(spell([part[::-1] for part in reversed(one)]))
    assert shuffled is not None
    assert reordered(shuffled) == reordered(first)


@given(st.text('CNO=,+\\# "ab5', max_size=30))
@example("")
@example("CN=")
@example("CN=a=b")
@example("\ud800=x")
def test_no_text_makes_the_parser_raise_or_name_nobody(text: str) -> None:
    name = parse_name(text)
    assert name is None or (name and all(name))
