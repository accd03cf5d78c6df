"""Passwords and tokens: plain and bcrypt, with every input that has tripped such code."""

from __future__ import annotations

import bcrypt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tradewind.options import Secret
from tradewind.server.auth.passwords import is_hashed, matches_hash, matches_plain


def hashed(password: bytes) -> Secret:
    return Secret(bcrypt.hashpw(password, bcrypt.gensalt(4)).decode())


@given(st.text(max_size=20), st.text(max_size=20))
@example("", "")
@example("a", "a\0")
@example("é", "e\u0301")
@example("\ud800", "\ud800")
def test_plain_secrets_match_only_themselves(configured: str, presented: str) -> None:
    assert matches_plain(Secret(configured), presented) == (configured == presented)


@pytest.mark.parametrize("prefix", ["$2a$", "$2b$", "$2x$", "$2y$"])
def test_every_bcrypt_prefix_is_a_hash_and_matches(prefix: str) -> None:
    secret = Secret(prefix + hashed(b"s3cret").reveal()[4:])
    assert is_hashed(secret)
    assert matches_hash(secret, "s3cret")
    assert not matches_hash(secret, "s3cret ")
    assert not matches_hash(secret, "")
    assert not matches_hash(secret, secret.reveal())


@pytest.mark.parametrize(
    "text", ["", "$", "$2a$", "2a$10$", "$2c$10$x", "$2a$1$x", " $2a$10$x", "$2a$\u0661\u0660$"]
)
def test_other_texts_are_plain(text: str) -> None:
    assert not is_hashed(Secret(text))


@pytest.mark.parametrize(
    "text",
    [
        "$2a$04$",
        "$2a$04$short",
        "$2a$99$x5/gQ9MaLiwrXtLDeWcfqOiIW31DhtdIwuMEfUO2FlCKR6ds9j8f.",
        "$2a$00$x5/gQ9MaLiwrXtLDeWcfqOiIW31DhtdIwuMEfUO2FlCKR6ds9j8f.",
        "$2a$04$" + "!" * 53,
        "$2a$04$x5/gQ9MaLiwrXtLDeWcfqOiIW31DhtdIwuMEfUO2FlCKR6ds9j8f.tail",
        "$2a$04$\0",
        "$2a$04$é",
    ],
)
def test_a_broken_hash_matches_nothing_not_even_its_own_text(text: str) -> None:
    assert is_hashed(Secret(text))
    assert not matches_hash(Secret(text), text)
    assert not matches_hash(Secret(text), "")
    assert not matches_hash(Secret(text), "s3cret")


def test_bcrypt_counts_72_bytes_as_on_the_official_server() -> None:
    secret = hashed(b"x" * 72)
    assert matches_hash(secret, "x" * 72)
    assert matches_hash(secret, "x" * 72 + "tail")
    assert not matches_hash(secret, "x" * 71)
    assert matches_hash(hashed("é".encode() * 36), "é" * 40)


def test_a_nul_byte_is_a_byte_like_any_other() -> None:
    secret = hashed(b"a\0b")
    assert matches_hash(secret, "a\0b")
    assert not matches_hash(secret, "a")
    assert not matches_hash(secret, "a\0c")


@pytest.mark.slow
@given(st.text(max_size=100))
@example("\udfff" * 30)
@example("\0" * 100)
def test_no_password_makes_the_check_raise(password: str) -> None:
    secret = Secret("$2b$04$x5/gQ9MaLiwrXtLDeWcfqOiIW31DhtdIwuMEfUO2FlCKR6ds9j8f.")
    assert matches_hash(secret, password) == (password == "p")


def test_an_empty_password_can_be_hashed() -> None:
    assert matches_hash(hashed(b""), "")
    assert not matches_hash(hashed(b""), "x")
