"""URLs of hubs, as people write them."""

from __future__ import annotations

import pytest

from tradewind.client.errors import OptionsError
from tradewind.server.config.leaf_urls import leaf_address


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port"),
    [
        ("nats-leaf://hub", "nats", "hub", 7422),
        ("leaf://hub:1", "nats", "hub", 1),
        ("foo://u:p@hub", "nats", "hub", 7422),
        ("//hub:2", "nats", "hub", 2),
        ("hub:3", "nats", "hub", 3),
        ("hub", "nats", "hub", 7422),
        ("10.0.0.1", "nats", "10.0.0.1", 7422),
        ("[::1]", "nats", "::1", 7422),
        ("nats://u:p@[::1]:5", "nats", "::1", 5),
        ("TLS://hub", "tls", "hub", 7422),
        ("ws://hub", "ws", "hub", 80),
        ("wss://hub/path", "wss", "hub", 443),
    ],
)
def test_only_the_schemes_of_tls_and_websocket_have_a_meaning(
    url: str, scheme: str, host: str, port: int
) -> None:
    address = leaf_address(url)
    assert (address.scheme, address.host, address.port) == (scheme, host, port)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "has no host"),
        ("leaf://", "has no host"),
        ("leaf://:7422", "has no host"),
        ("hub:99999", "must be a number up to 65535"),
        ("foo:bar", "must be a number"),
        ("nats://a..b:7422", "must have 1 to 63 characters"),
        (f"nats://{'a' * 64}.b", "must have 1 to 63 characters"),
        (f"nats://{chr(0xFC) * 64}.b", "must have 1 to 63 characters"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused(url: str, problem: str) -> None:
    with pytest.raises(OptionsError, match=problem):
        leaf_address(url)
