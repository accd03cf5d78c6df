"""Which addresses a server listens on, and how those of IPv6 peers are shown."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from helpers_client import connected
from helpers_operators import JwtClient
from websockets.sync.client import connect as connect_websocket

from harness import RawClient, ServerProcess, StartServer, wait_for
from jwt_kit import account_jwt, account_key, memory_configuration, user_jwt, user_key
from leaf_kit import RawLeaf
from ports import free_ports
from tradewind.interfaces import public_ips

LOOPBACKS = ("127.0.0.1", "::1")
WILDCARDS = ("0.0.0.0", "::")
# A machine without a network has none; then a wildcard is no address that others reach.
PUBLIC = public_ips(both_families=True)
ACCOUNT, USER = account_key(1), user_key(1)


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def page(host: str, port: int, path: str) -> Any:
    with urlopen(f"http://{bracketed(host)}:{port}{path}") as answer:
        return json.load(answer)


def is_refused(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        return probe.connect_ex((host, port)) != 0


@pytest.mark.parametrize("host", ["", *WILDCARDS])
def test_wildcard_serves_both_families_on_every_listener(start: StartServer, host: str) -> None:
    http, websocket, leaf = free_ports(3)
    own = f'host: "{host}"\n' if host else ""
    server = start(
        f'{own}http: "{bracketed(host or "0.0.0.0")}:{http}"\n'
        f"websocket: {{ {own} port: {websocket}\n no_tls: true }}\n"
        f"leafnodes: {{ {own} port: {leaf} }}\n",
        "-p",
        "-1",
    )
    shown = bracketed(host or "0.0.0.0")
    for what in ("client connections", "leafnode connections"):
        server.wait_for_log(rf"Listening for {what} on {shown.replace('[', '.')}".replace("]", "."))
    for peer in LOOPBACKS:
        with RawClient(server.port, peer) as client:
            assert client.info["client_ip"] == peer
            assert client.info["host"] == (host or "0.0.0.0")
            client.connect(name=f"by {peer}")
            listed = page(peer, http, "/connz")["connections"]
            assert [(one["ip"], one["name"]) for one in listed] == [(peer, f"by {peer}")]
        wait_for(lambda: not page("::1", http, "/connz")["connections"], "the end of the client")
        with connect_websocket(f"ws://{bracketed(peer)}:{websocket}") as browser:
            info = json.loads(bytes(browser.recv())[5:])  # type: ignore[arg-type]
            assert info["client_ip"] == peer
        with RawLeaf(leaf, peer) as other:
            assert other.info["port"] == leaf


@pytest.mark.parametrize("host", LOOPBACKS)
def test_address_stands_for_itself(start: StartServer, host: str) -> None:
    other = LOOPBACKS[host == LOOPBACKS[0]]
    server = start(f'host: "{host}"\n', "-p", "-1")
    server.wait_for_log(rf"Listening for client connections on \[?{host}\]?:{server.port}")
    with RawClient(server.port, host) as client:
        assert client.info["host"] == host
    assert is_refused(other, server.port)


def test_ports_file_lists_the_addresses_of_both_families(
    start: StartServer, tmp_path: Path
) -> None:
    folder = tmp_path / "ports"
    folder.mkdir()
    (http,) = free_ports(1)
    config = f'host: "0.0.0.0"\nhttp: "0.0.0.0:{http}"\nports_file_dir: "{folder}"\n'
    server = start(config, "-p", "-1")

    def written() -> Any:
        """What the file says, once all of it is there: nats-server writes it in place."""
        try:
            return json.loads(next(folder.glob("*.ports")).read_text())
        except (StopIteration, json.JSONDecodeError):
            return None

    ports = wait_for(written, "the ports file")
    for host in LOOPBACKS:
        assert f"nats://{bracketed(host)}:{server.port}" in ports["nats"]
        assert f"http://{bracketed(host)}:{http}" in ports["monitoring"]
    for kind in ports:
        assert not any("0.0.0.0" in url or "[::]" in url for url in ports[kind])


def test_ipv6_peer_is_in_brackets_in_the_log(start: StartServer) -> None:
    server = start('host: "::"\n', "-p", "-1", "-D")
    for peer, shown in (("::1", r"\[::1\]"), ("127.0.0.1", r"127\.0\.0\.1")):
        with RawClient(server.port, peer) as client:
            port = client.socket.getsockname()[1]
            client.connect()
            server.wait_for_log(rf"\[DBG\] {shown}:{port} - cid:\d+ - Client connection created")


# ---------------------------------------------------------------- one address, two names


@pytest.fixture
def operated(start: StartServer) -> Iterator[ServerProcess]:
    config = memory_configuration({ACCOUNT.public: account_jwt(ACCOUNT)})
    yield start(f'host: "::"\n{config}', "-p", "-1")
    JwtClient.close_all()


@pytest.mark.parametrize(
    ("source", "welcome"),
    [
        ("127.0.0.0/8", {"127.0.0.1": True, "::1": False}),
        ("::ffff:127.0.0.0/104", {"127.0.0.1": True, "::1": False}),
        ("::1/128", {"127.0.0.1": False, "::1": True}),
        ("::/0", {"127.0.0.1": False, "::1": True}),
        ("0.0.0.0/0", {"127.0.0.1": True, "::1": False}),
    ],
)
def test_networks_of_a_user_hold_for_a_socket_of_both_families(
    operated: ServerProcess, source: str, welcome: dict[str, bool]
) -> None:
    token = user_jwt(USER, ACCOUNT, src=[source])
    for host, is_welcome in welcome.items():
        client = JwtClient(operated, token, USER, host=host)
        wanted = b"PONG" if is_welcome else b"-ERR 'Authorization Violation'"
        assert client.read_line() == wanted


async def test_client_connects_to_an_ipv6_url(start: StartServer) -> None:
    server = start('host: "::1"\n', "-p", "-1")
    async with connected(f"nats://[::1]:{server.port}") as connection:
        assert connection.info.client_ip == "::1"


@pytest.mark.parametrize("host", [*(WILDCARDS if PUBLIC else ()), *LOOPBACKS])
@pytest.mark.parametrize("advertise", ["", "[fd00::9]:99", "hub.example"])
def test_leaf_nodes_are_told_an_address_that_they_can_reach(
    start: StartServer, host: str, advertise: str
) -> None:
    (port,) = free_ports(1)
    named = f'advertise: "{advertise}"\n' if advertise else ""
    start(f'leafnodes: {{ host: "{host}", port: {port}\n{named} }}\n')
    with RawLeaf(port, "::1" if host == "::1" else "127.0.0.1") as leaf:
        info = leaf.info
    own = PUBLIC[0] if host in WILDCARDS else host
    places = {"": (own, port), "[fd00::9]:99": ("fd00::9", 99), "hub.example": (advertise, port)}
    shown, wanted = places[advertise]
    assert (info["host"], info["port"]) == (shown, wanted)
    assert info["leafnode_urls"] == [f"{bracketed(shown)}:{wanted}"]
    assert info["ip"] == f"{bracketed(shown)}:{wanted}"


def test_ipv4_address_in_ipv6_is_one_of_ipv4(start: StartServer) -> None:
    server = start('host: "::ffff:127.0.0.1"\n', "-p", "-1")
    with RawClient(server.port) as client:
        assert client.info["host"] == "::ffff:127.0.0.1"
        assert client.info["client_ip"] == "127.0.0.1"
    assert is_refused("::1", server.port)


@pytest.mark.parametrize(
    ("advertise", "host", "port"),
    [
        ("a.example", "a.example", 0),
        ("a.example:0", "a.example", 0),
        ("a.example:80", "a.example", 80),
        ("[fd00::1]:80", "fd00::1", 80),
    ],
)
def test_advertised_address_of_clients(
    start: StartServer, advertise: str, host: str, port: int
) -> None:
    server = start(f'client_advertise: "{advertise}"\n')
    with RawClient(server.port) as client:
        assert (client.info["host"], client.info["port"]) == (host, port or server.port)
