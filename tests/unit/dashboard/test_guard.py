"""Which requests are refused before anything else looks at them."""

from __future__ import annotations

import pytest

from tradewind.dashboard.web.guard import Policy, host_name, judge

OWN = {"host": "127.0.0.1:8280"}
LOCAL = Policy()


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8280", "localhost", "LOCALHOST:1", "[::1]:8280", "10.1.2.3"]
)
def test_own_names_and_addresses_in_numbers_are_answered(host: str) -> None:
    assert judge("GET", {"host": host}, LOCAL) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example:8280",
        "127.0.0.1.evil.example",
        "a@localhost",
        "localhost:x",
        "localhost/x",
        "localhost?x",
        "[::1",
        "0x7f.1",
    ],
)
def test_a_name_that_was_made_to_lead_here_is_refused(host: str) -> None:
    refusal = judge("GET", {"host": host}, LOCAL)
    assert refusal is not None
    assert refusal.status == 421


def test_further_names_are_answered_when_they_are_allowed() -> None:
    policy = Policy(frozenset({"nats.example"}))
    assert judge("GET", {"host": "NATS.example:8280"}, policy) is None
    assert judge("GET", {"host": "localhost"}, policy) is not None


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:8280"},
        {"origin": "http://127.0.0.1:8281"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_changes_from_other_pages_are_refused(method: str, headers: dict[str, str]) -> None:
    refusal = judge(method, OWN | headers, LOCAL)
    assert refusal is not None
    assert refusal.status == 403


def test_changes_from_own_pages_pass() -> None:
    headers = OWN | {"origin": "http://127.0.0.1:8280", "sec-fetch-site": "same-origin"}
    assert judge("POST", headers, LOCAL) is None


def test_other_sites_may_link_but_neither_fetch_nor_embed() -> None:
    link = OWN | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert judge("GET", link, LOCAL) is None
    assert judge("GET", link | {"sec-fetch-mode": "no-cors"}, LOCAL) is not None
    assert judge("GET", link | {"sec-fetch-dest": "iframe"}, LOCAL) is not None
    assert judge("GET", OWN | {"origin": "http://evil.example"}, LOCAL) is not None


@pytest.mark.parametrize("method", ["DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH"])
def test_methods_that_mean_nothing_are_refused(method: str) -> None:
    refusal = judge(method, OWN, LOCAL)
    assert refusal is not None
    assert refusal.status == 405


def test_the_name_is_read_without_its_port() -> None:
    assert host_name("[::1]:80") == "::1"
    assert host_name("a:80") == "a"
    assert host_name("a:80:80") == ""
