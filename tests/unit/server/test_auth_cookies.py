"""Credentials from cookies; every expectation was seen on the official server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.broker.identity import Credentials
from tradewind.options import WebsocketOptions
from tradewind.server.auth.cookies import credentials_from_cookies, parse_cookies

OPTIONS = WebsocketOptions(user_cookie="u", pass_cookie="pw", token_cookie="tok", jwt_cookie="j")


@pytest.mark.parametrize(
    ("header", "user", "password"),
    [
        ("u=a; pw=p", "a", "p"),
        ("u=a;pw=p", "a", "p"),
        ("\tu=a ;  pw=p\t", "a", "p"),
        ('u="a"; pw="p"', "a", "p"),
        ("u=x; u=a; pw=p", "a", "p"),
        ("u=a; u=; pw=p", "", "p"),
        ("bad; u=a; pw=p; x y=z", "a", "p"),
        ("u=a b; pw=a,b", "a b", "a,b"),
        ("u=a=b; pw==", "a=b", "="),
        ("u=%61; pw=p", "%61", "p"),
        ("U=a; PW=p", "", ""),
        ("u =a; pw=p", "", "p"),
        ("u=é; pw=p", "", "p"),
        ('u="a; pw=p"', "", ""),
        ("u=a\\b; pw=p\x7f", "", ""),
        ('u="; pw=""', "", ""),
        ("", "", ""),
        (";;=;u", "", ""),
    ],
)
def test_cookies_are_read_as_the_official_server_reads_them(
    header: str, user: str, password: str
) -> None:
    found = credentials_from_cookies(OPTIONS, parse_cookies([header]), Credentials())
    assert (found.user, found.password, found.token, found.jwt) == (user, password, "", "")


def test_what_connect_gave_wins_field_by_field() -> None:
    sent = Credentials(user="own", token="t", nkey="N", nonce=b"1", connection_type="WEBSOCKET")
    found = credentials_from_cookies(
        OPTIONS, parse_cookies(["u=cookie; pw=p; tok=cookie; j=jwt"]), sent
    )
    assert found == Credentials(
        user="own",
        password="p",
        token="t",
        jwt="jwt",
        nkey="N",
        nonce=b"1",
        connection_type="WEBSOCKET",
    )
    assert sent.password == ""


def test_cookies_that_are_not_configured_mean_nothing() -> None:
    sent = Credentials()
    assert (
        credentials_from_cookies(WebsocketOptions(), parse_cookies(["u=a; =x; tok=t"]), sent)
        == Credentials()
    )


@given(st.text())
def test_no_header_raises(header: str) -> None:
    found = credentials_from_cookies(OPTIONS, parse_cookies([header]), Credentials())
    assert ";" not in found.user
