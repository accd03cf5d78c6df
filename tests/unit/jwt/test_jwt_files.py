"""JWTs and seeds as they lie in files."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jwt_kit import account_key, user_jwt, user_key
from tradewind.client.core.credentials import parse_credentials
from tradewind.client.errors import CredentialsError
from tradewind.jwt import JwtError
from tradewind.jwt.claim_files import credentials, decorated, read_token

TOKEN = user_jwt(user_key(1), account_key(1))


def test_a_decorated_file_is_read_back() -> None:
    for kind in ("operator", "account", "user"):
        assert read_token(decorated(kind, TOKEN)) == TOKEN


def test_a_bare_file_is_read_with_blanks_around() -> None:
    assert read_token(f"\n  {TOKEN}\r\n") == TOKEN


def test_credentials_are_what_the_client_reads() -> None:
    text = credentials(TOKEN, user_key(1).seed)
    assert parse_credentials(text) == (TOKEN, user_key(1).seed)
    assert read_token(text) == TOKEN


@pytest.mark.parametrize("text", ["", "SUAB", "eyJ x", "-----BEGIN NATS USER JWT-----\n"])
def test_a_file_without_a_token_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(JwtError, match="there is no JWT") as caught:
        read_token(text)
    assert not text.strip() or text not in str(caught.value)


def test_a_missing_block_is_named() -> None:
    with pytest.raises(CredentialsError, match="BEGIN USER NKEY SEED"):
        parse_credentials(decorated("user", TOKEN))
    with pytest.raises(CredentialsError, match="BEGIN NATS USER JWT"):
        parse_credentials("nothing")


@given(st.text(max_size=300))
def test_files_of_any_kind_are_read_or_refused(text: str) -> None:
    with suppress(JwtError):
        read_token(text)
    with suppress(CredentialsError):
        parse_credentials(text)
