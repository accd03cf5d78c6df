"""Listening on machines with and without IPv6, and the addresses that others are told."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tradewind import interfaces, own_addresses
from tradewind.broker.room import source_of
from tradewind.errors import ServerStartError
from tradewind.interfaces import public_places, reachable_urls
from tradewind.options import ServerOptions
from tradewind.own_addresses import is_host, is_wildcard, listen_on, plain_ip
from tradewind.server.lifecycle.flags import merge, parse_flags
from tradewind.server.links.listener import bind

V4, V6 = socket.AF_INET, socket.AF_INET6


@contextmanager
def listening(host: str, port: int = -1) -> Iterator[list[socket.socket]]:
    sockets = listen_on(host, port, 8)
    try:
        yield sockets
    finally:
        for one in sockets:
            one.close()


class WithoutIpv6(socket.socket):
    """A socket of a machine whose kernel has no IPv6, or has it switched off."""

    code = errno.EAFNOSUPPORT

    def __init__(self, family: int = V4, *arguments: Any, **more: Any) -> None:
        if family == V6 and self.code != errno.EADDRNOTAVAIL:
            raise OSError(self.code, "no IPv6")
        super().__init__(family, *arguments, **more)

    def bind(self, address: Any) -> None:
        if self.family == V6:
            raise OSError(self.code, "no IPv6")
        super().bind(address)


@pytest.fixture(params=[errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.ENOPROTOOPT])
def _no_ipv6(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("Without", (WithoutIpv6,), {"code": request.param})
    monkeypatch.setattr(own_addresses.socket, "socket", kind)


ALL_ADDRESSES = ["", "0.0.0.0", "::", "::0", "0:0:0:0:0:0:0:0", "0", "0.0", "*", "::ffff:0.0.0.0"]


@pytest.mark.parametrize("host", ALL_ADDRESSES)
def test_wildcard_is_one_socket_for_both_families(host: str) -> None:
    with listening(host) as sockets:
        (only,) = sockets
        assert only.family == V6
        assert not only.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)


@pytest.mark.parametrize("host", ALL_ADDRESSES)
def test_wildcard_of_any_name_keeps_monitoring_on_loopback(host: str) -> None:
    merged = merge(ServerOptions(host=host), parse_flags(["-m", "8222"]))
    assert merged.http_host == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "localhost", "0.example"])
def test_other_hosts_are_no_wildcards(host: str) -> None:
    assert not is_wildcard(host)


@pytest.mark.parametrize("host", ["::ffff:127.0.0.1", "::ffff:7f00:1"])
def test_ipv4_address_in_ipv6_is_one_of_ipv4(host: str) -> None:
    with listening(host) as sockets:
        assert [one.getsockname()[0] for one in sockets] == ["127.0.0.1"]


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
@pytest.mark.usefixtures("_no_ipv6")
def test_wildcard_without_ipv6_is_ipv4(host: str) -> None:
    with listening(host) as sockets:
        assert [one.family for one in sockets] == [V4]
        urls = reachable_urls(sockets, "nats")
    assert urls[0].startswith("nats://127.0.0.1:")
    assert not any("[" in url for url in urls)


@pytest.mark.usefixtures("_no_ipv6")
def test_name_without_its_ipv6_address_is_served_by_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_addresses.socket, "getaddrinfo", both_loopbacks)
    with listening("localhost") as sockets:
        assert [one.family for one in sockets] == [V4]


@pytest.mark.usefixtures("_no_ipv6")
def test_ipv6_address_without_ipv6_is_an_error() -> None:
    with pytest.raises(OSError, match="no IPv6"):
        listen_on("::1", -1, 8)


def both_loopbacks(_host: str, port: int, **_more: object) -> list[Any]:
    kind = socket.SOCK_STREAM
    return [(V6, kind, 6, "", ("::1", port, 0, 0)), (V4, kind, 6, "", ("127.0.0.1", port))]


def test_all_addresses_of_a_name_have_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_addresses.socket, "getaddrinfo", both_loopbacks)
    with listening("localhost") as sockets:
        assert [one.family for one in sockets] == [V6, V4]
        assert len({one.getsockname()[1] for one in sockets}) == 1


def test_taken_port_closes_what_was_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_addresses.socket, "getaddrinfo", both_loopbacks)
    with socket.socket(V4) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            listen_on("localhost", port, 8)
    with listening("::1", port):
        pass  # the other address is free again


def test_address_of_a_socket_of_both_families_is_shown_as_ipv4() -> None:
    assert plain_ip("::ffff:1.2.3.4") == plain_ip("1.2.3.4") == "1.2.3.4"
    assert plain_ip("::1") == "::1"


def test_one_source_has_one_name() -> None:
    assert source_of("::ffff:1.2.3.4") == source_of("::FFFF:102:304") == source_of("1.2.3.4")
    assert source_of("::ffff:1.2.3.4") != source_of("::ffff:1.2.3.5")
    assert source_of("fd00::1") == source_of("fd00::2") != source_of("fd00:0:0:1::1")


def test_other_machines_are_told_neither_loopback_nor_link_local(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ips = ["127.0.0.1", "::1", "10.0.0.7", "169.254.1.1", "fd00::2", "fe80::1"]
    monkeypatch.setattr(interfaces, "interface_ips", lambda: ips)
    both = public_places("0.0.0.0", 4222, both_families=True)
    assert both == ["10.0.0.7:4222", "[fd00::2]:4222"]
    assert public_places("::", 4222, both_families=False) == ["10.0.0.7:4222"]
    assert public_places("::1", 4222, both_families=True) == ["[::1]:4222"]


def test_interfaces_have_loopback_first() -> None:
    assert interfaces.interface_ips()[0] in ("127.0.0.1", "::1")


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64, "\u00fc..b", "\u00fc" * 64, "a\0b"])
def test_host_that_is_no_name_is_not_found(host: str) -> None:
    with pytest.raises(ServerStartError, match="no such host"):
        bind(host, -1)
    assert not is_wildcard(host)


def test_host_names_may_end_with_a_dot() -> None:
    assert all(map(is_host, ("localhost.", "a" * 63, "b\u00fccher.example", "::1", "fe80::1%lo")))
